"""How the arrays of a framework are made of a batch."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from reverb.loaders.batch import Batch

__all__ = ["Conversion", "FromCapsules", "ToLeaves"]

# From the columns of a batch and their names to what is in the batch instead.
ToLeaves = Callable[[Sequence[Any], Sequence[str]], Sequence[Any]]
# Likewise, from columns that are DLPack capsules where their types allow it.
FromCapsules = Callable[[Sequence[Any]], Sequence[Any]]


@dataclasses.dataclass(frozen=True, slots=True)
class Conversion:
    """From columns of NumPy to what a loader gives. What it refuses, by an exception, goes back to its table.

    Attributes:
      columns: What is made of the columns; None: they stay.
      batch: From a batch of those to what the loader gives; None: the batch.
      takes_all: Whether it refuses nothing but strings. Then batches without them need not be able to go back.
      capsules: What is made of capsules, if it takes all; None: it has no use for them.
    """

    columns: ToLeaves | None = None
    batch: Callable[[Batch], Any] | None = None
    takes_all: bool = False
    capsules: FromCapsules | None = None
