"""A connection lives on while a thread of the client's program holds the GIL in C, for however long."""

import contextlib
import queue
import socket
import struct
import threading
import time

import pytest
from behaviour_support import PATIENCE_S, eventually, insert_values, make_table, num_samples, program

import reverb

PREFACE_BYTES = 24
HEADER_BYTES = 9
PING, ACK = 6, 1
# Far apart enough that the first ones cannot all be answered before a waiting thread wants the GIL.
NUM_PINGS = 6
PAUSE_S = 0.2

CLIENT = """
import ctypes, sys, threading
import reverb

client = reverb.Client(sys.argv[1])
assert list(client.server_info()) == ["table"]
drawn = []
thread = threading.Thread(target=lambda: drawn.append(client.sample_batch("table", 2, squeeze_time=True).data[0]))
if sys.argv[2] != "idle":
    thread.start()
print("ready", flush=True)
sys.stdin.readline()
# `PyDLL` keeps the GIL during a call. The shell prints that, and waits.
ctypes.PyDLL(None).system(b"echo held; read line")
if sys.argv[2] == "idle":
    thread.start()
thread.join()
print("drew", drawn[0].tolist(), flush=True)
"""


class Proxy:
    """Stands between one client and a server over TCP, sends pings of its own, and takes the answers out.

    Args:
      port: The port of the server.
    """

    def __init__(self, port):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"ipv4:127.0.0.1:{self._listener.getsockname()[1]}"
        self._server = socket.create_connection(("127.0.0.1", port))
        self._to_client = threading.Lock()
        self._answers = queue.Queue()
        self._client = None
        threading.Thread(target=self._run, daemon=True).start()

    def ping(self, number):
        """Sends a ping to the client and returns whether it is answered."""
        payload = struct.pack("!Q", 2**63 + number)
        with self._to_client:
            self._client.sendall(struct.pack("!I", 8)[1:] + struct.pack("!BBI", PING, 0, 0) + payload)
        try:
            return self._answers.get(timeout=PATIENCE_S) == payload
        except queue.Empty:
            return False

    def close(self):
        # An accept that waits does not end with `close` alone.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for end in (self._listener, self._server, self._client):
            if end is not None:
                end.close()

    def _run(self):
        try:
            self._client, _ = self._listener.accept()
            self._server.sendall(read(self._client, PREFACE_BYTES))
        except OSError:
            return
        threading.Thread(target=self._pass_on, args=(self._server, self._client, self._to_client), daemon=True).start()
        self._pass_on(self._client, self._server, threading.Lock())

    def _pass_on(self, source, target, lock):
        """Passes on whole frames, so that a ping can be sent between two of them."""
        try:
            while True:
                header = read(source, HEADER_BYTES)
                payload = read(source, int.from_bytes(header[:3], "big"))
                if header[3:5] == bytes((PING, ACK)) and payload[0] & 0x80:
                    self._answers.put(payload)
                    continue
                with lock:
                    target.sendall(header + payload)
        except OSError:
            return


def read(source, count):
    data = bytearray()
    while len(data) < count:
        part = source.recv(count - len(data))
        if not part:
            raise ConnectionError("the other end has closed the connection")
        data += part
    return bytes(data)


@pytest.fixture
def proxied():
    """A client of a server with an empty table, and a proxy in front of the same server."""
    server = reverb.Server([make_table(max_times_sampled=1)])
    proxy = Proxy(server.port)
    yield reverb.Client(f"localhost:{server.port}"), proxy
    proxy.close()
    server.stop()


@pytest.mark.parametrize("state", ["idle", "waiting", "answered"])
def test_pings_are_answered_while_another_thread_holds_the_gil(proxied, state):
    """`waiting`: a thread waits in a call. `answered`: its answer has come, and it waits for the GIL."""
    client, proxy = proxied
    with program(CLIENT, proxy.address, state) as child:
        assert child.line() == "ready"
        insert_values(client, [3])
        if state != "idle":
            # The first of two items has been drawn, so the call waits at the table.
            eventually(lambda: num_samples(client) == 1)
        tell(child, "hold")
        assert child.line() == "held"
        if state == "answered":
            insert_values(client, [4])
            eventually(lambda: num_samples(client) == 2)
        for number in range(NUM_PINGS):
            assert proxy.ping(number), f"ping {number} is not answered"
            time.sleep(PAUSE_S)
        tell(child, "release")
        if state != "answered":
            insert_values(client, [4])
        assert child.line() == "drew [3, 4]"
        child.end()


def tell(child, line):
    child.process.stdin.write(f"{line}\n")
    child.process.stdin.flush()
