"""A table with the methods of TorchRL's replay buffers, for its collectors and trainers. It does not import TorchRL."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tensordict import TensorDict, TensorDictBase, is_tensor_collection

from reverb import checkpoint_reader
from reverb.client import Client, as_client
from reverb.data import checks
from reverb.data.arrays import as_array
from reverb.data.batch_dims import as_rows
from reverb.frameworks.torch import to_tensordict, to_tensors
from reverb.item_selectors import Fifo, Prioritized, Uniform
from reverb.loaders.torch_loader import TorchBatches, TorchLoader
from reverb.rate_limiters import MinSize
from reverb.reverb_types import TableInfo
from reverb.server import Server, Table
from reverb.tensor_spec import TensorSpec

# Entries of samples that are not data of the items. The names are TorchRL's.
_INDEX, _WEIGHT = "index", "priority_weight"
# Items that are read or inserted at once when a state is made or loaded.
_ITEMS = 1024


class ReverbReplayBuffer:
    """A replay buffer as TorchRL's collectors and trainers use one, whose elements are the items of a table.

        buffer = ReverbReplayBuffer(max_size=100_000, batch_size=256, alpha=0.6, beta=0.4)
        for frames in collector:
            buffer.extend(frames.reshape(-1))
            sample = buffer.sample()
            loss(sample)["loss"].backward()
            buffer.update_tensordict_priority(sample)

    Without a client the buffer serves a table of its own in this process, from the first `extend` or `add` on, whose
    TensorDict gives the names, shapes and dtypes of the columns. The server ends with the buffer.

    Args:
      client: Client of the server that has the table, or the server's address; None serves a table of its own.
      table: Name of the table.
      max_size: Maximum number of items in a table of its own, which needs it. New items then replace the oldest.
      batch_size: Number of items in a sample; None if each call of `sample` says it.
      alpha: Exponent of the priorities by which a table of its own draws; None draws uniformly.
      beta: Exponent of the importance weights, a number or a function of the number of the sample such as
        `reverb.loaders.LinearBeta`; None gives samples without weights.
      eps: Number that is added to all priorities, so that none is 0.
      priority_key: Name of the entry with the priorities, or its path.
      batch_dims: Number of batch dimensions that count items in `extend`; None means one, and refuses a TensorDict that
        has several.
      prefetch: Number of samples that are drawn ahead, with the priorities of that time; 0 draws when asked.

    Raises:
      ValueError: A table of its own has no `max_size`; or `max_size` or `alpha` is given for the table of a client.
      TypeError: A number is not a number.
    """

    def __init__(
        self,
        client: Client | str | None = None,
        table: str = "replay",
        *,
        max_size: int | None = None,
        batch_size: int | None = None,
        alpha: float | None = None,
        beta: float | Callable[[int], float] | None = None,
        eps: float = 1e-8,
        priority_key: Any = "td_error",
        batch_dims: int | None = None,
        prefetch: int = 0,
    ) -> None:
        if client is None and max_size is None:
            raise ValueError("give `max_size`, or the `client` of a server that has the table.")
        if client is not None and (max_size is not None or alpha is not None):
            raise ValueError("`max_size` and `alpha` make a table, but that of a `client` is there already.")
        self._client = None if client is None else as_client(client)
        self._is_own = client is None
        self._table = table
        self._max_size = None if max_size is None else checks.as_count("max_size", max_size)
        self._batch_size = None if batch_size is None else checks.as_count("batch_size", batch_size)
        self._alpha = alpha
        self._beta = beta
        self._eps = checks.as_float("eps", eps)
        self._priority_key = priority_key
        self._batch_dims = batch_dims
        self._prefetch = prefetch
        # Of a table of its own.
        self._server: Server | None = None
        self._lock = threading.Lock()
        # The batch size of an item, which is () if the item is a step.
        self._item_size = torch.Size()
        # The iterations over batches, by the number of items.
        self._batches: dict[int, TorchBatches[Any]] = {}

    @property
    def client(self) -> Client:
        """The client of the table, whose address other processes can use.

        Raises:
          RuntimeError: The buffer is to serve a table of its own, and has no items yet.
        """
        if self._client is None:
            raise RuntimeError("the buffer is empty: it serves its table from the first `extend` or `add` on.")
        return self._client

    @property
    def batch_size(self) -> int | None:
        """The number of items in a sample; None if each call of `sample` says it."""
        return self._batch_size

    @property
    def write_count(self) -> int:
        """The number of items that were inserted into the table, also of those that it no longer has."""
        count: int = 0 if self._client is None else self._info().rate_limiter_info.insert_stats.completed
        return count

    @property
    def storage(self) -> None:
        """None: TorchRL's trainers look here for the device of samples, which are in the CPU's memory."""
        return

    def __len__(self) -> int:
        """The number of items in the table."""
        return 0 if self._client is None else self._info().current_size

    def __repr__(self) -> str:
        where = "of its own" if self._client is None else f"at {self._client.server_address}"
        return f"ReverbReplayBuffer(table {self._table!r} {where}, {len(self)} items)"

    def extend(self, data: TensorDictBase) -> torch.Tensor:
        """Inserts many items. Waits as long as the table's rate limiter blocks; a table of its own never does.

        New items have the priorities that `data` has by the `priority_key`, or else the largest that the table has
        seen.

        Args:
          data: TensorDict `[n, ...]`, whose entries `index` and `priority_weight` are left out.

        Returns:
          The keys of the items, int64 `[n]`, as the entry `index` of samples has them.

        Raises:
          ValueError: `data` has several batch dimensions and `batch_dims` was not given, or it does not fit the table.
          TypeError: An entry cannot be stored.
        """
        rows = as_rows(_without_marks(data), self._batch_dims)
        if not rows.batch_size[0]:
            return torch.empty(0, dtype=torch.int64)
        return self._insert(rows, self._first_priorities(rows))

    def add(self, data: TensorDictBase) -> int:
        """Inserts one item; see `extend`.

        Args:
          data: TensorDict of one item, whatever its batch size.

        Returns:
          The key of the item.
        """
        rows = _without_marks(data).unsqueeze(0)
        return int(self._insert(rows, self._first_priorities(rows)))

    def sample(self, batch_size: int | None = None) -> TensorDict:
        """Draws items with replacement. Waits until the rate limiter of a client's table allows it.

        Args:
          batch_size: Number of items to draw; None takes that of the buffer.

        Returns:
          A TensorDict `[batch_size]` of tensors of its own; `[batch_size, ...]` if this buffer has inserted items that
          have a batch size themselves. Beside the data it has `index`, int64, the keys of the items; and with `beta`
          `priority_weight`, float32, the importance weights, divided by the largest of the sample.

        Raises:
          RuntimeError: The table of its own has no items.
          ValueError: Neither the buffer nor the call has a batch size.
        """
        size = self._batch_size if batch_size is None else checks.as_count("batch_size", batch_size)
        if size is None:
            raise ValueError("`batch_size`: give it to `sample`, or to the buffer.")
        batches = self._batches.get(size)
        batch = next(self._draw(size) if batches is None else batches)
        sample = to_tensordict(batch.data, size)
        if self._item_size:
            sample.batch_size = [size, *self._item_size]
        sample.set(_INDEX, self._of_items(_index_of(batch.info.key)))
        if batch.weights is not None:
            sample.set(_WEIGHT, self._of_items(batch.weights))
        return sample

    def __iter__(self) -> Iterator[TensorDict]:
        """Yields samples without an end."""
        while True:
            yield self.sample()

    def update_tensordict_priority(self, data: TensorDictBase) -> None:
        """Sets the priorities of a sample's items to those that it has by the `priority_key`.

        Does nothing where a table of its own draws uniformly.

        Args:
          data: Sample of this buffer, with the new priorities.

        Raises:
          KeyError: The sample has no `index`, or no priorities.
          InvalidPriorityError: A priority is negative or not finite. No priority has changed.
        """
        if self._has_priorities():
            self.update_priority(data[_INDEX], data[self._priority_key])

    def update_priority(self, index: torch.Tensor, priority: torch.Tensor) -> None:
        """Sets the priorities of items; see `update_tensordict_priority`. Items that have left the table are ignored.

        Args:
          index: Keys of the items, int64 `[n, ...]` as in a sample.
          priority: New priorities `[n, ...]`, of which the largest of each item counts.
        """
        each = index if index.ndim == 1 else index.reshape(len(index), -1)[:, 0]
        keys = np.ascontiguousarray(each.numpy(force=True)).view(np.uint64)
        self.client.update_priorities(self._table, keys, self._priorities(priority))

    def state_dict(self) -> dict[str, Any]:
        """The items and their priorities, in the order in which they were inserted.

        Returns:
          A dict of dicts, lists and tensors; an empty one for the table of a client, which its server saves and loads.
        """
        if self._client is None or not self._is_own:
            return {}
        path = self._client.checkpoint()
        try:
            table = checkpoint_reader.open(path, tables=[self._table]).table(self._table)
            read = list(table.batches(_ITEMS, squeeze_time=True))
        finally:
            # The items are in memory, and nothing else asks for the file.
            shutil.rmtree(path)
        items = torch.cat([to_tensordict(to_tensors(batch.data), len(batch.info.key)) for batch in read])
        priorities = np.concatenate([batch.info.priority for batch in read])
        return {
            "items": items.to_dict(),
            "priorities": torch.from_numpy(priorities),
            "item_size": list(self._item_size),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Replaces all items by those of a state. They get new keys, and a new server.

        Args:
          state_dict: What `state_dict` has returned.

        Raises:
          ValueError: The state has items, but the table is that of a client.
        """
        if not self._is_own:
            if state_dict:
                raise ValueError("the state has items, but the table of a `client` is loaded by its server.")
            return
        self._close()
        if not state_dict:
            return
        count = len(state_dict["priorities"])
        items = TensorDict(state_dict["items"], batch_size=[count, *state_dict["item_size"]])
        for first in range(0, count, _ITEMS):
            portion = slice(first, first + _ITEMS)
            self._insert(items[portion], state_dict["priorities"][portion])

    def _info(self) -> TableInfo:
        return self.client.server_info()[self._table]

    def _has_priorities(self) -> bool:
        return not self._is_own or self._alpha is not None

    def _first_priorities(self, rows: TensorDictBase) -> Any:
        given = rows.get(self._priority_key, None) if self._has_priorities() else None
        return "max" if given is None else self._priorities(given)

    def _priorities(self, priority: torch.Tensor) -> Any:
        """One priority for each item, `[n]`."""
        each = priority if priority.ndim == 1 else priority.reshape(len(priority), -1).amax(dim=1)
        return as_array(each) + self._eps

    def _of_items(self, values: torch.Tensor) -> torch.Tensor:
        """Values `[n]` in the batch size of samples."""
        size = self._item_size
        return values.reshape(-1, *(1 for _ in size)).expand(-1, *size) if size else values

    def _draw(self, size: int) -> TorchBatches[Any]:
        loader: TorchLoader[Any] = TorchLoader(
            self.client, self._table, batch_size=size, beta=self._beta, prefetch=self._prefetch, squeeze_time=True
        )
        self._batches[size] = iter(loader)
        return self._batches[size]

    def _insert(self, rows: TensorDictBase, priorities: Any) -> torch.Tensor:
        given = {self._table: priorities}
        with self._lock:
            is_first = self._client is None
            if is_first:
                server = self._serve(rows)
                client = server.localhost_client()
                # A table that stays empty would keep `sample` waiting.
                keys = client.insert_batch(rows, given, batch_dims=1)
                self._server, self._client = server, client
        if not is_first:
            keys = self.client.insert_batch(rows, given, batch_dims=1)
        self._item_size = rows.batch_size[1:]
        return _index_of(keys)

    def _serve(self, rows: TensorDictBase) -> Server:
        """A server with a table for items like these."""
        assert self._max_size is not None
        sampler = Uniform() if self._alpha is None else Prioritized(self._alpha)
        table = Table(self._table, sampler, Fifo(), self._max_size, MinSize(1), signature=_specs_of(rows))
        return Server([table])

    def _close(self) -> None:
        """Ends the server of a table of its own."""
        for batches in self._batches.values():
            batches.close()
        self._batches.clear()
        if self._server is not None:
            self._server.stop()
        self._client = self._server = None


def _index_of(keys: NDArray[np.uint64]) -> torch.Tensor:
    """Keys as TorchRL has indices, int64."""
    return torch.from_numpy(keys.view(np.int64))


def _without_marks(data: TensorDictBase) -> TensorDictBase:
    """The data without the entries that a sample has beside them."""
    marks = [key for key in (_INDEX, _WEIGHT) if key in data.keys()]  # noqa: SIM118
    return data.exclude(*marks) if marks else data


def _specs_of(rows: TensorDictBase) -> dict[str, Any]:
    """The specs of items, whose entries `[n, ...]` these are."""
    return {
        key: _specs_of(value) if is_tensor_collection(value) else TensorSpec(value.shape[1:], value.dtype)
        for key, value in rows.items()
    }
