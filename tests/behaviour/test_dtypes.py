"""Values are returned as they were inserted, in every dtype, shape and memory layout."""

import array

import ml_dtypes
import numpy as np
import pytest
from behaviour_support import draw, info_of, make_table

NUMBERS = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
]
SHAPES = [(), (1,), (3,), (2, 3), (0,), (0, 3), (2, 0, 3), (1, 2, 1, 2)]


def values_of(dtype, shape, seed=0):
    """Makes values of random bits, so that NaN, infinities and the smallest and largest values occur."""
    random = np.random.default_rng(seed)
    if dtype == "bool":
        return random.integers(0, 2, shape).astype(bool)
    dtype = np.dtype(getattr(ml_dtypes, dtype) if dtype == "bfloat16" else dtype)
    size = int(np.prod(shape)) * dtype.itemsize
    return np.frombuffer(random.bytes(size), dtype).reshape(shape)


def assert_same_bits(got, expected):
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    assert got.tobytes() == np.ascontiguousarray(expected).tobytes()


@pytest.mark.parametrize("dtype", [*NUMBERS, "bfloat16"])
def test_numbers_are_returned_bit_for_bit(client, dtype):
    rows = [values_of(dtype, shape, seed) for seed, shape in enumerate(SHAPES)]
    client.insert(rows, {"table": 1.0})
    [sample] = draw(client)
    for column, row in zip(sample.data, rows, strict=True):
        assert_same_bits(column, row[None])


@pytest.mark.parametrize("shape", SHAPES)
def test_steps_are_returned_in_their_shape(client, shape):
    row = values_of("float32", shape)
    client.insert(row, {"table": 1.0})
    [[step]] = client.sample("table")
    assert_same_bits(step.data[0], row)


@pytest.mark.parametrize("dtype", [*NUMBERS, "bfloat16"])
def test_batches_of_numbers_are_returned_bit_for_bit(serve, dtype):
    client = serve(make_table(max_times_sampled=1))
    columns = [values_of(dtype, (5, *shape), seed) for seed, shape in enumerate(SHAPES)]
    client.insert_batch(columns, {"table": 1.0})
    batch = client.sample_batch("table", 5, squeeze_time=True)
    for got, column in zip(batch.data, columns, strict=True):
        assert_same_bits(got, column)


@pytest.mark.parametrize(
    ("leaf", "dtype"),
    [
        (3, "int64"),
        (-1, "int64"),
        (2**40, "int64"),
        (2**63, "uint64"),
        (1.5, "float64"),
        (True, "bool"),
        (1 + 2j, "complex128"),
        (np.float32(0.5), "float32"),
        (np.uint8(7), "uint8"),
        (np.bool_(False), "bool"),
    ],
)
def test_scalars_become_columns_of_numpys_dtype_for_them(client, leaf, dtype):
    client.insert(leaf, {"table": 1.0})
    [sample] = draw(client)
    [column] = sample.data
    assert (column.dtype, column.shape) == (np.dtype(dtype), (1,))
    assert column[0] == leaf


@pytest.mark.parametrize(
    ("leaf", "expected"),
    [
        ("hé", ["hé".encode()]),
        (b"ab\x00c", [b"ab\x00c"]),
        ("", [b""]),
        (np.array(["a", "bcd"]), [[b"a", b"bcd"]]),
        (np.array([b"a", b"bcd"]), [[b"a", b"bcd"]]),
        (np.array(["a", b"\xff\x00"], dtype=object), [[b"a", b"\xff\x00"]]),
        (np.array([["x"], ["y" * 1000]], dtype=object), [[[b"x"], [b"y" * 1000]]]),
        (np.zeros((0,), dtype=object), np.zeros((1, 0), dtype=object)),
    ],
    ids=["str", "bytes", "empty", "array of str", "array of bytes", "objects", "long", "no strings"],
)
def test_strings_are_returned_as_object_arrays_of_bytes(client, leaf, expected):
    client.insert(leaf, {"table": 1.0})
    [sample] = draw(client)
    [column] = sample.data
    assert column.dtype == object
    np.testing.assert_array_equal(column, np.array(expected, dtype=object))


def test_batches_of_strings_are_returned_unchanged(serve):
    client = serve(make_table(max_times_sampled=1))
    texts = np.array([b"", b"one", b"\x00\xff" * 500], dtype=object)
    client.insert_batch({"text": texts, "number": np.arange(3)}, {"table": 1.0})
    batch = client.sample_batch("table", 3, squeeze_time=True)
    np.testing.assert_array_equal(batch.data[0], [0, 1, 2])
    assert list(batch.data[1]) == list(texts)


def odd_layouts():
    base = np.arange(24, dtype=np.int32).reshape(4, 6)
    unaligned = np.frombuffer(b"\x00" + base.tobytes(), np.uint8)[1:].view(np.int32).reshape(4, 6)
    readonly = base.copy()
    readonly.flags.writeable = False
    return {
        "fortran": np.asfortranarray(base),
        "strided": base[::2, ::3],
        "reversed": base[::-1, ::-1],
        "transposed": base.T,
        "broadcast": np.broadcast_to(base[0], (3, 6)),
        "big-endian": base.astype(">i4"),
        "big-endian floats": base.astype(">f8")[:, ::2],
        "big-endian complex": (base + 1j).astype(">c16"),
        "unaligned": unaligned,
        "read-only": readonly,
        "of an array.array": np.asarray(array.array("d", [1.0, 2.0])),
        "masked": np.ma.masked_array(base),
    }


@pytest.mark.parametrize("layout", odd_layouts())
def test_memory_layout_does_not_matter(client, layout):
    leaf = odd_layouts()[layout]
    client.insert({"x": leaf}, {"table": 1.0})
    [sample] = draw(client)
    [column] = sample.data
    assert column.dtype == leaf.dtype.newbyteorder("=")
    np.testing.assert_array_equal(column, np.asarray(leaf)[None])


@pytest.mark.parametrize("layout", odd_layouts())
def test_memory_layout_of_batches_does_not_matter(serve, layout):
    leaf = odd_layouts()[layout]
    client = serve(make_table(max_times_sampled=1))
    client.insert_batch({"x": leaf}, {"table": 1.0})
    batch = client.sample_batch("table", len(leaf), squeeze_time=True)
    assert batch.data[0].dtype == leaf.dtype.newbyteorder("=")
    np.testing.assert_array_equal(batch.data[0], np.asarray(leaf))


def test_later_changes_of_the_callers_array_do_not_reach_the_table(client):
    row = np.arange(1000.0)
    client.insert(row, {"table": 1.0})
    row[:] = -1
    np.testing.assert_array_equal(draw(client)[0].data[0][0], np.arange(1000.0))


def test_later_changes_of_a_batch_do_not_reach_the_table(serve):
    client = serve(make_table(max_times_sampled=1))
    rows = np.arange(4000.0).reshape(4, 1000)
    client.insert_batch(rows, {"table": 1.0})
    rows[:] = -1
    batch = client.sample_batch("table", 4, squeeze_time=True)
    np.testing.assert_array_equal(batch.data[0], np.arange(4000.0).reshape(4, 1000))


def test_samples_belong_to_the_caller(client):
    client.insert(np.zeros(1000), {"table": 1.0})
    first, second = (sample.data[0] for sample in draw(client, 2))
    first[:] = 5
    assert not second.any()
    assert not draw(client)[0].data[0].any()
    batch = client.sample_batch("table", 2).data[0]
    batch[0] = 5
    assert not batch[1].any()
    assert not client.sample_batch("table", 2).data[0].any()


def test_objects_that_numpy_can_read_are_leaves(client):
    class Thing:
        def __array__(self, dtype=None, copy=None):
            return np.array([1.5, 2.5], dtype)

    client.insert(Thing(), {"table": 1.0})
    np.testing.assert_array_equal(draw(client)[0].data[0], [[1.5, 2.5]])


@pytest.mark.parametrize(
    "leaf",
    [
        None,
        2**64,
        object(),
        {1, 2},
        len,
        np.array([object()]),
        np.array([1, "a"], dtype=object),
        np.array(["2020-01-01"], "datetime64[D]"),
        np.zeros(2, [("a", "i4"), ("b", "f8")]),
    ],
    ids=["None", "2**64", "object", "set", "function", "objects", "mixed objects", "dates", "records"],
)
def test_a_leaf_that_is_not_an_array_of_values_is_a_type_error_and_changes_nothing(client, leaf):
    with pytest.raises(TypeError):
        client.insert({"good": 1, "odd": leaf}, {"table": 1.0})
    assert info_of(client).current_size == 0


def test_type_error_names_the_leaf(client):
    with pytest.raises(TypeError, match="inner"):
        client.insert({"outer": {"inner": object()}}, {"table": 1.0})


def test_large_arrays_are_returned_unchanged(serve):
    client = serve(make_table())
    large = np.random.default_rng(0).bytes(20_000_000)
    client.insert(np.frombuffer(large, np.uint8), {"table": 1.0})
    [sample] = draw(client)
    assert sample.data[0].tobytes() == large
