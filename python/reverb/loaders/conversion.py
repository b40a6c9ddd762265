"""How the arrays of a framework are made of a batch."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from reverb.loaders.batch import Batch
from reverb.pybind import TensorMaker

__all__ = ["Conversion", "ToLeaves"]

# From the columns of a batch and their names to what is in the batch instead.
ToLeaves = Callable[[Sequence[Any], Sequence[str]], Sequence[Any]]


@dataclasses.dataclass(frozen=True, slots=True)
class Conversion:
    """From columns of NumPy to what a loader gives. What it refuses, by an exception, goes back to its table.

    Attributes:
      columns: What is made of the columns; None: they stay.
      batch: From a batch of those to what the loader gives; None: the batch.
      takes_all: Whether it refuses nothing but strings. Then batches without them need not be able to go back.
      maker: Makes most columns of a batch that comes from this process; `columns` does the rest. None: all.
    """

    columns: ToLeaves | None = None
    batch: Callable[[Batch], Any] | None = None
    takes_all: bool = False
    maker: TensorMaker | None = None
