"""The threads of clients over a network: one drives all of a process between calls."""

import os

import pytest
from behaviour_support import insert_values, make_table, program

import reverb

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="the system does not list threads so")

CLIENTS = """
import gc, os, pathlib, sys, time
import reverb

def threads(name):
    return [task for task in pathlib.Path("/proc/self/task").iterdir() if (task / "comm").read_text().strip() == name]

def sockets():
    links = [os.path.join("/proc/self/fd", number) for number in os.listdir("/proc/self/fd")]
    return sum(os.readlink(link).startswith("socket:") for link in links if os.path.islink(link))

def wait_until(condition):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "the awaited state never came"
        time.sleep(0.01)

def make(count):
    clients = [reverb.Client(address) for address in sys.argv[1:] for _ in range(count)]
    for client in clients:
        assert client.sample_batch("table", 1, squeeze_time=True).data[0].tolist() == [3]
    return clients
"""


@pytest.fixture
def addresses():
    server = reverb.Server([make_table()])
    insert_values(reverb.Client(f"localhost:{server.port}"), [3])
    yield f"unix:{server.unix_path}", f"ipv4:127.0.0.1:{server.port}"
    server.stop()


def run(source, addresses):
    with program(CLIENTS + source, *addresses) as child:
        assert child.end()[0].splitlines() == ["end"]


def test_many_clients_share_one_thread(addresses):
    run(
        """
before = len(os.listdir("/proc/self/task"))
clients = make(30)
assert len(threads("reverb-idle")) == 1
more = len(os.listdir("/proc/self/task")) - before
assert more < 30, more
print("end")
""",
        addresses,
    )


def test_connections_of_dropped_clients_are_closed(addresses):
    run(
        """
kept = make(1)
before = sockets()
clients = make(20)
# Each has a connection and what its runtime needs.
assert sockets() >= before + 2 * 20
clients.clear()
gc.collect()
wait_until(lambda: sockets() == before)
assert kept[0].sample_batch("table", 1, squeeze_time=True).data[0].tolist() == [3]
print("end")
""",
        addresses,
    )


def test_a_forked_child_has_a_thread_of_its_own(addresses):
    run(
        """
clients = make(3)
child = os.fork()
if child == 0:
    assert not threads("reverb-idle")
    for client in clients + make(3):
        client.sample_batch("table", 1)
    assert len(threads("reverb-idle")) == 1
    del client, clients
    gc.collect()
    time.sleep(0.1)
    os._exit(0)
_, status = os.waitpid(child, 0)
assert status == 0, status
for client in clients:
    client.sample_batch("table", 1)
assert len(threads("reverb-idle")) == 1
print("end")
""",
        addresses,
    )
