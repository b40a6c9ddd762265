"""Batches as PyTorch tensors: an iterable, and a dataset for DataLoader."""

from __future__ import annotations

import collections
import dataclasses
import functools
import weakref
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic

import torch
from numpy.typing import ArrayLike
from torch.utils.data import IterableDataset, get_worker_info

from reverb import aio
from reverb._binding import BatchIterator
from reverb.client import Client
from reverb.frameworks.torch import TAKES_ALL, as_device, tensor_maker, to_leaves, to_tensordict
from reverb.loaders.async_batches import AsyncBatches
from reverb.loaders.batch import Batch, DataT
from reverb.loaders.conversion import Conversion
from reverb.loaders.options import LoaderArguments, Options, shows_loader_options
from reverb.loaders.source import BatchSource, Fetched, client_of
from reverb.loaders.staging import Staging
from reverb.loaders.stats import LoaderStats
from reverb.loaders.torch_to_device import ToDevice, map_tensors

if TYPE_CHECKING:
    from typing_extensions import Unpack

# DataLoader's default for `prefetch_factor`.
_DATA_LOADER_PREFETCH = 2


@shows_loader_options
class TorchLoader(IterableDataset, Generic[DataT]):  # type: ignore[misc]
    """Batches as tensors. Iterate over it directly, or give it to a DataLoader with `batch_size=None`.

        for batch in reverb.loaders.TorchLoader("localhost:8000", "replay", batch_size=256, device="cuda"):
            ...

    `batch.info` stays NumPy: keys have 64 bits, and are sent back to the server. Each call of `iter` begins new draws,
    with their own prefetching; calls of `next` on the loader itself share one iteration, which the first of them
    begins. Under a DataLoader, each worker has its own client and draws whole batches; the workers
    divide `num_batches` among them. A worker counts a batch as received only when the DataLoader has requested
    `prefetch_factor` more. If it is stopped or killed, batches in the DataLoader's queues therefore go back to their
    tables instead of being lost, and the last batches that the learner saw may go back too.

    Args:
      client: Address of a server, or a Client, also of `reverb.aio`, of which only the address is passed to other
        processes.
      table: Name of the table; or, for a mixture, a mapping from the tables' names to weights.
      device: Device that tensors are copied to, while the learner still uses the previous batch. Batches below 1 MiB
        are copied to CUDA when they are asked for. None keeps tensors in the CPU's memory, without a copy. Must be None
        in workers of a DataLoader.
      pin_memory: Whether tensors are stored in pinned memory. A DataLoader does this itself.
      tensordict: Whether the data are a TensorDict.
      worker_prefetch: Value of the DataLoader's `prefetch_factor`, in batches per worker.
      **options: Options by name, which are the fields of `reverb.loaders.Options`; `batch_size` is required.

    Raises:
      TypeError, ValueError: An option is unknown, out of range or of the wrong type, or PyTorch sees no such device.
    """

    def __init__(
        self,
        client: Client | aio.Client | str,
        table: str | Mapping[str, float],
        *,
        device: Any = None,
        pin_memory: bool = False,
        tensordict: bool = False,
        worker_prefetch: int = _DATA_LOADER_PREFETCH,
        **options: Unpack[LoaderArguments],
    ) -> None:
        super().__init__()
        self._client = client_of(client)
        self._table = table
        self._device = as_device(device)
        self._pin_memory = pin_memory
        self._tensordict = tensordict
        self._worker_prefetch = worker_prefetch
        self.options = Options.of("TorchLoader", options, ("device", "pin_memory", "tensordict", "worker_prefetch"))
        self._open: weakref.WeakSet[TorchBatches[DataT]] = weakref.WeakSet()
        self._last: BatchSource | None = None
        self._own: TorchBatches[DataT] | None = None

    def __iter__(self) -> TorchBatches[DataT]:
        worker = get_worker_info()
        if worker is None:
            batches = self._batches(self._client, self.options, self._device, None)
            self._open.add(batches)
            self._last = batches.source
            return batches
        if self._device is not None:
            raise ValueError("`device` must be None in workers of a DataLoader: copy the batches it yields instead.")
        options = _share(self.options, worker.id, worker.num_workers)
        lag = self._worker_prefetch - 1 + (options.receipt == "next")
        return self._batches(Client(self._client.endpoint), options, None, lag)

    def __next__(self) -> Batch[DataT, torch.Tensor, torch.Tensor]:
        if self._own is None:
            self._own = iter(self)
        return next(self._own)

    def __aiter__(self) -> AsyncBatches[Batch[DataT, torch.Tensor, torch.Tensor]]:
        """An iteration for `async for`, whose waits are awaited. With a `device`, batches are not copied in advance."""
        batches = iter(self)
        batches.copy_in_turn()
        return AsyncBatches(batches.source)

    def __len__(self) -> int:
        """The number of batches that each iteration yields in all, `num_batches`; TypeError if that is None."""
        return self.options.length()

    def __bool__(self) -> bool:
        return True

    def _batches(self, client: Client, options: Options, device: Any, lag: int | None) -> TorchBatches[DataT]:
        to_device = None if device is None else ToDevice(device, self._pin_memory, self._tensordict)
        conversion = _conversion(options, to_device, self._pin_memory, self._tensordict)
        source = BatchSource(client, self._table, options, conversion, by_caller=lag is None and device is None)
        return TorchBatches(source, to_device, lag)

    def stats(self) -> LoaderStats:
        """The stats of the latest iteration in this process; see `LoaderStats`."""
        return LoaderStats() if self._last is None else self._last.stats()

    def update_priorities(self, batch: Batch, priorities: ArrayLike, *, timeout: float | None = None) -> int | None:
        """Sets new priorities for a batch's items, in the tables from which they were drawn.

        Args:
          batch: A batch that this loader yielded.
          priorities: One priority per item, an array or a tensor `[batch]`.
          timeout: Seconds to wait for the server; None waits without limit.

        Returns:
          How many of the items are still in their tables; None if a server of an earlier version does not say.
        """
        source = self._last
        if source is None:
            source = BatchSource(self._client, self._table, self.options)
        return source.update_priorities(batch, priorities, timeout=timeout)

    def close(self) -> None:
        """Ends all iterations in this process, and returns samples drawn in advance to their tables."""
        for batches in list(self._open):
            batches.close()

    async def __aenter__(self) -> TorchLoader:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for batches in list(self._open):
            await batches.source.close_in_event_loop()

    def __enter__(self) -> TorchLoader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        # Workers cannot use this process's client and iterations.
        client = Client(self._client.endpoint)
        return {**self.__dict__, "_client": client, "_open": None, "_last": None, "_own": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "_address" in state:
            # An earlier version has pickled it.
            state["_client"] = Client(state.pop("_address"))
        self.__dict__.update(state, _open=weakref.WeakSet())


class TorchBatches(BatchIterator, Iterator[Batch[DataT, torch.Tensor, torch.Tensor]], Generic[DataT]):
    """One iteration over a TorchLoader.

    Args:
      source: Source that draws the batches and converts them to tensors.
      to_device: The copies to a device, which the source's conversion makes; None keeps tensors in the CPU's memory.
      lag: Number of delivered batches that do not count as received yet when the next one is requested; None counts a
        batch as received when it is delivered.
    """

    def __init__(self, source: BatchSource, to_device: ToDevice | None, lag: int | None) -> None:
        self.source = source
        self._to_device = to_device
        self._lag = lag
        self._staging = Staging(source)
        self._unreceived: collections.deque[Fetched] = collections.deque()
        self._prefer(source.local)

    if TYPE_CHECKING:

        def __next__(self) -> Batch[DataT, torch.Tensor, torch.Tensor]: ...

    def _next(self) -> Batch[DataT] | None:
        if self._lag is not None:
            return self._next_of_worker(self._lag)
        if self._to_device is not None:
            return self._next_on_device(self._to_device)
        batch: Batch | None = self.source.take()
        return batch

    def _next_on_device(self, to_device: ToDevice) -> Batch | None:
        if to_device.is_ahead is False:
            batch: Batch | None = self.source.take()
            return batch
        while (fetched := self._staging.take()) is not None:
            try:
                batch = to_device.finish(fetched.batch)
            except BaseException:
                self.source.refuse(fetched)
                raise
            if self._staging.hand_over(fetched, stages=bool(to_device.is_ahead)):
                return batch
        return None

    def copy_in_turn(self) -> None:
        """Copies no batch in advance, so that one which cannot be copied goes back to its table."""
        if self._to_device is not None:
            self._to_device.is_ahead = False

    def _next_of_worker(self, lag: int) -> Batch | None:
        self._receive(lag)
        fetched = self.source.next()
        if fetched is None:
            self._receive(0)
            return None
        self._unreceived.append(fetched)
        batch: Batch = fetched.batch
        return batch

    def _receive(self, lag: int) -> None:
        while len(self._unreceived) > lag:
            # The DataLoader has the batch already, even if its samples went back to their tables. It asks for more just
            # before the learner gets the batch.
            self.source.deliver(self._unreceived.popleft(), waits=True)

    def close(self) -> None:
        """Ends the iteration, and returns samples drawn in advance to their tables."""
        self._staging.clear()
        self._unreceived.clear()
        self.source.close()


def _conversion(options: Options, to_device: ToDevice | None, pin_memory: bool, tensordict: bool) -> Conversion:
    """The conversion of one iteration's batches. With a device they are what `ToDevice` returns."""
    if to_device is not None:
        return Conversion(to_leaves, lambda batch: to_device(_to_torch(batch)))
    if pin_memory or tensordict:
        return Conversion(to_leaves, functools.partial(_on_host, pin_memory=pin_memory, tensordict=tensordict))
    to_batch = None if options.beta is None else _to_torch
    return Conversion(to_leaves, to_batch, takes_all=TAKES_ALL, maker=tensor_maker())


def _to_torch(batch: Batch, tensordict: bool = False) -> Batch:
    """Converts a batch's weights to a tensor, and optionally its data to a TensorDict.

    Args:
      batch: A batch whose data and mask are nests of tensors.
      tensordict: Whether to convert the data to a TensorDict with the same keys.

    Raises:
      ValueError: Items differ in length, so they do not fit a TensorDict.
    """
    if tensordict:
        batch = batch._replace(data=to_tensordict(batch.data, len(batch.info.key)))
    return batch if batch.weights is None else batch._replace(weights=torch.from_numpy(batch.weights))


def _on_host(batch: Batch, pin_memory: bool, tensordict: bool) -> Batch:
    batch = _to_torch(batch, tensordict)
    return map_tensors(batch, lambda tensor: tensor.pin_memory()) if pin_memory else batch


def _share(options: Options, worker: int, num_workers: int) -> Options:
    """The options of one of several workers: its share of the batches, and its own seed."""
    seed = None if options.seed is None else options.seed + worker
    if options.num_batches is None:
        return dataclasses.replace(options, seed=seed)
    share = options.num_batches // num_workers + (worker < options.num_batches % num_workers)
    return dataclasses.replace(options, seed=seed, num_batches=share)
