"""Batches as arrays of JAX."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from reverb.client import Client
from reverb.loaders.batch import Batch
from reverb.loaders.dtype_rules import narrow, refuse
from reverb.loaders.leaves import map_leaves
from reverb.loaders.loader import Loader
from reverb.loaders.staging import Staging
from reverb.replay_sample import Ragged

__all__ = ["JaxLoader", "fit", "to_arrays", "to_jax"]


class JaxLoader(Loader):
    """Batches as arrays of JAX, put on their devices while the learner still has the batch before.

    `batch.info` and `batch.table` stay NumPy: JAX's 32-bit default would cut the keys. 64-bit columns are cut as JAX
    does where no value changes but by rounding; integers that do not fit are an error (see
    `reverb.loaders.dtype_rules`).

    Args:
      client: A Client, or the address of a server.
      table: The table's name; or, for a mixture, weights by name.
      device: A device or a Sharding that data, weights and mask are put on. A sharding splits the batch axis, of which
        the size must then be a multiple of the number of shards: short batches are given back (`drop_remainder`).
        None: JAX's default device.
      double_buffer: Whether the next batch is put on its device ahead. It needs that memory a second time.
      **options: Those of reverb.loaders.Options; `batch_size` is needed.
    """

    # It asks whether the next batch is here, to put it on the device.
    _by_caller = False

    @staticmethod
    def _leaf(array: Any, name: str) -> Any:
        return fit(array, name)

    def __init__(
        self,
        client: Client | str,
        table: str | Mapping[str, float],
        *,
        device: Any = None,
        double_buffer: bool = True,
        **options: Any,
    ) -> None:
        if isinstance(device, jax.sharding.Sharding):
            options.setdefault("drop_remainder", True)
        super().__init__(client, table, **options)
        self._double_buffer = double_buffer
        self._staging = Staging(self._source, lambda batch: to_jax(batch, device))

    def __next__(self) -> Batch:
        staged = self._staging.next()
        if staged is None:
            raise StopIteration
        fetched, batch = staged
        self._source.deliver(fetched)
        if self._double_buffer:
            self._staging.ahead()
        return batch

    def close(self) -> None:
        """Gives back what was drawn ahead. The iterator then is at its end."""
        self._staging.clear()
        super().close()


def to_jax(batch: Batch, device: Any = None) -> Batch:
    """A batch whose data, weights and mask are on a device. On CPUs they may share the batch's memory.

    Args:
      batch: Of NumPy arrays that `fit` made.
      device: A device or a Sharding; None: JAX's default.
    """
    # One call for the whole batch: each costs tens of microseconds, whatever the size.
    if batch.weights is None and batch.mask is None:
        return batch._replace(data=jax.device_put(batch.data, device))
    data, weights, mask = jax.device_put((batch.data, batch.weights, batch.mask), device)
    return Batch(batch.info, data, weights, mask, batch.table)


def to_arrays(nest: Any, device: Any = None) -> Any:
    """A nest of arrays on a device; errors as of `fit`."""
    return jax.device_put(map_leaves(fit, nest), device)


def fit(array: Any, name: str) -> Any:
    """A column in a dtype that JAX has. None stays None.

    Args:
      array: The column.
      name: For messages.

    Raises:
      TypeError: There is none.
      OverflowError: It has integers of 64 bits that JAX, by default, would cut.
    """
    if isinstance(array, np.ndarray):
        return _FITTERS.get(array.dtype, _same)(array, name)
    return Ragged(fit(array.values, name), fit(array.row_lengths, name)) if isinstance(array, Ragged) else array


def _same(array: NDArray[Any], name: str) -> NDArray[Any]:
    if array.dtype.kind == "O":
        refuse(name, array.dtype, "JAX")
    return array


def _integer(dtype: Any) -> Callable[[NDArray[Any], str], NDArray[Any]]:
    def fit(array: NDArray[Any], name: str) -> NDArray[Any]:
        return array if jax.config.jax_enable_x64 else narrow(array, dtype, name, "JAX")

    return fit


# Floats of 64 bits are left to JAX, which rounds them as they are put on a device.
_FITTERS: dict[np.dtype[Any], Callable[[NDArray[Any], str], NDArray[Any]]] = {
    np.dtype(np.int64): _integer(np.int32),
    np.dtype(np.uint64): _integer(np.uint32),
}
