"""A server that a test plays: it refuses each call of gRPC, and keeps what it was shown."""

import contextlib
import socket
import threading

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEADERS, _SETTINGS, _PING = 1, 4, 6
_ACK, _END = 0x1, 0x1 | 0x4
# A header that no table of HTTP/2 may take, and the place of `authorization` among those that each end knows.
_NEVER_INDEXED_AUTHORIZATION = b"\x1f\x08"
UNAUTHENTICATED, PERMISSION_DENIED = 16, 7


def _frame(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def _header(name, value):
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


class Refusing:
    """Answers each call with a status, from its making to `close`.

    Args:
      status: Number of the status.
      path: Path of a Unix socket to listen on; by default, a free TCP port.
      listening: Context in which it begins to listen.

    Attributes:
      calls: Number of calls so far.
      sent: All bytes that clients have sent.
    """

    def __init__(self, status=UNAUTHENTICATED, path=None, listening=None):
        self._status = str(status).encode()
        self._listener = socket.socket(socket.AF_UNIX if path else socket.AF_INET)
        self._listener.bind(str(path) if path else ("127.0.0.1", 0))
        with listening or contextlib.nullcontext():
            self._listener.listen()
        self.port = None if path else self._listener.getsockname()[1]
        self.calls, self.connections, self.sent = 0, 0, b""
        # Elsewhere, random numbers may look like the start of a header.
        self._headers = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # An accept that waits does not end with `close` alone.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    @property
    def bearers(self):
        """The values of the headers with tokens, as they were encoded."""
        values = []
        for headers in self._headers:
            for rest in headers.split(_NEVER_INDEXED_AUTHORIZATION)[1:]:
                length = rest[0] & 0x7F
                values.append(rest[1 : 1 + length])
        return values

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                stream, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(stream,), daemon=True).start()

    def _serve(self, stream):
        with stream, contextlib.suppress(OSError), stream.makefile("rb") as reader:
            self._keep(reader.read(len(_PREFACE)))
            stream.sendall(_frame(_SETTINGS, 0, 0))
            while head := self._keep(reader.read(9)):
                kind, flags, number = head[3], head[4], int.from_bytes(head[5:9], "big")
                payload = self._keep(reader.read(int.from_bytes(head[:3], "big")))
                if kind == _SETTINGS and not flags & _ACK:
                    stream.sendall(_frame(_SETTINGS, _ACK, 0))
                elif kind == _PING and not flags & _ACK:
                    stream.sendall(_frame(_PING, _ACK, 0, payload))
                elif kind == _HEADERS:
                    self.calls += 1
                    self._headers.append(payload)
                    stream.sendall(_frame(_HEADERS, _END, number, self._answer()))

    def _keep(self, read):
        self.sent += read
        return read

    def _answer(self):
        # `:status 200` stands in the table that each end knows.
        return (
            b"\x88"
            + _header(b"content-type", b"application/grpc")
            + _header(b"grpc-status", self._status)
            + _header(b"grpc-message", b"the server of the test refuses")
        )
