"""Items made of any values that a writer still keeps."""

import collections
import datetime

import numpy as np
import pytest
from behaviour_support import Background, draw, eventually, info_of, make_table
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import reverb
from reverb import _protos, errors

Pair = collections.namedtuple("Pair", ["a", "b"])


def flat(client, table="table"):
    [sample] = draw(client, 1, table)
    return [column.tolist() for column in sample.data]


def write_steps(writer, count, start=0):
    for i in range(start, start + count):
        writer.append({"x": np.int64(i)})


def rows(column):
    return [None if cell is None else int(cell.numpy()) for cell in column]


def test_an_item_of_many_kinds_of_columns_arrives_as_it_was_asked_for(client):
    writer = client.trajectory_writer(4)
    writer.append({"obs": np.float32(0)})
    for i in (1, 2, 3):
        writer.append({"obs": np.float32(i), "act": np.int32(10 + i), "rew": np.float32(-i)})
    history = writer.history
    writer.create_item(
        "table",
        1.5,
        {
            "s": history["obs"][:],
            "a": history["act"][-3:],
            "last_r": history["rew"][-1],
            "ends": history["obs"][[0, -1]],
        },
    )
    writer.flush()
    [sample] = draw(client)
    assert sample.info.priority == 1.5
    assert [column.tolist() for column in sample.data] == [[11, 12, 13], [0.0, 3.0], -3.0, [0.0, 1.0, 2.0, 3.0]]
    assert [column.dtype for column in sample.data] == [np.int32, np.float32, np.float32, np.float32]
    assert sample.data[2].shape == ()


@pytest.mark.parametrize("length", [None, 1, 2, 4])
@pytest.mark.parametrize(
    "index",
    [slice(None, None, 2), [0, 3], [2, 0], [0, 0], [0, 1, 3], slice(None, None, -1), slice(1, None), -2],
    ids=str,
)
def test_rows_that_come_out_are_the_rows_asked_for(client, length, index):
    writer = client.trajectory_writer(4, max_chunk_length=length)
    write_steps(writer, 4)
    writer.create_item("table", 1.0, writer.history["x"][index])
    writer.flush()
    expected = [0, 1, 2, 3][index] if not isinstance(index, list) else [[0, 1, 2, 3][i] for i in index]
    assert flat(client) == [expected]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_rows_of_any_columns_are_bit_exact(client, data):
    client.reset("table")
    keep = data.draw(st.integers(1, 12))
    length = data.draw(st.one_of(st.none(), st.integers(1, keep)))
    codec = data.draw(st.sampled_from(["none", "lz4", "zstd", "auto"]))
    writer = client.trajectory_writer(
        keep, max_chunk_length=length, compression=codec, delta_encoded=data.draw(st.booleans())
    )
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    kept = collections.defaultdict(list)
    expected = []
    for row in range(data.draw(st.integers(1, 25))):
        step = {}
        for name, make in {
            "f": lambda: random.standard_normal(3),
            "i": lambda: np.int32(random.integers(1 << 30)),
            "s": lambda: random.bytes(random.integers(5)),
        }.items():
            present = name == "f" or data.draw(st.booleans())
            value = make() if present else None
            kept[name].append(value)
            if present:
                step[name] = value
        writer.append(step)
        if data.draw(st.booleans()):
            columns, values = {}, {}
            for name in step:
                usable = [i for i in range(max(0, row + 1 - keep), row + 1) if kept[name][i] is not None]
                chosen = data.draw(st.lists(st.sampled_from(usable), min_size=1, max_size=6))
                columns[name] = writer.history[name][chosen]
                values[name] = [kept[name][i] for i in chosen]
            writer.create_item("table", 1.0, columns)
            expected.append(values)
        if data.draw(st.integers(0, 9)) == 0:
            writer.flush(data.draw(st.integers(0, 3)))
        if data.draw(st.integers(0, 9)) == 0:
            writer.end_episode(clear_buffers=False)
    writer.flush()
    assert info_of(client).current_size == len(expected)
    for values in expected:
        [sample] = draw(client)
        for got, name in zip(sample.data, sorted(values), strict=True):
            want = values[name]
            assert got.tolist() == (want if name == "s" else np.stack(want).tolist())
        client.mutate_priorities("table", deletes=[sample.info.key])
    writer.close()


def test_overlapping_windows_share_their_steps(client):
    writer = client.trajectory_writer(5, max_chunk_length=5)
    for i in range(20):
        writer.append(np.full(100, i, np.uint8))
        if i >= 3:
            writer.create_item("table", 1.0, writer.history[-4:])
    writer.flush()
    for i in range(17):
        [sample] = draw(client)
        assert sample.data[0][:, 0].tolist() == list(range(i, i + 4))
        client.mutate_priorities("table", deletes=[sample.info.key])


class TestStructure:
    @pytest.mark.parametrize(
        ("steps", "expected"),
        [
            ([{"a": 1}, {"a": 2, "b": 3}, {"b": 4}], {"a": [1, 2, None], "b": [None, 3, 4]}),
            (
                [{"n": {"a": 1}}, {"n": {"b": 2}}, {"n": {"a": 3}, "m": [4, 5]}],
                {"n": {"a": [1, None, 3], "b": [None, 2, None]}, "m": [[None, None, 4], [None, None, 5]]},
            ),
            ([[1], [1, 2], [3]], [[1, 1, 3], [None, 2, None]]),
            ([Pair(1, None), Pair(2, 3), Pair(None, 4)], Pair([1, 2, None], [None, 3, 4])),
            ([1, 2], [1, 2]),
            ([{"a": 1}, {"a": None}, {"a": 2}], {"a": [1, None, 2]}),
            ([{1: 1}, {1: 2, 2: 3}], {1: [1, 2], 2: [None, 3]}),
            ([{"a": None, "b": 1}, {"a": {"c": 2}, "b": 2}], {"a": {"c": [None, 2]}, "b": [1, 2]}),
            ([{"a": {"b": 1}}, {"a": None}, {"a": {"b": 3}}], {"a": {"b": [1, None, 3]}}),
        ],
    )
    def test_history_has_the_union_of_all_steps(self, client, steps, expected):
        writer = client.trajectory_writer(5)
        for step in steps:
            writer.append(step)

        def compare(got, want):
            if isinstance(want, dict):
                assert got.keys() == want.keys()
                for key in want:
                    compare(got[key], want[key])
            elif isinstance(want, Pair):
                assert type(got) is Pair
                compare(tuple(got), tuple(want))
            elif isinstance(want, (list, tuple)) and isinstance(got, (list, tuple)):
                for one, other in zip(got, want, strict=True):
                    compare(one, other)
            else:
                assert rows(got) == want

        compare(writer.history, expected)

    @pytest.mark.parametrize(
        ("first", "second"), [({"a": 1}, {"a": {"b": 1}}), ({"a": {"b": 1}}, {"a": 1}), ([1], {"a": 1})]
    )
    def test_a_step_of_another_structure_is_refused_with_its_path(self, client, first, second):
        writer = client.trajectory_writer(5)
        writer.append(first)
        with pytest.raises(ValueError, match="Field \\("):
            writer.append(second)
        writer.append(first)
        assert writer.episode_steps == 2

    def test_history_needs_a_step(self, client):
        with pytest.raises(RuntimeError, match="history cannot be accessed before `append` is called"):
            _ = client.trajectory_writer(1).history


class TestAppend:
    def test_a_bad_leaf_changes_nothing(self, client):
        writer = client.trajectory_writer(3)
        writer.append({"a": 1, "b": np.zeros(2)})
        for bad, error in (
            ({"a": 2, "b": np.zeros(3)}, ValueError),
            ({"a": 2, "b": np.zeros(2, np.float32)}, ValueError),
            ({"a": 2, "b": object()}, TypeError),
            ({"a": 2, "b": np.zeros(2), "c": np.zeros(2, "datetime64[s]")}, TypeError),
        ):
            with pytest.raises(error):
                writer.append(bad)
        assert (writer.episode_steps, rows(writer.history["a"])) == (1, [1])
        writer.append({"a": 2, "b": np.ones(2)})
        assert rows(writer.history["a"]) == [1, 2]

    def test_errors_name_the_column(self, client):
        writer = client.trajectory_writer(3)
        writer.append({"nest": {"sub": np.zeros(2)}})
        with pytest.raises(errors.ReverbError) as error:
            writer.append({"nest": {"sub": np.zeros(2, np.int64)}})
        assert str(error.value) == (
            "Tensor of wrong dtype provided for column ('nest', 'sub'). Got int64 but expected double."
        )
        with pytest.raises(errors.ReverbError) as error:
            writer.append({"nest": {"sub": np.zeros((1, 2))}})
        assert str(error.value) == (
            "Tensor of incompatible shape provided for column ('nest', 'sub'). "
            "Got [1,2] which is incompatible with [2]."
        )
        with pytest.raises(TypeError, match=r"\('nest', 'sub'\)"):
            writer.append({"nest": {"sub": object()}})

    def test_parts_of_a_step_share_a_row(self, client):
        writer = client.trajectory_writer(3)
        writer.append({"o": 1}, partial_step=True)
        writer.create_item("table", 1.0, writer.history["o"][-1:])
        assert writer.episode_steps == 0
        writer.append({"a": 5})
        assert writer.episode_steps == 1
        writer.create_item("table", 1.0, [writer.history["o"][-1], writer.history["a"][-1]])
        writer.flush()
        assert flat(client) == [[1]]

    def test_a_column_is_set_once_a_step(self, client):
        writer = client.trajectory_writer(3)
        writer.append({"a": 1}, partial_step=True)
        with pytest.raises(errors.ReverbError) as error:
            writer.append({"a": 2, "b": 3})
        assert str(error.value) == (
            "Field ('a',) has already been set in the active step by previous (partial) append call and thus must be "
            "omitted or set to None but got: 2"
        )
        writer.append({"a": None, "b": 3})
        assert (rows(writer.history["a"]), rows(writer.history["b"])) == ([1], [3])

    @pytest.mark.parametrize("clear", [True, False])
    def test_the_end_of_an_episode_closes_an_open_step(self, client, clear):
        writer = client.trajectory_writer(3)
        writer.append({"a": 1}, partial_step=True)
        writer.end_episode(clear_buffers=clear)
        writer.append({"a": 2})
        assert rows(writer.history["a"]) == ([2] if clear else [1, 2])


class TestHistory:
    def test_indices_follow_the_rules_of_lists(self, client):
        writer = client.trajectory_writer(3)
        write_steps(writer, 3)
        view, values = writer.history["x"], [0, 1, 2]
        for start in (None, *range(-5, 6)):
            for stop in (None, *range(-5, 6)):
                for step in (None, 1, 2, -1, -2):
                    index = slice(start, stop, step)
                    assert rows(view[index]) == values[index], index
        for index in range(-3, 3):
            assert view[index].is_squeezed
            assert rows(view[index]) == [values[index]]
            assert rows(view[np.int64(index)]) == [values[index]]
        for index in (-4, 3, 99):
            with pytest.raises(IndexError):
                view[index]
            with pytest.raises(IndexError):
                view[[0, index]]
        for index in (None, "a", 1.0, (0, 1), ...):
            with pytest.raises(TypeError, match="indices must be integers"):
                view[index]

    def test_rows_that_are_kept_no_longer_are_refused(self, client):
        writer = client.trajectory_writer(3)
        write_steps(writer, 5)
        view = writer.history["x"]
        assert (len(view), rows(view)) == (5, [None, None, 2, 3, 4])
        for index, expected in (
            (slice(-3, None), [2, 3, 4]),
            (slice(2, 4), [2, 3]),
            (-2, [3]),
            (3, [3]),
            (slice(0, 0), []),
        ):
            assert rows(view[index]) == expected
        for index in (slice(None), 0, slice(1, 3), slice(None, None, 2), slice(None, -1), [4, 1]):
            with pytest.raises(ValueError, match="TrajectoryColumns cannot contain any None data references"):
                view[index]

    def test_a_step_without_the_column_is_named_in_the_error(self, client):
        writer = client.trajectory_writer(3)
        writer.append({"x": 1, "y": 1})
        writer.append({"x": 2})
        with pytest.raises(errors.ReverbError) as error:
            writer.history["y"][-1]
        assert str(error.value) == (
            "TrajectoryColumns cannot contain any None data references: TrajectoryColumn at path ('y', -1) got [None]."
        )

    def test_columns_expire_with_the_values(self, client):
        writer = client.trajectory_writer(2)
        write_steps(writer, 1)
        column = writer.history["x"][-1:]
        write_steps(writer, 1, 1)
        assert column.numpy().tolist() == [0]
        write_steps(writer, 1, 2)
        assert [cell.expired for cell in column] == [True]
        with pytest.raises(RuntimeError, match="expired"):
            column.numpy()
        with pytest.raises(errors.ReverbError) as error:
            writer.create_item("table", 1.0, {"x": column})
        assert str(error.value) == "Error in column 0: Column contains expired CellRef."

    def test_views_are_live_and_survive_a_clear(self, client):
        writer = client.trajectory_writer(3)
        write_steps(writer, 2)
        view = writer.history["x"]
        assert writer.history["x"] is view
        writer.end_episode()
        assert len(view) == 0
        write_steps(writer, 1, 7)
        assert rows(view) == [7]
        assert "_ColumnHistory(path=('x',)" in str(view)

    def test_configure_reaches_the_view_of_its_column(self, client):
        writer = client.trajectory_writer(2)
        writer.configure(("a",), num_keep_alive_refs=5, max_chunk_length=1)
        for i in range(5):
            writer.append({"a": i, "b": i})
        assert rows(writer.history["a"]) == [0, 1, 2, 3, 4]
        assert rows(writer.history["b"]) == [None, None, None, 3, 4]
        writer.configure(("b",), num_keep_alive_refs=4, max_chunk_length=None)
        for i in range(5, 8):
            writer.append({"a": i, "b": i})
        assert rows(writer.history["b"])[-4:] == [4, 5, 6, 7]


class TestColumn:
    def test_columns_can_be_put_together_by_hand(self, client):
        writer = client.trajectory_writer(3)
        writer.append({"obs": 3.0})
        writer.append({"obs": 9.0, "goal": 100.0})
        history = writer.history
        column = reverb.TrajectoryColumn(list(history["obs"][-2:]) + list(history["goal"][-1:]))
        assert column.numpy().tolist() == [3.0, 9.0, 100.0]
        assert (column.shape, column.dtype, len(column)) == ((3,), np.float64, 3)
        writer.create_item("table", 1.0, [column])
        writer.flush()
        assert flat(client) == [[3.0, 9.0, 100.0]]

    def test_a_column_is_indexed_like_a_tuple(self, client):
        writer = client.trajectory_writer(4)
        write_steps(writer, 4)
        column = writer.history["x"][:]
        assert rows(column[1:]) == [1, 2, 3]
        assert rows(column[[3, 0]]) == [3, 0]
        assert column[2].is_squeezed
        assert column[2].numpy().shape == ()
        assert column[2].shape == ()

    def test_what_cannot_be_a_column_is_refused(self, client):
        writer = client.trajectory_writer(4)
        write_steps(writer, 2)
        cells = list(writer.history["x"][:])
        with pytest.raises(ValueError, match="exactly one data reference when squeeze set, got 2"):
            reverb.TrajectoryColumn(cells, squeeze=True)
        with pytest.raises(ValueError, match=r"at path None got \[None\]\."):
            reverb.TrajectoryColumn([None])
        with pytest.raises(TypeError):
            reverb.TrajectoryColumn([1])
        empty = reverb.TrajectoryColumn([])
        with pytest.raises(ValueError, match="need at least one array to stack"):
            empty.numpy()
        with pytest.raises(IndexError):
            _ = empty.shape

    @pytest.mark.parametrize(
        "value", ["text", b"a\0b", np.array(["x", "yz"], object), np.zeros((0, 3)), np.bool_(True)], ids=str
    )
    def test_numpy_gives_what_was_appended_before_and_after_the_chunk_is_full(self, client, value):
        writer = client.trajectory_writer(2, max_chunk_length=2)
        writer.append(value)
        before = writer.history[-1].numpy()
        writer.append(value)
        after = writer.history[-1].numpy()
        assert before.tolist() == after.tolist()
        assert before.shape == np.shape(value)


class TestCreateItem:
    def test_wrong_trajectories_are_refused(self, client):
        writer = client.trajectory_writer(4)
        other = client.trajectory_writer(4)
        for one in (writer, other):
            one.append({"x": np.int64(1), "y": np.float32(2), "z": np.zeros(2)})
        history = writer.history
        cells = [next(iter(history[name][-1:])) for name in "xyz"]
        for trajectory, error, text in (
            ({"x": history["x"]}, TypeError, "All leaves of `trajectory` must be `TrajectoryColumn` but got {"),
            ({}, ValueError, "trajectory must not be empty."),
            ({"a": history["x"][0:0]}, ValueError, "trajectory must not be empty."),
            ({"a": history["x"][0:0], "b": history["x"][:]}, ValueError, "Error in column 0"),
            ([reverb.TrajectoryColumn(cells[:2])], ValueError, "dtypes: int64 (index 0) != float (index 1)."),
            ({"a": other.history["x"][:]}, ValueError, "another writer"),
        ):
            with pytest.raises(error) as raised:
                writer.create_item("table", 1.0, trajectory)
            assert text in str(raised.value)
        with pytest.raises(ValueError, match="`priority` must not be nan"):
            writer.create_item("table", float("nan"), history["x"][:])
        with pytest.raises(TypeError):
            writer.create_item("table", "high", history["x"][:])
        writer.flush()
        assert info_of(client).current_size == 0

    def test_an_unknown_table_is_refused_at_once(self, client):
        writer = client.trajectory_writer(1)
        writer.append(1)
        with pytest.raises(ValueError, match="nowhere"):
            writer.create_item("nowhere", 1.0, writer.history[-1:])
        writer.create_item("table", 1.0, writer.history[-1:])
        writer.flush()

    def test_signatures_are_checked_before_the_item_is_queued(self, serve):
        signature = {"a": reverb.TensorSpec([None, 2], np.float32, "aa"), "b": reverb.TensorSpec([], np.int64)}
        client = serve(make_table(signature=signature))
        writer = client.trajectory_writer(3)
        writer.append({"a": np.zeros(2, np.float32), "w": np.zeros(3), "b": 1})
        h = writer.history
        with pytest.raises(errors.ReverbError) as error:
            writer.create_item("table", 1.0, {"a": h["w"][-1], "b": h["b"][-1]})
        assert str(error.value).startswith(
            "Unable to create item in table 'table' since the provided trajectory is inconsistent with the table "
            "signature. The table expects column 0 to be a float [?,2] tensor but got a double [3] tensor."
        )
        with pytest.raises(ValueError, match="has 1 columns but the table signature has 2 columns"):
            writer.create_item("table", 1.0, {"a": h["a"][:]})
        writer.create_item("table", 1.0, {"a": h["a"][:], "b": h["b"][-1]})
        writer.flush()
        assert info_of(client).current_size == 1

    def test_an_item_that_the_server_refuses_is_reported_once_and_costs_no_other(self, client):
        writer = client.trajectory_writer(3, validate_items=False)
        writer.append(1)
        writer.create_item("nowhere", 1.0, writer.history[-1:])
        with pytest.raises(errors.TableNotFoundError, match="nowhere"):
            writer.flush()
        writer.create_item("table", 1.0, writer.history[-1:])
        writer.flush()
        assert info_of(client).current_size == 1

    def test_tables_of_a_server_that_was_started_anew_are_found(self, serve):
        client = serve(make_table("old"))
        writer = client.trajectory_writer(1)
        writer.append(1)
        port = serve.server.port
        serve.server.stop()
        serve(make_table("new"), port=port)
        if serve.road == "unix":
            pytest.skip("a new server has a new socket")
        writer.create_item("new", 1.0, writer.history[-1:])
        writer.flush(timeout_ms=20_000)
        assert info_of(serve.connect(), "new").current_size == 1


class TestFlush:
    def test_flush_waits_until_the_items_are_in_their_table(self, client):
        writer = client.trajectory_writer(10, max_chunk_length=10)
        for i in range(50):
            write_steps(writer, 1, i)
            writer.create_item("table", 1.0, writer.history["x"][-1:])
            writer.flush()
            assert info_of(client).current_size == i + 1

    def test_items_that_may_stay_behind_keep_their_chunk_open(self, client):
        writer = client.trajectory_writer(10, max_chunk_length=10)
        write_steps(writer, 3)
        writer.create_item("table", 1.0, writer.history["x"][-1:])
        writer.flush(1)
        assert info_of(client).current_size == 0
        writer.flush(0)
        assert info_of(client).current_size == 1

    def test_a_full_table_makes_flush_wait_and_a_timeout_ends_it(self, serve):
        client = serve(reverb.Table.queue("table", 1))
        writer = client.trajectory_writer(1)
        for i in range(3):
            writer.append(i)
            writer.create_item("table", 1.0, writer.history[-1:])
        with pytest.raises(errors.DeadlineExceededError) as error:
            writer.flush(timeout_ms=200)
        text = f"Flush call did not complete within provided timeout of {datetime.timedelta(milliseconds=200)}"
        assert str(error.value).startswith(text)
        assert "table" in str(error.value)
        with pytest.raises(errors.DeadlineExceededError):
            writer.flush(timeout_ms=0)
        writer.flush(2)
        assert [flat(client) for _ in range(3)] == [[[0]], [[1]], [[2]]]
        writer.flush()

    def test_the_wait_of_flush_ends_when_there_is_room(self, serve):
        client = serve(reverb.Table.queue("table", 1))
        writer = client.trajectory_writer(1)
        for i in range(3):
            writer.append(i)
            writer.create_item("table", 1.0, writer.history[-1:])
        flush = Background(writer.flush)
        assert [flat(client) for _ in range(3)] == [[[0]], [[1]], [[2]]]
        flush.result()

    def test_bad_arguments_are_refused(self, client):
        writer = client.trajectory_writer(1)
        with pytest.raises(ValueError, match="block_until_num_items must be >= 0, got -1"):
            writer.flush(-1)
        with pytest.raises(ValueError, match="timeout_ms"):
            writer.flush(timeout_ms=-1)
        with pytest.raises(TypeError):
            writer.flush(timeout_ms=1.5)
        for wrong in (0, -1):
            with pytest.raises(ValueError, match=f"num_keep_alive_refs \\({wrong}\\) must be a positive integer"):
                client.trajectory_writer(wrong)
        with pytest.raises(TypeError):
            client.trajectory_writer(1.5)
        with pytest.raises(ValueError, match=r"max_chunk_length \(5\) must be None or a positive integer <= "):
            writer.configure(("a",), num_keep_alive_refs=4, max_chunk_length=5)

    def test_items_come_without_flush(self, client):
        writer = client.trajectory_writer(5)
        writer.append(1)
        writer.create_item("table", 1.0, writer.history[-1:])
        assert flat(client) == [[1]]

    def test_a_blocked_table_does_not_hold_up_another(self, serve):
        client = serve(reverb.Table.queue("blocked", 1), make_table())
        writer = client.trajectory_writer(1)
        for i in range(5):
            writer.append(i)
            writer.create_item("blocked", 1.0, writer.history[-1:])
            writer.create_item("table", 1.0, writer.history[-1:])
        eventually(lambda: info_of(client).current_size == 5)
        assert info_of(client, "blocked").current_size == 1
        writer.flush(4)


class TestEpisodes:
    def test_steps_of_an_episode_are_counted(self, client):
        writer = client.trajectory_writer(3)
        write_steps(writer, 4)
        assert writer.episode_steps == 4
        writer.end_episode()
        assert writer.episode_steps == 0

    def test_items_may_span_episodes_if_the_buffers_stay(self, client):
        writer = client.trajectory_writer(3, max_chunk_length=3)
        write_steps(writer, 2)
        writer.end_episode(clear_buffers=False)
        write_steps(writer, 1, 2)
        writer.create_item("table", 1.0, writer.history["x"][-3:])
        writer.flush()
        assert flat(client) == [[0, 1, 2]]
        assert info_of(client).num_episodes == 2

    def test_an_episode_ends_also_when_its_items_are_late(self, serve):
        client = serve(reverb.Table.queue("table", 1))
        writer = client.trajectory_writer(3)
        for i in range(2):
            write_steps(writer, 1, i)
            writer.create_item("table", 1.0, writer.history["x"][-1:])
        with pytest.raises(errors.DeadlineExceededError, match="End episode call did not complete within"):
            writer.end_episode(timeout_ms=50)
        assert (writer.episode_steps, len(writer.history["x"])) == (0, 0)
        assert [flat(client) for _ in range(2)] == [[[0]], [[1]]]


class TestClose:
    def test_a_closed_writer_says_so(self, client):
        writer = client.trajectory_writer(3)
        write_steps(writer, 1)
        writer.close()
        writer.close()
        for call in (
            lambda: write_steps(writer, 1),
            writer.flush,
            writer.end_episode,
            lambda: writer.create_item("table", 1.0, writer.history["x"][-1:]),
        ):
            with pytest.raises(RuntimeError, match=r"TrajectoryWriter::Close has been called\."):
                call()
        assert rows(writer.history["x"]) == [0]
        assert writer.episode_steps == 1

    def test_close_delivers_what_can_be_delivered(self, client):
        writer = client.trajectory_writer(3, max_chunk_length=3)
        write_steps(writer, 1)
        writer.create_item("table", 1.0, writer.history["x"][-1:])
        writer.close()
        assert info_of(client).current_size == 1

    def test_close_names_what_it_gives_up(self, serve, caplog):
        client = serve(reverb.Table.queue("table", 1))
        writer = client.trajectory_writer(3)
        for i in range(3):
            write_steps(writer, 1, i)
            writer.create_item("table", 1.0, writer.history["x"][-1:])
        writer.close()
        assert any("2 items were not confirmed and are given up (2 for table `table`)" in m for m in caplog.messages)

    def test_a_writer_that_is_dropped_delivers_its_items(self, client):
        writer = client.trajectory_writer(3, max_chunk_length=3)
        write_steps(writer, 1)
        writer.create_item("table", 1.0, writer.history["x"][-1:])
        del writer
        eventually(lambda: info_of(client).current_size == 1)

    def test_with_flushes_and_leaves_the_writer_open(self, client):
        with client.trajectory_writer(3) as writer:
            write_steps(writer, 1)
            writer.create_item("table", 1.0, writer.history["x"][-1:])
        assert info_of(client).current_size == 1
        write_steps(writer, 1, 1)

    def test_with_flushes_after_an_error_of_the_body(self, client):
        def body():
            with client.trajectory_writer(3) as writer:
                write_steps(writer, 1)
                writer.create_item("table", 1.0, writer.history["x"][-1:])
                raise KeyError("body")

        with pytest.raises(KeyError):
            body()
        assert info_of(client).current_size == 1


class TestBackPressure:
    def test_a_writer_ahead_of_its_server_waits(self, serve):
        client = serve(reverb.Table.queue("table", 2))
        writer = client.trajectory_writer(1, max_pending_bytes=200_000)
        made = []

        def write():
            for i in range(50):
                writer.append(np.full(20_000, i, np.uint8))
                writer.create_item("table", 1.0, writer.history[-1:])
                made.append(i)

        writing = Background(write)
        eventually(lambda: len(made) >= 8)
        assert len(made) < 20
        for i in range(50):
            assert flat(client)[0][0][0] == i
        writing.result()

    def test_an_item_larger_than_the_limit_still_goes(self, client):
        writer = client.trajectory_writer(1, max_pending_bytes=1000)
        writer.append(np.zeros(100_000))
        writer.create_item("table", 1.0, writer.history[-1:])
        eventually(lambda: info_of(client).current_size == 1)


class TestCompression:
    @pytest.mark.parametrize("codec", ["lz4", "zstd", "auto"])
    @pytest.mark.parametrize("delta", [True, False])
    def test_chunks_that_compress_take_less_memory_and_read_the_same(self, serve, codec, delta):
        client = serve(make_table("plain"), make_table("compressed"))
        frames = np.cumsum(np.ones((200, 64, 64), np.uint8), axis=0, dtype=np.uint8)
        for table, options in (("plain", {}), ("compressed", {"compression": codec, "delta_encoded": delta})):
            with client.trajectory_writer(4, **options) as writer:
                for i, frame in enumerate(frames):
                    writer.append({"frame": frame, "name": f"frame {i}"})
                    if i >= 3:
                        writer.create_item(
                            table, 1.0, {"f": writer.history["frame"][-4:], "n": writer.history["name"][-1]}
                        )
                    if i == 150:
                        np.testing.assert_array_equal(writer.history["frame"][-4:].numpy(), frames[147:151])
        plain, compressed = table_bytes(client, "plain"), table_bytes(client, "compressed")
        assert compressed < plain / 4
        for first, sample in enumerate(client.sample("compressed", 1, emit_timesteps=False)):
            np.testing.assert_array_equal(sample.data[0], frames[first : first + 4])
            assert sample.data[1] == f"frame {first + 3}".encode()
        batch = client.sample_batch("compressed", 64)
        for one in batch.data[0]:
            np.testing.assert_array_equal(one, frames[one[0, 0, 0] - 1 :][:4])

    @pytest.mark.parametrize("codec", ["lz4", "zstd", "auto"])
    def test_whole_steps_of_compressed_chunks_are_read(self, client, codec):
        with client.trajectory_writer(1, compression=codec) as writer:
            for i in range(100):
                writer.append(np.full(1000, i))
                writer.create_item("table", 1.0, writer.history[-1:])
        assert table_bytes(client, "table") < 100 * 1000
        for _ in range(20):
            batch = client.sample_batch("table", 32, squeeze_time=True)
            assert (batch.data[0] == batch.data[0][:, :1]).all()
            assert batch.data[0].shape == (32, 1000)

    def test_an_unknown_codec_is_refused(self, client):
        with pytest.raises(ValueError, match="compression must be `none`, `lz4`, `zstd` or `auto`, got `rar`"):
            client.trajectory_writer(1, compression="rar")


def table_bytes(client, table):
    """Bytes of all chunks that the items of a table refer to."""
    status_class = _protos.message_class("reverb.replay.v1.TableStatus")
    statuses = map(status_class.FromString, client._client.table_statuses(None))
    return next(status.size_bytes for status in statuses if status.info.name == table)
