"""Code that depends on the platform: the storage of checkpoints."""

from reverb.platform import checkpointers_lib as checkpointers_lib
from reverb.platform import default as default

__all__ = ["checkpointers_lib", "default"]
