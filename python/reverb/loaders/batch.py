"""The batches that loaders give."""

from typing import Any, NamedTuple

from reverb.replay_sample import SampleInfo

__all__ = ["Batch"]


class Batch(NamedTuple):
    """A batch of items. The loader determines the type of its arrays."""

    # Fields `[batch]`. NumPy arrays, whatever the framework: keys have 64 bits and go back to the server.
    info: SampleInfo
    # A nest of arrays `[batch, time, ...]`, or `[batch, ...]` for columns without a time axis.
    data: Any
    # float32 `[batch]`: importance weights; None if the loader has no `beta`.
    weights: Any = None
    # bool `[batch, time]`, True where a row is the item's and not padding. If the columns of an item differ in their
    # numbers of rows, a nest like `data` of such masks, and None for columns without a time axis. None if the loader
    # does not pad.
    mask: Any = None
    # int32 `[batch]`, a NumPy array: the number of the table of each item; None if there is one table only.
    table: Any = None
