"""The only platform: a machine with a file system."""

from reverb.platform.default import checkpointers as checkpointers

__all__ = ["checkpointers"]
