"""Rows of open length: a step holds an array whose first axis differs from step to step."""

import numpy as np
import pytest
import tree
from behaviour_support import make_table

import reverb
from reverb import Ragged, TensorSpec, structured_writer
from reverb.loaders import NumpyLoader

SIGNATURE = {"id": TensorSpec([], np.int64), "tokens": TensorSpec([None], np.int32)}
LENGTHS = [3, 0, 5]


def tokens(length, start=0):
    return np.arange(start, start + length, dtype=np.int32)


def ragged(lengths, dtype=np.int32):
    values = [np.arange(10 * i, 10 * i + length).astype(dtype) for i, length in enumerate(lengths)]
    return Ragged(np.concatenate(values), np.array(lengths, np.int64))


def insert_rows(client, lengths, table="table"):
    for number, length in enumerate(lengths):
        client.insert({"id": number, "tokens": tokens(length, 10 * number)}, {table: 1.0})


def assert_rows(data, lengths):
    """Whether a batch holds the rows that were inserted, in this order."""
    assert isinstance(data["tokens"], Ragged)
    assert data["tokens"].values.dtype == np.int32
    assert data["tokens"].row_lengths.tolist() == lengths
    expected = [tokens(length, 10 * number).tolist() for number, length in enumerate(lengths)]
    assert [rows.tolist() for rows in data["tokens"].split()] == expected
    assert data["id"].reshape(-1).tolist() == list(range(len(lengths)))


def once(signature=SIGNATURE, name="table"):
    return make_table(name, signature=signature, max_times_sampled=1)


@pytest.mark.parametrize("squeeze_time", [False, True])
@pytest.mark.parametrize("lengths", [LENGTHS, [4, 4, 4], [1, 1, 1], [7]], ids=["different", "equal", "one", "alone"])
def test_rows_of_open_length_are_ragged_in_every_batch(serve, lengths, squeeze_time):
    client = serve(once())
    insert_rows(client, lengths)
    assert_rows(client.sample_batch("table", len(lengths), squeeze_time=squeeze_time).data, lengths)


@pytest.mark.parametrize("lengths", [LENGTHS, [4, 4, 4], [0, 0, 0]], ids=["different", "equal", "empty"])
def test_insert_batch_takes_what_comes_out(serve, lengths):
    client = serve(once(), once(name="other"))
    data = {"id": np.arange(3), "tokens": ragged(lengths)}
    client.insert_batch(data, {"table": [1.0, 2.0, 3.0], "other": 1.0})
    batch = client.sample_batch("table", 3)
    assert_rows(batch.data, lengths)
    assert batch.info.priority.tolist() == [1.0, 2.0, 3.0]
    client.insert_batch({"id": batch.data["id"][:, 0], "tokens": batch.data["tokens"]}, {"other": 1.0})
    for _ in range(2):
        assert_rows(client.sample_batch("other", 3).data, lengths)


def test_insert_batch_takes_a_list_of_arrays_where_the_length_is_open(serve):
    client = serve(once())
    client.insert_batch({"id": np.arange(3), "tokens": ragged(LENGTHS).split()}, {"table": 1.0})
    assert_rows(client.sample_batch("table", 3).data, LENGTHS)


def test_a_batch_that_does_not_fit_inserts_nothing(serve):
    client = serve(once())
    for wrong, text in (
        (ragged([1, 2, 3], np.float64), "tokens"),
        (Ragged(np.zeros(3, np.int32), np.array([1, 1])), "row_lengths"),
        (ragged([1, 2]), "stacked"),
    ):
        with pytest.raises(ValueError, match=text):
            client.insert_batch({"id": np.arange(3), "tokens": wrong}, {"table": 1.0})
    assert client.server_info()["table"].current_size == 0
    insert_rows(client, LENGTHS)
    assert_rows(client.sample_batch("table", 3).data, LENGTHS)


def test_one_step_is_a_ragged_of_one_item(serve):
    client = serve(once())
    client.insert({"id": 0, "tokens": ragged([2])}, {"table": 1.0})
    with pytest.raises(ValueError, match="tokens.*Ragged of 2 items"):
        client.insert({"id": 1, "tokens": ragged([2, 3])}, {"table": 1.0})
    assert_rows(client.sample_batch("table", 1).data, [2])


def test_items_keep_the_shape_of_their_step(serve):
    client = serve(make_table(signature=SIGNATURE))
    insert_rows(client, LENGTHS)
    samples = client.sample("table", 6, emit_timesteps=False, unpack_as_table_signature=True)
    assert [sample.data["tokens"].tolist() for sample in samples][:3] == [[tokens(3).tolist()]] * 3
    [[step]] = client.sample("table", 1, unpack_as_table_signature=True)
    assert step.data["tokens"].tolist() == [0, 1, 2]
    client = serve(once())
    insert_rows(client, LENGTHS)
    samples = client.sample("table", 3, emit_timesteps=False)
    assert [sample.data[1].shape for sample in samples] == [(1, 3), (1, 0), (1, 5)]
    insert_rows(client, LENGTHS)
    steps = [step.data[1].shape for [step] in client.sample("table", 3)]
    assert steps == [(3,), (0,), (5,)]


def test_rows_with_further_axes_and_strings(serve):
    signature = [TensorSpec([None, 2], np.float32), TensorSpec([None], np.object_)]
    client = serve(once(signature))
    pairs = Ragged(np.arange(8, dtype=np.float32).reshape(4, 2), np.array([1, 3]))
    words = Ragged(np.array([b"a", b"", b"ccc"], object), np.array([2, 1]))
    client.insert_batch((pairs, words), {"table": 1.0})
    got = client.sample_batch("table", 2).data
    assert [rows.tolist() for rows in got[0].split()] == [rows.tolist() for rows in pairs.split()]
    assert [rows.tolist() for rows in got[1].split()] == [[b"a", b""], [b"ccc"]]


def test_rows_that_differ_in_another_axis_say_so(serve):
    client = serve(once([TensorSpec([None, None], np.float32)]))
    client.insert([np.zeros((2, 3), np.float32)], {"table": 1.0})
    client.insert([np.zeros((2, 4), np.float32)], {"table": 1.0})
    with pytest.raises(ValueError, match=r"rows of column 0 have shape \[2,4\], but shape \[2,3\]"):
        client.sample_batch("table", 2)
    assert client.sample_batch("table", 1).data[0].values.shape == (2, 3)


def test_a_table_without_signature_gives_rows_of_different_lengths(serve):
    client = serve(make_table(max_times_sampled=1))
    for length in LENGTHS:
        client.insert([tokens(length)], {"table": 1.0})
    [column] = client.sample_batch("table", 3).data
    assert column.row_lengths.tolist() == LENGTHS


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_writers_take_rows_of_open_length(serve, compression):
    client = serve(once())
    with client.trajectory_writer(2, compression=compression) as writer:
        for number, length in enumerate(LENGTHS):
            rows = Ragged(tokens(length, 10 * number), np.array([length]))
            writer.append({"id": number, "tokens": rows})
            assert writer.history["tokens"][-1].shape == (length,)
            assert writer.history["tokens"][-1].numpy().tolist() == tokens(length, 10 * number).tolist()
            writer.create_item("table", 1.0, tree.map_structure(lambda column: column[-1:], writer.history))
        writer.flush()
        assert_rows(client.sample_batch("table", 3).data, LENGTHS)
        with pytest.raises(ValueError, match="incompatible shapes"):
            writer.create_item("table", 1.0, tree.map_structure(lambda column: column[-2:], writer.history))
        with pytest.raises(ValueError, match="tokens.*Ragged of 2 items"):
            writer.append({"id": 9, "tokens": ragged([1, 1])})
        writer.append({"id": 0, "tokens": tokens(2)})
        writer.create_item("table", 1.0, tree.map_structure(lambda column: column[-1], writer.history))
        writer.flush()
    data = client.sample_batch("table", 1).data
    assert (data["tokens"].row_lengths.tolist(), data["id"].tolist()) == ([2], [0])


def test_a_value_of_another_shape_is_refused_where_the_length_is_not_open(serve):
    client = serve(once())
    with client.trajectory_writer(2) as writer:
        writer.append({"tokens": tokens(2)})
        with pytest.raises(ValueError, match="incompatible shape"):
            writer.append({"tokens": tokens(3)})
        writer.append({"tokens": Ragged(tokens(3), np.array([3]))})
        assert writer.history["tokens"][-2].numpy().tolist() == [0, 1]
        assert writer.history["tokens"][-1].numpy().tolist() == [0, 1, 2]
        with pytest.raises(ValueError, match="wrong dtype"):
            writer.append({"tokens": Ragged(np.zeros(1), np.array([1]))})


@pytest.mark.parametrize("kind", ["trajectory", "structured", "batched"])
def test_a_refused_step_does_not_open_the_length_of_a_column(serve, kind):
    client = serve(once())
    pattern = structured_writer.pattern_from_transform(
        structured_writer.create_reference_step({"id": 0, "tokens": 0}),
        lambda step: tree.map_structure(lambda x: x[-1], step),
    )
    configs = [structured_writer.create_config(pattern, "table")]
    writers = {
        "trajectory": lambda: client.trajectory_writer(2),
        "structured": lambda: client.structured_writer(configs),
        "batched": lambda: client.batched_writer(1, configs=configs),
    }

    def step(rows, number):
        if kind == "batched":
            return {"id": number[None], "tokens": rows if isinstance(rows, Ragged) else rows[None]}
        return {"id": number, "tokens": rows}

    def open_rows(length):
        return Ragged(tokens(length), np.array([length]))

    number = np.array(1)
    with writers[kind]() as writer:
        writer.append(step(tokens(2), number))
        with pytest.raises(ValueError, match="dtype"):
            writer.append(step(open_rows(2), number.astype(np.float32)))
        with pytest.raises(ValueError, match="incompatible shape"):
            writer.append(step(tokens(3), number))
        # A step that is taken opens it.
        writer.append(step(open_rows(3), number))
        writer.append(step(tokens(4), number))


def test_a_refused_step_leaves_no_options_to_a_new_column(serve):
    client = serve(make_table())
    with client.trajectory_writer(2) as writer:
        writer.append({"x": np.int32(0)})
        writer.configure(("kept",), num_keep_alive_refs=5, max_chunk_length=1)
        with pytest.raises(ValueError, match="dtype"):
            writer.append({"x": np.float64(0), "kept": np.int32(0)})
        for number in range(5):
            writer.append({"x": np.int32(number), "other": np.int32(number)})
        with pytest.raises((ValueError, RuntimeError), match="kept|expired|longer"):
            writer.create_item("table", 1.0, [writer.history["other"][-4:]])


def test_batched_writers_take_a_ragged_of_their_environments(serve):
    client = serve(once())
    with client.batched_writer(3) as writer:
        for lengths in (LENGTHS, [2, 2, 2], [0, 4, 1]):
            writer.append({"id": np.arange(3), "tokens": ragged(lengths)})
            history = writer.history
            writer.create_items("table", 1.0, {"id": history["id"][-1], "tokens": history["tokens"][-1]})
            writer.flush()
            assert_rows(client.sample_batch("table", 3).data, lengths)
        with pytest.raises(ValueError, match="Ragged of 2 items"):
            writer.append({"id": np.arange(3), "tokens": ragged([1, 1])})


def test_patterns_make_items_of_rows_of_open_length(serve):
    client = serve(once())
    pattern = structured_writer.pattern_from_transform(
        structured_writer.create_reference_step({"id": 0, "tokens": 0}),
        lambda step: tree.map_structure(lambda x: x[-1], step),
    )
    config = structured_writer.create_config(pattern, "table")
    with client.structured_writer([config]) as writer:
        for number, length in enumerate(LENGTHS):
            writer.append({"id": number, "tokens": Ragged(tokens(length, 10 * number), np.array([length]))})
    assert_rows(client.sample_batch("table", 3).data, LENGTHS)


def test_patterns_are_written_for_steps_with_rows_of_open_length(serve):
    from reverb import structured_writer

    client = serve(make_table(max_times_sampled=1))
    step = {"tokens": ragged([2]), "x": np.float32(0)}
    node = structured_writer.create_reference_step(step)
    error = structured_writer.td_error(0.0, step, lambda nest: nest["x"])
    config = structured_writer.create_config({"a": node["x"][-1:], "b": node["tokens"][-1]}, "table", [], error)
    with client.structured_writer([config]) as writer:
        for number, length in enumerate(LENGTHS):
            writer.append({"tokens": ragged([length]), "x": np.float32(number)})
    samples = list(client.sample("table", 3, emit_timesteps=False))
    assert [sample.info.priority for sample in samples] == [0.0, 1.0, 2.0]
    assert [sample.data[1].tolist() for sample in samples] == [tokens(length).tolist() for length in LENGTHS]


def test_loaders_give_ragged_rows_or_pad_them(serve):
    client = serve(make_table(signature=SIGNATURE, sampler="uniform"))
    insert_rows(client, LENGTHS)
    with NumpyLoader(client, "table", batch_size=8) as loader:
        for _ in range(3):
            data = next(loader).data
            for number, rows in zip(data["id"].ravel(), data["tokens"].split(), strict=True):
                assert rows.tolist() == tokens(LENGTHS[number], 10 * number).tolist()
    with NumpyLoader(client, "table", batch_size=8, pad_to=6) as loader:
        batch = next(loader)
        assert batch.data["tokens"].shape == (8, 6)
        assert batch.data["id"].shape == (8, 1)
        assert batch.mask.shape == (8, 6)
        assert set(batch.mask.sum(axis=1)) <= set(LENGTHS)
    client = serve(make_table(signature=SIGNATURE))
    insert_rows(client, [4])
    for pad_to, padding in ((6, [0, 0]), ("longest", [])):
        with NumpyLoader(client, "table", batch_size=2, pad_to=pad_to) as loader:
            batch = next(loader)
            assert batch.data["tokens"].tolist() == [[0, 1, 2, 3, *padding]] * 2
            assert batch.mask.tolist() == [[True] * 4 + [False] * len(padding)] * 2


def test_ragged_rows_survive_a_checkpoint(tmp_path):
    checkpointer = reverb.checkpointers.DefaultCheckpointer(str(tmp_path))
    with reverb.Server([once()], port=None, checkpointer=checkpointer) as server:
        client = server.localhost_client()
        insert_rows(client, LENGTHS)
        client.checkpoint()
    with reverb.Server([once()], port=None, checkpointer=checkpointer) as server:
        assert_rows(server.localhost_client().sample_batch("table", 3).data, LENGTHS)


@pytest.mark.parametrize("lengths", [LENGTHS, [4, 4, 4]], ids=["different", "equal"])
def test_batched_writer_takes_lists_of_arrays(serve, lengths):
    client = serve(once())
    with client.batched_writer(3) as writer:
        for step in range(2):
            writer.append({"id": np.arange(3), "tokens": ragged(lengths).split()})
            if step:
                # The first step has made the place one column, so that no length can make columns of a list.
                writer.append({"id": np.arange(3), "tokens": [tokens(3, 10 * env) for env in range(3)]})
            newest = {"id": writer.history["id"][-1], "tokens": writer.history["tokens"][-1]}
            assert writer.create_items("table", 1.0, newest).all()
            writer.flush()
            assert_rows(client.sample_batch("table", 3).data, [3] * 3 if step else lengths)


def test_batched_writer_with_patterns_takes_lists_of_arrays(serve):
    client = serve(once())
    step = {"id": 0, "tokens": tokens(1)}
    pattern = structured_writer.pattern_from_transform(step, lambda x: {name: x[name][-1] for name in x})
    with client.batched_writer(3, configs=[structured_writer.create_config(pattern, "table")]) as writer:
        writer.append({"id": np.arange(3), "tokens": ragged(LENGTHS).split()})
    assert_rows(client.sample_batch("table", 3).data, LENGTHS)


def test_batched_writer_keeps_lists_of_columns_and_names_what_is_wrong_with_them(serve):
    client = serve(make_table(max_times_sampled=1))
    with client.batched_writer(2) as writer:
        with pytest.raises(ValueError, match=r"pair.*shape \[2, \.\.\.\].*got shape \[3,4\]"):
            writer.append({"pair": [np.zeros(2), np.zeros((3, 4))]})
        writer.append({"pair": [np.array([1.0, 2.0]), np.array([3.0, 4.0])]})
        with pytest.raises(ValueError, match="pair"):
            writer.append({"pair": [np.zeros(3), np.zeros(3)]})
        pair = writer.history["pair"]
        assert writer.create_items("table", 1.0, [pair[0][-1], pair[1][-1]]).all()
    samples = client.sample("table", 2, emit_timesteps=False)
    assert [[column.tolist() for column in sample.data] for sample in samples] == [[1, 3], [2, 4]]


def newest(writer):
    return tree.map_structure(lambda column: column[-1], writer.history)


def pattern_config():
    pattern = structured_writer.pattern_from_transform(
        {"id": 0, "tokens": 0}, lambda step: tree.map_structure(lambda x: x[-1], step)
    )
    return structured_writer.create_config(pattern, "table")


def test_the_row_writer_takes_rows_of_open_length(serve):
    client = serve(once())
    with client.writer(2, chunk_length=2) as writer:
        for number, length in enumerate(LENGTHS):
            writer.append({"id": number, "tokens": Ragged(tokens(length, 10 * number), np.array([length]))})
            writer.create_item("table", 1, 1.0)
        with pytest.raises(ValueError, match="incompatible shapes"):
            writer.create_item("table", 2, 1.0)
        writer.append({"id": 3, "tokens": tokens(2, 30)})
        writer.create_item("table", 1, 1.0)
    assert_rows(client.sample_batch("table", 4).data, [*LENGTHS, 2])


@pytest.mark.parametrize("kind", ["trajectory", "structured", "row", "batched"])
@pytest.mark.parametrize("other", ["array", "list"])
def test_a_writer_that_refuses_another_length_says_what_to_write_and_goes_on(serve, kind, other):
    client = serve(once())
    make = {
        "trajectory": lambda: client.trajectory_writer(2),
        "structured": lambda: client.structured_writer([pattern_config()]),
        "row": lambda: client.writer(2, chunk_length=2),
        "batched": lambda: client.batched_writer(1),
    }

    def step(number, rows):
        return {"id": np.array([number]) if kind == "batched" else number, "tokens": rows}

    def plain(length):
        return tokens(length)[None] if kind == "batched" else tokens(length)

    def make_item(writer):
        if kind == "row":
            writer.create_item("table", 1, 1.0)
        elif kind == "batched":
            writer.create_items("table", 1.0, {name: writer.history[name][-1] for name in ("id", "tokens")})
        elif kind == "trajectory":
            writer.create_item("table", 1.0, newest(writer))

    with make[kind]() as writer:
        writer.append(step(0, plain(3)))
        make_item(writer)
        with pytest.raises(ValueError, match=r"tokens.*\n?.*reverb\.Ragged\(") as caught:
            writer.append(step(1, plain(5) if other == "array" else [plain(5)]))
        assert not getattr(caught.value, "step_taken", False)
        writer.append(step(1, Ragged(tokens(5, 10), np.array([5]))))
        make_item(writer)
    assert_rows(client.sample_batch("table", 2).data, [3, 5])


def test_a_column_of_a_list_is_named_where_it_is_taken_for_a_row(serve):
    client = serve(once())
    with client.trajectory_writer(2) as writer:
        writer.append({"id": 0, "tokens": [tokens(2)]})
        with pytest.raises(
            TypeError, match=r"^tokens/0: expected rows.*reverb\.Ragged\(.*\nAll leaves of `trajectory`"
        ):
            writer.create_item("table", 1.0, {name: writer.history[name][-1:] for name in ("id", "tokens")})
        with pytest.raises(
            TypeError, match=r"^id: expected rows of the column, such as `\[-1:\]`, got the whole column\.\n"
        ):
            writer.create_item("table", 1.0, writer.history)
        writer.create_item("table", 1.0, newest(writer))
    assert_rows(client.sample_batch("table", 1).data, [2])
    client = serve(make_table("table"))
    with client.batched_writer(3) as writer:
        writer.append({"tokens": [tokens(3)] * 3})
        with pytest.raises(
            TypeError, match=r"^tokens/0: expected rows.*reverb\.Ragged\(.*\nAll leaves of `trajectory`"
        ):
            writer.create_items("table", 1.0, {"tokens": writer.history["tokens"][-1:]})
        with pytest.raises(TypeError, match="not iterable"):
            iter(writer.history["tokens"][0])
        assert writer.create_items("table", 1.0, {"tokens": [x[-1:] for x in writer.history["tokens"]]}).all()


def test_several_rows_for_one_step_are_told_what_to_write(serve):
    client = serve(once())
    with pytest.raises(ValueError, match="^tokens is a list of 2 leaves; .*`reverb.Ragged` of one row"):
        client.insert({"id": 0, "tokens": [tokens(2), tokens(3)]}, {"table": 1.0})
    insert_rows(client, [2])
    assert_rows(client.sample_batch("table", 1).data, [2])


@pytest.mark.parametrize("with_configs", [False, True], ids=["create_items", "patterns"])
def test_the_first_list_of_a_batched_writer_is_rows_where_the_signature_says_so(serve, with_configs):
    client = serve(once(), make_table("other", signature={"tokens": [TensorSpec([], np.int32)] * 3}))
    rows = [tokens(3, 10 * env) for env in range(3)]
    with client.batched_writer(3, configs=[pattern_config()] if with_configs else []) as writer:
        for lengths in ([3, 3, 3], LENGTHS, [3, 3, 3]):
            writer.append({"id": np.arange(3), "tokens": rows if lengths == [3] * 3 else ragged(lengths).split()})
            if not with_configs:
                writer.create_items("table", 1.0, {name: writer.history[name][-1] for name in ("id", "tokens")})
            writer.flush()
            assert_rows(client.sample_batch("table", 3).data, lengths)
