"""The Python part of the client: what it requests from the extension, and how it converts the answers."""

import math
import pickle

import numpy as np
import pytest

import reverb
from reverb import _binding, errors
from reverb.data.endpoint import Endpoint
from reverb.replay_sample import Ragged

DICT = {"b": reverb.TensorSpec([], np.float64), "a": reverb.TensorSpec([2], np.float64)}


class Native:
    """Stands between the client and the extension's client: notes its calls, and samples a table without end."""

    def __init__(self):
        self.calls = []
        self.fails = None
        self.server = None
        self.serve([np.zeros(2), 1.0])

    def serve(self, *steps, signature=None):
        """Continues with another table, which holds one item of these steps."""
        if self.server is not None:
            self.server.stop()
        anyhow = (reverb.selectors.Uniform(), reverb.selectors.Fifo(), 10, reverb.rate_limiters.MinSize(1))
        self.server = reverb.Server([reverb.Table("table", *anyhow, signature=signature)])
        self.client = _binding.Client(Endpoint(f"localhost:{self.server.port}"))
        for step in steps:
            self.client.insert(step, {"table": 1.0}, None)

    def sample(self, *arguments):
        self.calls.append(("sample", *arguments))
        return self.client.sample(*arguments)

    def table_statuses(self, timeout):
        self.calls.append(("table_statuses", timeout))
        if self.fails is not None:
            raise self.fails
        return self.client.table_statuses(timeout)

    def note_drawn(self, table):
        pass

    def __getattr__(self, name):
        return lambda *arguments: self.calls.append((name, *arguments))


@pytest.fixture
def native():
    native = Native()
    yield native
    native.server.stop()


@pytest.fixture
def client(native):
    made = reverb.Client("localhost:1")
    made.engine = native
    return made


def test_a_pickled_client_holds_only_its_address():
    again = pickle.loads(pickle.dumps(reverb.Client("localhost:1")))
    assert again.server_address == "localhost:1"
    assert repr(again) == "Client, server_address=localhost:1"


def test_nothing_is_requested_before_the_first_sample(client, native):
    for number in (0, -2, 1.5, "many", 3):
        client.sample("table", number)
    assert native.calls == []


@pytest.mark.parametrize("number", [0, -2])
def test_invalid_numbers_of_samples_are_refused(client, number):
    with pytest.raises(ValueError, match=rf"^max_samples \({number}\) must be -1 or >= 1$"):
        next(client.sample("table", number))


def test_minus_one_samples_yield_and_consume_none(client, native):
    assert list(client.sample("table", -1)) == []
    assert native.calls == []


def test_sample_never_asks_for_more_than_are_left(client, native):
    assert len([step for (step,) in client.sample("table", 130)]) == 130
    assert [call[2:5] for call in native.calls] == [(1, 1, 63), (1, 1, 63), (1, 1, 1)]


def test_timeout_covers_all_samples_together(client, native):
    samples = client.sample("table", 130, timeout=50)
    list(samples)
    left = [call[5] for call in native.calls]
    assert 50 >= left[0] > left[1] > left[2] > 40
    list(client.sample("table", 1))
    assert native.calls[-1][5] is None


@pytest.mark.parametrize("timeout", [-1, math.nan])
def test_timeouts_are_not_negative(client, timeout):
    with pytest.raises(ValueError, match="`timeout` must not be negative"):
        client.sample_batch("table", 1, timeout)


def test_timeouts_are_numbers(client):
    with pytest.raises(TypeError, match="`timeout` must be a number of seconds"):
        client.reset("table", timeout="5")


def test_batch_is_a_nest_of_columns(client, native):
    batch = client.sample_batch("table", 3, 2.5, squeeze_time=True)
    assert native.calls == [("sample", "table", 3, 3, 0, 2.5, True)]
    assert isinstance(batch.data, list)
    assert [column.shape for column in batch.data] == [(3, 2), (3,)]
    assert batch.info.priority.tolist() == [1.0, 1.0, 1.0]
    native.serve({"a": np.zeros(2), "b": 1.0}, signature=DICT)
    assert client.sample_batch("table", 3).data["a"].shape == (3, 1, 2)


def test_signature_is_requested_when_its_number_changes(client, native):
    def num_questions():
        return sum(call[0] == "table_statuses" for call in native.calls)

    native.serve({"a": np.zeros(2), "b": 1.0}, signature=DICT)
    assert sorted(client.sample_batch("table", 1).data) == ["a", "b"]
    assert num_questions() == 1
    client.sample_batch("table", 1)
    list(client.sample("table", 70, unpack_as_table_signature=True))
    assert num_questions() == 1
    native.serve((np.zeros(2), 1.0), signature=(DICT["a"], DICT["b"]))
    (step,) = next(client.sample("table", 1, unpack_as_table_signature=True))
    assert isinstance(step.data, tuple)
    assert num_questions() == 2


def test_table_without_a_signature_gives_flat_lists(client, native):
    for _ in range(2):
        sample = next(client.sample("table", 1, emit_timesteps=False, unpack_as_table_signature=True))
        assert isinstance(sample.data, list)
    assert sum(call[0] == "table_statuses" for call in native.calls) == 1


def test_unpacking_an_unknown_table_names_those_that_exist(client):
    with pytest.raises(ValueError, match='^Could not find table "other". The following tables exists: table.$'):
        next(client.sample("other", 1, unpack_as_table_signature=True))


@pytest.mark.parametrize(("timeout", "limit"), [(None, None), (0, None), (-1, None), (2, 2.0), (0.5, 0.5)])
def test_server_info_takes_zero_and_below_as_no_limit(client, native, timeout, limit):
    (info,) = client.server_info(timeout).values()
    assert (info.name, info.current_size, info.undelivered_samples) == ("table", 1, 0)
    assert native.calls == [("table_statuses", limit)]


def test_server_info_reports_how_long_it_waited(client, native):
    native.fails = errors.DeadlineExceededError("other words")
    with pytest.raises(
        reverb.DeadlineExceededError, match="^ServerInfo call did not complete within provided timeout of 3s$"
    ):
        client.server_info(3)


def test_inserts_pass_their_timeout_on(client, native):
    for insert in (client.insert, client.insert_batch):
        insert([1], {"table": 1.0}, timeout=2)
    assert native.calls == [("insert", [1], {"table": 1.0}, 2.0), ("insert_batch", [1], {"table": 1.0}, 2.0)]


def test_mutate_takes_numbers_of_any_kind(client, native):
    updates = {np.uint64(2**64 - 1): np.float32(0.5), 3: np.array([2.0]), np.int64(4): 1}
    client.mutate_priorities("table", updates, [np.array([5]), np.array(6), 7])
    client.mutate_priorities("table")
    assert native.calls == [
        ("mutate_priorities", "table", [(2**64 - 1, 0.5), (3, 2.0), (4, 1.0)], [5, 6, 7], None),
        ("mutate_priorities", "table", [], [], None),
    ]


@pytest.mark.parametrize("key", [-1, 2**64, 1.5, "1", None, np.float64(1), np.array([1, 2])])
def test_keys_are_whole_numbers_of_64_bits(client, key):
    with pytest.raises(TypeError, match=r"^Keys of items"):
        client.mutate_priorities("table", deletes=[key])


@pytest.mark.parametrize(
    ("keys", "priorities", "sent"),
    [
        (np.array([1, 2], np.uint64), np.array([0.5, 1.0]), ([1, 2], [0.5, 1.0])),
        (np.array([1, 2], np.int64), np.array([0.5, 1.0], np.float32), ([1, 2], [0.5, 1.0])),
        ([1, 2**64 - 1], 2, ([1, 2**64 - 1], [2.0, 2.0])),
        ([[1], [2]], [[3], [4]], ([1, 2], [3.0, 4.0])),
        (5, [1], ([5], [1.0])),
        ([], [], ([], [])),
    ],
)
def test_update_sends_arrays(client, native, keys, priorities, sent):
    client.update_priorities("table", keys, priorities)
    _, _, sent_keys, sent_priorities, _ = native.calls[0]
    assert (sent_keys.tolist(), sent_priorities.tolist()) == sent
    assert (sent_keys.dtype, sent_priorities.dtype) == (np.uint64, np.float64)


@pytest.mark.parametrize(
    ("keys", "priorities", "error"),
    [
        ([1.5], [1], TypeError),
        (np.array([1.0]), [1], TypeError),
        (np.array([-1]), [1], ValueError),
        ([1, 2], [1, 2, 3], ValueError),
    ],
)
def test_update_refuses_what_does_not_fit(client, native, keys, priorities, error):
    with pytest.raises(error):
        client.update_priorities("table", keys, priorities)
    assert native.calls == []


def test_ragged_columns_reach_the_user(client, native):
    native.serve()
    for steps in (range(1), range(1, 3)):
        with reverb.Client(f"localhost:{native.server.port}").trajectory_writer(2) as writer:
            for step in steps:
                writer.append([step])
            writer.create_item("table", 1.0, [writer.history[0][:]])
    [column] = client.sample_batch("table", 20).data
    assert isinstance(column, Ragged)
    assert set(column.row_lengths.tolist()) == {1, 2}
    assert {len(item) for item in client.sample("table", 20)} == {1, 2}
