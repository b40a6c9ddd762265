"""The names of `reverb.checkpointers`, where the reference has them too."""

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
