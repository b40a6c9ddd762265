"""The page's decoding of columns, in a browser: every number comes out as it went in, and shapes get their views."""

import base64
import itertools

import ml_dtypes
import numpy as np
import pytest

import reverb
from reverb import rate_limiters, selectors

pytestmark = pytest.mark.live

DTYPES = [
    *(np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64),
    *(np.float16, np.float32, np.float64, np.complex64, np.complex128),
    *(ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn),
]
NUM_RANDOM = 20_000
DECODE = """async ([dtype, text]) => {
  const { decode } = await import(new URL('values.js', document.baseURI));
  const bytes = Uint8Array.from(atob(text), letter => letter.charCodeAt(0)).buffer;
  const data = decode(dtype, bytes);
  return Array.from({ length: data.length }, (_, i) => data.text(i));
}"""
VIEWS = """async ([column, axes, text]) => {
  const { decode } = await import(new URL('values.js', document.baseURI));
  const { viewsOf } = await import(new URL('values.js', document.baseURI));
  const bytes = Uint8Array.from(atob(text), letter => letter.charCodeAt(0)).buffer;
  return viewsOf(column, axes, decode(column.dtype, bytes)).map(view => view.label);
}"""


@pytest.fixture(scope="module")
def server():
    table = reverb.Table("table", selectors.Uniform(), selectors.Fifo(), 10, rate_limiters.MinSize(1))
    server = reverb.Server([table])
    yield server
    server.stop()


def patterns(dtype):
    """All values of the small types, and random bits of the others."""
    size = np.dtype(dtype).itemsize
    if dtype is np.bool_:
        return np.array([False, True])
    if size <= 2:
        return np.arange(256**size).astype(f"u{size}").view(dtype)
    return np.frombuffer(np.random.default_rng(0).bytes(NUM_RANDOM * size), dtype)


def number_of(text, dtype):
    if dtype is np.bool_:
        return text == "true"
    if np.issubdtype(dtype, np.integer):
        return int(text)
    return dtype(complex(text) if np.issubdtype(dtype, np.complexfloating) else float(text))


def test_the_text_of_a_number_stands_for_it_alone(page, server):
    page.goto(server.dashboard_url)
    for dtype in DTYPES:
        values = patterns(dtype)
        texts = page.evaluate(DECODE, [np.dtype(dtype).name, base64.b64encode(values.tobytes()).decode()])
        assert len(texts) == len(values)
        with np.errstate(all="ignore"):
            for text, value in zip(texts, values, strict=True):
                assert number_of(text, dtype) == value or (value != value and "nan" in text), (dtype, text, value)


SHAPES = [
    ("uint8", (84, 84), False, "Picture"),
    ("uint8", (84, 84, 1), False, "Picture"),
    ("uint8", (96, 96, 3), False, "Picture"),
    ("uint8", (84, 84, 4), False, "4 frames"),
    ("uint8", (84, 84, 12), False, "12 frames"),
    ("uint8", (3, 64, 64), False, "Picture"),
    ("uint8", (1, 64, 64), False, "Picture"),
    ("uint8", (4, 84, 84), False, "4 frames"),
    ("uint8", (3, 64, 64), True, "Film strip"),
    ("uint8", (20, 84, 84), False, "Film strip"),
    ("uint8", (20, 64, 64, 3), True, "Film strip"),
    ("uint8", (1, 64, 64, 3), True, "Picture"),
    ("uint8", (20, 84, 84, 4), True, "4 frames"),
    ("uint8", (20, 3, 64, 64), False, "Film strip"),
    ("uint8", (7, 7, 3), False, "Picture"),
    ("uint8", (40, 128), True, "Heat map"),
    ("float32", (32, 32, 3), False, "Picture"),
    ("float32", (32, 32), False, "Heat map"),
    ("float32", (20, 6), True, "Heat map"),
    ("float32", (20,), True, "Line"),
    ("float32", (20, 1), True, "Line"),
    ("float32", (1,), True, "Value"),
    ("float32", (), False, "Value"),
    ("int64", (30,), False, "Bars"),
    ("int64", (4,), False, "Numbers"),
    ("float32", (1, 4), True, "Numbers"),
    ("complex64", (30,), False, "Numbers"),
    ("bool", (30,), True, "Line"),
    ("float64", (5, 9, 9), False, "Heat map"),
]


def views_of(page, name, array, is_series):
    column = {"name": name, "dtype": array.dtype.name, "shape": list(array.shape)}
    axes = {"0": "steps"} if is_series else {}
    return page.evaluate(VIEWS, [column, axes, base64.b64encode(array.tobytes()).decode()])


def test_the_first_view_follows_dtype_and_shape(page, server):
    page.goto(server.dashboard_url)
    for dtype, shape, is_series, expected in SHAPES:
        views = views_of(page, "column", np.zeros(shape, dtype) + np.array(0.5).astype(dtype), is_series)
        assert views[0] == expected, (dtype, shape, is_series)


def test_values_choose_among_the_views(page, server):
    page.goto(server.dashboard_url)
    views = lambda name, array: views_of(page, name, array, False)  # noqa: E731
    opaque = np.zeros((64, 64, 4), np.uint8)
    opaque[..., 3] = 255
    assert views("x", opaque)[0] == "RGBA"
    assert views("x", np.full((32, 32, 3), 1.5, np.float32))[0] == "Heat map", "no shares of one"
    assert views("x", np.array([5, 30_000, 7]))[0] == "Tokens"
    assert views("prompt_ids", np.array([1, 2, 3]))[0] == "Tokens"
    assert views("step", np.arange(5000))[0] == "Bars", "a rising count"
    assert all("Numbers" in views("x", np.zeros(shape)) for shape in itertools.product((1, 3, 20), repeat=3))
