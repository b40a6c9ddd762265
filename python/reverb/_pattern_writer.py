"""The structured writer: steps go in, patterns say which items come of them."""

from collections.abc import Sequence
from typing import Any

from reverb import _structure, pybind
from reverb._flushing import FlushingWriter, as_seconds
from reverb.errors import DeadlineExceededError

__all__ = ["StructuredWriter"]


class StructuredWriter(FlushingWriter):
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
        super().__init__(self._writer)

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

    def end_episode(self, clear_buffers: bool = True, timeout_ms: int | None = None) -> None:
        """Makes the items that are due at the end of an episode, flushes, and counts steps from 0 again.

        Args:
          clear_buffers: Whether no item may contain steps before the end. Without it, windows span episodes.
          timeout_ms: Milliseconds to wait for confirmations; None: as long as the tables' limiters block.

        Raises:
          DeadlineExceededError: Not all items were confirmed in time. They stay queued, and the episode has ended.
          ValueError: As `append` and `flush`.
        """
        as_seconds(timeout_ms)
        self._writer.make_last_items()
        try:
            self._flush("End episode", 0, timeout_ms)
        except DeadlineExceededError:
            self._writer.end_episode(clear_buffers)
            raise
        self._writer.end_episode(clear_buffers)
