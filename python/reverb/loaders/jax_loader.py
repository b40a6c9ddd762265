"""Batches as arrays of JAX."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from reverb.client import Client
from reverb.loaders.batch import Batch
from reverb.loaders.conversion import Conversion
from reverb.loaders.dtype_rules import narrow, refuse
from reverb.loaders.leaves import map_leaves
from reverb.loaders.loader import Loader
from reverb.loaders.options import Options
from reverb.loaders.source import BatchSource
from reverb.loaders.staging import Staging
from reverb.replay_sample import Ragged

__all__ = ["JaxLoader", "fit", "to_arrays", "to_jax"]


class JaxLoader(Loader):
    """Batches as arrays of JAX, put on accelerators while the learner still has the batch before.

    `batch.info` and `batch.table` stay NumPy: JAX's 32-bit default would cut the keys. 64-bit columns are cut as JAX
    does where no value changes but by rounding; integers that do not fit are an error (see
    `reverb.loaders.dtype_rules`).

    Args:
      client: A Client, or the address of a server.
      table: The table's name; or, for a mixture, weights by name.
      device: A device or a Sharding that data, weights and mask are put on. A sharding splits the batch axis, of which
        the size must then be a multiple of the number of shards: short batches are given back (`drop_remainder`).
        None: JAX's default device.
      double_buffer: Whether the next batch is put on its device ahead. It needs that memory a second time. None: where
        that device is no CPU: there the same processor would do it, at another time.
      **options: Those of reverb.loaders.Options; `batch_size` is needed.
    """

    def __init__(
        self,
        client: Client | str,
        table: str | Mapping[str, float],
        *,
        device: Any = None,
        double_buffer: bool | None = None,
        **options: Any,
    ) -> None:
        if isinstance(device, jax.sharding.Sharding):
            options.setdefault("drop_remainder", True)
        ahead = _is_elsewhere(device) if double_buffer is None else double_buffer
        parsed = Options(**options)
        # Who puts batches on the device ahead asks whether the next one is here.
        super().__init__(BatchSource(client, table, parsed, _conversion(parsed, device), by_caller=not ahead))
        self._staging = Staging(self._source) if ahead else None

    def _next(self) -> Batch | None:
        if self._staging is None:
            return super()._next()
        fetched = self._staging.next()
        if fetched is None:
            return None
        batch: Batch = self._source.deliver(fetched)
        self._staging.ahead()
        return batch

    def close(self) -> None:
        """Gives back what was drawn ahead. The iterator then is at its end."""
        if self._staging is not None:
            self._staging.clear()
        super().close()


def _is_elsewhere(device: Any) -> bool:
    """Whether arrays of this device or Sharding lie in another memory than NumPy's."""
    is_sharding = isinstance(device, jax.sharding.Sharding)
    devices = device.device_set if is_sharding else jax.device_put(np.float32(0), device).devices()
    return any(one.platform != "cpu" for one in devices)


def _conversion(options: Options, device: Any) -> Conversion:
    # One call for the whole batch, since each costs tens of microseconds; where data are all, one for their columns, of
    # which JAX has less to take apart.
    put, fit_all = jax.device_put, _fit_all
    if options.beta is None and options.pad_to is None:
        return Conversion(lambda columns, names: put(fit_all(columns, names), device))
    return Conversion(_fit_all, functools.partial(to_jax, device=device))


def to_jax(batch: Batch, device: Any = None) -> Batch:
    """A batch whose data, weights and mask are on a device. On CPUs they may share the batch's memory.

    Args:
      batch: Of NumPy arrays that `fit` made.
      device: A device or a Sharding; None: JAX's default.
    """
    data, weights, mask = jax.device_put((batch.data, batch.weights, batch.mask), device)
    return Batch(batch.info, data, weights, mask, batch.table)


def to_arrays(nest: Any, device: Any = None) -> Any:
    """A nest of arrays on a device; errors as of `fit`."""
    return jax.device_put(map_leaves(fit, nest), device)


def _fit_all(columns: Sequence[Any], names: Sequence[str]) -> list[Any]:
    return [fit(column, name) for column, name in zip(columns, names, strict=True)]


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
        return array if array.dtype.char in _FITTING else _fit_array(array, name)
    return Ragged(fit(array.values, name), fit(array.row_lengths, name)) if isinstance(array, Ragged) else array


# NumPy's characters of the common types that JAX takes or rounds: looking a dtype up costs more than the rest.
# Floats of 64 bits are left to JAX, which rounds them as they are put on a device.
_FITTING = frozenset("?bBhHiIefdFD")
_NARROWER = {np.dtype(np.int64): np.int32, np.dtype(np.uint64): np.uint32}


def _fit_array(array: NDArray[Any], name: str) -> NDArray[Any]:
    if array.dtype.kind == "O":
        refuse(name, array.dtype, "JAX")
    narrower = _NARROWER.get(array.dtype)
    if narrower is None or jax.config.jax_enable_x64:
        return array
    return narrow(array, narrower, name, "JAX")
