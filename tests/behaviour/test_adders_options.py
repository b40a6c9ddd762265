"""The options that adders pass on to their writers."""

import uuid

import numpy as np
import pytest
from behaviour_support import Background, eventually, info_of, make_table

import reverb
from reverb import _protos, adders, rate_limiters
from reverb.writing import closing

MAKERS = {
    "transitions": lambda client, table="table", **o: adders.NStepTransitionAdder(
        client, table, n=1, discount=1.0, **o
    ),
    "sequences": lambda client, table="table", **o: adders.SequenceAdder(client, table, length=1, period=1, **o),
    "episodes": lambda client, table="table", **o: adders.EpisodeAdder(client, table, max_length=1, **o),
}


def add(adder, value):
    """Adds an episode of one step, of every environment."""
    if isinstance(adder, adders.NStepTransitionAdder):
        zeros = np.zeros(adder.num_envs) if adder.num_envs else 0.0
        adder.add(value, zeros, zeros, value, truncated=False)
    else:
        adder.add({"x": value}, last=isinstance(adder, adders.EpisodeAdder))


def data_bytes(client):
    status_class = _protos.message_class("reverb.replay.v1.TableStatus")
    (status,) = client.engine.table_statuses(20.0)
    return status_class.FromString(status).size_bytes


@pytest.mark.parametrize("kind", sorted(MAKERS))
@pytest.mark.parametrize(
    ("num_envs", "options", "limit"), [(None, {}, 64), (100, {}, None), (None, {"max_in_flight_items": 7}, 7)]
)
def test_a_rate_limiter_holds_back_the_actor(serve, kind, num_envs, options, limit):
    if limit is None:
        # Two episodes or 64 steps of each environment.
        limit = 200 if kind == "episodes" else 6400
    # The table takes 200 items until it is sampled.
    limiter = rate_limiters.RateLimiter(1.0, 1, -1000.0, 200.0)
    # The actors of other tests go on for a while, and a later server may get the port of theirs.
    table = f"table of {uuid.uuid4()}"
    client = serve(make_table(table, limiter=limiter, max_size=10_000))
    adder = MAKERS[kind](client, table, num_envs=num_envs, reconnect_timeout=1.0, **options)
    added = []

    def act():
        while len(added) < 10_000:
            add(adder, np.float32(1) if num_envs is None else np.ones(num_envs, np.float32))
            added.append(1)

    actor = Background(act)
    eventually(lambda: info_of(client, table).current_size == 200)
    rows = num_envs or 1
    eventually(lambda: (len(added) + 1) * rows > 200 + limit)
    assert actor.is_running
    # The call that waits has made its items, which are not counted yet.
    assert 200 + limit - rows <= len(added) * rows <= 200 + limit + rows
    client.reset(table)
    eventually(lambda: len(added) * rows > 200 + limit + rows)
    assert actor.is_running


@pytest.mark.parametrize(("period", "of_each"), [(1, 64), (20, 3), (100, 2)])
def test_sequences_with_a_long_period_are_fewer(serve, period, of_each):
    adder = adders.SequenceAdder(serve(make_table()), "table", length=100, period=period, num_envs=100)
    assert adder._options.max_in_flight_items == 100 * of_each


@pytest.mark.parametrize("kind", sorted(MAKERS))
def test_compression_is_passed_on(serve, kind):
    sizes = {}
    for codec in ("none", "zstd"):
        client = serve(make_table())
        with MAKERS[kind](client, compression=codec, delta_encoded=True) as adder:
            for _ in range(20):
                add(adder, np.zeros(10_000, np.int64))
        eventually(lambda client=client: info_of(client).current_size == 20)
        sizes[codec] = data_bytes(client)
    assert sizes["zstd"] * 10 < sizes["none"]


@pytest.mark.parametrize("kind", sorted(MAKERS))
@pytest.mark.parametrize(
    "options",
    [{"max_pending_bytes": 0}, {"max_in_flight_items": 0}, {"reconnect_timeout": -1.0}, {"compression": "gzip"}],
)
def test_wrong_options_are_refused(serve, kind, options):
    client = serve(make_table())
    with pytest.raises(ValueError, match="must|gzip"):
        add(MAKERS[kind](client, **options), np.float32(0))


def test_options_reach_the_writer(serve, monkeypatch):
    client = serve(make_table())
    given = {
        "max_in_flight_items": 5,
        "compression": "lz4",
        "delta_encoded": True,
        "max_chunk_length": 1,
        "max_pending_bytes": 1 << 20,
        "reconnect_timeout": 3.0,
    }
    seen = []
    make = type(client).structured_writer
    monkeypatch.setattr(type(client), "structured_writer", lambda *a, **o: seen.append(o) or make(*a, **o))
    for kind in ("transitions", "sequences"):
        add(MAKERS[kind](client, **given), np.float32(0))
    make_batched = type(client).batched_writer
    monkeypatch.setattr(type(client), "batched_writer", lambda *a, **o: seen.append(o) or make_batched(*a, **o))
    add(MAKERS["episodes"](client, **given), np.float32(0))
    assert [options["options"] for options in seen] == [reverb.WriterOptions(**given)] * 3


@pytest.mark.parametrize("kind", sorted(MAKERS))
def test_the_end_of_a_with_block_does_not_wait_without_end_for_a_shut_limiter(serve, caplog, monkeypatch, kind):
    monkeypatch.setattr(closing, "CLOSE_TIMEOUT_SECONDS", 0.2)
    client = serve(make_table(limiter=rate_limiters.RateLimiter(1.0, 1, -1000.0, 2.0)))

    def act():
        with MAKERS[kind](client, reconnect_timeout=1.0) as adder:
            for _ in range(5):
                add(adder, np.float32(1))

    Background(act).result()
    assert info_of(client).current_size == 2
    assert "not in their tables" in caplog.text
