"""Items that patterns make, as tables receive them."""

import collections

import numpy as np
import pytest
from behaviour_support import draw, eventually, info_of, make_table

import reverb
from reverb import errors, structured

STEP = {"a": None, "b": None}
Condition = structured.Condition
END, KEEP = "end of episode", "end of episode, buffers kept"


def config(pattern, *conditions, table="table", step=STEP, priority=None):
    return structured.create_config(structured.pattern_from_transform(step, pattern), table, conditions, priority)


@pytest.fixture
def client(serve):
    return serve(make_table(max_times_sampled=1), make_table("other", max_times_sampled=1))


def feed(writer, script):
    for one in script:
        if one is END:
            writer.end_episode()
        elif one is KEEP:
            writer.end_episode(clear_buffers=False)
        elif isinstance(one, dict):
            writer.append({"a": None, "b": None, **one})
        elif isinstance(one, tuple):
            writer.append({"a": None, "b": None, **one[0]}, partial_step=True)
        else:
            writer.append({"a": one, "b": 10 * one})
    writer.flush()


def items(client, table="table"):
    size = info_of(client, table).current_size
    samples = draw(client, size, table) if size else []
    return [tuple(column.tolist() for column in sample.data) for sample in samples]


def one_column(script, *expected):
    return script, [(value,) for value in expected]


@pytest.mark.parametrize(
    ("pattern", "conditions", "run"),
    [
        (lambda x: {"x": x["a"][-3:]}, [], one_column(range(5), [0, 1, 2], [1, 2, 3], [2, 3, 4])),
        (lambda x: x["a"][-2], [], one_column(range(5), 0, 1, 2, 3)),
        (lambda x: x["a"][:-2], [], one_column(range(5), 0, 1, 2, 3)),
        (
            lambda x: {"x": x["a"][-3:-1], "y": x["b"][-1]},
            [],
            (range(5), [([0, 1], 20), ([1, 2], 30), ([2, 3], 40)]),
        ),
        (lambda x: x["a"][-5::2], [], one_column(range(5), [0, 2, 4])),
        (lambda x: x["a"][-5::2], [], one_column(range(7), [0, 2, 4], [1, 3, 5], [2, 4, 6])),
        (lambda x: x["a"][-2:], [], one_column([0, 1, 2, END, 0, 1, 2], [0, 1], [1, 2], [0, 1], [1, 2])),
        (lambda x: x["a"][-2:], [], one_column([0, 1, 2, KEEP, 0, 1, 2], [0, 1], [1, 2], [2, 0], [0, 1], [1, 2])),
        (
            lambda x: x["a"][-2:],
            [Condition.is_end_episode()],
            one_column([0, 1, 2, END, 0, 1, 2, 3, END], [1, 2], [2, 3]),
        ),
        (lambda x: x["a"][-4:], [Condition.is_end_episode()], one_column([0, 1, 2, END])),
        (lambda x: x["a"][-1], [], one_column([0, 1, END], 0, 1)),
        (lambda x: x["a"][-1], [Condition.is_end_episode()], one_column([0, 1, KEEP, KEEP, END, END], 1)),
        (lambda x: x["a"][-1], [Condition.steps_since_applied() >= 2], one_column(range(7), 1, 3, 5)),
        (lambda x: x["a"][-2:], [Condition.steps_since_applied() >= 3], one_column(range(9), [1, 2], [4, 5], [7, 8])),
        (lambda x: x["a"][-1], [Condition.step_index() == 0], one_column([0, 1, KEEP, 2, 3], 0, 2)),
        (lambda x: x["a"][-1], [Condition.step_index() % 2 == 1], one_column(range(4), 1, 3)),
        (
            lambda x: x["a"][-1],
            [Condition.data(STEP)["b"] == 1],
            one_column([{"a": i, "b": bool(i % 2)} for i in range(4)], 1, 3),
        ),
        (
            lambda x: x["a"][-1],
            [Condition.data(STEP)["b"] < 1],
            one_column([{"a": 0}, {"a": 1, "b": 1}, {"a": 2}, {"a": 3, "b": 0}], 3),
        ),
        (lambda x: x["b"][-2:], [], one_column([{"b": 1}, {}, {"b": 3}, {"b": 4}, {"b": 5}], [3, 4], [4, 5])),
        (lambda x: x["b"][-3::2], [], one_column([{"b": 1}, {}, {"b": 3}, {}, {"b": 5}], [1, 3], [3, 5])),
        (
            lambda x: {"x": x["a"][-1], "y": x["b"][-1]},
            [],
            ([({"a": 1},), {"b": 2}, ({"a": 2},), {"b": 3}], [(1, 2), (2, 3)]),
        ),
        (lambda x: x["a"][-1], [], one_column([({"a": 1},), {"b": 2}], 1)),
    ],
)
@pytest.mark.parametrize("length", [None, 1])
def test_items_are_those_that_the_pattern_describes(client, pattern, conditions, run, length):
    script, expected = run
    writer = client.structured_writer([config(pattern, *conditions)], max_chunk_length=length)
    feed(writer, script)
    assert items(client) == expected


def test_configs_are_evaluated_in_order(client):
    configs = [config(lambda x: x["a"][-1]), config(lambda x: x["b"][-1])]
    feed(client.structured_writer(configs), [1, 2])
    assert items(client) == [(1,), (10,), (2,), (20,)]


def test_configs_may_go_to_different_tables(client):
    configs = [config(lambda x: x["a"][-1]), config(lambda x: x["b"][-2:], table="other")]
    feed(client.structured_writer(configs), [1, 2])
    assert items(client) == [(1,), (2,)]
    assert items(client, "other") == [([10, 20],)]


def test_priorities_are_constant_or_td_errors(client):
    priority = structured.td_error(0.75, STEP, lambda x: x["b"])
    writer = client.structured_writer([config(lambda x: {"x": x["b"][-3:]}, priority=priority)])
    for value in (1.0, -4.0, 2.0):
        writer.append({"a": 1, "b": value})
    writer.flush()
    [sample] = draw(client)
    assert sample.info.priority == pytest.approx(0.75 * 4 + 0.25 * 7 / 3)
    constant = structured.constant_priority_fn(2.5)
    writer = client.structured_writer([config(lambda x: x["a"][-1], priority=constant)])
    feed(writer, [1])
    assert draw(client)[0].info.priority == 2.5


def test_a_step_is_open_until_a_whole_append_or_the_end(client):
    writer = client.structured_writer([config(lambda x: x["a"][-1])])
    assert not writer.step_is_open
    writer.append({"a": 1, "b": None}, partial_step=True)
    assert writer.step_is_open
    writer.append({"a": None, "b": 1})
    assert not writer.step_is_open
    writer.append({"a": 1, "b": None}, partial_step=True)
    writer.end_episode()
    assert not writer.step_is_open


@pytest.mark.parametrize(
    ("step", "text"),
    [
        ({"a": 1}, "Flattened data has an unexpected length, got 1 but wanted 2."),
        ({"a": 1, "z": 2}, "differs from the first"),
        ([1, 2], "differs from the first"),
        ({"a": 1.0, "b": 1}, r"column 0 \(path=\('a',\)\). Got double but expected int64."),
    ],
)
def test_a_step_that_does_not_fit_is_refused_and_changes_nothing(client, step, text):
    writer = client.structured_writer([config(lambda x: {"x": x["a"][-2:]})])
    writer.append({"a": 1, "b": 1})
    with pytest.raises(ValueError, match=text):
        writer.append(step)
    writer.append({"a": 2, "b": 1})
    writer.flush()
    assert items(client) == [([1, 2],)]


def test_columns_that_no_config_uses_can_be_any_convertible_value(client):
    writer = client.structured_writer([config(lambda x: x["a"][-1])])
    writer.append({"a": 1, "b": 1})
    writer.append({"a": 2, "b": "text"})
    with pytest.raises(TypeError, match="'b'"):
        writer.append({"a": 3, "b": object()})
    writer.flush()
    assert items(client) == [(1,), (2,)]


def test_named_tuples_are_steps(client):
    step_type = collections.namedtuple("Step", ["observation", "reward"])
    pattern = structured.pattern_from_transform(
        step_type(None, None), lambda x: step_type(x.observation[-2:], x.reward[-1])
    )
    writer = client.structured_writer([structured.create_config(pattern, "table")])
    for i in range(3):
        writer.append(step_type(np.full(2, i), None if i == 0 else float(i)))
    writer.flush()
    assert items(client) == [([[0, 0], [1, 1]], 1.0), ([[1, 1], [2, 2]], 2.0)]


def test_bad_configs_are_refused_with_their_position(client):
    with pytest.raises(ValueError, match="At least one config must be provided"):
        client.structured_writer([])
    good = config(lambda x: x["a"][-1])
    bad = config(lambda x: x["a"][-1])
    bad.table = ""
    with pytest.raises(ValueError, match="Invalid configuration at position 1: `table` must not be empty"):
        client.structured_writer([good, bad])


def test_configs_are_not_modified(client):
    one = config(lambda x: x["a"][-3:])
    before = one.SerializeToString()
    client.structured_writer([one])
    assert one.SerializeToString() == before


def test_an_unknown_table_is_reported(client):
    writer = client.structured_writer([config(lambda x: x["a"][-1], table="nowhere")])
    writer.append({"a": 1, "b": 1})
    with pytest.raises(errors.TableNotFoundError, match="nowhere"):
        writer.flush()


def test_a_dropped_writer_delivers_its_items(client):
    writer = client.structured_writer([config(lambda x: x["a"][-1])])
    writer.append({"a": 1, "b": 1})
    del writer
    eventually(lambda: info_of(client).current_size == 1)


class TestBatched:
    def test_items_by_call_are_those_of_each_environment(self, client):
        writer = client.batched_writer(3, 2)
        ends = np.array([False, True, False])
        made = []
        for t in range(3):
            writer.append(
                {"o": np.arange(3) + 10 * t, "s": np.array(["a", "bb", ""], object)}, episode_end=ends & (t == 1)
            )
            made.append(
                writer.create_items(
                    "table", np.arange(3.0), {"o": writer.history["o"][-2:], "s": writer.history["s"][-1]}
                ).tolist()
            )
        writer.flush()
        assert made == [[False] * 3, [True, False, True], [True, False, True]]
        assert writer.episode_steps.tolist() == [3, 1, 3]
        samples = draw(client, 4)
        assert [sample.data[0].tolist() for sample in samples] == [[0, 10], [2, 12], [10, 20], [12, 22]]
        assert [sample.data[1].item() for sample in samples] == [b"a", b"", b"a", b""]
        assert [sample.info.priority for sample in samples] == [0.0, 2.0, 0.0, 2.0]

    def test_patterns_see_each_environment_separately(self, client):
        writer = client.batched_writer(2, configs=[config(lambda x: x["a"][-2:])])
        steps = np.zeros(2, np.int64)
        for _ in range(5):
            ends = steps == [1, 2]
            writer.append({"a": steps + np.array([100, 200]), "b": np.zeros(2)}, episode_end=ends)
            steps = np.where(ends, 0, steps + 1)
        writer.flush()
        assert sorted(items(client)) == [([100, 101],)] * 2 + [([200, 201],)] * 2 + [([201, 202],)]

    def test_an_item_that_cannot_be_made_does_not_affect_other_environments(self, client):
        priority = structured.td_error(1.0, STEP, lambda x: x["b"])
        writer = client.batched_writer(3, configs=[config(lambda x: [x["a"][-1], x["b"][-1]], priority=priority)])
        with pytest.raises(ValueError, match="nan"):
            writer.append({"a": np.arange(3), "b": np.array([1.0, np.nan, 2.0])})
        assert writer.episode_steps.tolist() == [1, 1, 1]
        writer.append({"a": np.arange(3) + 10, "b": np.ones(3)}, episode_end=np.ones(3, bool))
        writer.flush()
        assert [item[0] for item in items(client)] == [0, 2, 10, 11, 12]

    def test_a_mask_skips_environments(self, client):
        writer = client.batched_writer(2, 3)
        writer.append(np.array([1, 2]))
        writer.append(np.array([3, 4]), mask=np.array([True, False]))
        made = writer.create_items("table", 1.0, writer.history[:], mask=np.array([True, True]))
        writer.flush()
        assert made.tolist() == [True, True]
        assert items(client) == [([1, 3],), ([2],)]

    def test_bad_arguments_are_refused_and_change_nothing(self, client):
        writer = client.batched_writer(2, 3)
        writer.append({"x": np.zeros(2)})
        for data in ({"x": np.zeros(3)}, {"x": 1.0}, {"x": np.zeros(2, np.int32)}, {"x": np.zeros((2, 1))}):
            with pytest.raises(ValueError, match="'x'"):
                writer.append(data)
        for mask in ([True], [1, 0], np.ones((2, 1), bool)):
            with pytest.raises(ValueError, match=r"`mask` must be bools of shape \[2\]"):
                writer.append({"x": np.zeros(2)}, mask=mask)
        with pytest.raises(TypeError, match="BatchedColumn"):
            writer.create_items("table", 1.0, {"x": writer.history["x"]})
        with pytest.raises(ValueError, match="priorities"):
            writer.create_items("table", np.ones(3), writer.history["x"][-1])
        with pytest.raises(ValueError, match="num_envs"):
            client.batched_writer(0)
        assert writer.episode_steps.tolist() == [1, 1]

    def test_only_complete_windows_become_items(self, client):
        writer = client.batched_writer(1, 4)
        made = []
        for i in range(4):
            writer.append(np.array([i]))
            view = writer.history
            made.append(
                [bool(writer.create_items("table", 1.0, view[key])[0]) for key in (slice(-3, None), slice(-2, -1), 2)]
            )
        assert made == [
            [False, False, False],
            [False, True, False],
            [True, True, True],
            [True, True, True],
        ]
        writer.flush()
        assert items(client) == [([0],), ([0, 1, 2],), ([1],), (2,), ([1, 2, 3],), ([2],), (2,)]


def test_signature_of_the_configs_fits_their_items(serve):
    configs = [config(lambda x: {"x": x["a"][-5::2], "y": x["b"][-1]})]
    signature = structured.infer_signature(
        configs, {"a": reverb.TensorSpec([], np.int64), "b": reverb.TensorSpec([], np.int64)}
    )
    client = serve(make_table(signature=signature))
    feed(client.structured_writer(configs), range(6))
    assert info_of(client).current_size == 2
