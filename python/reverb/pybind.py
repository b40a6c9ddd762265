"""The extension's classes. The only module that imports `_rust`; named as the reference names it."""

from reverb._rust import (
    BatchedWriter,
    CellRef,
    Checkpointer,
    CheckpointReader,
    Client,
    PatternWriter,
    RowWriter,
    Server,
    Table,
    TrajectoryColumn,
    TrajectoryWriter,
    checkpoint_list,
    checkpoint_summary,
    checkpoint_verify,
    descriptor_set,
    importance_weights,
)
from reverb._rust import _ColumnHistory as ColumnHistory

__all__ = [
    "BatchedWriter",
    "CellRef",
    "CheckpointReader",
    "Checkpointer",
    "Client",
    "ColumnHistory",
    "PatternWriter",
    "RowWriter",
    "Server",
    "Table",
    "TrajectoryColumn",
    "TrajectoryWriter",
    "checkpoint_list",
    "checkpoint_summary",
    "checkpoint_verify",
    "descriptor_set",
    "importance_weights",
]
