"""The names of `reverb.checkpointers`, at a second path as in dm-reverb."""

from reverb.platform.default.checkpointers import *  # noqa: F403
