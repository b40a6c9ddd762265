"""The extension's classes. The only module that imports `_rust`; named as the reference names it."""

from reverb._rust import Client, Server, Table, descriptor_set, importance_weights

__all__ = ["Client", "Server", "Table", "descriptor_set", "importance_weights"]
