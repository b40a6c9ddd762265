"""The names of `reverb.checkpointers`, at a second path as in dm-reverb."""

from reverb.platform.default.checkpointers import (
    Checkpoint,
    CheckpointerBase,
    CheckpointTable,
    DefaultCheckpointer,
    TempDirCheckpointer,
    default_checkpointer,
    open,
)

__all__ = [
    "Checkpoint",
    "CheckpointTable",
    "CheckpointerBase",
    "DefaultCheckpointer",
    "TempDirCheckpointer",
    "default_checkpointer",
    "open",
]
