"""Batches as tensors of PyTorch: an iterable, and a dataset for DataLoader."""

import collections
import dataclasses
import functools
import weakref
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch.utils.data import IterableDataset, get_worker_info

from reverb.client import Client
from reverb.loaders.batch import Batch
from reverb.loaders.conversion import Conversion
from reverb.loaders.leaves import map_leaves
from reverb.loaders.options import Options
from reverb.loaders.source import BatchSource, Fetched
from reverb.loaders.staging import Staging
from reverb.loaders.stats import LoaderStats
from reverb.loaders.torch_arrays import TAKES_ALL, tensor_maker, to_leaves, to_torch
from reverb.pybind import BatchIterator

__all__ = ["TorchLoader"]

# `prefetch_factor` of DataLoader where it is not given.
_DATA_LOADER_PREFETCH = 2


class TorchLoader(IterableDataset):  # type: ignore[misc]
    """Batches as tensors. Iterate it as it is, or give it to a DataLoader with `batch_size=None`.

        for batch in reverb.loaders.TorchLoader("localhost:8000", "replay", batch_size=256, device="cuda"):
            ...

    `batch.info` stays NumPy: keys have 64 bits, and go back to the server. Each `iter` draws anew, with prefetching
    of its own. Under DataLoader every worker has a client of its own and draws whole batches; with `num_batches` they
    share it out. A worker counts a batch as received only when the DataLoader has asked it for `prefetch_factor`
    more, so that batches in the DataLoader's queues are not lost, but go back, if it is stopped or killed; the last
    ones taken may then go back too, although they were seen.

    Args:
      client: The address of a server, or a Client, of which the address is taken to other processes.
      table: The table's name; or, for a mixture, weights by name.
      device: Where tensors go: each batch is copied while the learner still has the one before. None: the CPU's memory,
        without a copy. Not in workers of a DataLoader.
      pin_memory: Whether tensors lie in pinned memory. A DataLoader pins by itself.
      tensordict: Whether the data are a TensorDict.
      worker_prefetch: The `prefetch_factor` of the DataLoader.
      **options: Those of reverb.loaders.Options; `batch_size` is needed.

    Raises:
      TypeError, ValueError: An option has no meaning.
    """

    def __init__(
        self,
        client: Client | str,
        table: str | Mapping[str, float],
        *,
        device: Any = None,
        pin_memory: bool = False,
        tensordict: bool = False,
        worker_prefetch: int = _DATA_LOADER_PREFETCH,
        **options: Any,
    ) -> None:
        super().__init__()
        self._client: Client | None = Client(client) if isinstance(client, str) else client
        self._address = self._client.server_address
        self._table = table
        self._device = None if device is None else torch.device(device)
        self._pin_memory = pin_memory
        self._tensordict = tensordict
        self._worker_prefetch = worker_prefetch
        self.options = Options(**options)
        self._open: weakref.WeakSet[TorchBatches] = weakref.WeakSet()
        self._last: BatchSource | None = None

    def __iter__(self) -> "TorchBatches":
        worker = get_worker_info()
        if worker is None:
            client = self._client or Client(self._address)
            batches = self._batches(client, self.options, self._device, None)
            self._open.add(batches)
            self._last = batches.source
            return batches
        if self._device is not None:
            raise ValueError("`device` cannot be used in workers of a DataLoader: copy what comes out of it instead.")
        options = _share(self.options, worker.id, worker.num_workers)
        return self._batches(Client(self._address), options, None, self._worker_prefetch - 1)

    def _batches(self, client: Client, options: Options, device: Any, lag: int | None) -> "TorchBatches":
        conversion = _conversion(options, device, self._pin_memory, self._tensordict)
        source = BatchSource(client, self._table, options, conversion, by_caller=lag is None and device is None)
        return TorchBatches(source, device, lag)

    def stats(self) -> LoaderStats:
        """Those of the latest iteration in this process; see `LoaderStats`."""
        return LoaderStats() if self._last is None else self._last.stats()

    def update_priorities(self, batch: Batch, priorities: ArrayLike, *, timeout: float | None = None) -> None:
        """Sets new priorities of a batch's items, in the tables from which they came; tensors are taken too."""
        source = self._last
        if source is None:
            source = BatchSource(self._client or Client(self._address), self._table, self.options)
        if isinstance(priorities, torch.Tensor):
            priorities = priorities.detach().cpu().double().numpy()
        source.update_priorities(batch, priorities, timeout=timeout)

    def close(self) -> None:
        """Ends all iterations of this process; what was drawn ahead goes back."""
        for batches in list(self._open):
            batches.close()

    def __enter__(self) -> "TorchLoader":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        # A worker has no use for this process's client and iterations.
        return {**self.__dict__, "_client": None, "_open": None, "_last": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _open=weakref.WeakSet())


class TorchBatches(BatchIterator, Iterator[Batch]):
    """One iteration over a TorchLoader.

    Args:
      source: Gives the batches, and makes tensors of them.
      device: As of TorchLoader.
      lag: How many batches may be out, as the next one is asked for, that are not taken as received. None: none, a
        batch is received when it is given.
    """

    def __init__(self, source: BatchSource, device: Any, lag: int | None) -> None:
        self.source = source
        self._device = device
        self._lag = lag
        self._staging = Staging(source)
        self._unreceived: collections.deque[Fetched] = collections.deque()
        self._prefer(source.here)

    def _next(self) -> Batch | None:
        if self._lag is not None:
            return self._next_of_worker(self._lag)
        if self._device is not None:
            return self._next_on_device()
        batch: Batch | None = self.source.take()
        return batch

    def _next_on_device(self) -> Batch | None:
        fetched = self._staging.next()
        if fetched is None:
            return None
        batch: Batch
        batch, copied = self.source.deliver(fetched)
        if copied is not None:
            copied.wait(torch.cuda.current_stream(self._device))
            _keep_until_used(batch, torch.cuda.current_stream(self._device))
        self._staging.ahead()
        return batch

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
            self.source.deliver(self._unreceived.popleft())

    def close(self) -> None:
        """Gives back what was drawn ahead."""
        self._staging.clear()
        self._unreceived.clear()
        self.source.close()


def _conversion(options: Options, device: Any, pin_memory: bool, tensordict: bool) -> Conversion:
    """What becomes of the batches of one iteration. With a device they come as `_ToDevice` says."""
    if device is not None:
        return Conversion(to_leaves, _ToDevice(device, pin_memory, tensordict))
    if pin_memory or tensordict:
        return Conversion(to_leaves, functools.partial(_on_host, pin_memory=pin_memory, tensordict=tensordict))
    to_batch = None if options.beta is None else to_torch
    return Conversion(to_leaves, to_batch, takes_all=TAKES_ALL, maker=tensor_maker())


def _on_host(batch: Batch, pin_memory: bool, tensordict: bool) -> Batch:
    batch = to_torch(batch, tensordict)
    return _map(batch, lambda tensor: tensor.pin_memory()) if pin_memory else batch


class _ToDevice:
    """Copies batches to a device. Knows nothing of the iteration, which must end with it."""

    def __init__(self, device: Any, pin_memory: bool, tensordict: bool) -> None:
        is_cuda = device.type == "cuda"
        self._device = device
        self._pin = pin_memory or is_cuda
        self._tensordict = tensordict
        self._stream = torch.cuda.Stream(device) if is_cuda else None

    def __call__(self, batch: Batch) -> tuple[Batch, Any]:
        """Tensors on their way to the device, and the event that they are there; None if they are."""
        batch = _on_host(batch, self._pin, self._tensordict)
        if self._stream is None:
            return _map(batch, lambda tensor: tensor.to(self._device)), None
        with torch.cuda.stream(self._stream):
            batch = _map(batch, lambda tensor: tensor.to(self._device, non_blocking=True))
            return batch, self._stream.record_event()


def _share(options: Options, worker: int, num_workers: int) -> Options:
    """What one of several workers does of the whole."""
    seed = None if options.seed is None else options.seed + worker
    if options.num_batches is None:
        return dataclasses.replace(options, seed=seed)
    share = options.num_batches // num_workers + (worker < options.num_batches % num_workers)
    return dataclasses.replace(options, seed=seed, num_batches=share)


def _map(batch: Batch, change: Any) -> Batch:
    """A batch with other tensors."""

    def leaf(tensor: Any, _: str) -> Any:
        if isinstance(tensor, tuple):
            return type(tensor)(*(change(part) for part in tensor))
        return tensor if tensor is None else change(tensor)

    data = change(batch.data) if hasattr(batch.data, "batch_size") else map_leaves(leaf, batch.data)
    weights = None if batch.weights is None else change(batch.weights)
    mask = None if batch.mask is None else map_leaves(leaf, batch.mask)
    return Batch(batch.info, data, weights, mask, batch.table)


def _keep_until_used(batch: Batch, stream: Any) -> None:
    """Memory that another stream wrote must not be given to others before this one has read it."""

    def record(tensor: Any) -> Any:
        tensor.record_stream(stream)
        return tensor

    _map(batch, record)
