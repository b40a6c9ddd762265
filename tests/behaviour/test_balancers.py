"""Clients behind HAProxy and nginx: the recipes of docs/scale.md, and what wrong configurations say."""

import contextlib
import threading
import time

import numpy as np
import pytest
from balancer_support import Balancer, Servers, in_threads, recipe, with_limits, write_items
from behaviour_support import Background, eventually

from reverb import errors
from reverb.loaders import NumpyLoader

pytestmark = pytest.mark.balancers

SPLIT = r"^streams of one client reach different servers \([0-9a-f]{8}, [0-9a-f]{8}\): a balancer splits it; use mode "
SPLIT += r"tcp, or stick by the header reverb-session"
CUT = "a proxy may have cut the stream: see client_max_body_size"
# Seconds after which a balancer ends what is idle, far more than the heartbeats below, and seconds that are longer.
LIMIT_S, LONGER_S = 2, 4.5
HEARTBEAT_S = 0.2
UNSTICKY = {
    "roundrobin": lambda: recipe("sticky").replace("hdr(reverb-session)", "roundrobin").replace("hash-type", "#"),
    "random": lambda: recipe("sticky").replace("hdr(reverb-session)", "random").replace("hash-type", "#"),
    "nginx": lambda: recipe("nginx").replace("hash $http_reverb_session consistent;", ""),
}
recipes = pytest.mark.parametrize("name", ["tcp", "sticky", "nginx"])
unsticky = pytest.mark.parametrize("name", UNSTICKY)


@pytest.fixture
def servers():
    servers = Servers(HEARTBEAT_S)
    yield servers
    servers.stop()


@pytest.fixture
def balance(servers, tmp_path):
    """Starts a balancer in front of the servers: `balance(text)`."""
    balancers = []

    def start(text, **options):
        balancers.append(Balancer(text, servers.ports, tmp_path, **options))
        return balancers[-1]

    yield start
    for balancer in balancers:
        balancer.stop()


@recipes
@pytest.mark.parametrize("open_files", [1024, 20000])
def test_recipes_start_under_common_limits_of_open_files(servers, balance, name, open_files):
    client = balance(recipe(name), open_files=open_files).client()
    client.insert(np.int64(1), {"table": 1.0})
    assert sorted(servers.sizes()) == [0, 0, 1]


@recipes
def test_recipes_keep_each_client_on_one_server(servers, balance, name):
    balancer = balance(recipe(name))
    for number in range(12):
        client, before = balancer.client(), servers.sizes()
        client.insert(np.int64(number), {"table": 1.0})
        write_items(client)
        grown = [after - size for after, size in zip(servers.sizes(), before, strict=True)]
        assert sorted(grown) == [0, 0, 2], "the insert and the writer have reached different servers"
        with NumpyLoader(client, "table", batch_size=1) as loader:
            keys = next(iter(loader)).info.key
        assert client.update_priorities("table", keys, np.array([2.0])) == 1
        assert client.update_priorities("table", client.sample_batch("table", 1).info.key, np.array([3.0])) == 1
    assert sum(size > 0 for size in servers.sizes()) > 1, "all clients are on one server"


@recipes
def test_a_stream_carries_five_megabytes(balance, name):
    client, data = balance(recipe(name)).client(), np.arange(5_000_000, dtype=np.uint8)
    for _ in range(2):
        client.insert(data, {"table": 1.0}, timeout=30)
        np.testing.assert_array_equal(client.sample_batch("table", 1, timeout=30).data[0][0, 0], data)


@recipes
def test_calls_that_wait_longer_than_the_limits_of_a_balancer_go_on(servers, balance, name):
    balancer = balance(with_limits(recipe(name), LIMIT_S))
    for client in servers.clients:
        client.insert_batch(np.zeros(2, np.int64), {"queue": 1.0})
    drawing, inserting, writing = (balancer.client() for _ in range(3))
    done = in_threads(
        [
            lambda: drawing.sample_batch("empty", 1, timeout=30).data[0].item(),
            lambda: inserting.insert(np.int64(8), {"queue": 1.0}, timeout=30),
            lambda: write_items(writing, table="queue"),
        ]
    )
    eventually(lambda: servers.num_waiting() == 3)
    time.sleep(LONGER_S)
    assert servers.num_waiting() == 3
    for client in servers.clients:
        client.sample_batch("queue", 2)
        client.insert(np.int64(7), {"empty": 1.0})
    sampled, key, read = done()
    assert (sampled, type(key), read) == (7, int, None)


@recipes
def test_idle_connections_that_a_balancer_ends_are_opened_again(servers, balance, name):
    balancer = balance(with_limits(recipe(name), 1))
    for client in servers.clients:
        client.insert(np.int64(1), {"table": 1.0})
    inserting, sampling, updating, writing = (balancer.client() for _ in range(4))
    writer = writing.trajectory_writer(1)

    def write():
        writer.append(np.int64(1))
        writer.create_item("table", 1.0, writer.history[-1:])
        writer.flush(timeout=30)

    for _ in range(2):
        inserting.insert(np.int64(2), {"table": 1.0}, timeout=30)
        sampling.sample_batch("table", 1, timeout=30)
        updating.mutate_priorities("table", {1: 1.0}, timeout=30)
        write()
        # Longer than the limit of a second, with room for slow machines.
        time.sleep(3)
    writer.close()


@pytest.mark.parametrize("name", ["sticky", "nginx"])
def test_limits_that_are_shorter_than_the_heartbeat_are_named(tmp_path, name):
    servers = Servers(1000)
    balancer = Balancer(with_limits(recipe(name), 1), servers.ports, tmp_path)
    try:
        with pytest.raises(errors.UnavailableError, match=CUT):
            balancer.client().sample_batch("queue", 1, timeout=30)
        for client in servers.clients:
            client.insert_batch(np.zeros(2, np.int64), {"queue": 1.0})
        with pytest.raises(errors.UnavailableError) as caught:
            balancer.client().insert(np.int64(1), {"queue": 1.0}, timeout=30)
        assert CUT in str(caught.value.__cause__)
    finally:
        balancer.stop()
        servers.stop()


@unsticky
def test_balancers_that_split_a_client_are_named_in_every_call(servers, balance, name):
    for client in servers.clients:
        client.insert(np.int64(1), {"table": 1.0})
    balancer = balance(UNSTICKY[name]())
    client = balancer.client()

    def is_split():
        try:
            client.server_info()
        except errors.UnavailableError:
            return True
        return False

    eventually(is_split)
    for call in (
        lambda: client.insert(np.int64(1), {"table": 1.0}),
        lambda: client.insert_batch(np.zeros(2, np.int64), {"table": 1.0}),
        lambda: next(iter(client.sample("table"))),
        lambda: client.sample_batch("table", 1),
        lambda: client.mutate_priorities("table", {1: 2.0}),
        lambda: client.update_priorities("table", np.array([1], np.uint64), np.array([1.0])),
        lambda: client.reset("table"),
        lambda: client.server_info(),
        lambda: client.checkpoint(),
        lambda: write_items(client),
        lambda: next(iter(NumpyLoader(client, "table", batch_size=1))),
    ):
        with pytest.raises(errors.UnavailableError, match=SPLIT):
            call()
    assert servers.sizes() == [1, 1, 1], "a refused call was applied"


@unsticky
def test_no_update_of_priorities_is_lost_behind_a_balancer_that_splits(servers, balance, name):
    for client in servers.clients:
        client.insert_batch(np.arange(4), {"table": 1.0})
    balancer = balance(UNSTICKY[name]())
    client = balancer.client()
    for number in range(12):
        client = client if number % 3 else balancer.client()
        try:
            keys = client.sample_batch("table", 1).info.key
            found = client.update_priorities("table", keys, np.array([2.0 + number]))
        except errors.UnavailableError:
            continue
        assert found == 1, "the update has reached a server that does not have the item"


def test_the_body_limit_of_nginx_is_named(balance):
    text = recipe("nginx").replace("client_max_body_size 0;", "")
    with pytest.raises(errors.UnavailableError) as caught:
        balance(text).client().insert(np.zeros(5_000_000, np.uint8), {"table": 1.0}, timeout=30)
    assert CUT in str(caught.value.__cause__)


@pytest.mark.ports
def test_a_proxy_without_servers_is_named(servers, balance):
    servers.stop()
    with pytest.raises(
        errors.ReverbError, match="a proxy has answered with the HTTP status 502 Bad Gateway: it reaches"
    ):
        balance(recipe("nginx")).client().server_info(timeout=2)


@recipes
@pytest.mark.ports
def test_a_server_that_was_stopped_and_stays_down_counts_as_one_lost_server(servers, balance, name):
    balancer = balance(recipe(name))
    stop = threading.Event()

    def write(client):
        written = 0
        with client.trajectory_writer(1) as writer:
            while not stop.is_set():
                writer.append(np.int64(written))
                writer.create_item("table", 1.0, writer.history[-1:])
                writer.flush(timeout=60)
                written += 1
        return written

    def load(client):
        with NumpyLoader(client, "empty", batch_size=1, timeout=60) as loader:
            return next(iter(loader)).data[0].item()

    def draw(client):
        # Of a server that was stopped for good alone, a call raises ServerStoppedError, which is none of these.
        while True:
            with contextlib.suppress(errors.UnavailableError):
                return client.sample_batch("empty", 1, timeout=60).data[0].item()

    draws = [Background(call, balancer.client()) for call in [draw] * 6 + [load] * 3]
    writers = [Background(write, balancer.client()) for _ in range(6)]

    def has_all_kinds(client):
        tables = client.server_info()
        return tables["empty"].waiting_samples > 0 and tables["table"].current_size > 0

    try:
        eventually(lambda: servers.num_waiting() >= len(draws) and any(map(has_all_kinds, servers.clients)))
        number = [*map(has_all_kinds, servers.clients)].index(True)
        servers.all.pop(number).stop()
        size = sum(servers.sizes())
        eventually(lambda: sum(servers.sizes()) > size + 200)

        def all_have_drawn():
            for client in servers.clients:
                if not client.server_info()["empty"].current_size:
                    client.insert(np.int64(7), {"empty": 1.0})
            return not any(one.is_running for one in draws)

        eventually(all_have_drawn)
    finally:
        stop.set()
    assert [one.result() for one in draws] == [7] * len(draws)
    assert all(one.result() > 0 for one in writers)


@pytest.mark.ports
def test_servers_restart_behind_a_balancer_while_clients_write_and_read(servers, balance):
    balancer = balance(recipe("tcp"))
    stop, writers = threading.Event(), [balancer.client() for _ in range(4)]

    def write(client):
        written = 0
        with client.trajectory_writer(1) as writer:
            while not stop.is_set() or written < 200:
                writer.append(np.int64(written))
                writer.create_item("table", 1.0, writer.history[-1:])
                written += 1
                if written % 20 == 0:
                    writer.flush(timeout=30)
            writer.flush(timeout=30)
        return written

    def read(client):
        batches = 0
        with NumpyLoader(client, "table", batch_size=4) as loader:
            for _ in loader:
                batches += 1
                if stop.is_set():
                    break
        return batches

    wait = in_threads([*(lambda client=client: write(client) for client in writers), lambda: read(balancer.client())])
    try:
        eventually(lambda: sum(servers.sizes()) > 100)
        for number in (0, 1):
            port = servers.all[number].port
            servers.all[number].stop()
            servers.all[number] = servers.start(port)
            # The reader may be the only client there.
            servers.clients[number].insert(np.int64(0), {"table": 1.0})
            size = sum(servers.sizes())
            eventually(lambda size=size: sum(servers.sizes()) > size + 100)
    finally:
        stop.set()
        results = wait()
    assert all(isinstance(result, int) and result > 0 for result in results), results
