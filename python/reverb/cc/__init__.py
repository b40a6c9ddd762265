"""The protobuf modules, at the same paths as in dm-reverb. Each is imported when it is first used."""

import importlib
from typing import Any

__all__ = ["checkpointing", "patterns_pb2", "schema_pb2"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
