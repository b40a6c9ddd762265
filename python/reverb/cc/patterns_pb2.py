"""The messages of `reverb/cc/patterns.proto`, as a generated module would define them."""

from typing import Any

from reverb import _protos

globals().update(_protos.module_contents("reverb/cc/patterns.proto"))


def __getattr__(name: str) -> Any:  # Tells type checkers that the module has more names.
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
