"""Replay buffers within one process, without a server or a network.

The classes here serve users of NumPy, PyTorch and JAX. The submodules named after TF-Agents' buffers have their
interface.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reverb.buffers.episodic import EpisodicBuffer as EpisodicBuffer
    from reverb.buffers.transitions import BufferSample as BufferSample
    from reverb.buffers.transitions import PrioritizedBuffer as PrioritizedBuffer
    from reverb.buffers.transitions import UniformBuffer as UniformBuffer

_NAMES = {
    "BufferSample": "transitions",
    "EpisodicBuffer": "episodic",
    "PrioritizedBuffer": "transitions",
    "UniformBuffer": "transitions",
}

__all__ = list(_NAMES)


def __getattr__(name: str) -> Any:
    module = _NAMES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES})
