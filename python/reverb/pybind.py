"""The extension's classes. The only module that imports `_rust`; named as the reference names it."""

from reverb._rust import (
    Checkpointer,
    CheckpointReader,
    Client,
    Server,
    Table,
    checkpoint_list,
    checkpoint_summary,
    checkpoint_verify,
    descriptor_set,
    importance_weights,
)

__all__ = [
    "CheckpointReader",
    "Checkpointer",
    "Client",
    "Server",
    "Table",
    "checkpoint_list",
    "checkpoint_summary",
    "checkpoint_verify",
    "descriptor_set",
    "importance_weights",
]
