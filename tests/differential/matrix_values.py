"""Values of every dtype, and their form between processes: `(dtype, shape, bytes)`, for strings a tuple of bytes."""

import itertools

import numpy as np

INTEGERS = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
DTYPES = ("?", *INTEGERS, "f2", "f4", "f8", "c8", "c16", "O")
SHAPES = ((), (1,), (3,), (2, 3), (0,), (0, 3), (2, 0, 3), (2, 3, 2))
FEW_SHAPES = ((), (3,), (2, 3), (0, 3))
# Bytes of texts that are easily damaged: empty, with NULs at the ends, UTF-8, none of UTF-8, and long.
TEXTS = (b"", b"\0", b"a\0\0", "hé→".encode(), b"\xff\xfe", b"x" * 1000)


def value(dtype, shape, seed):
    """Returns an array of random bits, NaNs and infinities among them."""
    random = np.random.default_rng(seed)
    size = int(np.prod(shape))
    if dtype == "O":
        return texts_of([TEXTS[index] for index in random.integers(0, len(TEXTS), size)], shape)
    kind = np.dtype(dtype)
    if kind == np.dtype(bool):
        return random.integers(0, 2, shape).astype(bool)
    return np.frombuffer(random.bytes(size * kind.itemsize), kind).reshape(shape)


def step(seed, shapes=FEW_SHAPES):
    """Returns a step with a column for each dtype and shape."""
    columns = itertools.product(DTYPES, shapes)
    return [value(dtype, shape, (seed, place)) for place, (dtype, shape) in enumerate(columns)]


def extreme_step(number):
    """Returns a step of integers at their limits, between which differences overflow."""
    rows = []
    for dtype in INTEGERS:
        ends = np.iinfo(dtype)
        rows.append(np.full((2,), (ends.min, ends.max, 0, ends.max, ends.min, 1)[number % 6], dtype))
    return rows


def texts_of(texts, shape):
    """Returns an array of texts. It keeps the NULs at their ends, which are lost where NumPy converts a single text."""
    array = np.empty(len(texts), object)
    array[:] = texts
    return array.reshape(shape)


def stacked(arrays):
    """Stacks arrays of equal shape, also those of objects, as they are."""
    arrays = [np.asarray(array) for array in arrays]
    whole = np.empty((len(arrays), *arrays[0].shape), arrays[0].dtype)
    for row, array in enumerate(arrays):
        # `[()]` takes the only text out of its array, which would otherwise be stored as an object.
        whole[row] = array[()]
    return whole


def leaf_of(column):
    """Converts an array to the form between processes."""
    if isinstance(column, bytes):
        return "bytes", (), (column,)
    column = np.asarray(column)
    if column.dtype == object:
        return "bytes", column.shape, tuple(as_bytes(text) for text in column.ravel())
    return column.dtype.name, column.shape, column.tobytes()


def as_bytes(text):
    return text.encode() if isinstance(text, str) else bytes(text)


def item(priority, arrays):
    """An item as it was written, in the form between processes."""
    return {"priority": float(priority), "columns": [leaf_of(array) for array in arrays]}
