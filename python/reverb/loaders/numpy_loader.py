"""Batches as NumPy arrays."""

from collections.abc import Mapping
from typing import Any

from reverb.client import Client
from reverb.loaders.conversion import Conversion
from reverb.loaders.loader import Loader
from reverb.loaders.options import Options
from reverb.loaders.source import BatchSource

__all__ = ["NumpyLoader"]


class NumpyLoader(Loader):
    """Batches as NumPy arrays, in the tables' dtypes; strings are `object` arrays of bytes.

    The arrays of a batch share one buffer, which is used again when the last of them is gone.

        with reverb.loaders.NumpyLoader("localhost:8000", "replay", batch_size=256, beta=0.6) as loader:
            for batch in loader:
                errors = learn(batch.data, batch.weights)
                loader.update_priorities(batch, errors)

    Args:
      client: A Client, or the address of a server.
      table: The table's name; or, for a mixture, weights by name: every item of a batch comes from a table by its
        weight.
      **options: Those of reverb.loaders.Options; `batch_size` is needed.
    """

    def __init__(self, client: Client | str, table: str | Mapping[str, float], **options: Any) -> None:
        super().__init__(BatchSource(client, table, Options(**options), Conversion(takes_all=True), by_caller=True))
