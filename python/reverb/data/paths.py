"""Paths of files that other programs read."""

import os
from typing import Any


def as_path(name: str, value: Any) -> str:
    """Checks that the value of an argument is a path, and returns it as a str.

    Raises:
      TypeError: It is neither a str nor an os.PathLike.
      ValueError: It is empty.
    """
    try:
        path = os.fspath(value)
    except TypeError:
        path = None
    if not isinstance(path, str):
        raise TypeError(f"`{name}` must be a path, got {value!r} ({type(value).__name__}).")
    if not path:
        raise ValueError(f"{name} must be a path, got an empty text")
    return path
