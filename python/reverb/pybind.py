"""The extension's classes. The only module that imports `_rust`; named as the reference names it."""

from typing import TYPE_CHECKING, TypeAlias

from reverb._rust import (
    BatchedWriter,
    BatchIterator,
    CellRef,
    Checkpointer,
    CheckpointReader,
    Client,
    Draw,
    DrawsHere,
    Frames,
    PatternReader,
    PatternWriter,
    RowWriter,
    Server,
    StatsClock,
    Table,
    TensorMaker,
    TrajectoryColumn,
    TrajectoryWriter,
    checkpoint_list,
    checkpoint_summary,
    checkpoint_verify,
    descriptor_set,
    importance_weights,
)
from reverb._rust import _ColumnHistory as ColumnHistory

if TYPE_CHECKING:
    from reverb._rust import _Sampled

    Sampled: TypeAlias = _Sampled

__all__ = [
    "BatchIterator",
    "BatchedWriter",
    "CellRef",
    "CheckpointReader",
    "Checkpointer",
    "Client",
    "ColumnHistory",
    "Draw",
    "DrawsHere",
    "Frames",
    "PatternReader",
    "PatternWriter",
    "RowWriter",
    "Server",
    "StatsClock",
    "Table",
    "TensorMaker",
    "TrajectoryColumn",
    "TrajectoryWriter",
    "checkpoint_list",
    "checkpoint_summary",
    "checkpoint_verify",
    "descriptor_set",
    "importance_weights",
]
