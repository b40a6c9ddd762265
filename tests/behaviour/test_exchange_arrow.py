"""Exports of tables to Arrow and Parquet and imports of them, bit for bit."""

import json
import os
import tracemalloc

import ml_dtypes
import numpy as np
import pytest
from behaviour_support import make_table, run_program

import reverb
from reverb import checkpointers, errors, exchange, selectors

pa = pytest.importorskip("pyarrow", exc_type=ImportError, reason="the extra `arrow` is not installed")
pq = pytest.importorskip("pyarrow.parquet")

# Values that a careless conversion changes: NaNs with different bits, both zeros, the greatest value, empty texts.
VALUES = {
    "bool": np.array([True, False, True]),
    "int8": np.array([-128, 127, 0], np.int8),
    "int16": np.array([-(2**15), 2**15 - 1, 0], np.int16),
    "int32": np.array([-(2**31), 2**31 - 1, 0], np.int32),
    "int64": np.array([-(2**63), 2**63 - 1, 0]),
    "uint8": np.array([0, 255, 1], np.uint8),
    "uint16": np.array([0, 2**16 - 1, 1], np.uint16),
    "uint32": np.array([0, 2**32 - 1, 1], np.uint32),
    "uint64": np.array([0, 2**64 - 1, 2**63], np.uint64),
    "float16": np.array([0x7E01, 0xFE00, 0x8000], np.uint16).view(np.float16),
    "float32": np.array([0x7FC00001, 0xFFC00000, 0x80000000], np.uint32).view(np.float32),
    "float64": np.array([0x7FF8000000000001, 0xFFF8000000000000, 2**63], np.uint64).view(np.float64),
    "complex64": np.array([1 + 2j, complex(np.nan, -0.0), 0], np.complex64),
    "complex128": np.array([1 + 2j, complex(np.nan, -0.0), 0]),
    "bfloat16": np.array([0x7FC1, 0xFFC0, 0x8000], np.uint16).view(ml_dtypes.bfloat16),
    "float8_e5m2": np.array([0x7D, 0xFE, 0x80], np.uint8).view(ml_dtypes.float8_e5m2),
    "float8_e4m3fn": np.array([0x7F, 0xFF, 0x80], np.uint8).view(ml_dtypes.float8_e4m3fn),
    "string": np.array([b"", b"\0a\0", b"\xff\xfe"], object),
}


@pytest.fixture
def client():
    server = reverb.Server([make_table("table"), make_table("back")])
    yield server.localhost_client()
    server.stop()


def content(client, table):
    """Returns the priority, structure and bits of all items, in order."""
    import tree

    saved = checkpointers.open(client.checkpoint()).table(table)
    return [
        (
            item.info.priority,
            [
                (path, leaf.dtype, leaf.shape, leaf.tolist() if leaf.dtype == object else leaf.tobytes())
                for path, leaf in tree.flatten_with_path(item.data)
            ],
        )
        for item in saved
    ]


def there_and_back(client, way, tmp_path):
    """Copies `table` to `back` by an export and an import."""
    if way == "arrow":
        return exchange.from_arrow(client, exchange.to_arrow(client, "table"), "back")
    path = tmp_path / "table.parquet"
    items = exchange.to_parquet(client, path, "table")
    assert os.listdir(tmp_path) == ["table.parquet"]
    assert exchange.from_parquet(client, path, "back") == items
    return items


@pytest.mark.parametrize("way", ["arrow", "parquet"])
@pytest.mark.parametrize("kind", VALUES)
def test_every_dtype_keeps_its_bits(client, tmp_path, kind, way):
    values = VALUES[kind]
    with client.trajectory_writer(3) as writer:
        for index in range(3):
            writer.append([values[index, ...], values, np.stack([values, values[::-1]])])
        for rows in (1, 3, 2):
            histories = writer.history
            columns = [history[-rows:] for history in histories] + [history[-1] for history in histories]
            writer.create_item("table", rows / 3, columns)
    assert there_and_back(client, way, tmp_path) == 3
    assert content(client, "back") == content(client, "table")


@pytest.mark.parametrize("way", ["arrow", "parquet"])
def test_items_of_different_lengths_keep_the_length_of_each_column(client, tmp_path, way):
    with client.trajectory_writer(5) as writer:
        for index in range(5):
            writer.append({"a": np.int64(index), "b": np.full((2, 1), index, np.float32)})
            history = writer.history
            for rows in range(1, index + 2):
                trajectory = {"a": history["a"][-rows:], "b": history["b"][: index + 2 - rows], "c": history["b"][-1]}
                writer.create_item("table", rows, trajectory)
    assert there_and_back(client, way, tmp_path) == 15
    assert content(client, "back") == content(client, "table")


@pytest.mark.parametrize("way", ["arrow", "parquet"])
def test_the_nest_of_a_signature_is_restored(tmp_path, way):
    signature = {
        "observation": {
            "image": reverb.TensorSpec((None, 2, None), np.uint8),
            "empty": reverb.TensorSpec((0,), np.int8),
        },
        "pair": (reverb.TensorSpec((), np.float32), [reverb.TensorSpec((1,), object)]),
    }
    server = reverb.Server([make_table(name, signature=signature) for name in ("table", "back")])
    client = server.localhost_client()
    for width in (3, 1, 0):
        image = np.arange(2 * width, dtype=np.uint8).reshape(1, 2, width)[0]
        step = {
            "observation": {"image": image[None], "empty": np.zeros(0, np.int8)},
            "pair": (np.float32(width), [np.array([b"x" * width], object)]),
        }
        step["observation"]["image"] = np.broadcast_to(image, (4, 2, width))
        client.insert(step, {"table": 1.0})
    assert there_and_back(client, way, tmp_path) == 3
    assert content(client, "back") == content(client, "table")
    if way == "parquet":
        assert exchange.parquet_signature(tmp_path / "table.parquet") == signature
    server.stop()


@pytest.mark.parametrize("way", ["arrow", "parquet"])
def test_signatures_of_steps_and_of_whole_columns_accept_their_exported_items(tmp_path, way):
    step, column = reverb.TensorSpec((2,), np.int64), reverb.TensorSpec((None, 2), np.int64)
    for signature in ({"x": step, "y": step}, {"x": column, "y": column}):
        server = reverb.Server([make_table(name, signature=signature) for name in ("table", "back")])
        client = server.localhost_client()
        if signature["x"] is step:
            with client.writer(4) as writer:
                for index in range(4):
                    writer.append({"x": np.array([index, 1]), "y": np.array([2, index])})
                    writer.create_item("table", index + 1, float(index))
        else:
            with client.trajectory_writer(4) as writer:
                for index in range(4):
                    writer.append({"x": np.array([index, 1]), "y": np.array([2, index])})
                    history = writer.history
                    writer.create_item("table", 1.0, {"x": history["x"][: index + 1], "y": history["y"][-1:]})
        assert there_and_back(client, way, tmp_path) == 4
        assert content(client, "back") == content(client, "table")
        server.stop()


def test_a_row_holds_what_the_table_knew_about_the_item(client):
    for value in range(3):
        client.insert(np.int64(value), {"table": value / 2})
    client.sample_batch("table", 2)
    drawn = client.sample_batch("table", 1).info
    table = exchange.to_arrow(client, "table").read_all()
    assert table["priority"].to_pylist() == [0.0, 0.5, 1.0]
    assert table["times_sampled"].to_pylist() == [3, 0, 0]
    assert table["key"][0].as_py() == drawn.key[0]
    assert table["data/0"].to_pylist() == [[0], [1], [2]]
    inserted = table["inserted_at"].cast(pa.int64()).to_pylist()
    assert inserted == sorted(inserted)
    assert inserted[0] > 0


def test_an_empty_table_is_exported_as_a_file_without_rows(client, tmp_path):
    assert there_and_back(client, "parquet", tmp_path) == 0


def test_a_table_of_a_checkpoint_needs_no_server(client, tmp_path):
    client.insert(np.int64(7), {"table": 1.0})
    saved = checkpointers.open(client.checkpoint()).table("table")
    client.reset("table")
    assert exchange.to_parquet(saved, tmp_path / "file") == 1
    assert exchange.from_parquet(client, tmp_path / "file", "table", priority=4.0) == 1
    assert client.sample_batch("table", 1).info.priority == [4.0]
    with pytest.raises(ValueError, match="`table` is 'back', but the source is table 'table'"):
        exchange.to_arrow(saved, "back")


def test_export_needs_memory_for_a_portion_rather_than_for_the_table(client, tmp_path):
    count = 200
    for index in range(count):
        client.insert(np.full(2**18, index, np.uint8), {"table": 1.0})
    saved = checkpointers.open(client.checkpoint()).table("table")
    reader = exchange.to_arrow(saved)
    largest = max(batch.nbytes for batch in reader)
    assert largest < 2 * 2**24 < count * 2**18
    exchange.to_parquet(saved, tmp_path / "file")
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    assert exchange.from_parquet(client, tmp_path / "file", "back") == count
    assert tracemalloc.get_traced_memory()[1] < count * 2**18 / 2
    assert pa.total_allocated_bytes() <= before
    tracemalloc.stop()


# --- What cannot be exported -----------------------------------------------------------------------------------


def test_export_reports_which_item_differs_and_how(client):
    client.insert(np.zeros(2, np.float32), {"table": 1.0})
    client.insert(np.zeros(3, np.float32), {"table": 1.0})
    with pytest.raises(
        ValueError, match=r"column 'data/0': item \d+ has rows of float32\[3\].*earlier items have float32\[2\]"
    ):
        exchange.to_arrow(client, "table").read_all()
    client.reset("table")
    client.insert(np.zeros(2, np.float32), {"table": 1.0})
    client.insert([np.zeros(2, np.float32), np.zeros(2, np.float32)], {"table": 1.0})
    with pytest.raises(ValueError, match=r"item \d+ has 2 columns, earlier items have 1"):
        exchange.to_arrow(client, "table").read_all()


def test_a_failed_export_leaves_the_old_file(client, tmp_path):
    path = tmp_path / "file"
    client.insert(np.int64(1), {"table": 1.0})
    exchange.to_parquet(client, path, "table")
    before = path.read_bytes()
    client.insert(np.int32(1), {"table": 1.0})
    with pytest.raises(ValueError, match="int32"):
        exchange.to_parquet(client, path, "table")
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["file"]


def test_export_refuses_other_kinds_of_sources(client):
    with pytest.raises(TypeError, match="Client or a table of a checkpoint, got str"):
        exchange.to_arrow("localhost:1", "table")
    with pytest.raises(ValueError, match="must name the table"):
        exchange.to_arrow(client)
    with pytest.raises(errors.TableNotFoundError, match="nowhere"):
        exchange.to_arrow(client, "nowhere")


# --- Bad files -------------------------------------------------------------------------------------------------


@pytest.fixture
def file(client, tmp_path):
    """A file with five items."""
    path = tmp_path / "five.parquet"
    random = np.random.default_rng(0)
    for _ in range(5):
        client.insert({"x": random.random(50)}, {"table": 1.0})
    exchange.to_parquet(client, path, "table")
    return path


def size_of(client, table="back"):
    return client.server_info()[table].current_size


def test_a_truncated_file_inserts_nothing(client, file):
    whole = file.read_bytes()
    for length in [*range(0, len(whole), len(whole) // 40), len(whole) - 1]:
        file.write_bytes(whole[:length])
        with pytest.raises(
            errors.DataLossError, match=f"{file.name} is not a complete Parquet file.*Nothing was inserted"
        ):
            exchange.from_parquet(client, file, "back")
    assert size_of(client) == 0


def test_a_flipped_bit_in_the_data_is_found(client, file):
    whole = file.read_bytes()
    metadata = pq.ParquetFile(file).metadata
    data = metadata.row_group(0).column(metadata.num_columns - 1)
    end = data.data_page_offset + data.total_compressed_size
    for place in range(end - 300, end, 37):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        with pytest.raises(errors.DataLossError, match=f"{file.name} is damaged.*Before that, 0 items were inserted"):
            exchange.from_parquet(client, file, "back")
    assert size_of(client) == 0


def test_damage_further_on_is_reported_with_the_number_of_items_before(client, tmp_path):
    path = tmp_path / "file"
    for index in range(100):
        client.insert(np.random.default_rng(index).bytes(2**18), {"table": 1.0})
    exchange.to_parquet(client, path, "table")
    metadata = pq.ParquetFile(path).metadata
    assert metadata.num_row_groups > 1
    last = metadata.row_group(metadata.num_row_groups - 1)
    place = last.column(metadata.num_columns - 1).data_page_offset + 5000
    whole = bytearray(path.read_bytes())
    whole[place] ^= 1
    path.write_bytes(whole)
    with pytest.raises(errors.DataLossError) as caught:
        exchange.from_parquet(client, path, "back")
    assert 0 < size_of(client) < 100
    assert f"Before that, {size_of(client)} items were inserted into 'back'" in str(caught.value)


def changed(path, change):
    """Rewrites the file with its Arrow table changed."""
    table = change(pq.read_table(path))
    pq.write_table(table, path)
    return table


def with_metadata(table, **changes):
    described = {**json.loads(table.schema.metadata[b"reverb"]), **changes}
    return table.replace_schema_metadata({b"reverb": json.dumps(described)})


BAD = {
    "no metadata": (lambda t: t.replace_schema_metadata(None), "is not an exported table: its schema has no metadata"),
    "no column": (lambda t: t.drop_columns(["data/0"]), "expected exactly one column 'data/0', got: key, priority"),
    "no key": (lambda t: t.drop_columns(["key"]), "expected exactly one column 'key'"),
    "another type": (
        lambda t: t.set_column(0, "key", t["priority"]),
        "column 'key': expected uint64, got double",
    ),
    "a missing value": (
        lambda t: t.set_column(1, "priority", pa.array([1.0, None, 1.0, 1.0, 1.0])),
        "column 'priority': expected no missing values, got 1",
    ),
    "an item without steps": (
        lambda t: t.set_column(4, t.schema.field(4), pa.array([[]] * 5, t.schema.field(4).type)),
        "column 'data/0': row 0 has no steps",
    ),
    "a later version": (
        lambda t: with_metadata(t, version=2),
        "has version 2 of the layout, but this package reads version 1",
    ),
    "an absurd shape": (
        lambda t: with_metadata(t, columns=[{"name": "data/0", "dtype": "double", "shape": [2**40], "time": True}]),
        "metadata `reverb` of its schema is damaged",
    ),
    "an unknown dtype": (
        lambda t: with_metadata(t, columns=[{"name": "data/0", "dtype": "float99", "shape": [], "time": True}]),
        "unknown dtype 'float99'",
    ),
    "an invalid signature": (
        lambda t: with_metadata(t, signature="AAAA"),
        "metadata `reverb` of its schema is damaged",
    ),
    "no JSON": (lambda t: t.replace_schema_metadata({b"reverb": b"{"}), "metadata `reverb` of its schema is damaged"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_file_is_refused_with_its_name_and_what_was_expected(client, file, case):
    change, message = BAD[case]
    changed(file, change)
    with pytest.raises(ValueError, match=message) as caught:
        exchange.from_parquet(client, file, "back")
    assert file.name in str(caught.value)
    assert size_of(client) == 0


def test_values_that_do_not_fit_their_shape_are_refused(client):
    kind = pa.struct([("shape", pa.list_(pa.int64())), ("values", pa.large_list(pa.int8()))])
    columns = [{"name": "data/0", "dtype": "int8", "shape": None, "time": True}]
    metadata = {b"reverb": json.dumps({"version": 1, "columns": columns, "signature": None})}
    fixed = {
        "key": pa.array([1], pa.uint64()),
        "priority": pa.array([1.0]),
        "times_sampled": pa.array([0], pa.int32()),
        "inserted_at": pa.array([0], pa.timestamp("ns", "UTC")),
    }
    for shape, message in (
        ([2, 2], r"expected 4 values of shape \[2, 2\], got 3"),
        ([0, 3], "has no steps"),
        ([-1, -3], "invalid shape"),
        ([2**62, 4], "expected"),
    ):
        value = pa.array([{"shape": shape, "values": [1, 2, 3]}], kind)
        table = pa.table({**fixed, "data/0": value}).replace_schema_metadata(metadata)
        with pytest.raises(ValueError, match=message):
            exchange.from_arrow(client, table, "back")
    assert size_of(client) == 0


def test_import_refuses_a_missing_table_and_one_with_another_signature(client, file):
    with pytest.raises(errors.TableNotFoundError, match="no table 'nowhere'.*which has the tables: table, back"):
        exchange.from_parquet(client, file, "nowhere")
    signature = {"y": reverb.TensorSpec((50,), np.float64)}
    server = reverb.Server([make_table("a", signature=signature), make_table("b", signature={"x": signature["y"]})])
    other = server.localhost_client()
    other.insert({"x": np.zeros(50)}, {"b": 1.0})
    with pytest.raises(
        ValueError, match=r"the data have the columns \['x'\], but the signature of table 'a' has \['y'\]"
    ):
        exchange.from_arrow(other, exchange.to_arrow(other, "b"), "a")
    server.stop()


def test_a_priority_that_the_table_refuses_is_reported_with_the_number_inserted(client, file):
    server = reverb.Server([make_table("table", sampler=selectors.Prioritized(1.0))])
    with pytest.raises(errors.InvalidPriorityError, match="Before that, 0 items were inserted"):
        exchange.from_parquet(server.localhost_client(), file, "table", priority=-1.0)
    server.stop()


def test_import_accepts_arrow_streams_and_names_other_types(client, file):
    table = pq.read_table(file)
    for data in (table, table.to_batches()[0], table.to_reader()):
        client.reset("back")
        assert exchange.from_arrow(client, data, "back") == 5
    with pytest.raises(TypeError, match="__arrow_c_stream__, got list"):
        exchange.from_arrow(client, [table], "back")


SECURED = """
    import sys, reverb
    from reverb import exchange
    client, path = reverb.Client(sys.argv[1]), sys.argv[2]
    client.insert([1], {"table": 1.0})
    try:
        exchange.to_parquet(client, path, table="table", progress=False)
        print(exchange.from_parquet(client, path, table="back", progress=False))
    except PermissionError as error:
        print(error)
"""


@pytest.mark.parametrize("role", ["admin", "use"])
def test_exports_and_imports_show_the_token_of_the_environment(serve_secured, tmp_path, role):
    server, address = serve_secured(make_table("table"), make_table("back"), role=role)
    out, _ = run_program(SECURED, address, tmp_path / "replay.parquet")
    if role == "admin":
        assert out == "1\n"
        assert server.localhost_client().server_info()["back"].current_size == 1
    else:
        assert "token `program` has role use; Checkpoint needs admin" in out, "an export of a server saves it"
