"""What our client gives at a server of dm-reverb beyond single calls: loaders, timeouts, commands, and reconnects."""

import concurrent.futures
import itertools
import logging
import pickle
import subprocess
import sys
import time

import numpy as np
import pytest
from matrix_processes import PATIENCE_S, eventually, table

import reverb

pytestmark = [pytest.mark.reference, pytest.mark.timeout(3 * PATIENCE_S)]

COMMAND = [sys.executable, "-c", "from reverb.cli import main; main()"]
TABLES = (table("once", max_times_sampled=1), table("uniform", ["uniform"]))


@pytest.fixture
def server(processes):
    port = processes.servers["reference"].call("serve", name="calls", tables=TABLES)
    yield f"localhost:{port}"
    processes.servers["reference"].call("stop", name="calls")


def insert(processes, address, values, to):
    processes.clients["reference"].call("insert", address=address, values=list(values), priorities={to: 1.0})


def numbers(data):
    return np.ravel(data[0] if isinstance(data, list) else data).tolist()


def test_a_loader_that_draws_ahead_gives_each_item_of_a_queue_once_and_in_order(processes, server):
    insert(processes, server, range(60), "once")
    with reverb.loaders.NumpyLoader(server, "once", batch_size=4, prefetch=8) as loader:
        batches = [numbers(batch.data) for batch in itertools.islice(loader, 15)]
    assert list(itertools.chain.from_iterable(batches)) == list(range(60))


def test_a_loader_learns_priorities_of_a_table(processes, server):
    insert(processes, server, range(20), "uniform")
    with reverb.loaders.NumpyLoader(server, "uniform", batch_size=32) as loader:
        batch = next(iter(loader))
        loader.update_priorities(batch, np.arange(32.0))
    assert set(numbers(batch.data)) <= set(range(20))
    assert (batch.info.table_size == 20).all()


def test_a_draw_with_a_timeout_gets_what_is_there_or_an_error(processes, server):
    client = pickle.loads(pickle.dumps(reverb.Client(server)))
    insert(processes, server, range(3), "once")
    batch = client.sample_batch("once", 5, timeout=2)
    assert numbers(batch.data) == [0, 1, 2]
    with pytest.raises(reverb.errors.DeadlineExceededError, match="Rate Limiter: Timeout exceeded"):
        client.sample_batch("once", 1, timeout=0)
    assert client.road == "tcp (dm-reverb)"
    # Nothing waits at the table that would take the next item.
    insert(processes, server, [3], "once")
    assert numbers(client.sample_batch("once", 1, timeout=PATIENCE_S).data) == [3]


def test_the_largest_priority_is_that_which_this_process_has_set_and_one_warning_says_so(server, caplog):
    client = reverb.Client(server)

    def write(priority):
        client.insert(np.int64(0), {"once": priority})
        with client.trajectory_writer(1) as writer:
            writer.append(np.int64(0))
            writer.create_item("once", priority, writer.history[-1:])
        return [sample.info.priority for sample in client.sample("once", 2, emit_timesteps=False)]

    with caplog.at_level("WARNING", "reverb"):
        assert write("max") == [1.0, 1.0]
        assert write(3.0) == [3.0, 3.0]
        assert write("max") == [3.0, 3.0]
        client.update_priorities("once", [1], [40.0])
        client = reverb.Client(server)
        assert write("max") == [40.0, 40.0]
        eventually(lambda: 'priority "max"' in caplog.text)
    assert len([record for record in caplog.records if 'priority "max"' in record.getMessage()]) == 1


@pytest.mark.slow
def test_a_long_wait_of_draws_is_logged_once_with_its_reason_and_its_end(processes, server, caplog):
    client = reverb.Client(server)
    # Two threads that connect at the same time have a connection each.
    client.server_info()

    def messages():
        return [record.getMessage() for record in caplog.records if record.name == "reverb"]

    with caplog.at_level(logging.INFO, logger="reverb"), concurrent.futures.ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(client.sample_batch, "uniform", 1, timeout=PATIENCE_S) for _ in range(2)]
        time.sleep(13)
        [reason] = messages()
        assert reason.startswith("sample of table `uniform` waits: the table is empty")
        insert(processes, server, [1], "uniform")
        assert [numbers(one.result().data) for one in waiting] == [[1], [1]]
        time.sleep(0.5)
    [_, end] = messages()
    assert end.startswith("sample of table `uniform` goes on after 1")


def test_commands_show_the_tables_and_refuse_what_the_protocol_lacks(processes, server):
    insert(processes, server, range(3), "uniform")
    run = {"capture_output": True, "text": True, "timeout": PATIENCE_S, "check": False}
    shown = subprocess.run([*COMMAND, "info", server], **run)
    assert shown.returncode == 0, shown.stderr
    assert "uniform" in shown.stdout
    refused = subprocess.run([*COMMAND, "peek", server, "uniform"], **run)
    assert refused.returncode != 0
    assert "one of dm-reverb 0.14" in refused.stderr + refused.stdout


def test_a_client_finds_the_next_server_at_its_address(processes, server):
    client = reverb.Client(server)
    insert(processes, server, [1], "uniform")
    assert numbers(client.sample_batch("uniform", 1).data) == [1]
    serving = processes.servers["reference"]
    serving.call("stop", name="calls")
    serving.call("serve", name="calls", tables=TABLES, port=int(server.rpartition(":")[2]))
    drawn = itertools.islice(client.sample("uniform", 1, timeout=PATIENCE_S), 1)
    fresh = reverb.Client(server)
    fresh.server_info(timeout=PATIENCE_S)
    fresh.insert(np.int64(2), {"uniform": 1.0})
    assert [numbers(item[0].data) for item in drawn] == [[2]]
