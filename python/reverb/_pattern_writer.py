"""The structured writer: steps go in, patterns say which items come of them."""

from collections.abc import Sequence
from types import TracebackType
from typing import Any

from reverb import _endings, _structure, pybind
from reverb.errors import DeadlineExceededError, ReverbError
from reverb.trajectory_writer import as_seconds, deadline_error

__all__ = ["StructuredWriter"]


class StructuredWriter:
    """Writes steps, and makes the items that its configs describe. Made by `Client.structured_writer`.

    Configs are asked in order after every append, also of a part of a step, and when an episode ends. One makes at most
    one item of a step. Columns that no config uses are dropped. One thread at a time may use a writer.
    """

    def __init__(
        self,
        client: pybind.Client,
        configs: Sequence[Any],
        *,
        max_chunk_length: int | None,
        compression: tuple[str, bool],
        max_pending_bytes: int,
        reconnect_timeout: float,
    ) -> None:
        self._writer = pybind.PatternWriter(
            client,
            _structure.FixedStructure(),
            [config.SerializeToString() for config in configs],
            max_chunk_length,
            compression,
            (max_pending_bytes, reconnect_timeout),
        )
        self._append = self._writer.append
        self._closed = False
        self._finalizer = _endings.when_deleted(self, self._writer)

    def __enter__(self) -> "StructuredWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Flushes, unless the body raised an error of Reverb. The writer stays usable."""
        if not isinstance(error, ReverbError):
            self.flush()

    def append(self, data: Any, *, partial_step: bool = False) -> None:
        """Appends a step, or a part of one, and makes the items that are due.

        Args:
          data: A nest with the structure of the first step; leaves that have no value now are None.
          partial_step: Whether the step stays open, so that the next append adds other columns to it.

        Raises:
          ValueError: The step has another structure than the first, or a value another dtype or shape than its column;
            nothing was appended. Or a condition or a TD error cannot work with its column, or a priority is NaN: the
            step stays, the items of that config and those behind it are not made. Also an item that the server refused.
          TypeError: A leaf cannot be stored.
          UnavailableError: The server could not be reached for `reconnect_timeout`.
        """
        self._append(data, partial_step)

    @property
    def step_is_open(self) -> bool:
        """Whether the last append was partial."""
        return self._writer.step_is_open

    def flush(self, block_until_num_items: int = 0, timeout_ms: int | None = None) -> None:
        """Sends what can be sent and waits until at most `block_until_num_items` items are unconfirmed.

        Args:
          block_until_num_items: How many items may stay behind, at least 0.
          timeout_ms: Milliseconds; 0 looks once; None: as long as the tables' limiters block.

        Raises:
          ValueError: A number is negative; or the server refused an item.
          DeadlineExceededError: Too many items were still unconfirmed in time. They stay queued.
          UnavailableError: The server could not be reached for `reconnect_timeout`.
        """
        if block_until_num_items < 0:
            raise ValueError(f"block_until_num_items must be >= 0, got {block_until_num_items}")
        self._flush("Flush", block_until_num_items, timeout_ms)

    def _flush(self, what: str, but_last: int, timeout_ms: int | None) -> None:
        try:
            self._writer.flush(but_last, as_seconds(timeout_ms))
        except DeadlineExceededError as error:
            raise deadline_error(what, timeout_ms, error) from None

    def end_episode(self, clear_buffers: bool = True, timeout_ms: int | None = None) -> None:
        """Makes the items that are due at the end of an episode, flushes, and counts steps from 0 again.

        Args:
          clear_buffers: Whether no item may contain steps before the end. Without it, windows span episodes.
          timeout_ms: Milliseconds to wait for confirmations; None: as long as the tables' limiters block.

        Raises:
          DeadlineExceededError: Not all items were confirmed in time. They stay queued, and the episode has ended.
          ValueError: As `append` and `flush`.
        """
        seconds = as_seconds(timeout_ms)
        try:
            self._writer.make_last_items()
            self._writer.flush(0, seconds)
        except DeadlineExceededError as error:
            self._writer.end_episode(clear_buffers)
            raise deadline_error("End episode", timeout_ms, error) from None
        self._writer.end_episode(clear_buffers)

    def close(self) -> None:
        """Ends the writer. Waits up to 5 seconds; what is unconfirmed then is given up and named in the log.

        A second call does nothing.
        """
        if not self._closed:
            self._closed = True
            self._finalizer()
