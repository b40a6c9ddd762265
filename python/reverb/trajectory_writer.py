"""The trajectory writer: appends steps, and makes items of any of the values it still keeps.

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

from reverb import _checks, _structure, pybind
from reverb._flushing import FlushingWriter, as_seconds
from reverb.errors import DeadlineExceededError, TableNotFoundError

if TYPE_CHECKING:
    from reverb.signatures import FlatSpec

TrajectoryColumn = pybind.TrajectoryColumn
_ColumnHistory = pybind.ColumnHistory

__all__ = ["TrajectoryColumn", "TrajectoryWriter"]


class TrajectoryWriter(FlushingWriter):
    """Writes steps, and items made of them. Made by `Client.trajectory_writer`.

    Each leaf of the appended steps is a column. The writer keeps the last `num_keep_alive_refs` values of each, and an
    item may refer to any of them, in any order. Values travel in chunks, once each, however many items refer to them.
    Items reach their tables in the order in which they are made; a lost connection is made again, and what the server
    has not confirmed is sent again, without doubling anything.

    One thread at a time may use a writer, except for `close`.
    """

    def __init__(
        self,
        client: pybind.Client,
        num_keep_alive_refs: int,
        *,
        signatures: "Callable[[], dict[str, list[FlatSpec] | None]] | None",
        max_chunk_length: int | None,
        compression: tuple[str, bool],
        max_pending_bytes: int,
        reconnect_timeout: float,
    ) -> None:
        self._structure = _structure.Structure()
        self._options = (num_keep_alive_refs, max_chunk_length)
        self._writer = pybind.TrajectoryWriter(
            client,
            self._structure,
            self._options,
            None if signatures is None else signatures(),
            compression,
            (max_pending_bytes, reconnect_timeout),
        )
        self._signatures = signatures
        self._history: Any = None
        self._history_version = -1
        self._views: dict[int, _ColumnHistory] = {}
        self._append = self._writer.append
        self._create_item = self._writer.create_item
        super().__init__(self._writer)

    def append(self, data: Any, *, partial_step: bool = False) -> None:
        """Appends a step, or a part of one. Either all of it is taken or nothing.

        Args:
          data: A nest of arrays, or of what numpy makes arrays of. Leaves that are None have no value in this step.
            Later steps may have more or fewer leaves than the first. A column keeps the dtype and shape of its first
            value.
          partial_step: Whether the step stays open, so that the next append adds other columns to it.

        Raises:
          ValueError: A value has another dtype or shape than its column, the open step has a value of its column
            already, or the structure of the step contradicts those before. Also an item made before that the server
            refused; see `create_item`.
          TypeError: A leaf cannot be stored.
          UnavailableError: The server could not be reached for `reconnect_timeout`.
        """
        self._append(data, partial_step)

    @property
    def history(self) -> Any:
        """The columns, in the structure of the steps, each a live view of its rows.

        A row is a step since the writer was made or its buffers were cleared. A view has the length of all rows, and is
        indexed by the rules of lists: an int gives a TrajectoryColumn without time axis; a slice or a list of ints one
        with it.  Rows that are kept no longer, or have no value of the column, raise ValueError when they are selected;
        rows outside the list raise IndexError.

        Raises:
          RuntimeError: Nothing was appended yet.
        """
        structure = self._structure
        if structure.version != self._history_version:
            if not structure.num_columns:
                raise RuntimeError("history cannot be accessed before `append` is called at least once.")
            self._history = structure.build(self._view)
            self._history_version = structure.version
        elif self._history_version < 0:
            raise RuntimeError("history cannot be accessed before `append` is called at least once.")
        return self._history

    def _view(self, column: int) -> _ColumnHistory:
        view = self._views.get(column)
        if view is None:
            view = self._views[column] = _ColumnHistory(self._writer, column, self._structure.path_of(column))
        return view

    @property
    def episode_steps(self) -> int:
        """Complete steps of the episode so far."""
        return self._writer.episode_steps

    def create_item(self, table: str, priority: float, trajectory: Any) -> None:
        """Makes an item and queues it for its table.

        Waits only while the items that the server has not confirmed come to more than `max_pending_bytes`.

        Args:
          table: Where to.
          priority: Any finite number; what the table's selectors take.
          trajectory: A nest of TrajectoryColumn.

        Raises:
          TypeError: A leaf is no TrajectoryColumn.
          ValueError: There is no column, a column is empty or refers to values that are kept no longer or belong to
            another writer, its values differ in dtype or shape, `priority` is NaN, or the item does not fit the
            table's signature. Also the reason why the server refused an item made before; that item is gone, the
            writer goes on.
          TableNotFoundError: There is no such table.
          UnavailableError: The server could not be reached for `reconnect_timeout`.
        """
        try:
            self._create_item(table, priority, trajectory)
        except TableNotFoundError:
            if self._signatures is None:
                raise
            # The server may have been started anew, with other tables.
            self._writer.set_signatures(self._signatures())
            self._create_item(table, priority, trajectory)

    def configure(self, path: tuple[Any, ...], *, num_keep_alive_refs: int, max_chunk_length: int | None) -> None:
        """Sets how one column is kept and cut into chunks.

        Args:
          path: Of the column, as dm-tree names it: `("a", 0)`; `()` if a step is one bare leaf. The column need not
            have appeared yet.
          num_keep_alive_refs: Values that items may refer to, at least 1.
          max_chunk_length: Steps in a chunk, at most `num_keep_alive_refs`; None: the writer chooses.

        Raises:
          ValueError: A number is out of range.
          TypeError: `path` is no tuple.
        """
        if not isinstance(path, tuple):
            _checks.refuse("path", "a tuple, such as ('observation',)", path)
        _check_keep_alive(num_keep_alive_refs)
        check_chunk_length(max_chunk_length, num_keep_alive_refs)
        options = (num_keep_alive_refs, max_chunk_length)
        self._structure.options[path] = options
        column = self._structure.column_at(path)
        if column is not None:
            self._writer.configure(column, options)

    def end_episode(self, clear_buffers: bool = True, timeout_ms: int | None = None) -> None:
        """Ends the episode: flushes, closes an open step, and counts steps from 0 again.

        Args:
          clear_buffers: Whether no item may refer to the values so far any more. Without it items may span episodes.
          timeout_ms: Milliseconds to wait for confirmations; None: as long as the tables' limiters block.

        Raises:
          DeadlineExceededError: Not all items were confirmed in time. They stay queued, and the episode has ended.
          ValueError: As `flush`.
        """
        as_seconds(timeout_ms)
        try:
            self._flush("End episode", 0, timeout_ms)
        except DeadlineExceededError:
            self._writer.end_episode(clear_buffers)
            raise
        self._writer.end_episode(clear_buffers)


def _check_keep_alive(num_keep_alive_refs: int) -> None:
    if _checks.as_int("num_keep_alive_refs", num_keep_alive_refs) < 1:
        raise ValueError(f"num_keep_alive_refs ({num_keep_alive_refs}) must be a positive integer")


def check_chunk_length(max_chunk_length: int | None, num_keep_alive_refs: int) -> None:
    """Checks the length of chunks that is to go with a number of values kept.

    Raises:
      ValueError: It is no positive integer up to `num_keep_alive_refs`.
    """
    if max_chunk_length is not None and not 1 <= max_chunk_length <= num_keep_alive_refs:
        raise ValueError(
            f"max_chunk_length ({max_chunk_length}) must be None or a positive integer <= num_keep_alive_refs "
            f"({num_keep_alive_refs})"
        )
