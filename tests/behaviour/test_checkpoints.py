"""Checkpoints as users see them: saved by a client, restored by a server, read without a server."""

import logging
import os
import pathlib

import numpy as np
import pytest
from behaviour_support import PATIENCE_S, draw, draw_values, eventually, info_of, insert_values, make_table, program

import reverb
from reverb import _binding, checkpointers, errors, selectors


@pytest.fixture
def root(tmp_path):
    return tmp_path / "made" / "when needed"


def keep_in(root, **options):
    return checkpointers.DefaultCheckpointer(str(root), **options)


@pytest.fixture
def start():
    """Starts servers that stop at the end of the test."""
    servers = []

    def start(*tables, **options):
        servers.append(reverb.Server(list(tables), **options))
        return servers[-1], servers[-1].localhost_client()

    yield start
    for server in servers:
        server.stop()


def names_in(root):
    return sorted(name for name in os.listdir(root) if not name.startswith("."))


def test_checkpoint_is_a_folder_with_an_absolute_path(serve):
    client = serve(make_table())
    insert_values(client, range(3))
    path = client.checkpoint()
    assert os.path.isabs(path)
    assert {"DONE", "tables.tfrecord", "items.tfrecord", "chunks.tfrecord"} < set(os.listdir(path))


def test_server_restores_the_state_of_the_last_checkpoint(root, start):
    server, client = start(make_table(sampler="lifo"), make_table("other"), checkpointer=keep_in(root))
    assert server.restored_from is None
    insert_values(client, range(5), priority=[1.0, 2.0, 3.0, 4.0, 5.0])
    draw(client, 3)
    before = info_of(client)
    path = client.checkpoint()
    insert_values(client, [99])
    server.stop()

    table = make_table(sampler="lifo")
    server, client = start(table, make_table("other"), checkpointer=keep_in(root))
    assert server.restored_from == path
    after = info_of(client)
    for info in (before, after):
        info.table_worker_time = None
    assert after == before
    [sample] = draw(client)
    assert (sample.data[0][0], sample.info.times_sampled, sample.info.priority) == (4, 4, 5.0)
    insert_values(client, [5])
    assert draw_values(client) == [5]
    assert table.info.current_size == 6, "the table that was given to the server is the one that was restored"


def test_large_items_that_compress_well_are_restored_unchanged(root, serve):
    images = np.repeat(np.random.default_rng(0).integers(0, 256, (4, 100, 10), dtype=np.uint8), 100, axis=2)
    counts = np.arange(4 * 9000).reshape(4, 9000) // 100
    nothing = np.zeros((4, 0), np.float32)
    table = lambda: make_table(max_times_sampled=1)  # noqa: E731
    client = serve(table(), checkpointer=keep_in(root))
    client.insert_batch([images, counts, nothing], {"table": 1.0})
    client.checkpoint()
    # The second save comes from a server that has not decoded the items.
    for _ in range(2):
        serve.server.stop()
        client = serve(table(), checkpointer=keep_in(root))
        client.checkpoint()
        batch = client.sample_batch("table", 3)
        for got, column in zip(batch.data, [images, counts, nothing], strict=True):
            np.testing.assert_array_equal(got, column[:3, None])


def test_saving_proceeds_while_items_are_inserted_and_removed(root, start):
    server, client = start(make_table(max_size=10), checkpointer=keep_in(root, interval=0.02))
    for value in range(2000):
        client.insert(np.int64(value), {"table": 1.0})
        client.sample_batch("table", 4)
    eventually(lambda: names_in(root))
    server.stop()
    _, client = start(make_table(max_size=10), checkpointer=keep_in(root))
    info = info_of(client)
    assert 0 < info.current_size <= 10
    values = {int(sample.data[0][0]) for sample in checkpointers.open(root).table("table")}
    last = max(values)
    assert values == set(range(max(0, last - 9), last + 1)), "what was saved was the table at one moment"


def test_all_tables_are_saved_at_one_moment(root, start):
    """Items that are moved from table to table are in exactly one of them, or in the one they come to as well."""
    import threading

    tables = [make_table("a", max_size=100_000), make_table("b", max_size=100_000)]
    _, client = start(*tables, checkpointer=keep_in(root))
    stop = threading.Event()

    def insert():
        value = 0
        while not stop.is_set():
            client.insert(np.int64(value), {"a": 1.0})
            client.insert(np.int64(value), {"b": 1.0})
            value += 1

    writer = threading.Thread(target=insert)
    writer.start()
    try:
        for _ in range(5):
            checkpoint = checkpointers.open(client.checkpoint())
            sizes = [len(checkpoint.table(name)) for name in "ab"]
            assert sizes[0] - sizes[1] in (0, 1), sizes
    finally:
        stop.set()
        writer.join()


def test_older_checkpoints_are_removed_and_foreign_files_stay(root, start):
    root.mkdir(parents=True)
    (root / "notes.txt").write_text("mine")
    _, client = start(make_table(), checkpointer=keep_in(root))
    paths = [client.checkpoint() for _ in range(3)]
    assert names_in(root) == [os.path.basename(paths[-1]), "notes.txt"]


def test_keep_sets_how_many_checkpoints_stay(root, start):
    _, client = start(make_table(), checkpointer=keep_in(root, keep=2))
    paths = [os.path.basename(client.checkpoint()) for _ in range(4)]
    assert names_in(root) == paths[-2:]
    assert paths == sorted(paths)


def test_damaged_checkpoint_is_named_kept_and_skipped(root, start, caplog):
    server, client = start(make_table(), checkpointer=keep_in(root, keep=2))
    insert_values(client, range(3))
    older = client.checkpoint()
    insert_values(client, range(3, 6))
    newer = client.checkpoint()
    server.stop()
    items = pathlib.Path(newer, "items.tfrecord")
    items.write_bytes(items.read_bytes()[:-20])
    with caplog.at_level(logging.WARNING, "reverb"):
        server, client = start(make_table(), checkpointer=keep_in(root, keep=2))
        eventually(lambda: newer in caplog.text)
    assert "items.tfrecord" in caplog.text
    assert server.restored_from == older
    assert info_of(client).current_size == 3
    client.checkpoint()
    assert os.path.exists(newer)


def test_server_raises_if_every_checkpoint_is_damaged(root, start):
    server, client = start(make_table(), checkpointer=keep_in(root))
    path = client.checkpoint()
    server.stop()
    pathlib.Path(path, "tables.tfrecord").write_bytes(b"torn")
    with pytest.raises(errors.DataLossError, match=os.path.basename(path).replace("+", r"\+")):
        start(make_table(), checkpointer=keep_in(root))


def test_definition_in_the_checkpoint_wins_and_both_are_named(root, start, caplog):
    server, client = start(make_table(sampler="fifo", max_size=10), checkpointer=keep_in(root))
    insert_values(client, range(8))
    client.checkpoint()
    server.stop()
    with caplog.at_level(logging.WARNING, "reverb"):
        server, client = start(make_table(sampler="lifo", max_size=3), checkpointer=keep_in(root))
        eventually(lambda: "max_size=10" in caplog.text)
    assert "max_size=3" in caplog.text
    assert len(caplog.records) == 1
    info = info_of(client)
    assert (info.max_size, info.current_size, info.sampler_options.fifo) == (10, 8, True)
    server.stop()

    keep_here = keep_in(root, override_definitions=True)
    _, client = start(make_table(sampler="lifo", max_size=3), checkpointer=keep_here)
    info = info_of(client)
    assert (info.max_size, info.current_size, info.sampler_options.lifo) == (3, 3, True)
    assert draw_values(client) == [7]


def test_different_signature_is_an_error(root, start):
    signature = {"a": reverb.TensorSpec((), np.int64)}
    server, client = start(make_table(signature=signature), checkpointer=keep_in(root))
    client.insert({"a": np.int64(1)}, {"table": 1.0})
    client.checkpoint()
    server.stop()
    for other in ({"a": reverb.TensorSpec((), np.float32)}, {"b": reverb.TensorSpec((), np.int64)}):
        with pytest.raises(errors.SignatureMismatchError, match="another signature"):
            start(make_table(signature=other), checkpointer=keep_in(root))
    _, client = start(make_table(), checkpointer=keep_in(root))
    [sample] = client.sample("table", 1, unpack_as_table_signature=True, emit_timesteps=False)
    assert sample.data["a"].tolist() == [1]


def test_saved_items_that_do_not_fit_the_signature_are_an_error(root, start):
    server, client = start(make_table(), checkpointer=keep_in(root))
    insert_values(client, [1])
    client.checkpoint()
    server.stop()
    with pytest.raises(errors.SignatureMismatchError):
        start(make_table(signature=reverb.TensorSpec((3,), np.float32)), checkpointer=keep_in(root))
    _, client = start(make_table(signature=reverb.TensorSpec((), np.int64)), checkpointer=keep_in(root))
    assert draw_values(client) == [1]


def test_table_that_the_server_lacks_is_an_error_unless_others_are_chosen(root, start):
    server, client = start(make_table("a"), make_table("b"), checkpointer=keep_in(root))
    insert_values(client, range(3), "a")
    insert_values(client, range(5), "b")
    path = client.checkpoint()
    server.stop()
    with pytest.raises(ValueError, match=r"Trying to load table 'b' but table was not found .*: \['a'\]"):
        start(make_table("a"), checkpointer=keep_in(root))
    server, client = start(make_table("a"), checkpointer=keep_in(root, tables=["a"]))
    assert info_of(client, "a").current_size == 3
    server.stop()
    server, client = start(make_table("c"), checkpointer=keep_in(root, tables={"b": "c"}, load_path=path))
    assert info_of(client, "c").current_size == 5
    server.stop()
    with pytest.raises(ValueError, match="no table 'x'"):
        start(make_table("a"), checkpointer=keep_in(root, tables=["x"]))


def test_fallback_is_loaded_if_there_is_no_checkpoint(root, tmp_path, start):
    server, client = start(make_table(), checkpointer=keep_in(tmp_path / "old"))
    insert_values(client, range(4))
    path = client.checkpoint()
    server.stop()
    fallback = keep_in(root, fallback_checkpoint_path=path)
    server, client = start(make_table(), checkpointer=fallback)
    assert (server.restored_from, info_of(client).current_size) == (path, 4)
    insert_values(client, [4])
    client.checkpoint()
    server.stop()
    server, client = start(make_table(), checkpointer=fallback)
    assert info_of(client).current_size == 5
    assert os.path.exists(path)


def test_saving_with_a_checkpoint_group_fails(root, serve):
    client = serve(make_table(), checkpointer=keep_in(root, group="some"))
    with pytest.raises(ValueError, match="Setting non-empty group is not supported"):
        client.checkpoint()


@pytest.mark.parametrize("path", ["gs://bucket/folder", "s3://bucket", "file:///folder"])
def test_remote_path_is_refused_and_makes_no_folder(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="is not on this machine"):
        reverb.Server([make_table()], checkpointer=keep_in(path))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"keep": 0}, ValueError),
        ({"interval": 0.0}, ValueError),
        ({"interval": float("nan")}, ValueError),
        ({"compression": 10}, ValueError),
        ({"tables": "name"}, TypeError),
        ({"tables": {"a": "c", "b": "c"}}, ValueError),
        ({"fallback_checkpoint_path": ""}, ValueError),
        ({"group": None}, TypeError),
    ],
)
def test_bad_options_are_refused_when_a_server_is_made(tmp_path, options, error):
    checkpointer = keep_in(tmp_path, **options)
    with pytest.raises(error):
        checkpointer.internal_checkpointer()


def test_path_must_be_a_path():
    for path in (None, 3, b"bytes"):
        with pytest.raises(TypeError):
            checkpointers.DefaultCheckpointer(path).internal_checkpointer()
    with pytest.raises(ValueError, match="must not be empty"):
        checkpointers.DefaultCheckpointer("").internal_checkpointer()
    with pytest.raises(TypeError, match="checkpointer"):
        reverb.Server([make_table()], checkpointer="/somewhere")


def test_folder_can_be_used_by_one_server_only(root, start):
    server, _ = start(make_table(), checkpointer=keep_in(root))
    with pytest.raises(ValueError, match="another server of this process"):
        start(make_table(), checkpointer=keep_in(root))
    server.stop()
    start(make_table(), checkpointer=keep_in(root))


def test_folder_of_another_process_is_refused_with_its_pid(root):

    source = """
        import sys, reverb
        table = reverb.Table.queue("table", 3)
        server = reverb.Server([table], checkpointer=reverb.checkpointers.DefaultCheckpointer(sys.argv[1]))
        print("up", flush=True)
        sys.stdin.read()
    """
    with program(source, str(root)) as other:
        assert other.line() == "up"
        with pytest.raises(ValueError, match=f"process {other.process.pid} "):
            reverb.Server([make_table()], checkpointer=keep_in(root))
        other.kill()
    reverb.Server([make_table()], checkpointer=keep_in(root)).stop()


def test_stop_saves_once_more_if_asked(root, start):
    server, client = start(make_table(), checkpointer=keep_in(root, save_on_stop=True))
    insert_values(client, range(3))
    server.stop()
    _, client = start(make_table(), checkpointer=keep_in(root))
    assert info_of(client).current_size == 3


@pytest.mark.parametrize("ending", ["", "sys.exit(3)", "raise RuntimeError"])
def test_exit_of_the_program_saves_once_more_if_asked(root, ending):
    source = """
        import sys, threading, time, numpy as np, reverb
        table = reverb.Table.queue("table", 100)
        checkpointer = reverb.checkpointers.DefaultCheckpointer(sys.argv[1], save_on_stop=True)
        server = reverb.Server([table], checkpointer=checkpointer)
        # Nothing deletes what such a thread holds.
        threading.Thread(target=lambda server: time.sleep(1000), args=(server,), daemon=True).start()
        writer = server.localhost_client().trajectory_writer(1)
        for value in range(3):
            writer.append([np.int64(value)])
            writer.create_item("table", 1.0, [writer.history[0][-1:]])
        ENDING
    """
    with program(source.replace("ENDING", ending), str(root)) as saver:
        saver.process.wait(PATIENCE_S)
    assert len(checkpointers.open(root).table("table")) == 3


def test_interval_saves_in_the_background(root, start):
    _, client = start(make_table(), checkpointer=keep_in(root, interval=0.01))
    insert_values(client, range(3))
    eventually(lambda: root.exists() and len(names_in(root)) == 1 and len(checkpointers.open(root).table("table")) == 3)


def test_folder_that_cannot_be_written_to_can_be_loaded_from(root, start, caplog):
    server, client = start(make_table(), checkpointer=keep_in(root))
    insert_values(client, range(3))
    client.checkpoint()
    server.stop()
    (root / ".reverb-lock").unlink()
    (root / ".reverb-lock").mkdir()
    with caplog.at_level(logging.WARNING, "reverb"):
        _, client = start(make_table(), checkpointer=keep_in(root))
        eventually(lambda: "cannot be saved" in caplog.text)
    assert info_of(client).current_size == 3
    with pytest.raises(errors.StorageError, match=r"\.reverb-lock"):
        client.checkpoint()


@pytest.mark.parametrize("options", [{}, {"compression": 9}], ids=["stored", "compressed"])
def test_server_loads_its_own_chunks_under_a_smaller_message_limit(root, start, options):
    server, client = start(
        make_table(max_times_sampled=1), checkpointer=keep_in(root, **options), max_message_size=8 << 20
    )
    rows = np.zeros((2, 4 << 20), np.uint8)
    client.insert_batch(rows[:, : 2 << 20], {"table": 1.0})
    with client.trajectory_writer(1, compression="lz4") as writer:
        writer.append(rows[0])
        writer.create_item("table", 1.0, writer.history[-1:])
    client.checkpoint()
    server.stop()
    _, client = start(make_table(max_times_sampled=1), checkpointer=keep_in(root), max_message_size=1 << 20)
    assert info_of(client).current_size == 3
    assert [sample.data[0].size for sample in draw(client, 3)] == [2 << 20, 2 << 20, 4 << 20]
    with pytest.raises(errors.MessageTooLargeError):
        client.insert(rows[0], {"table": 1.0})


def test_own_chunks_above_the_default_message_limit_are_read_without_a_server(root, start):
    """Whatever a server could save can be opened and verified."""
    server, client = start(make_table(), checkpointer=keep_in(root), max_message_size=1 << 30)
    size = (256 << 20) + 1
    client.insert(np.zeros(size, np.uint8), {"table": 1.0})
    path = client.checkpoint()
    server.stop()
    assert [len(checkpointers.open(place).table("table")) for place in (path, root)] == [1, 1]
    _binding.checkpoint_verify(path, None)
    for read in (lambda: checkpointers.open(path, limit_bytes=256 << 20), lambda: _binding.checkpoint_verify(path, 1)):
        with pytest.raises(errors.MessageTooLargeError, match="chunks.tfrecord: "):
            read()


def test_temporary_folder_is_removed_if_nothing_was_saved(start):
    for saves in (False, True):
        checkpointer = checkpointers.TempDirCheckpointer()
        server, client = start(make_table(), checkpointer=checkpointer)
        if saves:
            client.checkpoint()
        server.stop()
        assert os.path.exists(checkpointer.path) == saves


def test_server_that_cannot_start_leaves_no_temporary_folder(start):
    server, _ = start(make_table())
    checkpointer = checkpointers.TempDirCheckpointer()
    with pytest.raises(errors.UnavailableError):
        start(make_table(), port=server.port, checkpointer=checkpointer)
    assert not os.path.exists(checkpointer.path)


def test_names_are_where_the_reference_has_them():
    library = reverb.platform.checkpointers_lib
    for name in ("CheckpointerBase", "DefaultCheckpointer", "TempDirCheckpointer"):
        assert getattr(library, name) is getattr(reverb.checkpointers, name)
    assert reverb.platform.default.checkpointers is reverb.checkpointers
    assert isinstance(reverb.checkpointers.default_checkpointer(group="any"), library.TempDirCheckpointer)


def test_repr_names_the_folder(root, start):
    server, _ = start(make_table(), checkpointer=keep_in(root))
    assert f"checkpointer=TFRecordCheckpointer(root_dir={root}, group=)" in repr(server)


class TestReading:
    """`reverb.checkpointers.open`."""

    @pytest.fixture
    def path(self, root, start):
        signature = {"a": reverb.TensorSpec((), np.int64), "s": reverb.TensorSpec((), np.bytes_)}
        table = make_table(sampler=selectors.Prioritized(1.0), signature=signature)
        server, client = start(table, make_table("plain"), checkpointer=keep_in(root))
        for value in range(7):
            client.insert({"a": np.int64(value), "s": f"text {value}"}, {"table": 1.0 + value})
        client.insert([np.zeros((2, 3), np.float32)], {"plain": 1.0})
        client.insert([np.zeros((4,), np.int8)], {"plain": 1.0})
        path = client.checkpoint()
        server.stop()
        return path

    def test_batches_are_read_in_the_order_of_insertion(self, path):
        table = checkpointers.open(path).table("table")
        batches = list(table.batches(3))
        assert [len(batch.info.key) for batch in batches] == [3, 3, 1]
        assert np.concatenate([batch.data["a"] for batch in batches]).ravel().tolist() == list(range(7))
        assert batches[0].data["s"].tolist() == [[b"text 0"], [b"text 1"], [b"text 2"]]
        assert np.concatenate([batch.info.priority for batch in batches]).tolist() == [
            1.0 + value for value in range(7)
        ]
        assert next(table.batches(2, squeeze_time=True)).data["a"].shape == (2,)

    def test_items_are_read_one_by_one(self, path):
        table = checkpointers.open(path).table("table")
        assert [sample.data["a"].tolist() for sample in table] == [[value] for value in range(7)]
        assert len(table) == 7
        times = table.inserted_at()
        assert times.shape == (7,)
        assert (np.diff(times) > 0).all()

    def test_items_that_do_not_stack_are_read_in_separate_batches(self, path):
        batches = list(checkpointers.open(path).table("plain").batches(10))
        assert [batch.data[0].shape for batch in batches] == [(1, 1, 2, 3), (1, 1, 4)]

    def test_tables_can_be_chosen(self, path, root):
        checkpoint = checkpointers.open(root, tables=["plain"])
        assert checkpoint.path == path
        assert list(checkpoint.tables) == ["plain"]
        with pytest.raises(errors.TableNotFoundError, match="plain"):
            checkpoint.table("table")
        with pytest.raises(errors.TableNotFoundError, match="table, plain"):
            checkpointers.open(path, tables=["nowhere"])

    def test_invalid_checkpoints_are_refused(self, path, tmp_path):
        with pytest.raises(ValueError, match="invalid checkpoint path"):
            checkpointers.open(tmp_path / "nowhere")
        with pytest.raises(errors.MessageTooLargeError, match="max_message_size"):
            checkpointers.open(path, limit_bytes=10)
        pathlib.Path(path, "chunks.tfrecord").write_bytes(b"torn")
        with pytest.raises(errors.DataLossError, match="chunks.tfrecord"):
            checkpointers.open(path)
