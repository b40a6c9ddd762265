"""What a trajectory writer keeps of its steps, and how items refer to it."""

import collections

import numpy as np
import pytest
from writer_support import flat, rows, write_steps

import reverb
from reverb import errors

Pair = collections.namedtuple("Pair", ["a", "b"])


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

    def test_rows_that_are_no_longer_kept_are_refused(self, client):
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
            "y has no value in this step. "
            "TrajectoryColumns cannot contain any None data references: TrajectoryColumn at path ('y', -1) got [None]."
        )

    def test_an_error_says_which_row_is_missing_and_why(self, client):
        writer = client.trajectory_writer(2)
        for i in range(5):
            writer.append({"o": i, "nest": {"p": i}})
        writer.append({"o": 5})
        o, p = writer.history["o"], writer.history["nest"]["p"]
        kept = "kept no longer; num_keep_alive_refs=2 and 6 steps were appended. TrajectoryColumns cannot"
        for view, index, text in (
            (o, -4, f"o[-4]: {kept}"),
            (o, 0, f"o[0]: {kept}"),
            (o, slice(-4, None), f"o[-4:]: o[-4] is {kept}"),
            (o, slice(1, 3), f"o[1:3]: o[-5] is {kept}"),
            (o, slice(None, None, 2), f"o[::2]: o[-6] is {kept}"),
            (o, [5, 1], f"o[[5, 1]]: o[-5] is {kept}"),
            (p, -1, "nest/p has no value in this step. TrajectoryColumns cannot"),
            (p, 5, "nest/p has no value in this step. TrajectoryColumns cannot"),
            (p, slice(-2, None), "nest/p[-2:]: nest/p[-1] has no value. TrajectoryColumns cannot"),
        ):
            with pytest.raises(ValueError, match="TrajectoryColumns cannot") as error:
                view[index]
            assert str(error.value).startswith(text)
        writer.append({"o": 6, "nest": {"p": 6}})
        with pytest.raises(ValueError, match=r"^nest/p\[-2\]: nest/p has no value in this step\. TrajectoryColumns"):
            p[-2]

    def test_a_step_that_is_one_leaf_has_no_name(self, client):
        writer = client.trajectory_writer(1)
        writer.append(0)
        writer.append(1)
        with pytest.raises(ValueError, match=r"^history\[-2\]: kept no longer; num_keep_alive_refs=1 and 2 steps"):
            writer.history[-2]

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
    def test_columns_can_be_built_by_hand(self, client):
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

    def test_values_that_cannot_form_a_column_are_refused(self, client):
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
    def test_numpy_returns_the_appended_values_before_and_after_the_chunk_is_full(self, client, value):
        writer = client.trajectory_writer(2, max_chunk_length=2)
        writer.append(value)
        before = writer.history[-1].numpy()
        writer.append(value)
        after = writer.history[-1].numpy()
        assert before.tolist() == after.tolist()
        assert before.shape == np.shape(value)
