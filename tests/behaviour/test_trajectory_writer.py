"""Items made from any values that a writer still keeps."""

import collections
import tracemalloc

import numpy as np
import pytest
from behaviour_support import draw, info_of, make_table
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from writer_support import flat, rows, write_steps

import reverb
from reverb import _protos, errors


def test_an_item_of_many_kinds_of_columns_arrives_as_requested(client):
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
def test_items_have_exactly_the_rows_asked_for(client, length, index):
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
        assert writer.history.keys() == {"a", "b"}
        writer.append({"a": 2, "b": np.ones(2)})
        assert rows(writer.history["a"]) == [1, 2]
        # The values of the refused step do not fix the dtype or shape of a column.
        writer.append({"a": 3, "c": {"d": 4}})
        assert rows(writer.history["c"]["d"]) == [None, None, 4]

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

    def test_a_column_is_set_at_most_once_per_step(self, client):
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
            'a/aa: got float64 [3], table "table" takes float32 [?,2].\n'
            "Unable to create item in table 'table' since the provided trajectory is inconsistent with the table "
            "signature. The table expects column 0 to be a float [?,2] tensor but got a double [3] tensor."
        )
        with pytest.raises(ValueError, match="has 1 columns but the table signature has 2 columns"):
            writer.create_item("table", 1.0, {"a": h["a"][:]})
        writer.create_item("table", 1.0, {"a": h["a"][:], "b": h["b"][-1]})
        writer.flush()
        assert info_of(client).current_size == 1

    @pytest.mark.parametrize("switch", [{"validate_items": False}, {"get_signature_timeout_ms": None}], ids=str)
    def test_items_that_are_not_validated_are_inserted_and_read_without_the_signature(self, serve, switch):
        client = serve(make_table(signature={"a": reverb.TensorSpec([None], np.float32)}, max_times_sampled=1))
        writer = client.trajectory_writer(2, **switch)
        for i in range(2):
            writer.append({"a": np.float32(i), "b": i})
        writer.create_item("table", 1.0, {"a": writer.history["a"][:], "b": writer.history["b"][:]})
        writer.create_item("table", 1.0, [writer.history["b"][-1:]])
        writer.flush()
        first, second = draw(client, 2)
        assert [column.tolist() for column in first.data] == [[0.0, 1.0], [0, 1]]
        assert [column.tolist() for column in second.data] == [[1]]
        writer.create_item("table", 1.0, {"a": writer.history["a"][:], "b": writer.history["b"][:]})
        writer.flush()
        with pytest.raises(ValueError, match="1 leaves, got 2"):
            next(client.sample("table", emit_timesteps=False, unpack_as_table_signature=True))

    def test_the_other_rules_hold_for_items_that_are_not_validated(self, serve):
        client = serve(make_table(sampler="prioritized", signature=reverb.TensorSpec([None], np.float32)))
        writer = client.trajectory_writer(1, validate_items=False)
        writer.append(1)
        writer.create_item("table", -1.0, writer.history[-1:])
        with pytest.raises(errors.InvalidPriorityError):
            writer.flush()

    def test_reading_signatures_has_a_timeout(self, client, serve):
        writer = client.trajectory_writer(1, get_signature_timeout_ms=20_000)
        writer.append(1)
        writer.create_item("table", 1.0, writer.history[-1:])
        writer.flush()
        assert info_of(client).current_size == 1
        serve.server.stop()
        with pytest.raises((errors.DeadlineExceededError, errors.UnavailableError)):
            serve.connect().trajectory_writer(1, get_signature_timeout_ms=1)
        with pytest.raises(TypeError, match="get_signature_timeout_ms"):
            client.trajectory_writer(1, get_signature_timeout_ms="soon")

    def test_an_unknown_table_is_one_error(self, client):
        writer, rows = client.trajectory_writer(1), client.writer(1)
        writer.append(1)
        rows.append(1)
        for create in (
            lambda: writer.create_item("nowhere", 1.0, writer.history[-1:]),
            lambda: rows.create_item("nowhere", 1, 1.0),
        ):
            with pytest.raises(errors.TableNotFoundError, match="nowhere") as error:
                create()
            assert (error.value.__context__, error.value.__cause__) == (None, None)
        rows.close()

    def test_an_item_that_the_server_refuses_is_reported_once_and_does_not_affect_others(self, client):
        writer = client.trajectory_writer(3, validate_items=False)
        writer.append(1)
        writer.create_item("nowhere", 1.0, writer.history[-1:])
        with pytest.raises(errors.TableNotFoundError, match="nowhere"):
            writer.flush()
        writer.create_item("table", 1.0, writer.history[-1:])
        writer.flush()
        assert info_of(client).current_size == 1

    @pytest.mark.ports
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


class TestCompression:
    @pytest.mark.parametrize("codec", ["lz4", "zstd", "auto"])
    @pytest.mark.parametrize("delta", [True, False])
    def test_compressible_chunks_take_less_memory_and_read_the_same(self, serve, codec, delta):
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
    """Returns the bytes of all chunks that the items of a table refer to."""
    status_class = _protos.message_class("reverb.replay.v1.TableStatus")
    statuses = map(status_class.FromString, client.engine.table_statuses(None))
    return next(status.size_bytes for status in statuses if status.info.name == table)


def test_arrays_are_written_without_one_python_object_each(client):
    def allocated(call):
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            call()
            return tracemalloc.get_traced_memory()[1] - before
        finally:
            tracemalloc.stop()

    num_columns = 500
    step = {f"column_{index}": np.full(3, index, np.float32) for index in range(num_columns)}
    with client.trajectory_writer(1) as writer:
        for _ in range(3):
            writer.append(step)
        trajectory = {name: view[-1:] for name, view in writer.history.items()}
        writer.create_item("table", 1.0, trajectory)
        # A Python object has at least 16 bytes.
        assert allocated(lambda: writer.create_item("table", 1.0, trajectory)) < 16 * num_columns
        assert allocated(lambda: writer.append(step)) < 16 * num_columns
