"""What depends on where a program runs; here, where checkpoints are kept."""

from reverb.platform import checkpointers_lib as checkpointers_lib
from reverb.platform import default as default

__all__ = ["checkpointers_lib", "default"]
