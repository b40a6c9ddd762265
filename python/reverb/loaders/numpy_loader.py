"""Batches as NumPy arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Generic

import numpy as np
from numpy.typing import NDArray

from reverb import aio
from reverb.client import Client
from reverb.loaders.batch import Batch, DataT
from reverb.loaders.conversion import Conversion
from reverb.loaders.loader import Loader
from reverb.loaders.options import LoaderArguments, Options, shows_loader_options
from reverb.loaders.source import BatchSource

if TYPE_CHECKING:
    from typing_extensions import Unpack


@shows_loader_options
class NumpyLoader(Loader[Batch[DataT, NDArray[np.float32], NDArray[np.bool_]]], Generic[DataT]):
    """Batches as NumPy arrays, in the tables' dtypes; strings are `object` arrays of bytes.

    The arrays of a batch share one buffer, which is reused once the last of them has been freed.

        with reverb.loaders.NumpyLoader("localhost:8000", "replay", batch_size=256, beta=0.6) as loader:
            for batch in loader:
                errors = learn(batch.data, batch.weights)
                loader.update_priorities(batch, errors)

    Args:
      client: A Client, also of `reverb.aio`, or the address of a server.
      table: Name of the table; or, for a mixture, a mapping from the tables' names to weights, by which
        batches are shared among them; see `Options.shares`.
      **options: Options by name, which are the fields of `reverb.loaders.Options`; `batch_size` is required.
    """

    def __init__(
        self, client: Client | aio.Client | str, table: str | Mapping[str, float], **options: Unpack[LoaderArguments]
    ) -> None:
        parsed = Options.of("NumpyLoader", options)
        super().__init__(BatchSource(client, table, parsed, Conversion(takes_all=True), by_caller=True))
