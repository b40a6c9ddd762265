"""Specs as short texts: `float32`, `uint8[84, 84]`, `float32[?, 4]`."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from reverb.data import dtypes
from reverb.tensor_spec import TensorSpec

_FORM = re.compile(r"\s*(\w+)\s*(?:\[(.*)\]\s*)?")


def parse_spec(text: str) -> TensorSpec:
    """Makes a spec of its text.

    Args:
      text: Name of the dtype, and for all but scalars the sizes in brackets, `?` for an unknown one.

    Raises:
      ValueError: The text has another form, or the dtype is unknown.
    """
    found = _FORM.fullmatch(text)
    if found is None:
        raise ValueError(f'expected a text such as "float32[4]", got {text!r}')
    name, sizes = found.groups()
    return TensorSpec([_size(size, text) for size in _split(sizes)], _dtype_named(name))


def _split(sizes: str | None) -> list[str]:
    return sizes.split(",") if sizes and sizes.strip() else []


def _size(size: str, text: str) -> int | None:
    size = size.strip()
    if size == "?":
        return None
    if not re.fullmatch("[0-9]+", size):
        raise ValueError(f'sizes are numbers or "?" for an unknown one, such as "float32[?, 4]", got {text!r}')
    return int(size)


def _dtype_named(name: str) -> np.dtype[Any]:
    numbers = dtypes.numbers()
    if name not in numbers:
        raise ValueError(f"unknown dtype {name!r}; expected one of: {', '.join(numbers)}")
    return dtypes.dtype_from_number(numbers[name])


def format_spec(spec: Any) -> str:
    """The text of a spec of any library; the sizes are `...` if the rank is unknown."""
    name = dtypes.name_of(dtypes.number_of(dtypes.as_dtype(spec.dtype)))
    if spec.shape.rank is None:
        return f"{name}[...]"
    sizes = ["?" if size is None else str(size) for size in spec.shape]
    return f"{name}[{', '.join(sizes)}]" if sizes else name


def format_signature(signature: Any, max_length: int = 200) -> str:
    """The text of a nest of specs, such as `{'obs': float32[4], 'reward': float32}`.

    Args:
      signature: Nest of specs of any library; None for a table without a signature.
      max_length: Number of characters after which the text is cut.
    """
    text = _format_node(signature)
    return text if len(text) <= max_length else f"{text[: max_length - 3]}..."


def _format_node(node: Any) -> str:
    if isinstance(node, Mapping):
        return f"{{{', '.join(f'{key!r}: {_format_node(value)}' for key, value in node.items())}}}"
    if isinstance(node, tuple) and hasattr(node, "_fields"):
        pairs = zip(node._fields, node, strict=True)
        return f"{type(node).__name__}({', '.join(f'{field}={_format_node(value)}' for field, value in pairs)})"
    if isinstance(node, (tuple, list)):
        values = ", ".join(map(_format_node, node))
        return f"[{values}]" if isinstance(node, list) else f"({values}{',' if len(node) == 1 else ''})"
    return format_spec(node) if hasattr(node, "shape") and hasattr(node, "dtype") else repr(node)
