"""The row-wise writer appends whole steps, and creates items from the last of them."""

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from reverb import _binding
from reverb.data import checks, nests
from reverb.data.arrays import as_array
from reverb.data.keys import ItemPriority
from reverb.errors import CancelledError, TableNotFoundError, UnavailableError
from reverb.writing import closing
from reverb.writing.flushing import as_seconds
from reverb.writing.options import WriterOptions
from reverb.writing.reports import Reports

if TYPE_CHECKING:
    from reverb.data.signatures import FlatSignature

__all__ = ["Writer"]


class Writer:
    """Writes steps, and items of the last steps. Created by `Client.writer`; `Client.trajectory_writer` can do more.

    Steps are sent in chunks of `chunk_length`. An item is sent when the chunk of its last step is full, or at `flush`
    or `close`. Only one thread at a time may use a writer.
    """

    def __init__(
        self,
        client: _binding.Client,
        max_sequence_length: int,
        options: WriterOptions,
        *,
        signatures: "Callable[[], dict[str, FlatSignature | None]]",
    ) -> None:
        self._max_sequence_length = max_sequence_length
        self._options = options
        self._signatures = signatures
        self._closed = False
        self._reports = Reports()
        self._writer = _binding.RowWriter(client, max_sequence_length, signatures(), options)
        self._finalizer = closing.close_when_deleted(
            self, self._writer, self._reports, warning="Writer-object deleted without calling .close explicitly."
        )

    def __enter__(self) -> "Writer":
        if self._closed:
            raise ValueError("Cannot reuse already closed Writer")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Flushes and closes, even if the body raised an error, unless the body has closed the writer."""
        if not self._closed:
            self.flush()
            self.close()

    @property
    def is_closed(self) -> bool:
        """Whether the writer was closed."""
        return self._closed

    def __repr__(self) -> str:
        return f"{self.describe()}, closed: {self._closed}"

    def describe(self) -> str:
        """The settings and the state of the writer, as dm-reverb's extension prints them."""
        options = self._options
        return (
            f"Writer(chunk_length={options.max_chunk_length}, max_timesteps={self._max_sequence_length}, "
            f"delta_encoded={int(options.compression == 'auto')}, max_in_flight_items={options.max_in_flight_items}, "
            f"episode_id={self._writer.episode_id}, index_within_episode={self._writer.num_steps}, "
            f"closed={int(self._closed)})"
        )

    def append(self, data: Any) -> None:
        """Appends a step. On an error nothing is appended, unless its `step_taken` says so.

        Waits while more than `max_in_flight_items` sendable items are unconfirmed.

        Args:
          data: Nest of arrays, or of values that numpy can convert into arrays. All steps of a chunk have the same
            leaves, with the same dtypes and shapes; these may change between chunks.

        Raises:
          ValueError: The step does not fit its chunk. Also raised if the server rejected an earlier item, after the
            step was appended (`step_taken` of the error).
          TypeError: A leaf cannot be stored.
          RuntimeError: The writer is closed (CancelledError), or the server could not be reached within
            `reconnect_timeout` (UnavailableError).
        """
        self._check_open("Append")
        self._writer.append(data)
        if self._reports.kept:
            self._reports.finish()

    def append_sequence(self, sequence: Any) -> None:
        """Appends steps that are stacked along the first axis of every leaf.

        Args:
          sequence: Nest of arrays `[num_steps, ...]`. If `num_steps` is 0, nothing is appended.

        Raises:
          ValueError: There is no leaf, or the leaves differ in their number of steps, and nothing was appended. Also
            raised in the cases of `append`; steps before the one that does not fit have then been appended. An error
            whose `step_taken` is true comes after all steps were appended. If the server rejected several earlier
            items, the next calls raise the other errors.
          KeyboardInterrupt: Ctrl-C ended a wait. Steps may have been appended, and those after them are not.
        """
        self._check_open("AppendSequence")
        for step in _steps(sequence):
            self._reports.call_unless_interrupted(self._writer.append, step)
        self._reports.finish()

    def create_item(self, table: str, num_timesteps: int, priority: ItemPriority) -> int:
        """Creates an item from the last steps, with all their columns.

        Args:
          table: Name of the table for the item.
          num_timesteps: Number of steps in the item, from 1 to `max_sequence_length`.
          priority: Priority of the item: a finite number that the table's selectors accept, or "max" for the largest
            priority that the table has seen since it was reset.

        Returns:
          The key of the item, under which its table will have it.

        Raises:
          ValueError: `num_timesteps` is below 1 or greater than the number of steps kept, `priority` is NaN, or the
            steps do not fit the table's signature. Also raised if the server rejected an earlier item, with the reason,
            after this item was queued (`step_taken` of the error).
          TableNotFoundError: There is no such table.
          RuntimeError: The writer is closed, or the server could not be reached; see `append`.
        """
        count = checks.as_int("num_timesteps", num_timesteps)
        if count < 1:
            raise ValueError(f"num_timesteps ({num_timesteps}) must be a positive integer")
        self._check_open("CreateItem")
        if count > self._writer.num_steps:
            raise ValueError("Argument `num_timesteps` is larger than number of buffered timesteps.")
        try:
            return self._writer.create_item(table, count, priority)
        except TableNotFoundError as error:
            # The server may also have refused an earlier item; this one is queued then.
            if error.step_taken:
                raise
        # The server may have been restarted with other tables. Outside of `except`, a second error stands alone.
        self._writer.set_signatures(self._signatures())
        return self._writer.create_item(table, count, priority)

    def flush(self, timeout_ms: int | None = None, *, timeout: float | None = None) -> None:
        """Sends all items, and waits until they are in their tables. Closes the open chunk if an item refers to it.

        At interpreter exit, as in a `__del__` that runs late, the call waits for 5 seconds at most.

        Args:
          timeout_ms: Time limit in milliseconds. None waits as long as the tables' rate limiters block, and logs every
            10 s what is not in its table yet.
          timeout: Time limit in seconds, instead of `timeout_ms`.

        Raises:
          DeadlineExceededError: Not all items were in their tables at the timeout. They stay queued.
          ValueError: A time limit is negative, both are given, or the server rejected an item. The item is dropped, and
            the writer can still be used.
          RuntimeError: The writer is closed, or the server could not be reached; see `append`.
        """
        seconds = as_seconds(timeout_ms, timeout)
        self._check_open("Flush")
        if not closing.was_closed_at_exit(self._writer):
            self._reports.finish(step_taken=False)
            self._writer.flush(0, closing.limited_at_exit(seconds))

    def close(self, retry_on_unavailable: bool = True) -> None:
        """Flushes and closes the writer.

        Args:
          retry_on_unavailable: Whether to try to reconnect to a lost server. If False, unconfirmed items are discarded
            immediately in that case, and logged.

        Raises:
          ValueError: The writer is already closed, or the server rejected an item.
          UnavailableError: The server could not be reached within `reconnect_timeout`. The message lists the
            unconfirmed items.
        """
        if self._closed:
            raise ValueError("close() has already been called on Writer.")
        self._closed = True
        self._finalizer.detach()
        if closing.was_closed_at_exit(self._writer):
            return
        try:
            if retry_on_unavailable or self._writer.has_server:
                self._writer.flush(0, closing.limited_at_exit(None))
            self._reports.finish(step_taken=False)
        except UnavailableError:
            if retry_on_unavailable:
                raise
        finally:
            closing.mark_closed(self._writer)
            closing.log_discarded(closing.discard(self._writer, self._reports, 0.0))

    def _check_open(self, method: str) -> None:
        if self._closed:
            raise CancelledError(f"Calling method {method} after Close has been called")


def _steps(sequence: Any) -> list[Any]:
    tree = nests.dm_tree()
    leaves = [as_array(leaf) for leaf in tree.flatten(sequence)]
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
