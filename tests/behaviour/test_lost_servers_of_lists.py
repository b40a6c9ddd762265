"""Clients of several servers of which some are down."""

import contextlib
import logging

import numpy as np
import pytest
from address_list_support import Servers, free_port, insert
from behaviour_support import PATIENCE_S, Background, eventually

import reverb
from reverb.loaders import NumpyLoader


@pytest.fixture
def servers():
    with contextlib.ExitStack() as stack:
        yield Servers(stack)


@pytest.fixture
def two(servers):
    servers.start()
    servers.start()
    return servers


def test_an_update_that_one_server_does_not_get_names_it(two, caplog):
    client = reverb.Client(two.address)
    insert(client, 10)
    down, up = two.ports
    keys = two.keys()
    two.kill(down)
    with pytest.raises(reverb.errors.UnavailableError, match=f"127.0.0.1:{down} .*the other servers have") as caught:
        client.update_priorities("table", np.array([min(keys[0]), min(keys[1])], np.uint64), 50.0)
    assert str(up) not in str(caught.value)
    live = reverb.Client(f"ipv4:127.0.0.1:{up}")
    assert 50.0 in live.sample_batch("table", 100).info.priority
    with pytest.raises(reverb.errors.UnavailableError, match=f"127.0.0.1:{down}"):
        client.reset("table")
    assert live.server_info()["table"].current_size == 0


def test_a_lost_server_is_skipped_until_it_comes_back(two, caplog):
    client = reverb.Client(two.address)
    insert(client, 4)
    down, up = two.ports
    two.kill(down)
    eventually(lambda: client.server_info() and client.road == "tcp (1 of 2 servers)")
    with caplog.at_level(logging.WARNING):
        insert(client, 8)
        for _ in range(8):
            assert len(client.sample_batch("table", 2).info.key) == 2
    live = reverb.Client(f"ipv4:127.0.0.1:{up}")
    assert live.server_info()["table"].current_size == 10
    assert client.server_info()["table"].current_size == 10
    eventually(lambda: f"127.0.0.1:{down} cannot be reached" in caplog.text)
    two.start(port=down)
    eventually(lambda: client.server_info() and client.road == "tcp (2 servers)")
    insert(client, 8)
    assert sorted(two.sizes()) == [4, 14]
    assert caplog.text.count("cannot be reached") == 1


def test_a_server_that_is_down_from_the_start_is_used_once_it_is_there(servers):
    servers.start()
    late = free_port()
    servers.ports.append(late)
    client = reverb.Client(servers.address)
    insert(client, 4)
    assert client.road == "tcp (1 of 2 servers)"
    servers.start(port=late)
    eventually(lambda: client.server_info() and client.road == "tcp (2 servers)")
    insert(client, 4)
    assert servers.sizes() == [6, 2]


def test_a_writer_goes_on_at_another_server(two):
    client = reverb.Client(two.address)
    with client.trajectory_writer(1) as writer:

        def write_one():
            writer.append({"x": np.float32(0)})
            writer.create_item("table", 1.0, {"x": writer.history["x"][-1:]})
            writer.flush(timeout_ms=1000 * int(PATIENCE_S))

        write_one()
        home = two.ports[0] if two.sizes()[0] else two.ports[1]
        other = next(port for port in two.ports if port != home)
        two.kill(home)
        for _ in range(3):
            write_one()
        live = reverb.Client(f"ipv4:127.0.0.1:{other}")
        # Items whose confirmation was lost are sent again: at least once.
        assert live.server_info()["table"].current_size == 3


def test_many_clients_report_a_lost_server_once(two, caplog):
    clients = [reverb.Client(two.address) for _ in range(4)]
    for client in clients:
        insert(client, 1)
    two.kill(two.ports[0])
    for client in clients:
        eventually(lambda client=client: client.server_info() and client.road == "tcp (1 of 2 servers)")
        insert(client, 4)
        assert len(client.sample_batch("table", 1).info.key) == 1
    with NumpyLoader(two.address, "table", batch_size=2, num_batches=4) as loader:
        assert len(list(loader)) == 4
    eventually(lambda: "cannot be reached" in caplog.text)
    assert caplog.text.count("cannot be reached") == 1


def test_a_loader_goes_on_with_the_other_servers(two):
    client = reverb.Client(two.address)
    insert(client, 10)
    first, second = two.keys()
    with NumpyLoader(two.address, "table", batch_size=4) as loader:
        batches = iter(loader)
        seen = set()
        while not (seen & first and seen & second):
            seen.update(int(key) for key in next(batches).info.key)
        two.kill(two.ports[0])
        for _ in range(20):
            next(batches)
        assert {int(key) for key in next(batches).info.key} <= second


def test_calls_fail_with_all_reasons_if_all_servers_are_down(two):
    client = reverb.Client(two.address)
    insert(client, 2)
    for port in two.ports:
        two.kill(port)
    reasons = rf"no server at {two.address}: ipv4:127.0.0.1:{two.ports[0]}: .*; ipv4:127.0.0.1:{two.ports[1]}: "
    with pytest.raises(reverb.errors.DeadlineExceededError, match=reasons):
        client.server_info(timeout=1)
    with pytest.raises(reverb.errors.ReverbError):
        client.sample_batch("table", 1, timeout=1.0)
    with pytest.raises(reverb.errors.DeadlineExceededError, match="no server at"):
        client.update_priorities("table", np.array([1], np.uint64), 1.0, timeout=1.0)


def test_sample_waits_for_a_server_that_returns(two):
    client = reverb.Client(two.address)
    insert(client, 2)
    for port in two.ports:
        two.kill(port)
    waiting = Background(lambda: list(client.sample("table", 1, emit_timesteps=False)))
    two.start(port=two.ports[1])
    insert(reverb.Client(f"ipv4:127.0.0.1:{two.ports[1]}"), 1)
    assert len(waiting.result(2 * PATIENCE_S)) == 1
