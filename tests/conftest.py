"""What all tests share: the three roads to a server, and servers that stop with their test."""

import signal

import pytest

# A call in the server's own process, one through its Unix socket, one through TCP.
ROADS = ("same_process", "unix", "tcp")
TIMEOUT_S = 60


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes more than ten seconds")
    config.addinivalue_line("markers", "reference: needs an interpreter that has dm-reverb 0.14")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # So a shell starts what runs in the background, and programs that tests start would be deaf to Ctrl-C too.
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config, items):
    """A test that hangs is a failure, not the end of the run."""
    if not config.pluginmanager.hasplugin("timeout") or config.getini("timeout"):
        return
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))


class Serve:
    """Starts servers and connects to them over one road. Keeps them until the test ends.

    Args:
      road: One of ROADS.
    """

    def __init__(self, road):
        self.road = road
        self.servers = []

    def __call__(self, *tables, **options):
        """A client of a new server with these tables and these options."""
        import reverb

        self.servers.append(reverb.Server(tables=list(tables), **options))
        return self.connect()

    @property
    def server(self):
        """The server that was started last."""
        return self.servers[-1]

    @property
    def address(self):
        """Where a client of this road finds the last server."""
        return {
            "same_process": f"localhost:{self.server.port}",
            "unix": f"unix:{getattr(self.server, 'unix_path', None)}",
            "tcp": f"ipv4:127.0.0.1:{self.server.port}",
        }[self.road]

    def connect(self):
        """Another client of the last server."""
        import reverb

        return reverb.Client(self.address)

    def stop(self):
        for server in self.servers:
            server.stop()


@pytest.fixture(params=ROADS)
def road(request):
    """The name of the road that the test takes."""
    return request.param


@pytest.fixture
def serve(road):
    """Starts a server with given tables and returns a client: `serve(table, ...)`."""
    serve = Serve(road)
    yield serve
    serve.stop()


@pytest.fixture(params=("unix", "tcp"))
def serve_far(request):
    """Like `serve`, for clients in other processes: they cannot take the road of the same process."""
    serve = Serve(request.param)
    yield serve
    serve.stop()


@pytest.fixture
def client(serve):
    """A client of a server whose one table, `table`, gives the oldest of at most 100 items."""
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
