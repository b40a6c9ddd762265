"""The structured writer appends steps, and creates the items that patterns describe."""

from collections.abc import Sequence
from typing import Any

from reverb import _binding
from reverb.data.keys import ItemPriority, as_item_priority
from reverb.writing.flushing import FlushingWriter, as_seconds
from reverb.writing.key_check import KeyChecker, pattern_orders
from reverb.writing.options import WriterOptions
from reverb.writing.structure import FixedStructure


class StructuredWriter(FlushingWriter):
    """Writes steps, and creates the items that its configs describe. Created by `Client.structured_writer`.

    The configs are evaluated in order after every append, including that of a partial step, and when an episode ends.
    A config creates at most one item per step. Columns that no config uses are dropped. Only one thread at a time may
    use a writer.
    """

    # The public module of the class, which pickles refer to.
    __module__ = "reverb.structured_writer"

    def __init__(self, client: _binding.Client, configs: Sequence[Any], options: WriterOptions) -> None:
        texts = [config.SerializeToString() for config in configs]
        self._writer = _binding.PatternWriter(client, FixedStructure(), texts, options)
        # What is asked for the signatures of tables. `reverb.aio` replaces it.
        self.signatures: KeyChecker = client
        self._configs = configs
        # Replaced by the append of the extension once the patterns are known to fit their tables.
        self._append = self._check_and_append
        super().__init__(self._writer)

    def append(self, data: Any, *, partial_step: bool = False, priority: ItemPriority | None = None) -> None:
        """Appends a step, or a part of one, and creates the items that are due.

        Args:
          data: Nest with the structure of the first step. Leaves without a value in this append are None.
          partial_step: Whether the step stays open, so that the next append adds other columns to it.
          priority: Priority of the items that this call creates, a number or "max"; None, the default, means that of
            their configs.

        Raises:
          ValueError: The structure of the step differs from that of the first, or a value has another dtype or shape
            than its column, and nothing was appended. Also raised if a condition or a TD error cannot use its column or
            a priority is NaN; then the step was appended, and the items of that config and of later configs were not
            created. Also raised if the server rejected an earlier item, after the step was appended and its items were
            queued. `step_taken` of the error tells the cases apart.
          TypeError: A leaf cannot be stored.
          SignatureMismatchError: A pattern has other keys than the signature of its table. The first append asks the
            server for the signatures; nothing was appended.
          UnavailableError: The server could not be reached within `reconnect_timeout`.
        """
        if priority is None:
            self._append(data, partial_step)
        else:
            self._append(data, partial_step, as_item_priority(priority))
        if self.reports.kept:
            self.reports.finish()

    def _check_and_append(self, data: Any, partial_step: bool, priority: ItemPriority | None = None) -> None:
        orders = pattern_orders(self.signatures, self._configs)
        if orders is not None:
            self._writer.reorder(orders)
            self._append = self._writer.append
        self._writer.append(data, partial_step, priority)

    @property
    def step_is_open(self) -> bool:
        """Whether the last append was partial."""
        return self._writer.step_is_open

    def end_episode(
        self,
        clear_buffers: bool = True,
        timeout_ms: int | None = None,
        *,
        timeout: float | None = None,
        priority: ItemPriority | None = None,
    ) -> None:
        """Creates the items that are due at the end of an episode, flushes, and restarts the step count at 0.

        Args:
          clear_buffers: Whether to drop the steps kept so far. If False, later items may contain them and so span
            episodes.
          timeout_ms: Time limit in milliseconds for the confirmations; None waits as long as the tables' rate limiters
            block.
          timeout: Time limit in seconds, instead of `timeout_ms`.
          priority: Priority of the items that this call creates, a number or "max"; None, the default, means that of
            their configs.

        Raises:
          DeadlineExceededError: Not all items were confirmed within the timeout. They stay queued, and the episode has
            ended.
          ValueError: A time limit is negative, both are given, or one of the cases of `append` and `flush` occurred. If
            `step_taken` of the error is true, the episode has ended.
        """
        seconds = as_seconds(timeout_ms, timeout)
        given = None if priority is None else as_item_priority(priority)
        self.reports.call(self._writer.make_last_items, given)
        self.reports.call(self._end_episode, self._writer.end_episode, clear_buffers, seconds)
        self.reports.finish()

    def finish_episode(self, priority: ItemPriority | None, clear_buffers: bool = True) -> None:
        """Ends an episode as `end_episode` does, without a flush.

        For adders and `reverb.aio`; it is not part of the public interface.

        Args:
          priority: Priority of the items that this call creates; None means that of their configs.
          clear_buffers: Whether to drop the steps kept so far.
        """
        try:
            self._writer.make_last_items(priority if priority is None else as_item_priority(priority))
        finally:
            self._writer.end_episode(clear_buffers)
