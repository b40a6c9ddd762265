"""Fixtures that all tests share: the three roads to a server, and servers that stop at the end of their test."""

import ctypes
import datetime
import fcntl
import json
import logging
import os
import shutil
import signal
import socket
import struct
import tempfile

import pytest

# Calls within the server's process, through its Unix socket, and through TCP.
ROADS = ("same_process", "unix", "tcp")
TIMEOUT_S = 60

_CLONE_NEWNET = 0x40000000
_SIOCSIFFLAGS = 0x8914
_IFF_UP_AND_RUNNING = 0x1 | 0x40


def own_loopback():
    """Moves this process to a network of its own, which has a loopback interface only.

    So no other process takes a port that a test gives up for a moment. Needs root on Linux.
    """
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "no network of its own; set REVERB_TEST_NETWORKS= to share one")
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _IFF_UP_AND_RUNNING))


def own_sockets(config):
    """Makes servers of this process keep their Unix sockets in a folder of their own until the tests end.

    Sockets are named by the port, and in networks of their own several servers may have the same one.
    """
    folder = tempfile.mkdtemp()
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    os.environ.pop("XDG_RUNTIME_DIR", None)
    os.environ["TMPDIR"] = tempfile.tempdir = folder


def pytest_configure(config):
    if hasattr(config, "workerinput") and os.environ.get("REVERB_TEST_NETWORKS"):
        own_loopback()
        own_sockets(config)
    config.addinivalue_line("markers", "slow: takes more than ten seconds")
    config.addinivalue_line("markers", "reference: needs an interpreter that has dm-reverb 0.14")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # So a shell starts what runs in the background, and programs that tests start would be deaf to Ctrl-C too.
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config, items):
    """Makes a test that hangs fail, instead of blocking the run."""
    if not config.pluginmanager.hasplugin("timeout") or config.getini("timeout"):
        return
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))


class Serve:
    """Starts servers and connects to them over one road. Holds them until the test ends.

    Args:
      road: Name of a road, one of ROADS.
    """

    def __init__(self, road):
        self.road = road
        self.servers = []

    def __call__(self, *tables, **options):
        """Returns a client of a new server with these tables and options."""
        import reverb

        self.servers.append(reverb.Server(tables=list(tables), **options))
        return self.connect()

    @property
    def server(self):
        """The server that was started last."""
        return self.servers[-1]

    @property
    def address(self):
        """The address at which a client of this road reaches the last server."""
        return {
            "same_process": f"localhost:{self.server.port}",
            "unix": f"unix:{getattr(self.server, 'unix_path', None)}",
            "tcp": f"ipv4:127.0.0.1:{self.server.port}",
        }[self.road]

    def connect(self):
        """Returns another client of the last server."""
        import reverb

        return reverb.Client(self.address)

    def stop(self):
        for server in self.servers:
            server.stop()


@pytest.fixture(params=ROADS)
def road(request):
    """The name of the road that the test uses."""
    return request.param


@pytest.fixture
def serve(road):
    """Starts a server with given tables and returns a client: `serve(table, ...)`."""
    serve = Serve(road)
    yield serve
    serve.stop()


@pytest.fixture(params=("unix", "tcp"))
def serve_far(request):
    """Does the same as `serve` for clients in other processes, which cannot use the road within the process."""
    serve = Serve(request.param)
    yield serve
    serve.stop()


@pytest.fixture(params=("unix", "tcp"))
def shards(request):
    """The shards of a cluster, `cluster_support.Shards`, whose clients use this road."""
    from cluster_support import Shards

    shards = Shards(request.param)
    yield shards
    shards.stop()


@pytest.fixture
def start():
    """Starts servers that stop at the end of the test: `start(table, ...)` returns the server and a client."""
    import reverb

    servers = []

    def start(*tables, **options):
        servers.append(reverb.Server(tables=list(tables), **options))
        return servers[-1], reverb.Client(f"localhost:{servers[-1].port}")

    yield start
    for server in servers:
        server.stop()


@pytest.fixture(params=("unix", "tls"))
def serve_secured(request, tmp_path, monkeypatch):
    """Starts servers that ask for tokens, and gives one to the programs that the test starts, by their environment:
    `serve_secured(table, ..., role="use")` returns the server and its address."""
    import tls_support
    import token_support

    import reverb

    def serve(*tables, role="use", **options):
        tokens = token_support.write_tokens(tmp_path / "tokens.toml", program=role)
        own = tmp_path / "program.token"
        own.write_text(token_support.token_of("program"))
        monkeypatch.setenv("REVERB_TOKEN_FILE", str(own))
        if request.param == "tls":
            authority = tls_support.Authority(tmp_path)
            monkeypatch.setenv("REVERB_CA", authority.ca)
            options["tls"] = reverb.ServerTLS(*authority.sign("server"))
        server = reverb.Server(list(tables), tokens=reverb.Tokens.from_file(tokens), **options)
        request.addfinalizer(server.stop)
        return server, tls_support.address_of(server) if request.param == "tls" else f"localhost:{server.port}"

    return serve


@pytest.fixture
def audited(caplog):
    """The lines of the audit so far, of some events or of all: `audited("connect", "refuse")`."""
    caplog.set_level(logging.INFO, logger="reverb.audit")
    # A line is written a moment after its event, so lines of the test before may come as well.
    began = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")

    def lines(*events):
        lines = [json.loads(record.getMessage()) for record in caplog.records if record.name == "reverb.audit"]
        return [line for line in lines if line["ts"] >= began and (not events or line["event"] in events)]

    return lines


@pytest.fixture
def client(serve):
    """A client of a server with one table, `table`, which draws the oldest of at most 100 items."""
    import reverb

    return serve(
        reverb.Table(
            name="table",
            sampler=reverb.selectors.Fifo(),
            remover=reverb.selectors.Fifo(),
            max_size=100,
            rate_limiter=reverb.rate_limiters.MinSize(1),
        )
    )
