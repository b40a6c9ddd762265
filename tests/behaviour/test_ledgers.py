"""Each item of a queue is saved, delivered or left in the table, whatever happens to the server and its connections.

Writers, a loader and waiting draws are at work during each test. Items may be delivered twice if their receipt was lost
with the connection (docs/readers.md). A writer may write items twice that it had not seen confirmed, because it sends
them to the next server (docs/architecture.md).
"""

import pathlib
import socket

import pytest
from behaviour_support import Proxy, eventually, program
from ledger_support import UNCONFIRMED, UNRECEIPTED, Workers, counts_of, queue, read, values_of

import reverb
from reverb import checkpointers

# The server can be started again at its port only if nothing else takes it.
pytestmark = [pytest.mark.ports, pytest.mark.timeout(180)]

SERVER = """
    import sys
    sys.path.insert(0, sys.argv[1])
    import reverb
    from ledger_support import Workers, counts_of, queue
    checkpointer = reverb.checkpointers.DefaultCheckpointer(sys.argv[2])
    server = reverb.Server([queue()], port=int(sys.argv[3]) or None, checkpointer=checkpointer)
    print(server.port, server.unix_path, *counts_of(server.localhost_client().server_info()["queue"]), flush=True)
    if sys.argv[4:] == ["work"]:
        workers = Workers(f"localhost:{server.port}")
        workers.deliver_more()
        path, saved, counts = workers.check_checkpoint(is_near=True)
        workers.deliver_more()
        print(path, flush=True)
    sys.stdin.read()
"""
HERE = str(pathlib.Path(__file__).parent)


def repeated(counted):
    """Returns the number of deliveries beside the first one of each value."""
    return sum(counted.values()) - len(counted)


def drained(client):
    """Returns all values of the table."""
    return values_of(client.sample_batch("queue", client.server_info()["queue"].current_size, timeout=60))


def is_empty(client):
    """Draws what is left, and returns whether the limiter counts as many samples as inserts."""
    info = client.server_info()["queue"]
    if info.current_size:
        drained(client)
    inserts, samples, size = counts_of(info)
    return (inserts - samples, size, info.undelivered_samples) == (0, 0, 0)


def test_items_outlive_stops_of_the_server(serve, tmp_path):
    def start(port=None):
        checkpointer = checkpointers.DefaultCheckpointer(str(tmp_path), save_on_stop=True)
        return serve(queue(), port=port, checkpointer=checkpointer)

    start()
    is_near = serve.road == "same_process"
    workers = Workers(serve.address)
    stops = 2
    for _ in range(stops):
        workers.deliver_more()
        workers.check_checkpoint(is_near)
        workers.deliver_more()
        serve.server.stop(returns=True)
        saved, _ = read(max(tmp_path.glob("*-*-*")))
        assert set(saved) <= set(workers.attempted)
        start(serve.server.port)
    workers.deliver_more()
    counted = workers.finish(serve.connect())
    assert set(counted) == set(workers.attempted)
    assert repeated(counted) <= (0 if is_near else stops * (UNRECEIPTED + UNCONFIRMED))
    eventually(lambda: is_empty(serve.connect()))


class UnixProxy(Proxy):
    """The same between Unix sockets."""

    def __init__(self, target, path):
        self.path = str(path)
        super().__init__(target)

    def _listen(self):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self.path)
        listener.listen()
        return listener

    def _connect(self):
        server = socket.socket(socket.AF_UNIX)
        try:
            server.connect(self._target)
        except OSError:
            server.close()
            raise
        return server


@pytest.mark.parametrize("road", ["unix", "tcp"])
def test_items_outlive_cut_connections(road, tmp_path):
    server = reverb.Server([queue()])
    client = server.localhost_client()
    if road == "unix":
        proxy = UnixProxy(server.unix_path, tmp_path / "proxy")
        address = f"unix:{proxy.path}"
    else:
        proxy = Proxy(server.port)
        address = f"ipv4:127.0.0.1:{proxy.port}"
    workers = Workers(address)
    cuts = 5
    for _ in range(cuts):
        workers.deliver_more(30)
        proxy.cut()
    workers.deliver_more(30)
    counted = workers.finish(client)
    assert set(counted) == set(workers.attempted)
    assert repeated(counted) <= cuts * UNRECEIPTED
    # Draws that went back do not count, and no item was inserted twice.
    eventually(lambda: is_empty(client))
    assert counts_of(client.server_info()["queue"])[0] == len(workers.attempted) + workers.fillers
    proxy.close()
    server.stop()


@pytest.mark.parametrize("road", ["unix", "tcp"])
def test_items_of_a_checkpoint_outlive_a_killed_server(road, tmp_path):
    with program(SERVER, HERE, tmp_path, 0) as server:
        port, path, *_ = server.line().split()
        address = f"unix:{path}" if road == "unix" else f"ipv4:127.0.0.1:{port}"
        workers = Workers(address)
        workers.deliver_more()
        _, saved, counts = workers.check_checkpoint(is_near=False)
        workers.deliver_more()
        server.kill()
    attempted = set(workers.attempted)
    with program(SERVER, HERE, tmp_path, port) as server:
        assert tuple(map(int, server.line().split()[2:])) == counts
        workers.deliver_more()
        # What was confirmed after the checkpoint, and not delivered, is gone with the server. Items are confirmed one
        # by one, so some of a flush that was under way may be gone, too.
        counted = workers.finish(reverb.Client(address), attempted - set(saved))
        assert set(saved) <= set(counted)
        again = [value for value, times in counted.items() if times > 1]
        assert max(counted.values()) <= 3
        others = set(again) - set(saved)
        assert len(others) <= 2 * UNRECEIPTED + UNCONFIRMED
        eventually(lambda: is_empty(reverb.Client(address)))


def test_items_of_a_checkpoint_outlive_a_killed_program(tmp_path):
    with program(SERVER, HERE, tmp_path, 0, "work") as server:
        server.line()
        path = server.line()
        server.kill()
    saved, counts = read(path)
    server = reverb.Server([queue()], checkpointer=checkpointers.DefaultCheckpointer(str(tmp_path)))
    client = server.localhost_client()
    assert counts_of(client.server_info()["queue"]) == counts
    if saved:
        assert drained(client) == saved
    assert counts_of(client.server_info()["queue"]) == (counts[0], counts[0], 0)
    server.stop()
