"""A client of two servers spreads its streams as dm-reverb's does, also if one of the servers is dm-reverb's."""

import contextlib
import os
import subprocess

import numpy as np
import pytest
from both_sides import answer_of, python_of

import reverb

pytestmark = [pytest.mark.reference, pytest.mark.timeout(200)]

# A server with items of which each is its own priority. Ends when its stdin does.
SERVER = """
import socket, sys
import numpy as np
import reverb

with socket.socket() as probe:
    probe.bind(("", 0))
    port = probe.getsockname()[1]
table = reverb.Table("table", reverb.selectors.Prioritized(1.0), reverb.selectors.Fifo(), 100,
                     reverb.rate_limiters.MinSize(1))
server = reverb.Server([table], port)
client = reverb.Client(f"localhost:{port}")
for value in sys.argv[1:]:
    client.insert(np.float32(value), {"table": float(value)})
print(port, flush=True)
sys.stdin.read()
server.stop()
"""


@contextlib.contextmanager
def serve(side, *values):
    """Runs a server of a side with these items. Gives its port."""
    environment = {name: value for name, value in os.environ.items() if side == "ours" or name != "PYTHONPATH"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    arguments = [python_of(side), "-c", SERVER, *map(str, values)]
    with subprocess.Popen(arguments, env=environment, **pipes) as server:
        try:
            yield int(server.stdout.readline())
        finally:
            server.kill()


def test_streams_spread_over_the_servers_as_in_the_reference():
    ours = answer_of("ours", "address_driver.py", None)
    assert ours["inserts"] == [5, 5]
    assert ours["writers"][-1] == [6, 6]
    assert ours == answer_of("reference", "address_driver.py", None)


def test_a_list_may_have_servers_of_both_packages():
    with serve("reference", 1, 2) as old, serve("ours", 3, 4, 5) as new:
        client = reverb.Client(f"ipv4:127.0.0.1:{old},127.0.0.1:{new}")
        info = client.server_info()["table"]
        assert (info.current_size, info.max_size) == (5, 200)
        assert client.road == "tcp (2 servers, 1 of dm-reverb)"
        drawn = [set(client.sample_batch("table", 50).info.priority.tolist()) for _ in range(4)]
        assert sum(values <= {1.0, 2.0} for values in drawn) == sum(values <= {3.0, 4.0, 5.0} for values in drawn) == 2
        keys = {
            float(priority): int(key)
            for _ in range(4)
            for batch in [client.sample_batch("table", 100).info]
            for key, priority in zip(batch.key, batch.priority, strict=True)
        }
        client.update_priorities("table", np.array([keys[1.0], keys[5.0]], np.uint64), 70.0)
        drawn = [client.sample_batch("table", 100).info.priority for _ in range(2)]
        assert all(70.0 in priorities for priorities in drawn)
        client.reset("table")
        assert client.server_info()["table"].current_size == 0
        with pytest.raises(reverb.errors.ReverbError, match=f"dm-reverb 0.14.*127.0.0.1:{old}"):
            client.engine.peek("table", 1, True, 10.0)


def test_streams_spread_over_servers_of_both_packages():
    with serve("reference", 1) as old, serve("ours", 1) as new:
        client = reverb.Client(f"ipv4:127.0.0.1:{old},127.0.0.1:{new}")
        clients = [reverb.Client(f"ipv4:127.0.0.1:{port}") for port in (old, new)]
        for number in range(6):
            client.insert(np.float32(number), {"table": 1.0})
        sizes = [each.server_info()["table"].current_size for each in clients]
        assert sizes == [4, 4]
        for _ in range(2):
            with client.trajectory_writer(1) as writer:
                for number in range(5):
                    writer.append(np.float32(number))
                    writer.create_item("table", 1.0, writer.history[-1:])
        assert [each.server_info()["table"].current_size for each in clients] == [9, 9]


def test_a_server_of_dm_reverb_that_two_addresses_reach_counts_once():
    with serve("reference", 1, 2) as port:
        client = reverb.Client(f"ipv4:127.0.0.1:{port},127.0.0.2:{port}")
        assert client.server_info()["table"].current_size == 2
        assert client.road == "tcp (dm-reverb)"
