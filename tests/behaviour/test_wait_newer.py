"""`Client.wait_newer`: a program waits for the next item of a table of one item, such as newer parameters."""

import contextlib
import signal
import time

import numpy as np
import pytest
from address_list_support import Servers
from behaviour_support import PATIENCE_S, Background, comes_true, program

import reverb
from reverb import errors

SIGNATURE = {"version": reverb.TensorSpec((), np.int64), "layers": [reverb.TensorSpec((2, 2), np.float32)] * 2}


def parameters(signature=None, **options):
    return reverb.Table(
        "parameters",
        sampler=reverb.selectors.Lifo(),
        remover=reverb.selectors.Fifo(),
        max_size=1,
        rate_limiter=reverb.rate_limiters.MinSize(1),
        signature=signature,
        **options,
    )


def publish(client, version):
    return client.insert(np.int64(version), {"parameters": 1.0})


def version_of(item):
    (version,) = item.data
    return int(version)


def waits(call):
    return not comes_true(lambda: not call.is_running, patience_s=0.3)


def test_the_first_item_is_waited_for(serve):
    client = serve(parameters())
    waiting = Background(serve.connect().wait_newer, "parameters")
    assert waits(waiting)
    key = publish(client, 7)
    item = waiting.result()
    assert (version_of(item), item.info.key) == (7, key)
    assert [type(field) for field in item.info] == [int, float, int, float, int]
    assert client.wait_newer("parameters", timeout=0).info.key == key


def test_another_item_ends_the_wait_whatever_it_contains(serve):
    client = serve(parameters())
    waiter = serve.connect()
    key = publish(client, 7)
    for version in (8, 3, 3):
        waiting = Background(waiter.wait_newer, "parameters", after=key)
        assert waits(waiting)
        newer = publish(client, version)
        item = waiting.result()
        assert (version_of(item), item.info.key) == (version, newer)
        key = newer


def test_an_item_that_came_before_the_call_is_not_waited_for(serve):
    client = serve(parameters())
    first = publish(client, 1)
    publish(client, 2)
    assert version_of(client.wait_newer("parameters", first)) == 2
    assert version_of(client.wait_newer("parameters", np.uint64(first), timeout=0.0)) == 2


def test_a_reset_does_not_hide_what_comes_after_it(serve):
    client = serve(parameters())
    waiting = Background(serve.connect().wait_newer, "parameters", after=publish(client, 7))
    assert waits(waiting)
    client.reset("parameters")
    assert waits(waiting)
    publish(client, 0)
    assert version_of(waiting.result()) == 0


def test_the_data_are_as_they_were_inserted(serve):
    client = serve(parameters(SIGNATURE))
    layers = [np.full((2, 2), value, np.float32) for value in (1, 2)]
    client.insert({"version": np.int64(5), "layers": layers}, {"parameters": 1.0})
    for _ in range(2):
        item = client.wait_newer("parameters")
        assert (item.data["version"].shape, int(item.data["version"])) == ((), 5)
        np.testing.assert_array_equal(item.data["layers"], layers)
    with client.trajectory_writer(2) as writer:
        for version in range(2):
            writer.append({"version": np.int64(version), "layers": layers})
        version, (one, other) = writer.history["version"], writer.history["layers"]
        writer.create_item("parameters", 1.0, {"version": version[-1], "layers": [one[-1], other[-1]]})
    assert int(client.wait_newer("parameters", item.info.key).data["version"]) == 1


def test_a_wait_is_no_draw_and_in_no_queue(serve):
    client = serve(parameters(max_times_sampled=1))
    key = publish(client, 1)
    for _ in range(3):
        assert client.wait_newer("parameters").info.times_sampled == 0
    waiting = Background(serve.connect().wait_newer, "parameters", after=key)
    assert waits(waiting)
    info = client.server_info()["parameters"]
    figures = (info.current_size, info.process_samples, info.waiting_samples, info.waiting_inserts)
    assert (*figures, info.waits) == (1, 0, 0, 0, ())
    publish(client, 2)
    waiting.result()
    assert client.server_info()["parameters"].process_samples == 0


def test_a_wait_ends_at_its_timeout(serve):
    client = serve(parameters())
    with pytest.raises(errors.DeadlineExceededError, match="table `parameters` has got no item"):
        client.wait_newer("parameters", timeout=0.1)
    key = publish(client, 1)
    for seconds in (0, 0.2):
        with pytest.raises(errors.DeadlineExceededError, match="no other item than the one seen"):
            client.wait_newer("parameters", key, timeout=seconds)
    assert version_of(client.wait_newer("parameters", timeout=PATIENCE_S)) == 1


def test_a_wait_goes_on_beyond_the_heartbeats_of_the_server(serve):
    client = serve(parameters(), heartbeat_interval=0.05)
    key = publish(client, 1)
    waiting = Background(serve.connect().wait_newer, "parameters", key)
    assert waits(waiting)
    publish(client, 2)
    assert version_of(waiting.result()) == 2


def test_all_who_wait_get_the_item(serve):
    client = serve(parameters())
    key = publish(client, 1)
    same = serve.connect()
    calls = [Background(same.wait_newer, "parameters", key) for _ in range(5)]
    calls += [Background(serve.connect().wait_newer, "parameters", key) for _ in range(5)]
    assert waits(calls[0])
    newer = publish(client, 2)
    assert [call.result().info.key for call in calls] == [newer] * 10


def test_no_item_is_missed_by_those_who_follow(serve):
    client = serve(parameters())

    def follow(follower):
        seen, key = [], None
        while not seen or seen[-1] != 200:
            item = follower.wait_newer("parameters", key, timeout=PATIENCE_S)
            assert item.info.key != key
            key = item.info.key
            seen.append(version_of(item))
        return seen

    followers = [Background(follow, serve.connect()) for _ in range(3)]
    for version in range(201):
        publish(client, version)
    for follower in followers:
        seen = follower.result()
        assert seen == sorted(set(seen))


def test_the_newest_item_of_a_longer_table_counts(client):
    first = client.insert(np.int64(1), {"table": 1.0})
    second = client.insert(np.int64(2), {"table": 1.0})
    assert client.wait_newer("table").info.key == second
    assert client.wait_newer("table", first).info.key == second
    client.delete("table", [second])
    assert client.wait_newer("table", second, timeout=PATIENCE_S).info.key == first


def test_the_call_refuses_what_it_cannot_wait_for(serve):
    heap = reverb.Table(
        "heap", reverb.selectors.Uniform(), reverb.selectors.MinHeap(), 1, reverb.rate_limiters.MinSize(1)
    )
    client = serve(parameters(), heap)
    with pytest.raises(errors.TableNotFoundError, match="nowhere"):
        client.wait_newer("nowhere")
    with pytest.raises(ValueError, match="table `heap` does not know its newest item: expected a Fifo or Lifo"):
        client.wait_newer("heap")
    for after in (-1, "version", np.int32(1), 1.5):
        with pytest.raises(TypeError):
            client.wait_newer("parameters", after)
    with pytest.raises(ValueError, match="timeout"):
        client.wait_newer("parameters", timeout=-1)
    key = publish(client, 1)
    with pytest.raises(errors.DeadlineExceededError):
        client.wait_newer("parameters", key, timeout=0)
    assert version_of(client.wait_newer("parameters")) == 1


def test_a_client_of_several_servers_is_refused():
    with contextlib.ExitStack() as stack:
        servers = Servers(stack)
        servers.start("table")
        servers.start("table")
        with pytest.raises(ValueError, match="only one server can be waited for at a time"):
            reverb.Client(servers.address).wait_newer("table", timeout=PATIENCE_S)


@pytest.mark.ports
def test_a_stop_of_the_server_ends_the_wait(serve, road):
    client = serve(parameters())
    key = publish(client, 1)
    waiting = Background(client.wait_newer, "parameters", key)
    assert waits(waiting)
    serve.server.stop()
    with pytest.raises(errors.CancelledError) as caught:
        waiting.result()
    assert isinstance(caught.value, errors.ServerStoppedError) == (road != "same_process")


SERVER = """
    import signal, sys, reverb
    from reverb import selectors
    table = reverb.Table("parameters", selectors.Lifo(), selectors.Fifo(), 1, reverb.rate_limiters.MinSize(1))
    checkpointer = reverb.checkpointers.DefaultCheckpointer(sys.argv[1])
    server = reverb.Server([table], port=int(sys.argv[2]) if sys.argv[2:] else None, checkpointer=checkpointer)
    print(server.port, server.unix_path, flush=True)
    sys.stdin.read()
"""


@pytest.mark.ports
@pytest.mark.parametrize("kind", ["unix", "tcp"])
def test_a_restored_server_ends_the_wait_with_its_item(tmp_path, kind):
    with program(SERVER, tmp_path) as server:
        port, path = server.line().split()
        client = reverb.Client(f"unix:{path}" if kind == "unix" else f"ipv4:127.0.0.1:{port}")
        publish(client, 3)
        client.checkpoint()
        key = publish(client, 9)
        waiting = Background(client.wait_newer, "parameters", key)
        impatient = Background(client.wait_newer, "parameters", key, reconnect_timeout=0)
        assert waits(waiting)
        server.kill()
        with pytest.raises(errors.UnavailableError):
            impatient.result()
    with program(SERVER, tmp_path, port) as again:
        again.line()
        assert version_of(waiting.result()) == 3


@pytest.mark.ports
def test_a_server_that_does_not_come_back_ends_the_wait(tmp_path):
    with program(SERVER, tmp_path) as server:
        port, _ = server.line().split()
        client = reverb.Client(f"ipv4:127.0.0.1:{port}")
        key = publish(client, 3)
        # More than an attempt to connect takes, and less than a client tries by itself.
        waiting = Background(client.wait_newer, "parameters", key, reconnect_timeout=4)
        assert waits(waiting)
        server.kill()
        began = time.monotonic()
        with pytest.raises(errors.UnavailableError):
            waiting.result()
        assert 3 < time.monotonic() - began < 9


WAITING = """
    import sys, threading, time, reverb
    client = reverb.Client(sys.argv[1])
    ticks = []

    def tick():
        while True:
            ticks.append(None)
            time.sleep(0.001)

    threading.Thread(target=tick, daemon=True).start()
    print("ready", flush=True)
    try:
        client.wait_newer("parameters", int(sys.argv[2]))
    except KeyboardInterrupt:
        print("interrupted", len(ticks) > 20, flush=True)
        print(int(client.wait_newer("parameters").data[0]), flush=True)
"""


@pytest.mark.parametrize("kind", ["unix", "tcp"])
def test_ctrl_c_ends_the_wait_and_other_threads_run_meanwhile(start, kind):
    server, client = start(parameters())
    key = publish(client, 4)
    address = f"unix:{server.unix_path}" if kind == "unix" else f"ipv4:127.0.0.1:{server.port}"
    with program(WAITING, address, key) as waiting:
        assert waiting.line() == "ready"
        assert not comes_true(lambda: waiting.process.poll() is not None, patience_s=0.5)
        waiting.process.send_signal(signal.SIGINT)
        assert waiting.line() == "interrupted True"
        assert waiting.line() == "4"
