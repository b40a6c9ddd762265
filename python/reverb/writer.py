"""The row-wise writer: appends whole steps, and makes items of the last of them."""

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from reverb import _checks, _endings, pybind
from reverb.errors import CancelledError, TableNotFoundError, UnavailableError

if TYPE_CHECKING:
    from reverb.signatures import FlatSpec

__all__ = ["Writer"]


class Writer:
    """Writes steps and items of the last steps. Made by `Client.writer`; `Client.trajectory_writer` can do more.

    Steps travel in chunks of `chunk_length`; an item goes out when the chunk of its last step is full, or at `flush` or
    `close`. One thread at a time may use a writer.
    """

    def __init__(
        self,
        client: pybind.Client,
        max_sequence_length: int,
        chunk_length: int,
        max_in_flight_items: int,
        *,
        delta_encoded: bool,
        signatures: "Callable[[], dict[str, list[FlatSpec] | None]]",
        max_pending_bytes: int,
        reconnect_timeout: float,
    ) -> None:
        self._lengths = (max_sequence_length, chunk_length)
        self._max_in_flight_items = max_in_flight_items
        self._delta_encoded = delta_encoded
        self._signatures = signatures
        self._closed = False
        self._writer = pybind.RowWriter(
            client,
            self._lengths,
            max_in_flight_items,
            signatures(),
            # Whether differences pay is found by trying.
            ("auto" if delta_encoded else "none", False),
            (max_pending_bytes, reconnect_timeout),
        )
        self._finalizer = _endings.when_deleted(
            self, self._writer, complaint="Writer-object deleted without calling .close explicitly."
        )

    def __enter__(self) -> "Writer":
        if self._closed:
            raise ValueError("Cannot reuse already closed Writer")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Flushes and closes, whatever happened in the body."""
        self.flush()
        self.close()

    def __repr__(self) -> str:
        max_sequence_length, chunk_length = self._lengths
        return (
            f"Writer(chunk_length={chunk_length}, max_timesteps={max_sequence_length}, "
            f"delta_encoded={int(self._delta_encoded)}, max_in_flight_items={self._max_in_flight_items}, "
            f"episode_id={self._writer.episode_id}, index_within_episode={self._writer.num_steps}, "
            f"closed={int(self._closed)}), closed: {self._closed}"
        )

    def append(self, data: Any) -> None:
        """Appends a step. Either all of it is taken or nothing.

        Waits while more than `max_in_flight_items` items are unconfirmed that could be sent.

        Args:
          data: A nest of arrays, or of what numpy makes arrays of. All steps of a chunk have the same leaves, with the
            same dtypes and shapes; between chunks they may change.

        Raises:
          ValueError: The step does not fit its chunk. Also an item made before that the server refused.
          TypeError: A leaf cannot be stored.
          RuntimeError: The writer is closed (CancelledError), or the server could not be reached for
            `reconnect_timeout` (UnavailableError).
        """
        self._check_open("Append")
        self._writer.append(data)

    def append_sequence(self, sequence: Any) -> None:
        """Appends steps that are stacked along the first axis of every leaf.

        Args:
          sequence: A nest of arrays `[num_steps, ...]`. Without steps nothing happens.

        Raises:
          ValueError: There is no leaf, or the leaves differ in their number of steps; then nothing was appended. As
            `append`; steps before the one that does not fit stay.
        """
        self._check_open("AppendSequence")
        for step in _steps(sequence):
            self.append(step)

    def create_item(self, table: str, num_timesteps: int, priority: float) -> None:
        """Makes an item of the last steps, whole.

        Args:
          table: Where to.
          num_timesteps: How many steps, at most `max_sequence_length`.
          priority: Any finite number; what the table's selectors take.

        Raises:
          ValueError: `num_timesteps` is below 1 or more than there are, `priority` is NaN, or the steps do not fit the
            table's signature. Also the reason why the server refused an item made before.
          TableNotFoundError: There is no such table.
          RuntimeError: As `append`.
        """
        count = _checks.as_int("num_timesteps", num_timesteps)
        if count < 1:
            raise ValueError(f"num_timesteps ({num_timesteps}) must be a positive integer")
        self._check_open("CreateItem")
        if count > self._writer.num_steps:
            raise ValueError("Argument `num_timesteps` is larger than number of buffered timesteps.")
        try:
            self._writer.create_item(table, count, priority)
        except TableNotFoundError:
            # The server may have been started anew, with other tables.
            self._writer.set_signatures(self._signatures())
            self._writer.create_item(table, count, priority)

    def flush(self) -> None:
        """Sends all items, closing the open chunk if one needs it, and waits until they are in their tables.

        Raises:
          ValueError: The server refused an item; it is gone, the writer goes on.
          RuntimeError: As `append`.
        """
        self._check_open("Flush")
        self._writer.flush(None)

    def close(self, retry_on_unavailable: bool = True) -> None:
        """Flushes and ends the writer.

        Args:
          retry_on_unavailable: Whether a server that is gone is looked for. Without it, unconfirmed items are given up
            at once then, and named in the log.

        Raises:
          ValueError: It was closed before; or the server refused an item.
          UnavailableError: The server could not be reached for `reconnect_timeout`; names what was not confirmed.
        """
        if self._closed:
            raise ValueError("close() has already been called on Writer.")
        self._closed = True
        self._finalizer.detach()
        try:
            if retry_on_unavailable or self._writer.has_server:
                self._writer.flush(None)
        except UnavailableError:
            if retry_on_unavailable:
                raise
        finally:
            _endings.forget(self._writer)
            _endings.log_lost(self._writer.close(0.0))

    def _check_open(self, method: str) -> None:
        if self._closed:
            raise CancelledError(f"Calling method {method} after Close has been called")


def _steps(sequence: Any) -> list[Any]:
    import numpy as np
    import tree

    leaves = [np.asarray(leaf) for leaf in tree.flatten(sequence)]
    if not leaves:
        raise ValueError("AppendSequence called with empty data.")
    for index, leaf in enumerate(leaves):
        if leaf.ndim == 0:
            raise ValueError(f"AppendSequence called with scalar tensor at index {index}.")
    if len({leaf.shape[0] for leaf in leaves}) > 1:
        shapes = ", ".join(
            f"{index}: Tensor<name: '', dtype: {leaf.dtype}, shape: [{','.join(map(str, leaf.shape))}]>"
            for index, leaf in enumerate(leaves)
        )
        raise ValueError(f"AppendSequence called with tensors of non equal batch dimension: {shapes}.")
    return [tree.unflatten_as(sequence, [leaf[row] for leaf in leaves]) for row in range(leaves[0].shape[0])]
