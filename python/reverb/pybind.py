"""The extension's classes. The only module that imports `_rust`; named as the reference names it."""

from reverb._rust import Client, Draw, Frames, Server, Table, descriptor_set, importance_weights

__all__ = ["Client", "Draw", "Frames", "Server", "Table", "descriptor_set", "importance_weights"]
