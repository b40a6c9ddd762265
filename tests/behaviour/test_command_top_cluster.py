"""`reverb top` of a cluster, run in a separate process beside its shards."""

import contextlib
import itertools
import os
import re
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
from behaviour_support import Background, eventually, make_table
from cluster_support import ShardProcesses, prioritized_table
from terminal_support import Terminal
from token_support import token_of, write_tokens

import reverb
from reverb import rate_limiters
from reverb.cluster import Shard

pytest.importorskip("typer", reason="the extra `cli` is not installed")
pytest.importorskip("rich", reason="the extra `cli` is not installed")

from reverb.cli.cluster_observing import ClusterObserver
from reverb.data.cluster_options import ClusterOptions
from reverb.data.endpoint import Endpoint

COMMAND = [sys.executable, "-c", "from reverb.cli import main; main()"]
NOBODY = "localhost:1"


def run(*arguments):
    inherited = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    command = [*COMMAND, "top", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=inherited)


def rows(screen, table="table"):
    """The items of a table by the label of the shard, in the order of the screen."""
    return dict(re.findall(rf"^{table} +(all|\d+) .*?(\S+/\S+) ", screen, re.MULTILINE))


def lines_of(screen, process):
    """The lines about a process among the busiest clients."""
    clients = screen.partition("busiest clients")[2]
    return [line for line in clients.splitlines() if f":{process})" in line]


def local(*ports):
    return ",".join(f"localhost:{port}" for port in ports)


def observer_of(address):
    return ClusterObserver(Endpoint(address, cluster=ClusterOptions()))


@contextlib.contextmanager
def serving(*ids, tables=lambda: [prioritized_table()], **options):
    """Shards with these ids in this process, and the address of their cluster."""
    servers = [reverb.Server(tables(), shard=Shard(number, "replay"), **options) for number in ids]
    try:
        yield servers, local(*(server.port for server in servers))
    finally:
        for server in servers:
            server.stop()


@contextlib.contextmanager
def mute_server():
    """The address of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        yield local(mute.getsockname()[1])


def insert(client, *values):
    for value in values:
        client.insert({"x": np.int64(value)}, {"table": 1.0})


def test_a_row_shows_the_sums_of_a_table_and_the_next_ones_its_shards():
    def tables():
        return [prioritized_table(), make_table("other", max_size=5)]

    with serving(3, 0, tables=tables) as ((three, zero), address):
        insert(three.localhost_client(), 1)
        insert(zero.localhost_client(), 1, 2)
        done = run(address)
        assert (done.returncode, done.stderr) == (0, "")
        assert rows(done.stdout) == {"all": "3/2,000", "0": "2/1,000", "3": "1/1,000"}
        assert list(rows(done.stdout)) == ["all", "0", "3"]
        assert rows(done.stdout, "other") == {"all": "0/10", "0": "0/5", "3": "0/5"}
        assert "2 of 2 shards" in done.stdout
        assert "pid " not in done.stdout.partition("table")[0]
        assert re.match(r"shard [03]: ", done.stdout)
        alone = run(local(zero.port)).stdout
        assert re.search(r"^table .* 2/1,000 ", alone, re.MULTILINE)
        assert "shard" not in alone


def test_rates_are_those_of_each_shard_and_their_sum():
    with serving(0, 1) as ((zero, _), address), contextlib.ExitStack() as stack:
        client = zero.localhost_client()
        client.server_info()
        is_over = False

        def insert_on():
            for value in itertools.count():
                if is_over:
                    return
                insert(client, value)
                time.sleep(0.005)

        inserting = Background(insert_on)
        stack.callback(inserting.result)
        try:
            screen = run(address).stdout
        finally:
            is_over = True
        rates = dict(re.findall(r"^table +(\w+) .*?/\S+ +\S+ +([\d.,]+) ", screen, re.MULTILINE))
        assert float(rates["0"].replace(",", "")) > 1
        assert rates["all"] == rates["0"]
        assert rates["1"] == "0.0"


def test_a_client_of_several_shards_is_one_line_with_its_sums():
    with serving(0, 1) as (_, address):
        client = reverb.cluster.connect(address)
        observer = observer_of(address)
        insert(client, 1, 2, 3, 4)
        observer.look(5.0)
        insert(client, *range(20))
        seen = observer.look(5.0)
        [table] = seen.tables
        assert all(shard["inserts_per_second"] > 0 for shard in table["shards"])
        [own] = seen.clients
        assert own["inserts_per_second"] == pytest.approx(table["inserts_per_second"])
        assert own["role"] == "writes"
        # The command itself is connected to both, too.
        with Terminal([*COMMAND, "top", address]) as terminal:
            screen = terminal.wait_for(lambda screen: lines_of(screen, terminal.process.pid) and "q quit" in screen)
            assert [len(lines_of(screen, process)) for process in (os.getpid(), terminal.process.pid)] == [1, 1]


def test_what_a_learner_waits_for_at_all_shards_is_one_line():
    def limited():
        return [prioritized_table(limiter=rate_limiters.MinSize(50))]

    with serving(0, 3, tables=limited) as ((zero, three), address):
        client = reverb.cluster.connect(address)
        insert(client, 1, 2)
        waiting = Background(client.sample_batch, "table", 4)
        observer = observer_of(address)
        eventually(lambda: [wait["at"] for wait in observer.look(5.0).waits] == [["0", "3"]])
        screen = run(address).stdout
        assert screen.count("at shards 0, 3: sample of table `table` waits: ") == 1
        assert screen.count("sample of table") == 1
        zero.stop()
        three.stop()
        with pytest.raises(reverb.ReverbError):
            waiting.result()


def test_a_lost_shard_is_named_and_the_others_stay():
    with contextlib.ExitStack() as stack:
        shards = ShardProcesses(stack, 2)
        address = local(*shards.ports.values())
        with Terminal([*COMMAND, "top", address, "--timeout", "2"]) as terminal:
            terminal.wait_for(lambda screen: "2 of 2 shards" in screen and list(rows(screen)) == ["all", "0", "1"])
            shards.kill(1)
            lost = f"shard 1 at localhost:{shards.ports[1]} is missing: connection refused"
            screen = terminal.wait_for(lambda screen: lost in screen and "q quit" in screen)
            assert list(rows(screen)) == ["all", "0"]
            assert "1 of 2 shards" in screen
            assert re.search(r"\x1b\[31mshard 1 at ", terminal.seen)
            terminal.press("p")
            terminal.wait_for(lambda screen: "PAUSED" in screen)
            terminal.press("p")
            shards.start(1)
            terminal.wait_for(lambda screen: "2 of 2 shards" in screen and list(rows(screen)) == ["all", "0", "1"])
            shards.kill(0)
            shards.kill(1)
            assert terminal.end() == 4
            terminal.check_restored()
    assert "Traceback" not in terminal.seen


def test_a_silent_shard_delays_only_the_first_look():
    timeout = 4.0
    with serving(0) as ((server,), address), mute_server() as mute:
        observer = observer_of(f"{address},{mute}")
        for is_delayed in (True, False, False):
            began = time.monotonic()
            seen = observer.look(timeout)
            assert (time.monotonic() - began > timeout / 2) == is_delayed
            assert [shard.id for shard, _ in seen.present] == [0]
            assert [shard.address for shard in seen.shards] == [f"localhost:{server.port}", mute]


def test_keys_are_obeyed_at_once_while_a_shard_is_silent():
    timeout = 6.0
    with (
        serving(0) as (_, address),
        mute_server() as mute,
        Terminal([*COMMAND, "top", f"{address},{mute}", "--timeout", str(timeout)]) as terminal,
    ):
        terminal.wait_for(lambda screen: f"{mute} is missing: " in screen and "q quit" in screen)
        # By now the silent shard is asked again.
        time.sleep(1.5)
        began = time.monotonic()
        terminal.press("q")
        assert terminal.end() == 0
        assert time.monotonic() - began < timeout / 2
        terminal.check_restored()


def test_another_shard_at_an_address_has_its_own_id():
    with serving(0, 1) as ((_, one), address):
        observer = observer_of(address)
        assert [shard.id for shard in observer.look(5.0).shards] == [0, 1]
        one.stop()
        other = reverb.Server([prioritized_table()], one.port, shard=Shard(7, "replay"))
        eventually(lambda: [shard.id for shard, _ in observer.look(5.0).present] == [0, 7])
        other.stop()


def test_no_shard_at_all_is_as_no_server():
    done = run(f"{NOBODY},localhost:2", "--timeout", "0.3")
    assert (done.returncode, done.stdout) == (4, "")
    assert re.fullmatch(r"reverb: no server at localhost:1: .*; no server at localhost:2: .*\n", done.stderr)


def test_a_server_that_is_no_shard_is_named():
    plain = reverb.Server([prioritized_table()])
    with serving(0) as (_, address):
        screen = run(f"{address},{local(plain.port)}", "--timeout", "2").stdout
        assert f"the server at localhost:{plain.port} is none; start it as a shard" in screen
        assert list(rows(screen)) == ["all", "0"]
    done = run(f"{local(plain.port)},{NOBODY}", "--timeout", "0.5")
    assert done.returncode == 1
    assert "start it as a shard" in done.stderr
    plain.stop()


def test_a_name_is_refused():
    done = run("dns:///localhost:1", "--timeout", "2")
    assert done.returncode == 1
    assert "use one of their addresses" in done.stderr


def test_each_shard_is_shown_the_token(tmp_path):
    (tmp_path / "token").write_text(token_of("operator"))
    tokens = reverb.Tokens.from_file(write_tokens(tmp_path / "tokens.toml", operator="view"))
    with serving(0, 1, tokens=tokens) as (_, address):
        shown = run(address, "--token-file", tmp_path / "token")
        assert (shown.returncode, shown.stderr) == (0, "")
        assert list(rows(shown.stdout)) == ["all", "0", "1"]
        hidden = run(address, "--timeout", "2")
        assert hidden.returncode == 1
        assert "token" in hidden.stderr
