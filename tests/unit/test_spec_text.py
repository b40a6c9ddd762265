import re

import numpy as np
import pytest

import reverb
from reverb.data import dtypes
from reverb.data.spec_text import format_spec, parse_spec


@pytest.mark.parametrize(
    ("text", "shape", "dtype", "formatted"),
    [
        ("float32", (), np.float32, "float32"),
        ("float32[]", (), np.float32, "float32"),
        ("uint8[84, 84]", (84, 84), np.uint8, "uint8[84, 84]"),
        (" int64 [ ? ,4]  ", (None, 4), np.int64, "int64[?, 4]"),
        ("string[0]", (0,), object, "string[0]"),
        ("bool[?]", (None,), np.bool_, "bool[?]"),
    ],
)
def test_spec_is_made_of_its_text_and_back(text, shape, dtype, formatted):
    spec = parse_spec(text)
    assert spec == reverb.TensorSpec(shape, dtype)
    assert format_spec(spec) == formatted


def test_every_dtype_has_a_text():
    for name, number in dtypes.numbers().items():
        spec = parse_spec(f"{name}[3]")
        assert spec.dtype == dtypes.dtype_from_number(number)
        assert format_spec(spec) == f"{name}[3]"


def test_spec_of_unknown_rank_has_a_text():
    assert format_spec(reverb.TensorSpec(None, np.int8)) == "int8[...]"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "such as"),
        ("float32[4", "such as"),
        ("float32 4", "such as"),
        ("float32[4] x", "such as"),
        ("float32[-1]", "'float32[-1]'"),
        ("float32[4,]", "'float32[4,]'"),
        ("float32[a]", "'float32[a]'"),
        ("float", "unknown dtype 'float'; expected one of: float32, float64"),
    ],
)
def test_other_texts_are_refused(text, expected):
    with pytest.raises(ValueError, match=re.escape(expected)):
        parse_spec(text)
