"""Writers and adders wait for room before they do anything, so that a call which timed out may be repeated."""

import logging

import numpy as np
import pytest
from behaviour_support import Background, at_rest, draw, eventually, info_of, make_table

import reverb
from reverb import adders, errors, rate_limiters

SOON = 0.2
LATE = 60.0


def blocked_after(items, name="table"):
    """A table of which each item is drawn once, whose limiter takes this many items before somebody draws."""
    limiter = rate_limiters.SampleToInsertRatio(1.0, 1, (-1e9, items))
    return make_table(name, limiter=limiter, max_times_sampled=1)


@pytest.fixture
def here():
    """Starts a server whose client is in the same process."""
    servers = []

    def start(*tables):
        servers.append(reverb.Server(tables))
        return servers[-1].localhost_client()

    yield start
    for server in servers:
        server.stop()


def pending(adder):
    return adder._writer.sender.num_pending_items


def end(adder):
    """Closes the writer of an adder without waiting for its items."""
    writer = getattr(adder, "_writer", adder)
    (writer.sender if hasattr(writer, "sender") else writer).close(0.0)


def refused(call, *args, **kwargs):
    with pytest.raises(errors.DeadlineExceededError) as raised:
        call(*args, timeout=SOON, **kwargs)
    assert not raised.value.step_taken


def rest(client, num_items):
    """All data of the table, drawn one by one as the limiter lets more items in."""
    return [np.asarray(draw(client, 1)[0].data[0]).tolist() for _ in range(num_items)]


class TestCreateItem:
    def test_nothing_was_created_and_the_call_may_be_repeated(self, serve):
        client = serve(blocked_after(1))
        writer = client.trajectory_writer(1, max_in_flight_items=2)
        for i in range(3):
            writer.append(i)
            writer.create_item("table", 1.0, writer.history[-1], timeout=LATE)
        eventually(lambda: info_of(client).current_size == 1)
        writer.append(3)
        refused(writer.create_item, "table", 1.0, writer.history[-1])
        assert writer.sender.num_pending_items == 2
        waiting = Background(writer.create_item, "table", 1.0, writer.history[-1], timeout=LATE)
        assert rest(client, 1) == [0]
        waiting.result()
        assert rest(client, 3) == [1, 2, 3]
        writer.flush(timeout=LATE)
        assert info_of(client).current_size == 0

    def test_items_of_a_batch_are_created_together(self, serve):
        client = serve(blocked_after(1))
        writer = client.batched_writer(3, max_in_flight_items=4)
        writer.append(np.arange(3))
        writer.create_items("table", 1.0, writer.history[-1], timeout=LATE)
        eventually(lambda: info_of(client).current_size == 1)
        writer.append(np.arange(3) + 10)
        refused(writer.create_items, "table", 1.0, writer.history[-1])
        assert writer.sender.num_pending_items == 2
        waiting = Background(writer.create_items, "table", 1.0, writer.history[-1], timeout=LATE)
        assert rest(client, 1) == [0]
        assert waiting.result().tolist() == [True] * 3
        assert rest(client, 5) == [1, 2, 10, 11, 12]

    @pytest.mark.parametrize("timeout", [-1.0, "soon"])
    def test_the_timeout_is_checked(self, serve, timeout):
        writer = serve(make_table()).trajectory_writer(1)
        writer.append(0)
        with pytest.raises((TypeError, ValueError), match="timeout"):
            writer.create_item("table", 1.0, writer.history[-1], timeout=timeout)

    def test_a_full_writer_reports_a_refused_item_after_it_has_queued_its_own(self, serve):
        client = serve(blocked_after(1), make_table("other", sampler="prioritized"))
        writer = client.trajectory_writer(1, max_in_flight_items=2)
        writer.append(0)
        for _ in range(2):
            writer.create_item("table", 1.0, writer.history[-1])
        writer.create_item("other", -1.0, writer.history[-1])
        eventually(lambda: writer.sender.num_pending_items == 1)
        with pytest.raises(errors.InvalidPriorityError) as raised:
            writer.create_item("table", 2.0, writer.history[-1], timeout=LATE)
        assert raised.value.step_taken
        refused(writer.create_item, "table", 3.0, writer.history[-1])
        assert [sample.info.priority for _ in range(3) for sample in draw(client, 1)] == [1.0, 1.0, 2.0]


def step_of(adder, number, last, timeout=LATE):
    num_envs = adder.num_envs
    value = np.int64(number) if num_envs is None else np.full(num_envs, number)
    ends = last if num_envs is None else np.full(num_envs, last)
    if isinstance(adder, adders.NStepTransitionAdder):
        adder.add(value, value, value, value, terminated=ends, timeout=timeout)
    elif isinstance(adder, adders.HindsightAdder):
        seen = {"observation": value, "achieved_goal": value, "desired_goal": value}
        adder.add(seen, value, value, seen, terminated=ends, timeout=timeout)
    else:
        adder.add({"x": value}, last=ends, timeout=timeout)


SHAPES = [(3, 3), (4, 2), (2, 5), (1, 1), (5, 3)]


def make_adder(kind, client, num_envs, shape=(3, 2), **options):
    length, period = shape
    if kind == "transitions":
        return adders.NStepTransitionAdder(client, "table", n=length, discount=0.9, num_envs=num_envs, **options)
    if kind == "episodes":
        return adders.EpisodeAdder(client, "table", max_length=100, num_envs=num_envs, **options)
    if kind == "hindsight":
        return adders.HindsightAdder(
            client, "table", discount=0.9, compute_reward=lambda *_: 0.0, k=2, num_envs=num_envs, **options
        )
    return adders.SequenceAdder(client, "table", length=length, period=period, end=kind, num_envs=num_envs, **options)


@pytest.mark.parametrize("num_envs", [None, 3])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["truncate", "pad", "drop", "transitions", "episodes", "hindsight"])
def test_an_adder_takes_room_for_the_items_that_a_call_creates(here, kind, shape, num_envs, monkeypatch):
    client = here(make_table(max_size=10_000))
    adder = make_adder(kind, client, num_envs, shape)
    asked = []

    def take_room(at_most, timeout, count=None):
        asked.append(at_most if count is None else count())
        assert asked[-1] <= at_most

    monkeypatch.setattr(adder, "_take_room", take_room)
    before, number = 0, 0
    for length in [*range(1, 13), 0]:
        for index in range(length or 7):
            asked.clear()
            step_of(adder, number, index == length - 1)
            number += 1
            adder.flush(timeout=LATE)
            size = info_of(client).current_size
            assert size - before == sum(asked), (length, index)
            before = size
    # An episode that is ended after its last step.
    asked.clear()
    adder.end_episode()
    adder.flush(timeout=LATE)
    assert info_of(client).current_size - before == sum(asked)


@pytest.mark.parametrize("num_envs", [None, 3])
@pytest.mark.parametrize("kind", ["truncate", "pad", "transitions", "episodes", "hindsight"])
def test_an_add_that_timed_out_may_be_repeated(serve, kind, num_envs):
    def run(table, must_wait):
        client = serve(table)
        # Of three episodes of one environment, the last waits.
        window = 1 if kind == "episodes" else 4
        adder = make_adder(kind, client, num_envs, max_in_flight_items=window)
        samples, num_refused, taken = [], 0, []

        def take():
            while info_of(client).current_size:
                samples.extend(draw(client, 1))

        for number in range(18):
            last = number % 6 == 5
            while True:
                try:
                    step_of(adder, number, last, 0.02 if must_wait else LATE)
                    break
                except errors.DeadlineExceededError as error:
                    taken.append(error.step_taken)
                    num_refused += 1
                    take()
        while pending(adder):
            take()
        take()
        assert not any(taken)
        adder.close()
        return sorted(str([np.asarray(leaf).tolist() for leaf in sample.data]) for sample in samples), num_refused

    expected, _ = run(make_table(max_times_sampled=1, sampler="fifo"), must_wait=False)
    got, num_refused = run(blocked_after(1), must_wait=True)
    assert num_refused > 0
    if kind != "hindsight":
        assert got == expected
    assert len(got) == len(expected)


def test_an_add_of_more_items_than_the_window_waits_until_it_is_empty(serve):
    client = serve(blocked_after(1))
    adder = adders.EpisodeAdder(client, "table", max_length=1, num_envs=5, max_in_flight_items=2)
    adder.add({"x": np.arange(5)}, last=np.ones(5, bool), timeout=LATE)
    eventually(lambda: pending(adder) == 4)
    refused(adder.add, {"x": np.arange(5) + 10}, last=np.ones(5, bool))
    adding = Background(adder.add, {"x": np.arange(5) + 10}, last=np.ones(5, bool), timeout=LATE)
    got = rest(client, 3)
    eventually(at_rest(lambda: pending(adder)))
    assert pending(adder) == 1
    got += rest(client, 1)
    adding.result()
    got += rest(client, 6)
    assert got == [[value] for value in [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]]


def test_the_end_of_an_episode_does_not_wait_for_its_items(serve):
    client = serve(blocked_after(1))
    adder = make_adder("truncate", client, None, (2, 2), max_in_flight_items=3)
    for number in range(4):
        step_of(adder, number, last=number == 3)
    assert pending(adder) <= 2
    adder.end_episode(timeout=SOON)
    end(adder)


def test_a_wait_says_so_again_and_again_if_this_process_samples_itself(here, caplog):
    client = here(blocked_after(1), blocked_after(1, "elsewhere"))
    writer = client.trajectory_writer(1, max_in_flight_items=1)
    writer.append(0)
    writer.create_item("table", 1.0, writer.history[-1])
    draw(client, 1)
    writer.create_item("table", 1.0, writer.history[-1])
    other = client.trajectory_writer(1, max_in_flight_items=1)
    other.append(0)
    for _ in range(2):
        other.create_item("elsewhere", 1.0, other.history[-1])
    with caplog.at_level(logging.WARNING, "reverb"):
        writer.create_item("table", 1.0, writer.history[-1])
        waits = [
            Background(one.create_item, name, 1.0, one.history[-1], timeout=21)
            for one, name in ((writer, "table"), (other, "elsewhere"))
        ]
        for wait in waits:
            with pytest.raises(errors.DeadlineExceededError):
                wait.result(LATE)
    eventually(lambda: sum("1 for table `table`" in text for text in caplog.messages) >= 2)
    for text in caplog.messages:
        if "a writer waits" in text:
            assert ("This process has drawn from `table`" in text) == ("1 for table `table`" in text)
    end(writer)
    end(other)
