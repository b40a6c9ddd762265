"""The extension's classes. The only module that imports `_rust`; named as the reference names it."""

from typing import TYPE_CHECKING, TypeAlias

from reverb._rust import Client, Draw, Frames, Server, Table, descriptor_set, importance_weights

if TYPE_CHECKING:
    from reverb._rust import _Sampled

    Sampled: TypeAlias = _Sampled

__all__ = ["Client", "Draw", "Frames", "Server", "Table", "descriptor_set", "importance_weights"]
