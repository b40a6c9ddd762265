"""The extension's classes. The only module that imports `_rust`; named as the reference names it."""

from reverb._rust import (
    BatchedWriter,
    CellRef,
    Client,
    PatternWriter,
    RowWriter,
    Server,
    Table,
    TrajectoryColumn,
    TrajectoryWriter,
    descriptor_set,
    importance_weights,
)
from reverb._rust import _ColumnHistory as ColumnHistory

__all__ = [
    "BatchedWriter",
    "CellRef",
    "Client",
    "ColumnHistory",
    "PatternWriter",
    "RowWriter",
    "Server",
    "Table",
    "TrajectoryColumn",
    "TrajectoryWriter",
    "descriptor_set",
    "importance_weights",
]
