"""Copies of PyTorch batches to a device."""

import concurrent.futures
import ctypes
from typing import Any, NamedTuple

import torch

from reverb.data.leaves import map_leaves
from reverb.frameworks.torch import to_tensordict
from reverb.loaders.batch import Batch

# Larger batches, in bytes, are copied in advance, by a thread of their own. That costs more than copying fewer.
_LARGE = 1 << 20
# The columns of a batch lie side by side, each at a multiple of this number of bytes, as matrix kernels like it.
_ALIGNMENT = 128


class _Begun(NamedTuple):
    """A batch whose copy has begun."""

    batch: Batch
    # The memory of all columns.
    memory: torch.Tensor
    # The event that they are there.
    copied: Any


class ToDevice:
    """Copies batches to a device. Holds no reference to the iteration, so that dropping the iteration ends it.

    To CUDA all columns are copied at once, from pinned memory, on a stream of its own: each copy costs the CPU tens of
    microseconds, however little it moves.

    Attributes:
      is_ahead: Whether batches are copied in advance: a call may then return before the copy is complete, and `finish`
        makes the batch. To CUDA that depends on the size of the first one, before which this is None: it costs the CPU
        more than it saves where batches are small.

    Args:
      device: The device, a `torch.device`.
      pin_memory: Whether batches are pinned also for devices other than CUDA.
      tensordict: Whether the data become a TensorDict.
    """

    def __init__(self, device: Any, pin_memory: bool, tensordict: bool) -> None:
        self._device = device
        self._pin = pin_memory
        self._tensordict = tensordict
        self._stream: Any = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._thread: concurrent.futures.ThreadPoolExecutor | None = None
        self.is_ahead: bool | None = True if self._stream is None else None

    def __call__(self, batch: Batch) -> Any:
        """Copies a batch of tensors in the CPU's memory, or begins to; see `is_ahead`."""
        if self._stream is None:
            if self._pin:
                batch = map_tensors(batch, lambda tensor: tensor.pin_memory())
            return self._structured(map_tensors(batch, lambda tensor: tensor.to(self._device)))
        tensors: list[torch.Tensor] = []
        map_tensors(batch, tensors.append)
        if self.is_ahead is None:
            self.is_ahead = sum(tensor.nbytes for tensor in tensors) >= _LARGE
        if not self.is_ahead:
            return self.finish(self._begin(batch, tensors))
        if self._thread is None:
            self._thread = concurrent.futures.ThreadPoolExecutor(1, "reverb-copies")
        return self._thread.submit(self._begin, batch, tensors)

    def finish(self, made: Any) -> Batch:
        """The batch for the current stream of the device, which waits for the copy."""
        if isinstance(made, concurrent.futures.Future):
            made = made.result()
        if not isinstance(made, _Begun):
            whole: Batch = made
            return whole
        stream = torch.cuda.current_stream(self._device)
        made.copied.wait(stream)
        # The memory was allocated on the stream of the copies, and must not be reused before this one has read it.
        made.memory.record_stream(stream)
        return made.batch

    def _begin(self, batch: Batch, tensors: list[torch.Tensor]) -> _Begun:
        with torch.cuda.stream(self._stream):
            copies, memory = together(tensors, self._device, pin_memory=True)
            copied = self._stream.record_event()
        # In the order in which the tensors were listed.
        following = iter(copies)
        return _Begun(self._structured(map_tensors(batch, lambda _: next(following))), memory, copied)

    def _structured(self, batch: Batch) -> Batch:
        if not self._tensordict:
            return batch
        return batch._replace(data=to_tensordict(batch.data, len(batch.info.key), self._device))


def together(tensors: list[torch.Tensor], device: Any, pin_memory: bool) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Copies tensors to a device in one piece. Returns the copies, and the memory that they share.

    The copies are no views of each other: autograd does not take a change of one for a change of all.
    """
    sizes = [size for tensor in tensors for size in (tensor.nbytes, -tensor.nbytes % _ALIGNMENT)]
    host = torch.empty(sum(sizes), dtype=torch.uint8, pin_memory=pin_memory)
    place = 0
    for tensor, size, padding in zip(tensors, sizes[::2], sizes[1::2], strict=True):
        _put(tensor.contiguous(), host, place, size)
        place += size + padding
    memory = host.to(device, non_blocking=True)
    parts = torch.unsafe_split_with_sizes(memory, sizes)[::2]
    copies = [part.view(tensor.dtype).view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]
    return copies, memory


def _put(tensor: torch.Tensor, host: torch.Tensor, place: int, size: int) -> None:
    """Copies the `size` bytes of a contiguous tensor to a place in the memory `host`."""
    if size < _LARGE:
        # PyTorch would divide it among threads, which takes longer than the copy.
        ctypes.memmove(host.data_ptr() + place, tensor.data_ptr(), size)
    else:
        host[place : place + size].copy_(tensor.view(-1).view(torch.uint8))


def map_tensors(batch: Batch, change: Any) -> Batch:
    """Applies a function to all tensors of a batch: of data, weights and mask."""
    data = batch.data
    if type(data) is dict and batch.mask is None and all(type(tensor) is torch.Tensor for tensor in data.values()):
        # The usual case, which takes a quarter of the time.
        data = {name: change(tensor) for name, tensor in data.items()}
        return batch._replace(data=data, weights=None if batch.weights is None else change(batch.weights))

    def leaf(tensor: Any, _: str) -> Any:
        if isinstance(tensor, tuple):
            return type(tensor)(*(change(part) for part in tensor))
        return tensor if tensor is None else change(tensor)

    data = change(data) if hasattr(data, "batch_size") else map_leaves(leaf, data)
    weights = None if batch.weights is None else change(batch.weights)
    mask = None if batch.mask is None else map_leaves(leaf, batch.mask)
    return Batch(batch.info, data, weights, mask, batch.table)
