"""Whole episodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tree
from numpy.typing import ArrayLike, NDArray

from reverb.adders import columns
from reverb.adders.base import AdderBase, AdderKeys
from reverb.adders.priorities import Priority, TdErrors
from reverb.adders.recording import Transition
from reverb.adders.rows import Rows
from reverb.client import Client
from reverb.data import checks
from reverb.data.arrays import as_array
from reverb.tensor_spec import TensorSpec
from reverb.writing.options import WriterArguments, WriterOptions, shows_writer_options

if TYPE_CHECKING:
    from typing_extensions import Unpack


@shows_writer_options
class EpisodeAdder(AdderBase):
    """Creates one item, with a time axis, from each whole episode, for offline and Monte Carlo methods.

    (Sutton and Barto 2018, "Reinforcement learning", ch. 5.)

    Args:
      client: Client for the server that holds the table, or the server's address.
      table: Name of the table for the items.
      max_length: Number of steps in the longest episode, at least 1. The writer keeps this many steps.
      priority: Priority of items that get none in `add`: a number, 1 by default; `max` for the largest that the table
        has seen since it was reset, in inserts and updates by anybody; or the formula of `structured.td_error`, whose
        column the step must have.
      num_envs: Number of environments in the vector; None for a single environment.
      final: Names of columns that have one row more than the others: the value after the last step. With
        `final=("observation",)` an agent can bootstrap from the last observation of an episode that was truncated.
      options: Options of the adder's writer, for all that is not given by name; None means their defaults.
      **writer_options: Options of the writer by name, which are the fields of `reverb.WriterOptions`.

    Raises:
      ValueError: A number is below 1, or `priority` is another text than `max`.
    """

    # The public module of the class, which pickles refer to.
    __module__ = "reverb.adders"

    def __init__(
        self,
        client: Client | str,
        table: str,
        *,
        max_length: int,
        priority: Priority = 1.0,
        num_envs: int | None = None,
        final: Sequence[str] = (),
        options: WriterOptions | None = None,
        **writer_options: Unpack[WriterArguments],
    ) -> None:
        super().__init__(client, table, priority, num_envs, options, writer_options)
        self._max_length = checks.as_count("max_length", max_length)
        self._final = columns.as_names("final", final)
        formula = self._priorities.config
        self._errors = TdErrors(formula, num_envs or 1) if formula.HasField("td_error") else None
        self._constant = formula.constant_fn.value
        # The leaves of the columns `final`, known with the first step.
        self._after: set[int] = set()
        # A single environment is handled as a vector of one.
        keep = self._max_length + bool(self._final)
        self._writer = self._pace(self._client.batched_writer(self._num_envs or 1, keep, options=self._options))

    def add(
        self,
        step: Any,
        *,
        last: ArrayLike = False,
        final: Any = None,
        priority: ArrayLike | None = None,
        mask: ArrayLike | None = None,
        timeout: float | None = None,
    ) -> AdderKeys:
        """Adds a step. The last step of an episode creates the item.

        Args:
          step: Nest of the arrays of the step. With `num_envs` all arrays have a first axis of that length. A row of
            open length is a `Ragged` of one item; with `num_envs`, a `Ragged` has an item for each environment.
          last: Whether the episode ends with this step; with `num_envs`, bools `[num_envs]`.
          final: Nest with the values after the step of the columns that the adder was told as `final`, such as
            `{"observation": next_observation}`; needed at each step.
          priority: Priority of the item, if the episode ends with this step: a number, "max", or with `num_envs` an
            array `[num_envs]`. None, the default, takes the priority of the adder.
          mask: Bools `[num_envs]` that mark the environments that have a step; other rows are ignored. None marks all.
          timeout: Time limit in seconds to wait for room for the items that the step creates, before it is added; None,
            the default, waits as long as the table's rate limiter blocks.

        Returns:
          The keys of the items that the step has created, in the order of their creation: uint64 `[items]`, or with
          `num_envs` a `Ragged` with the keys of each environment.

        Raises:
          DeadlineExceededError: There was no room for the items within the timeout. The step was not added, and the
            same call may be repeated.
          ValueError: An episode is longer than `max_length`, and the step was not added. See also
            `BatchedWriter.append`.
          TypeError, UnavailableError: See `BatchedWriter.append`.
        """
        present, seconds = self._present(mask), checks.as_timeout(timeout)
        ends = self._flags("last", last) & present
        given = self._priorities.of_step(priority)
        # Not the method `max`, which imports at its first call, and a `__del__` at interpreter exit cannot import.
        longest = int(np.maximum.reduce(self._steps * present))
        if longest >= self._max_length:
            raise ValueError(f"An episode already has {longest} steps, and `max_length` is {self._max_length}.")
        step, final = self._leaves(step, seconds), self._leaves(final, seconds, "final")
        if self._num_envs is None:
            step = tree.map_structure(as_vector, step)
            final = None if final is None else tree.map_structure(as_vector, final)
        if True in ends:
            num_items = self._num_last(ends, self._steps)
            self._take_room(num_items, seconds)
        if self._blank is None or self._is_torn:
            self._blank = columns.blank(step)
        self._begin_call()
        row = step
        if self._final:
            self._after = set(columns.places("final", self._final, step))
            row = columns.replaced(step, self._after, final, "final")
            starts = present & ~self._is_led
            if True in starts:
                self._append_row(columns.only(step, self._after), starts)
                self._is_led |= starts
        self._append_row(row, present)
        self._steps += present
        if self._errors is not None:
            self._errors.push(tree.flatten(step), present)
        if True in ends:
            self._end_episodes(ends, given)
        return self._end_call()

    def record(self, transition: Transition, transform: Callable[[Any], Any] | None) -> None:
        """Adds a step of a recorder. For `add_from`; it is not part of the public interface."""
        transition.add_step(self.add, transform, has_final=bool(self._final))

    def _signature_of(self, transition: Transition, transform: Callable[[Any], Any] | None) -> Any:
        specs = self._specs(transition.step(transform))
        columns.places("final", self._final, specs)
        return tree.map_structure_with_path(
            lambda path, spec: TensorSpec((None, *spec.shape), spec.dtype, "/".join(map(str, path))), specs
        )

    def _append_row(self, row: Any, present: NDArray[np.bool_]) -> None:
        self._reports.call(self._writer.append, self._for_writer(row), mask=present)

    def _num_last(self, ends: NDArray[np.bool_], steps: NDArray[np.int64]) -> int:
        return int(np.count_nonzero(ends))

    def _finish(self, ends: NDArray[np.bool_], priority: Any) -> None:
        errors = None if self._errors is None else self._errors.pop(self._steps, ends)
        if priority is None:
            priority = self._constant if errors is None else errors
        # The other columns have no value in the row before the first step.
        lead = 1 if self._final else None
        views = tree.flatten(self._writer.history)
        rows = [view[:] if leaf in self._after else view[lead:] for leaf, view in enumerate(views)]
        trajectory = tree.unflatten_as(self._blank, rows)
        finish = self._reports.finish_part
        # Only rows of open length may not fit together. The writer then refuses all items of a call.
        masks = np.eye(len(ends), dtype=np.bool_)[ends] if self._has_rows else [ends]
        for mask in masks:
            finish(self._writer.create_items, self._table, priority, trajectory, mask=mask)
        finish(self._drop_rows, ends)

    def _drop_rows(self, ends: NDArray[np.bool_]) -> None:
        self._writer.append(self._blank, mask=np.zeros_like(ends), episode_end=ends)


def as_vector(leaf: Any) -> Any:
    """Adds a first axis of length 1. Text becomes an object array: numpy's fixed-width types drop trailing NULs."""
    if isinstance(leaf, Rows):
        # A single environment gives its row as the only item.
        return leaf
    return np.array([leaf], object) if isinstance(leaf, bytes | str) else as_array(leaf)[None]
