"""The conversion of batches to the arrays of a framework."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from reverb._binding import TensorMaker
from reverb.loaders.batch import Batch

# Converts the columns of a batch, given their names, to the leaves of the converted batch.
ToLeaves = Callable[[Sequence[Any], Sequence[str]], Sequence[Any]]


@dataclasses.dataclass(frozen=True, slots=True)
class Conversion:
    """Converts NumPy columns to what a loader yields. If a conversion raises, the batch goes back to its table.

    Attributes:
      columns: Function that converts the columns; None leaves them unchanged.
      batch: Function from a batch of converted columns to what the loader yields; None yields the batch.
      takes_all: Whether only strings are refused. Batches without strings then need not be able to go back.
      maker: Maker of most columns of a batch from a server in this process, with `columns` for the rest; None leaves
        all to `columns`.
    """

    columns: ToLeaves | None = None
    batch: Callable[[Batch], Any] | None = None
    takes_all: bool = False
    maker: TensorMaker | None = None
