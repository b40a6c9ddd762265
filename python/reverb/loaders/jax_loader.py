"""Batches as JAX arrays."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic

import jax
import numpy as np

from reverb import aio
from reverb.client import Client
from reverb.frameworks.jax import as_device, fit_all
from reverb.loaders.batch import Batch, DataT
from reverb.loaders.conversion import Conversion
from reverb.loaders.loader import Loader
from reverb.loaders.options import LoaderArguments, Options, shows_loader_options
from reverb.loaders.source import BatchSource
from reverb.loaders.staging import Staging

if TYPE_CHECKING:
    from typing_extensions import Unpack


@shows_loader_options
class JaxLoader(Loader[Batch[DataT, jax.Array, jax.Array]], Generic[DataT]):
    """Batches as JAX arrays, copied to an accelerator while the learner still uses the previous batch.

    `batch.info` and `batch.table` stay NumPy: JAX's 32-bit default would truncate the keys. As in JAX, 64-bit columns
    become 32-bit columns, but only if no value changes except by rounding. Integers that do not fit are an error (see
    `reverb.frameworks.dtype_rules`).

    Args:
      client: A Client, also of `reverb.aio`, or the address of a server.
      table: Name of the table; or, for a mixture, a mapping from the tables' names to weights.
      device: Device or Sharding that data, weights and mask are put on, or a name such as `cpu`, `gpu` or `cuda:1`. A
        sharding splits the batch axis, whose size must then be a multiple of the number of shards: short batches are
        given back (`drop_remainder`). None uses JAX's default device.
      double_buffer: Whether the next batch is put on its device in advance, which needs memory for a second batch. None
        does so unless the device is a CPU, where the same processor would only do the work at another time.
      **options: Options by name, which are the fields of `reverb.loaders.Options`; `batch_size` is required.
    """

    def __init__(
        self,
        client: Client | aio.Client | str,
        table: str | Mapping[str, float],
        *,
        device: Any = None,
        double_buffer: bool | None = None,
        **options: Unpack[LoaderArguments],
    ) -> None:
        device = as_device(device)
        if isinstance(device, jax.sharding.Sharding):
            options.setdefault("drop_remainder", True)
        ahead = _is_accelerator(device) if double_buffer is None else double_buffer
        parsed = Options.of("JaxLoader", options, ("device", "double_buffer"))
        # Double buffering asks whether the next batch has arrived, which a draw by the caller cannot answer.
        super().__init__(BatchSource(client, table, parsed, _conversion(parsed, device), by_caller=not ahead))
        self._staging = Staging(self._source) if ahead else None

    def _next(self) -> Batch[DataT, jax.Array, jax.Array] | None:
        if self._staging is None:
            return super()._next()
        while (fetched := self._staging.take()) is not None:
            if self._staging.hand_over(fetched):
                batch: Batch[DataT, jax.Array, jax.Array] = fetched.batch
                return batch
        return None

    def close(self) -> None:
        """Ends the iteration, and returns samples drawn in advance to their tables."""
        if self._staging is not None:
            self._staging.clear()
        super().close()


def _is_accelerator(device: Any) -> bool:
    """Whether arrays on a device or Sharding are stored outside the CPU's memory."""
    is_sharding = isinstance(device, jax.sharding.Sharding)
    devices = device.device_set if is_sharding else jax.device_put(np.float32(0), device).devices()
    return any(one.platform != "cpu" for one in devices)


def _conversion(options: Options, device: Any) -> Conversion:
    # One call for the whole batch, since each call costs tens of microseconds. Without weights and mask, one call for
    # the list of columns, which JAX flattens faster.
    put = jax.device_put
    if options.beta is None and options.pad_to is None:
        return Conversion(lambda columns, names: put(fit_all(columns, names), device))
    return Conversion(fit_all, functools.partial(_to_jax, device=device))


def _to_jax(batch: Batch, device: Any = None) -> Batch:
    """Puts data, weights and mask of a batch on a device. On CPUs they may share the batch's memory.

    Args:
      batch: A batch of NumPy arrays that `fit_all` converted.
      device: Device or Sharding to put the arrays on; None uses JAX's default device.
    """
    data, weights, mask = jax.device_put((batch.data, batch.weights, batch.mask), device)
    return Batch(batch.info, data, weights, mask, batch.table)
