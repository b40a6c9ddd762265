"""Batches from a server of this process."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from reverb.loaders.batch import Batch
from reverb.loaders.conversion import ToLeaves
from reverb.nests import Packer
from reverb.pybind import Client, TensorMaker

__all__ = ["Plan"]


@dataclasses.dataclass(frozen=True)
class Plan:
    """How the thread that asks for a batch draws it, and what is made of it: for `reverb.pybind.DrawsHere`.

    A small batch takes ten microseconds: to begin it ahead, to queue it and to wait for it would cost half as much
    again, and all of this in Python a fifth. One that the conversion cannot refuse does without a lease, too.

    Attributes:
      client: Of the server.
      table: The table's name.
      batch_size: Items of a batch.
      token: The number of the table's signature, for which this was made.
      squeeze_time: As of `Options`.
      columns: The numbers of the columns that are kept; None: all.
      names: Of these columns, for people.
      keys: As of `Selection`, if there is a signature.
      pack: From the columns to the nest of the data; None: the list of them.
      beta: From the number of a batch to the exponent of its importance weights; None: no weights.
      takes_all: As of `Conversion`, like the next three.
      maker: See there.
      to_leaves: See there, `columns`.
      convert: See there, `batch`.
    """

    client: Client
    table: str
    batch_size: int
    token: int
    squeeze_time: bool
    columns: Sequence[int] | None
    names: list[str]
    keys: Sequence[tuple[Any, int]] | None
    pack: Packer | None
    beta: Callable[[int], float | None] | None
    takes_all: bool
    maker: TensorMaker | None
    to_leaves: ToLeaves | None
    convert: Callable[[Batch], Any] | None
