"""After the server has refused an item, the call that reports it takes its own step, and nothing is lost."""

import contextlib
import gc
import os
import signal
import threading

import numpy as np
import pytest
from behaviour_support import draw, eventually, info_of, make_table

from reverb import adders, errors, rate_limiters, structured

STEP = {"x": np.int64(0)}
PAIRS = structured.create_config(structured.pattern_from_transform(STEP, lambda x: x["x"][-2:]), "table")
LAST = structured.create_config(
    structured.pattern_from_transform(STEP, lambda x: x["x"][-1:]), "table", [structured.Condition.is_end_episode()]
)
REFUSED = -1.0


def table():
    """A table that refuses negative priorities, and gives each item once."""
    return make_table(sampler="prioritized", max_times_sampled=1)


def wait_for_refusal(writer):
    eventually(lambda: writer.sender.num_pending_items == 0)


def taken(call, *args, **kwargs):
    """Makes a call that reports a refused item, and has done its work."""
    with pytest.raises(errors.InvalidPriorityError, match="must not be negative") as raised:
        call(*args, **kwargs)
    assert raised.value.step_taken


def is_told(adder):
    """Whether no error is left to be raised."""
    return adder._writer.sender.is_settled and not adder._reports.kept


def items(client):
    """All items of the table, as sorted texts."""
    return sorted(str([np.asarray(leaf).tolist() for leaf in sample.data]) for sample in all_of(client))


def all_of(client):
    size = info_of(client).current_size
    return draw(client, size) if size else []


def test_an_error_says_that_nothing_was_taken_unless_it_was(serve):
    client = serve(table())
    assert errors.ReverbError.step_taken is False
    writer = client.trajectory_writer(2)
    writer.append(1)
    with pytest.raises(errors.ReverbError) as raised:
        writer.append("text")
    assert not raised.value.step_taken
    with pytest.raises(errors.ReverbError) as raised:
        writer.create_item("nowhere", 1.0, writer.history[-1:])
    assert not raised.value.step_taken
    writer.close()
    with pytest.raises(errors.CancelledError) as raised:
        writer.append(2)
    assert not raised.value.step_taken


class TestTrajectoryWriter:
    def writer_with_refused_item(self, client):
        """A writer whose first step has an item that the server has refused."""
        writer = client.trajectory_writer(4)
        writer.append(0)
        writer.create_item("table", REFUSED, writer.history[-1:])
        wait_for_refusal(writer)
        return writer

    def test_append_takes_its_step(self, serve):
        client = serve(table())
        writer = self.writer_with_refused_item(client)
        taken(writer.append, 1)
        writer.append(2)
        writer.create_item("table", 1.0, writer.history[-3:])
        writer.flush()
        assert items(client) == ["[[0, 1, 2]]"]

    def test_create_item_queues_its_item(self, serve):
        client = serve(table())
        writer = self.writer_with_refused_item(client)
        taken(writer.create_item, "table", 1.0, writer.history[-1:])
        writer.flush()
        assert items(client) == ["[[0]]"]

    def test_an_item_whose_call_reports_a_missing_table_is_queued_once(self, serve):
        client = serve(table())
        writer = client.trajectory_writer(1, validate_items=False)
        writer.append(0)
        writer.create_item("nowhere", 1.0, writer.history[-1:])
        wait_for_refusal(writer)
        with pytest.raises(errors.TableNotFoundError) as raised:
            writer.create_item("table", 1.0, writer.history[-1:])
        assert raised.value.step_taken
        writer.flush()
        assert items(client) == ["[[0]]"]

    def test_end_episode_ends_the_episode(self, serve):
        client = serve(table())
        writer = self.writer_with_refused_item(client)
        taken(writer.end_episode)
        assert writer.episode_steps == 0
        writer.append(1)
        writer.create_item("table", 1.0, writer.history[:])
        writer.flush()
        assert items(client) == ["[[1]]"]


class TestStructuredWriter:
    def test_append_takes_its_step_and_makes_its_items(self, serve):
        client = serve(table())
        writer = client.structured_writer([PAIRS])
        for x in range(5):
            if x == 2:
                wait_for_refusal(writer)
                taken(writer.append, {"x": np.int64(x)})
            else:
                writer.append({"x": np.int64(x)}, priority=REFUSED if x == 1 else None)
        writer.flush()
        assert items(client) == ["[[1, 2]]", "[[2, 3]]", "[[3, 4]]"]

    def test_end_episode_makes_its_items_and_ends_the_episode(self, serve):
        client = serve(table())
        writer = client.structured_writer([PAIRS, LAST])
        writer.append({"x": np.int64(0)})
        writer.append({"x": np.int64(1)}, priority=REFUSED)
        wait_for_refusal(writer)
        taken(writer.end_episode)
        writer.append({"x": np.int64(2)})
        writer.append({"x": np.int64(3)})
        writer.end_episode()
        assert items(client) == ["[[1]]", "[[2, 3]]", "[[3]]"]


class TestBatchedWriter:
    def test_append_takes_its_step_and_ends_its_episodes(self, serve):
        client = serve(table())
        writer = client.batched_writer(2, configs=[PAIRS])
        ends = np.array([True, False])
        writer.append({"x": np.array([0, 10])})
        writer.append({"x": np.array([1, 11])}, priorities=[REFUSED, 1.0])
        wait_for_refusal(writer)
        taken(writer.append, {"x": np.array([2, 12])}, episode_end=ends)
        writer.append({"x": np.array([3, 13])})
        writer.flush()
        assert items(client) == ["[[1, 2]]", "[[10, 11]]", "[[11, 12]]", "[[12, 13]]"]

    def test_an_append_that_makes_no_item_takes_its_step(self, serve):
        client = serve(table())
        writer = client.batched_writer(1, num_keep_alive_refs=2)
        writer.append({"x": np.array([0])})
        writer.create_items("table", REFUSED, writer.history["x"][-1:])
        wait_for_refusal(writer)
        taken(writer.append, {"x": np.array([1])})
        writer.create_items("table", 1.0, writer.history["x"][-2:])
        writer.flush()
        assert items(client) == ["[[0, 1]]"]


class TestRowWriter:
    def test_each_call_does_its_work(self, serve):
        client = serve(table())
        with client.writer(3, chunk_length=1) as writer:
            writer.append(0)
            writer.create_item("table", 1, REFUSED)
            eventually(lambda: writer._writer.num_pending_items == 0)
            taken(writer.append, 1)
            writer.create_item("table", 2, REFUSED)
            eventually(lambda: writer._writer.num_pending_items == 0)
            taken(writer.create_item, "table", 2, 1.0)
            writer.create_item("table", 1, REFUSED)
            eventually(lambda: writer._writer.num_pending_items == 0)
            taken(writer.append_sequence, np.arange(2, 4))
            writer.create_item("table", 3, 1.0)
        assert items(client) == ["[[0, 1]]", "[[1, 2, 3]]"]


def row_writer(client):
    """A writer that has reported one of its three refused items."""
    writer = client.writer(8, chunk_length=4)
    writer.append(0)
    for _ in range(3):
        writer.create_item("table", 1, REFUSED)
    writer.append_sequence(np.arange(1, 4))
    eventually(lambda: writer._writer.num_pending_items == 0)
    taken(writer.append_sequence, np.arange(4, 8))
    return writer


def end_with_two_reports(client):
    """A structured writer whose last call has reported one refused item and kept the other."""
    each = structured.create_config(structured.pattern_from_transform(STEP, lambda x: x["x"][-1:]), "table")
    writer = client.structured_writer([each, LAST, each])
    writer.append({"x": np.int64(0)}, priority=REFUSED)
    wait_for_refusal(writer)
    taken(writer.end_episode)
    return writer


def adder_with_two_reports(client):
    """An adder whose last call has reported one refused item and kept the other."""
    adder = sequences(client, 2)
    add(adder, 0, last=False, priority=None)
    add(adder, 1, last=True, priority=REFUSED)
    wait_for_refusal(adder._writer)
    taken(add, adder, 2, last=False, priority=None)
    return adder


REPORTING = pytest.mark.parametrize("make", [end_with_two_reports, adder_with_two_reports])


class TestReportsThatOneCallHasKept:
    """A call raises one error, and later calls raise the others."""

    def test_the_calls_of_a_row_writer(self, serve):
        writer = row_writer(serve(table()))
        taken(writer.append, 8)
        with pytest.raises(errors.InvalidPriorityError) as raised:
            writer.flush()
        assert not raised.value.step_taken
        writer.flush()
        writer.close()

    def test_the_end_of_the_with_statement_of_a_row_writer(self, serve):
        writer = row_writer(serve(table()))
        for _ in range(2):
            with pytest.raises(errors.InvalidPriorityError), writer:
                pass
        writer.close()

    def test_the_close_of_a_row_writer(self, serve, caplog):
        writer = row_writer(serve(table()))
        with pytest.raises(errors.InvalidPriorityError):
            writer.close()
        assert [record.getMessage().count("must not be negative") for record in caplog.records] == [1]

    def test_an_append_of_a_structured_writer(self, serve):
        writer = end_with_two_reports(serve(table()))
        taken(writer.append, {"x": np.int64(1)})
        writer.append({"x": np.int64(2)})
        writer.flush()

    @REPORTING
    def test_flush(self, serve, make):
        writer = make(serve(table()))
        with pytest.raises(errors.InvalidPriorityError) as raised:
            writer.flush()
        assert not raised.value.step_taken
        writer.flush()

    @REPORTING
    def test_the_end_of_the_with_statement(self, serve, make):
        writer = make(serve(table()))
        with pytest.raises(errors.InvalidPriorityError), writer:
            pass
        with writer:
            pass

    @REPORTING
    def test_close_logs_what_no_call_has_raised(self, serve, caplog, make):
        writer = make(serve(table()))
        writer.close()
        assert [record.getMessage().count("must not be negative") for record in caplog.records] == [1]

    @REPORTING
    def test_the_deletion_logs_what_no_call_has_raised(self, serve, caplog, make):
        writer = make(serve(table()))
        del writer
        gc.collect()
        eventually(lambda: "must not be negative" in caplog.text)


def test_ctrl_c_ends_the_wait_of_append_sequence(serve):
    limiter = rate_limiters.SampleToInsertRatio(1.0, 1, (-1e9, 1))
    client = serve(make_table(limiter=limiter, max_times_sampled=1))
    writer = client.writer(4, chunk_length=4, max_in_flight_items=1)
    writer.append(0)
    for _ in range(3):
        writer.create_item("table", 1, 1.0)
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt) as raised:
        writer.append_sequence(np.arange(10, 20))
    assert not raised.value.step_taken
    writer._writer.close(0.0)


def episodes(client, num_envs):
    return adders.EpisodeAdder(client, "table", max_length=5, final=("x",), num_envs=num_envs)


def sequences(client, num_envs):
    return adders.SequenceAdder(client, "table", length=2, period=1, final=("x",), num_envs=num_envs)


def padded(client, num_envs):
    return adders.SequenceAdder(client, "table", length=2, period=2, end="pad", num_envs=num_envs)


def transitions(client, num_envs):
    return adders.NStepTransitionAdder(client, "table", n=2, discount=0.5, num_envs=num_envs, stack={"observation": 2})


def add(adder, step, *, last, priority):
    """Adds a step, whose number says which it is."""
    num_envs = adder.num_envs
    value = np.int64(step) if num_envs is None else np.arange(num_envs) * 100 + step
    ends = last if num_envs is None else np.full(num_envs, last)
    following = value + 1000
    if isinstance(adder, adders.NStepTransitionAdder):
        reward = np.float32(1.0) * value
        adder.add(value, value, reward, following, terminated=ends, priority=priority)
    else:
        final = {"x": following} if adder._final else None
        adder.add({"x": value}, last=ends, final=final, priority=priority)


@pytest.mark.parametrize("num_envs", [None, 2])
@pytest.mark.parametrize("refused", range(8))
@pytest.mark.parametrize("make", [episodes, sequences, padded, transitions])
def test_adders_go_on_with_the_step_that_follows(serve, make, refused, num_envs):
    client = serve(table())

    def run(priority):
        """Adds three episodes of three steps. The items of one step have this priority. Returns the reports."""
        reports = []

        def call(function, *args, **kwargs):
            try:
                function(*args, **kwargs)
            except errors.InvalidPriorityError as error:
                reports.append(error)

        adder = make(client, num_envs)
        for step in range(9):
            if step == refused + 1 and priority == REFUSED:
                wait_for_refusal(adder._writer)
            priorities = priority if step == refused else 1.0
            call(add, adder, step, last=step % 3 == 2, priority=priorities)
        assert all(error.step_taken for error in reports)
        while not is_told(adder):
            call(adder.flush)
        adder.close()
        return reports

    assert run(5.0) == []
    samples = all_of(client)
    num_refused = sum(sample.info.priority == 5.0 for sample in samples)
    expected = sorted(
        str([np.asarray(leaf).tolist() for leaf in sample.data]) for sample in samples if sample.info.priority == 1.0
    )
    reports = run(REFUSED)
    assert items(client) == expected
    # Each refused item is reported once.
    assert len(reports) == num_refused


def test_hindsight_writes_the_whole_episode_before_it_reports(serve):
    client = serve(table())
    adder = adders.HindsightAdder(
        client, "table", discount=0.9, compute_reward=lambda achieved, goal, info: 0.0, k=1, strategy="final"
    )

    def episode(first, priority):
        """Adds two steps, each of which may report a refused item. Returns the reports."""
        reports = []
        for step in range(first, first + 2):
            values = [{"observation": i, "achieved_goal": i, "desired_goal": -1} for i in (step, step + 1)]
            try:
                adder.add(values[0], step, 0.0, values[1], terminated=step > first, priority=priority)
            except errors.InvalidPriorityError as error:
                reports.append(error)
        assert all(error.step_taken for error in reports)
        return reports

    episode(0, REFUSED)
    wait_for_refusal(adder._writer)
    assert episode(10, 1.0)
    while not is_told(adder):
        with contextlib.suppress(errors.InvalidPriorityError):
            adder.flush()
    assert not episode(20, 1.0)
    adder.flush()
    actions = sorted(int(sample.data[0]) for sample in all_of(client))
    assert actions == [10, 10, 11, 11, 20, 20, 21, 21]
