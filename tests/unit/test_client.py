"""The client's own part: what it asks the extension for, and what it makes of the answers."""

import math
import pickle

import numpy as np
import pytest

import reverb
from reverb import errors, signatures
from reverb.cc import schema_pb2
from reverb.replay_sample import Ragged


class Native:
    """Stands in for the extension's client: notes its calls, and samples without end."""

    def __init__(self):
        self.calls = []
        self.token = 0
        self.table = schema_pb2.TableInfo(name="table")
        self.fails = None

    def set_signature(self, token, signature):
        self.token = token
        self.table.signature.ParseFromString(signatures.encode(signature))

    def sample(self, table, at_least, at_most, ahead, timeout, squeeze_time):
        self.calls.append(("sample", table, at_least, at_most, ahead, timeout, squeeze_time))
        batch = at_most + ahead
        infos = (
            np.arange(batch, dtype=np.uint64),
            np.ones(batch),
            np.full(batch, 9),
            np.ones(batch),
            np.ones(batch, dtype=np.int32),
        )
        return infos, [np.zeros((batch, 1, 2)), np.ones((batch, 1))], self.token, [False, False]

    def server_info(self, timeout):
        self.calls.append(("server_info", timeout))
        if self.fails is not None:
            raise self.fails
        return [(self.table.SerializeToString(), 3)]

    def __getattr__(self, name):
        return lambda *arguments: self.calls.append((name, *arguments))


@pytest.fixture
def native():
    return Native()


@pytest.fixture
def client(native):
    made = reverb.Client("localhost:1")
    made._client = native
    return made


def test_a_pickled_client_has_its_address_alone():
    again = pickle.loads(pickle.dumps(reverb.Client("localhost:1")))
    assert again.server_address == "localhost:1"
    assert repr(again) == "Client, server_address=localhost:1"


def test_nothing_happens_before_the_first_sample_is_asked_for(client, native):
    for number in (0, -2, 1.5, "many", 3):
        client.sample("table", number)
    assert native.calls == []


@pytest.mark.parametrize("number", [0, -2])
def test_numbers_of_samples_that_make_no_sense_are_refused(client, number):
    with pytest.raises(ValueError, match=rf"^max_samples \({number}\) must be -1 or >= 1$"):
        next(client.sample("table", number))


def test_minus_one_samples_are_none_and_consume_none(client, native):
    assert list(client.sample("table", -1)) == []
    assert native.calls == []


def test_sample_never_asks_for_more_than_are_left(client, native):
    keys = [step.info.key for (step,) in client.sample("table", 130)]
    assert keys == [*range(64), *range(64), 0, 1]
    assert [call[2:5] for call in native.calls] == [(1, 1, 63), (1, 1, 63), (1, 1, 1)]


def test_timeout_is_of_all_samples_together(client, native):
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
    with pytest.raises(TypeError, match="`timeout` must be seconds"):
        client.reset("table", timeout="5")


def test_batch_is_a_nest_of_columns(client, native):
    batch = client.sample_batch("table", 3, 2.5, squeeze_time=True)
    assert native.calls == [("sample", "table", 3, 3, 0, 2.5, True)]
    assert isinstance(batch.data, list)
    assert [column.shape for column in batch.data] == [(3, 1, 2), (3, 1)]
    assert batch.info.key.tolist() == [0, 1, 2]
    native.set_signature(7, {"b": reverb.TensorSpec([]), "a": reverb.TensorSpec([2])})
    assert client.sample_batch("table", 3).data["a"].shape == (3, 1, 2)


def test_signature_is_asked_for_when_its_number_changes(client, native):
    def num_questions():
        return sum(call[0] == "server_info" for call in native.calls)

    native.set_signature(7, {"b": reverb.TensorSpec([]), "a": reverb.TensorSpec([2])})
    assert sorted(client.sample_batch("table", 1).data) == ["a", "b"]
    assert num_questions() == 1
    client.sample_batch("table", 1)
    list(client.sample("table", 70, unpack_as_table_signature=True))
    assert num_questions() == 1
    native.set_signature(8, (reverb.TensorSpec([2]), reverb.TensorSpec([])))
    (step,) = next(client.sample("table", 1, unpack_as_table_signature=True))
    assert isinstance(step.data, tuple)
    assert num_questions() == 2


def test_table_without_a_signature_gives_flat_lists(client, native):
    for _ in range(2):
        sample = next(client.sample("table", 1, emit_timesteps=False, unpack_as_table_signature=True))
        assert isinstance(sample.data, list)
    assert sum(call[0] == "server_info" for call in native.calls) == 1


def test_unpacking_an_unknown_table_names_those_that_exist(client):
    with pytest.raises(ValueError, match='^Could not find table "other". The following tables exists: table.$'):
        next(client.sample("other", 1, unpack_as_table_signature=True))


@pytest.mark.parametrize(("timeout", "limit"), [(None, None), (0, None), (-1, None), (2, 2.0), (0.5, 0.5)])
def test_server_info_takes_zero_and_below_for_no_limit(client, native, timeout, limit):
    (info,) = client.server_info(timeout).values()
    assert (info.name, info.undelivered_samples) == ("table", 3)
    assert native.calls == [("server_info", limit)]


def test_server_info_says_how_long_it_waited(client, native):
    native.fails = errors.DeadlineExceededError("other words")
    with pytest.raises(
        reverb.DeadlineExceededError, match="^ServerInfo call did not complete within provided timeout of 3s$"
    ):
        client.server_info(3)


def test_insert_needs_a_priority(client, native):
    for insert in (client.insert, client.insert_batch):
        with pytest.raises(ValueError, match="^priorities must contain at least one item$"):
            insert([1], {})
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


def test_ragged_columns_reach_the_user(client, native, monkeypatch):
    answer = native.sample("table", 2, 2, 0, None, False)
    ragged = Ragged(np.arange(3), np.array([1, 2]))
    monkeypatch.setattr(native, "sample", lambda *_: (answer[0], [ragged], 0, [False]))
    assert client.sample_batch("table", 2).data == [ragged]
    items = client.sample("table", 2)
    assert [len(next(items)), len(next(items))] == [1, 2]
