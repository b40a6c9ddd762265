"""The extension's classes. The only module that imports `_rust`; named as the reference names it."""

from typing import TYPE_CHECKING, TypeAlias

from reverb._rust import (
    BatchedWriter,
    CellRef,
    Checkpointer,
    CheckpointReader,
    Client,
    Draw,
    Frames,
    PatternReader,
    PatternWriter,
    RowWriter,
    Server,
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
    from reverb._rust import _Sampled, _SampledHere

    Sampled: TypeAlias = _Sampled
    SampledHere: TypeAlias = _SampledHere

__all__ = [
    "BatchedWriter",
    "CellRef",
    "CheckpointReader",
    "Checkpointer",
    "Client",
    "ColumnHistory",
    "Draw",
    "Frames",
    "PatternReader",
    "PatternWriter",
    "RowWriter",
    "Server",
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
