"""The batches that loaders give."""

from typing import TYPE_CHECKING, Any, Generic, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reverb.replay_sample import BatchInfo

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # The nest of the data, and the types of weights and masks.
    DataT = TypeVar("DataT", default=Any)
    WeightsT = TypeVar("WeightsT", default=Any)
    MaskT = TypeVar("MaskT", default=Any)
else:
    from typing import TypeVar

    DataT = TypeVar("DataT")

if TYPE_CHECKING:

    class Batch(NamedTuple, Generic[DataT, WeightsT, MaskT]):
        """A batch of items. The loader determines the type of its arrays."""

        # A user of a field that may be None has asked for it: with `Any` that needs no check.
        info: BatchInfo
        data: DataT
        weights: WeightsT | Any = None
        mask: MaskT | Any = None
        table: NDArray[np.int32] | Any = None

else:

    class Batch(NamedTuple):
        """A batch of items. The loader determines the type of its arrays."""

        # Fields `[batch]`. NumPy arrays, whatever the framework: keys have 64 bits and go back to the server.
        info: BatchInfo
        # A nest of arrays `[batch, time, ...]`, or `[batch, ...]` for columns without a time axis.
        data: Any
        # float32 `[batch]`: importance weights; None if the loader has no `beta`.
        weights: Any = None
        # bool `[batch, time]`, True where a row is the item's and not padding. With `mask_per_column`, a nest like
        # `data` of such masks, and None for columns without a time axis. None if the loader does not pad, or no column
        # has a time axis.
        mask: Any = None
        # int32 `[batch]`, a NumPy array: the number of the table of each item; None if there is one table only.
        table: Any = None
