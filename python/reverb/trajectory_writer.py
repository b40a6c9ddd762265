"""The trajectory writer appends steps, and creates items from any of the values that it still keeps.

In a loop over the steps of an episode:

    with client.trajectory_writer(num_keep_alive_refs=3) as writer:
      for step in episode:
        writer.append({"observation": ..., "action": ...})
        if writer.episode_steps >= 3:
          writer.create_item("replay", 1.0, {
            "observation": writer.history["observation"][-3:],
            "action": writer.history["action"][-1],
          })
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from reverb import _binding
from reverb.data import checks
from reverb.data.keys import ItemPriority
from reverb.errors import TableNotFoundError
from reverb.writing.flushing import FlushingWriter, as_seconds
from reverb.writing.history import History, whole_column_line
from reverb.writing.options import WriterOptions
from reverb.writing.structure import Structure

if TYPE_CHECKING:
    from reverb.data.signatures import FlatSignature

TrajectoryColumn = _binding.TrajectoryColumn
_ColumnHistory = _binding._ColumnHistory

__all__ = ["TrajectoryColumn", "TrajectoryWriter"]


class TrajectoryWriter(FlushingWriter):
    """Writes steps, and items that refer to them. Created by `Client.trajectory_writer`.

    Each leaf of the appended steps is a column. The writer keeps the last `num_keep_alive_refs` values of each column,
    and an item may refer to any of them, in any order. Each value is sent once, as part of a chunk, however many items
    refer to it. Items reach their tables in the order in which they are created. After a lost connection the writer
    reconnects and resends everything that the server has not confirmed; nothing is inserted twice.

    Only one thread at a time may use a writer, except for `close`.
    """

    def __init__(
        self,
        client: _binding.Client,
        num_keep_alive_refs: int,
        options: WriterOptions,
        *,
        signatures: "Callable[[], dict[str, FlatSignature | None]] | None",
    ) -> None:
        self._structure = Structure()
        known = None if signatures is None else signatures()
        self._writer = _binding.TrajectoryWriter(client, self._structure, num_keep_alive_refs, known, options)
        self._signatures = signatures
        self._history: Any = None
        self._history_version = -1
        self._views: dict[int, _ColumnHistory] = {}
        self._append = self._writer.append
        self._create_item = self._writer.create_item
        super().__init__(self._writer)

    def append(self, data: Any, *, partial_step: bool = False) -> None:
        """Appends a step, or a part of one. On an error nothing is appended, unless its `step_taken` says so.

        Args:
          data: Nest of arrays, or of values that numpy can convert into arrays. A leaf that is None has no value in
            this step. Later steps may have more or fewer leaves than the first. A column keeps the dtype and shape of
            its first value; one given as a `Ragged` of one item may differ from earlier ones in its first axis.
          partial_step: Whether the step stays open, so that the next append adds other columns to it.

        Raises:
          ValueError: A value has another dtype or shape than its column, the open step already has a value for its
            column, or the structure of the step contradicts earlier steps. Also raised if the server rejected an
            earlier item, after the step was appended (`step_taken`); see `create_item`.
          TypeError: A leaf cannot be stored.
          UnavailableError: The server could not be reached within `reconnect_timeout`.
        """
        self._append(data, partial_step)

    @property
    def history(self) -> History[TrajectoryColumn]:
        """The columns, in the structure of the steps, each a live view of its rows.

        A row is a step since the writer was created or its buffers were cleared. The length of a view is the number of
        rows, and indexing follows the rules of lists: an int gives a TrajectoryColumn without a time axis, a slice or a
        list of ints gives one with a time axis. Selecting a row that is no longer kept, or that has no value for the
        column, raises ValueError. Selecting a row outside the list raises IndexError.

        Raises:
          RuntimeError: Nothing has been appended yet.
        """
        structure = self._structure
        if structure.version != self._history_version:
            if not structure.num_columns:
                raise RuntimeError("history cannot be accessed before `append` is called at least once.")
            self._history = structure.build(self._view)
            self._history_version = structure.version
        history: History[TrajectoryColumn] = self._history
        return history

    def _view(self, column: int) -> _ColumnHistory:
        view = self._views.get(column)
        if view is None:
            view = self._views[column] = _ColumnHistory(self._writer, column, self._structure.path_of(column))
        return view

    @property
    def episode_steps(self) -> int:
        """Number of complete steps in the episode so far."""
        return self._writer.episode_steps

    def create_item(self, table: str, priority: ItemPriority, trajectory: Any, *, timeout: float | None = None) -> int:
        """Creates an item and queues it for its table.

        Waits first, while as many items are unconfirmed as `max_in_flight_items` and `max_pending_bytes` allow, and
        logs every 10 s what is not in its table yet.

        Args:
          table: Name of the table for the item.
          priority: Priority of the item: a finite number that the table's selectors accept, or "max" for the largest
            priority that the table has seen since it was reset.
          trajectory: Nest of TrajectoryColumns, which becomes the item's data.
          timeout: Time limit of that wait in seconds; None, the default, waits as long as the tables' rate limiters
            block.

        Returns:
          The key of the item, under which its table will have it.

        Raises:
          DeadlineExceededError: There was no room within the timeout. Nothing was created, and the same call may be
            repeated.
          TypeError: A leaf is not a TrajectoryColumn, or the timeout is not a number.
          ValueError: There is no column, a column is empty or refers to values that are no longer kept or belong to
            another writer, its values differ in dtype or shape, `priority` is NaN, or the item does not fit the
            table's signature. Also raised if the server rejected an earlier item, with the reason, after this item
            was queued (`step_taken` of the error); the earlier one is dropped, and the writer can still be used.
          TableNotFoundError: There is no such table.
          UnavailableError: The server could not be reached within `reconnect_timeout`.
        """
        seconds = None if timeout is None else checks.as_timeout(timeout)
        try:
            return self._create_item(table, priority, trajectory, seconds)
        except TableNotFoundError as error:
            # The server may also have refused an earlier item; this one is queued then.
            if self._signatures is None or error.step_taken:
                raise
        # The server may have been restarted with other tables. Outside of `except`, a second error stands alone.
        self._writer.set_signatures(self._signatures())
        return self._create_item(table, priority, trajectory, seconds)

    def create_known(self, table: str, priority: ItemPriority, trajectory: Any) -> int:
        """Creates an item as `create_item` does, but asks for no signatures. For `reverb.aio`, as `know_table`.

        Args:
          table: Name of the table for the item.
          priority: Priority of the item, a number or "max".
          trajectory: Nest of TrajectoryColumns, which becomes the item's data.

        Raises:
          TableNotFoundError: The writer does not know the table.
        """
        return self._create_item(table, priority, trajectory)

    def know_table(self, table: str, tables: _binding.Tables) -> None:
        """Takes the signature of a table from those of a server. It is not part of the public interface.

        Args:
          table: Name of the table.
          tables: The tables of the server.

        Raises:
          TableNotFoundError: The server has no such table.
        """
        self._writer.know_table(table, tables)

    def configure(self, path: tuple[Any, ...], *, num_keep_alive_refs: int, max_chunk_length: int | None) -> None:
        """Sets how many values of one column are kept, and how they are divided into chunks.

        Args:
          path: Path of the column as in dm-tree, such as `("a", 0)`, or `()` if a step is a single leaf. The column
            need not have appeared yet.
          num_keep_alive_refs: Number of values that items may refer to, at least 1.
          max_chunk_length: Maximum number of steps in a chunk, at most `num_keep_alive_refs`; None lets the writer
            choose.

        Raises:
          ValueError: A number is out of range.
          TypeError: `path` is not a tuple.
        """
        if not isinstance(path, tuple):
            checks.refuse("path", "a tuple, such as ('observation',)", path)
        check_keep_alive(num_keep_alive_refs)
        check_chunk_length(max_chunk_length, num_keep_alive_refs)
        options = (num_keep_alive_refs, max_chunk_length)
        self._structure.options[path] = options
        column = self._structure.column_at(path)
        if column is not None:
            self._writer.configure(column, options)

    def end_episode(
        self, clear_buffers: bool = True, timeout_ms: int | None = None, *, timeout: float | None = None
    ) -> None:
        """Ends the episode: flushes, closes an open step, and restarts the step count at 0.

        Args:
          clear_buffers: Whether to drop the values kept so far. If False, later items may refer to them and so span
            episodes.
          timeout_ms: Time limit in milliseconds for the confirmations; None waits as long as the tables' rate limiters
            block.
          timeout: Time limit in seconds, instead of `timeout_ms`.

        Raises:
          DeadlineExceededError: Not all items were confirmed within the timeout. They stay queued, and the episode has
            ended.
          ValueError: A time limit is negative, both are given, or the server rejected an earlier item; see `flush`. In
            the last case the episode has ended (`step_taken`).
        """
        self._end_episode(self._writer.end_episode, clear_buffers, as_seconds(timeout_ms, timeout))

    def finish_episode(self, clear_buffers: bool) -> None:
        """Ends an episode as `end_episode` does, without a flush.

        For `reverb.aio`; it is not part of the public interface.

        Args:
          clear_buffers: Whether to drop the values kept so far.
        """
        self._writer.end_episode(clear_buffers)


def whole_column(trajectory: Any) -> str | None:
    """Says which leaf of a trajectory is a whole column of a history; for the extension, as `whole_column_line`."""
    return whole_column_line(trajectory, _ColumnHistory)


def check_keep_alive(num_keep_alive_refs: int) -> None:
    """Checks the number of values of a column that are kept.

    Raises:
      ValueError: It is below 1.
    """
    if checks.as_int("num_keep_alive_refs", num_keep_alive_refs) < 1:
        raise ValueError(f"num_keep_alive_refs ({num_keep_alive_refs}) must be a positive integer")


def check_chunk_length(max_chunk_length: int | None, num_keep_alive_refs: int) -> None:
    """Checks the maximum chunk length against the number of values kept.

    Raises:
      ValueError: `max_chunk_length` is not a positive integer up to `num_keep_alive_refs`.
    """
    if max_chunk_length is not None and not 1 <= max_chunk_length <= num_keep_alive_refs:
        raise ValueError(
            f"max_chunk_length ({max_chunk_length}) must be None or a positive integer <= num_keep_alive_refs "
            f"({num_keep_alive_refs})"
        )
