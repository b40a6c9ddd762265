"""Windows of steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import tree
from numpy.typing import ArrayLike, NDArray

from reverb import structured_writer as structured
from reverb.adders import columns
from reverb.adders.base import AdderBase, AdderKeys
from reverb.adders.priorities import Priority, priority_fn
from reverb.adders.recording import Transition
from reverb.adders.rows import Rows, padding
from reverb.client import Client
from reverb.data import checks
from reverb.data.arrays import as_array
from reverb.data.leaves import without_ragged
from reverb.writing.options import WriterArguments, WriterOptions, shows_writer_options

if TYPE_CHECKING:
    from typing_extensions import Unpack


def sequence_configs(
    step_structure: Any,
    table: str,
    *,
    length: int,
    period: int,
    end: Literal["truncate", "drop"] = "truncate",
    priority: float | structured.Priority = 1.0,
    first: Sequence[str] = (),
) -> list[Any]:
    """Patterns for windows of steps that start every `period` steps of an episode.

    Args:
      step_structure: Nest with the structure of a step; the values of its leaves are ignored.
      table: Name of the table for the items.
      length: Number of steps in a window, at least 1.
      period: Number of steps between the starts of two windows, at least 1: `length` for adjacent windows, less for
        overlapping ones (R2D2: 80 and 40 after a burn-in of 40; Kapturowski et al. 2019, "Recurrent experience replay
        in distributed reinforcement learning").
      end: Treatment of a window in which the episode ends: `truncate`, the default, makes it shorter, `drop` omits it.
      priority: Priority of new items: a number, 1 by default, or the formula of `structured.td_error`, whose column
        the step must have.
      first: Names of columns, or paths such as `lstm/state`, of which an item has only the value of its first step,
        without a time axis. The steps may leave such a column out (None) unless their index in the episode is a
        multiple of `period`.

    Returns:
      Configs for `Client.structured_writer` or `Client.batched_writer`.

    Raises:
      ValueError: A number is below 1, `end` is neither of the two words, or the step lacks a column of `first`.
    """
    length, period = checks.as_count("length", length), checks.as_count("period", period)
    if end not in ("truncate", "drop"):
        raise ValueError(f"`end` must be 'truncate' or 'drop', got {end!r}.")
    window = _Window(without_ragged(step_structure), first=columns.as_names("first", first))
    given = priority_fn(priority, "a number or a formula of `reverb.structured`")
    return _configs(window, table, length=length, period=period, end=end, priority=given)


# The public module of the function, which pickles refer to.
sequence_configs.__module__ = "reverb.adders"


class _Window:
    """Which rows of each column a window consists of.

    Args:
      step: Nest with the structure of a step.
      first: Columns of which only the first step counts.
      final: Columns that also have a row after the last step.
      stack: Columns that also have the rows before the first step that its stack of frames needs.

    Attributes:
      first: Leaves of the columns `first`.
      final: Leaves of the columns `final`.
      ahead: Leaves whose first value comes before the first step, `lead` times.
      not_ahead: The other leaves.
      lead: Number of rows before the first step of an episode.
    """

    def __init__(
        self, step: Any, *, first: Sequence[str] = (), final: Sequence[str] = (), stack: Mapping[str, int] | None = None
    ) -> None:
        self._step = columns.blank(step)
        self.first = set(columns.places("first", first, step))
        self.final = set(columns.places("final", final, step))
        stack = stack or {}
        self._frames = {leaf: stack[name] for leaf, name in columns.places("stack", tuple(stack), step).items()}
        twice = self.first & (self.final | set(self._frames))
        if twice:
            paths = ["/".join(map(str, path)) for path, _ in tree.flatten_with_path(step)]
            raise ValueError(f"{paths[min(twice)]!r} is in `first`, and also in `final` or `stack`.")
        self.ahead = self.final | set(self._frames)
        self.not_ahead = set(range(len(tree.flatten(step)))) - self.ahead
        self.lead = max((self._before(leaf) for leaf in self.ahead), default=0)

    def _before(self, leaf: int) -> int:
        """Number of rows of a leaf before the row of the first step of a window."""
        return self._frames.get(leaf, 1) - 1 + (leaf in self.final)

    def pattern(self, rows: int) -> Any:
        """The pattern of a window of so many steps."""
        nodes = []
        for leaf, node in enumerate(tree.flatten(structured.create_reference_step(self._step))):
            nodes.append(node[-rows] if leaf in self.first else node[-(rows + self._before(leaf)) :])
        return tree.unflatten_as(self._step, nodes)


def _configs(window: _Window, table: str, *, length: int, period: int, end: str, priority: Any) -> list[Any]:
    def config(rows: int, *conditions: Any) -> Any:
        return structured.create_config(window.pattern(rows), table, conditions, priority)

    def index() -> Any:
        return structured.Condition.step_index()

    # The rows before the first step count as steps.
    lead = window.lead
    last = lead + length - 1
    configs = [config(length, index() >= last, index() % period == last % period)]
    if end == "truncate":
        at_end = structured.Condition.is_end_episode()
        # An episode shorter than a window becomes one item.
        configs += [config(rows, at_end, index() == lead + rows - 1) for rows in range(1, length)]
        for more in range(1, period):
            rows = length - period + more
            # With gaps between the windows, the next one may not have started yet.
            if rows > 0:
                configs.append(config(rows, at_end, index() > last, index() % period == (last + more) % period))
    return configs


@shows_writer_options
class SequenceAdder(AdderBase):
    """Creates windows of steps, with a time axis, for recurrent agents. See `sequence_configs`.

    R2D2 (Kapturowski et al. 2019) stores the state of the LSTM with each window, and computes first priorities from the
    TD errors of the actor:

        step = {"observation": ..., "action": ..., "reward": ..., "state": ..., "td_error": ...}
        adder = SequenceAdder(
            client, "replay", length=80, period=40, first=("state",), final=("observation",),
            priority=reverb.structured.td_error(0.9, step, lambda step: step["td_error"]),
        )
        adder.add(step, last=terminated or truncated, final={"observation": next_observation})

    Args:
      client: Client for the server that holds the table, or the server's address.
      table: Name of the table for the items.
      length: Number of steps in a window, at least 1.
      period: Number of steps between the starts of two windows, at least 1.
      end: Treatment of a window in which the episode ends: `truncate`, the default, makes it shorter, `pad` fills it up
        with steps of zeros, `drop` omits it. All rows of a column in a window must have one length; where they are
        given as `Ragged`, those of padding have the length of the last one.
      priority: Priority of items that get none in `add`: a number, 1 by default; `max` for the largest that the table
        has seen since it was reset, in inserts and updates by anybody; or the formula of `structured.td_error`, whose
        column the step must have. Steps of padding have no TD error: they count as 0.
      num_envs: Number of environments in the vector; None for a single environment.
      first: Names of columns, or paths such as `lstm/state`, of which an item has only the value of its first step,
        without a time axis: batches have `[batch, ...]`. Other values are neither sent nor stored.
      final: Names of columns that have one row more than the others: the value after the last step of the window. With
        `final=("observation",)` an agent can bootstrap from the last observation of each window, also where an episode
        was truncated.
      stack: Mapping from names of columns with single frames to the number of frames that a step sees. The column has
        this number less 1 more rows at its beginning: the frames before the first step of the window. At the start of
        an episode the first frame is repeated.
      options: Options of the adder's writer, for all that is not given by name; None means their defaults.
      **writer_options: Options of the writer by name, which are the fields of `reverb.WriterOptions`.

    Raises:
      ValueError: A number is below 1, `end` is none of the three words, or `priority` is another text than `max`.
    """

    # The public module of the class, which pickles refer to.
    __module__ = "reverb.adders"

    def __init__(
        self,
        client: Client | str,
        table: str,
        *,
        length: int,
        period: int,
        end: Literal["truncate", "pad", "drop"] = "truncate",
        priority: Priority = 1.0,
        num_envs: int | None = None,
        first: Sequence[str] = (),
        final: Sequence[str] = (),
        stack: Mapping[str, int] | None = None,
        options: WriterOptions | None = None,
        **writer_options: Unpack[WriterArguments],
    ) -> None:
        if end not in ("truncate", "pad", "drop"):
            raise ValueError(f"`end` must be 'truncate', 'pad' or 'drop', got {end!r}.")
        self._length, self._period = checks.as_count("length", length), checks.as_count("period", period)
        super().__init__(client, table, priority, num_envs, options, writer_options, period=self._period)
        self._pad = end == "pad"
        self._end = "drop" if end == "pad" else end
        self._first, self._final = columns.as_names("first", first), columns.as_names("final", final)
        self._stack = columns.as_stack(stack)
        # Known with the first step.
        self._window: _Window | None = None

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
        """Adds a step, and the windows that it completes.

        Args:
          step: Nest of the arrays of the step. With `num_envs` all arrays have a first axis of that length. A row of
            open length is a `Ragged` of one item; with `num_envs`, a `Ragged` has an item for each environment.
          last: Whether the episode ends with this step; with `num_envs`, bools `[num_envs]`.
          final: Nest with the values after the step of the columns that the adder was told as `final`, such as
            `{"observation": next_observation}`; needed at each step. At the end of an episode it is the last
            observation of that episode, not the first of the next one.
          priority: Priority of the items that this step completes, also of those that the end of the episode completes:
            a number, "max", or with `num_envs` an array `[num_envs]`. None, the default, takes the priority of the
            adder.
          mask: Bools `[num_envs]` that mark the environments that have a step; other rows are ignored. None marks all.
          timeout: Time limit in seconds to wait for room for the items that the step creates, before it is added; None,
            the default, waits as long as the table's rate limiter blocks.

        Returns:
          The keys of the items that the step has created, in the order of their creation: uint64 `[items]`, or with
          `num_envs` a `Ragged` with the keys of each environment.

        Raises:
          DeadlineExceededError: There was no room for the items within the timeout. The step was not added, and the
            same call may be repeated.
          ValueError: A column has no value (None) that an item needs. The step was not added. See also
            `StructuredWriter.append`.
          TypeError, UnavailableError: See `StructuredWriter.append`.
        """
        present, seconds = self._present(mask), checks.as_timeout(timeout)
        ends = self._flags("last", last) & present
        given = self._priorities.of_step(priority)
        step, final = self._leaves(step, seconds), self._leaves(final, seconds, "final")
        window = self._window or _Window(step, first=self._first, final=self._final, stack=self._stack)
        row = columns.replaced(step, window.final, final, "final") if window.final else step
        begins = present & (self._steps % self._period == 0)
        if True in present:
            columns.refuse_none(row, () if True in begins else window.first)
        if window.lead and True in (present & ~self._is_led):
            columns.refuse_none(step, window.not_ahead)
        if self._writer is None:
            self._start(step, window)
        # At most one window of each environment is complete, or ends with its episode.
        self._take_room(len(present), seconds, lambda: self._num_due(present, ends))
        self._begin_call()
        if window.lead:
            # The rows before the first step repeat its first values.
            self._lead(lambda: columns.only(step, window.ahead), window.lead, present)
        end_now = np.zeros_like(ends) if self._pad else ends
        if window.first:
            # Environments at a step that begins no window write a row without the columns `first`.
            if True in begins:
                self._append(row, begins, end_now & begins, given)
            rest = present & ~begins
            if True in rest:
                leaves = set(range(len(tree.flatten(step)))) - window.first
                self._append(columns.only(row, leaves), rest, end_now & rest, given)
        else:
            self._append(row, present, end_now, given)
        self._steps += present
        if self._pad and self._has_rows:
            self._note_lengths(row, present)
        if self._pad and True in ends:
            self._end_episodes(ends, given)
        else:
            self._begin_anew(ends)
        return self._end_call()

    def record(self, transition: Transition, transform: Callable[[Any], Any] | None) -> None:
        """Adds a step of a recorder. For `add_from`; it is not part of the public interface."""
        transition.add_step(self.add, transform, has_final=bool(self._final))

    def _signature_of(self, transition: Transition, transform: Callable[[Any], Any] | None) -> Any:
        specs = self._specs(transition.step(transform))
        window = _Window(specs, first=self._first, final=self._final, stack=self._stack)
        return structured.infer_signature(self._configs(window), specs)

    def _configs(self, window: _Window) -> list[Any]:
        return _configs(
            window,
            self._table,
            length=self._length,
            period=self._period,
            end=self._end,
            priority=self._priorities.config,
        )

    def _start(self, step: Any, window: _Window) -> None:
        self._window = window
        self._open(step, self._configs(window))
        # What padding consists of, but for the columns `first`.
        given = columns.only(step, set(range(len(tree.flatten(step)))) - window.first)
        self._zeros = tree.map_structure(_zeros_like, given)

    def _note_lengths(self, row: Any, present: NDArray[np.bool_]) -> None:
        """Makes the padding of columns with a `Ragged` as long as the newest rows, since an item's have one length."""
        pairs = zip(tree.flatten(self._zeros), tree.flatten(row), strict=True)
        leaves = [padding(before, leaf, present, self._num_envs) for before, leaf in pairs]
        self._zeros = tree.unflatten_as(self._zeros, leaves)

    def _num_due(self, present: NDArray[np.bool_], ends: NDArray[np.bool_]) -> int:
        """The number of items that a step of these environments creates, and the end of the episodes that end there."""
        steps = self._steps + 1
        due = present & (steps >= self._length) & ((steps - self._length) % self._period == 0)
        return int(np.count_nonzero(due)) + self._num_last(ends, steps)

    def _num_last(self, ends: NDArray[np.bool_], steps: NDArray[np.int64]) -> int:
        if self._end == "drop" and not self._pad:
            return 0
        # Steps after the last whole window. In a gap between two windows they are in none.
        more = (steps - self._length) % self._period
        is_cut = (steps < self._length) | (more > 0) & (more > self._period - self._length)
        return int(np.count_nonzero(ends & is_cut))

    def _finish(self, ends: NDArray[np.bool_], priority: Any) -> None:
        if self._pad:
            self._fill_up(ends, priority)
        super()._finish(ends, priority)

    def _fill_up(self, ends: NDArray[np.bool_], priority: Any) -> None:
        """Appends steps of zeros to each episode that ends, until its last window is complete."""
        length, period, steps = self._length, self._period, self._steps
        windows = -(-np.maximum(steps - length, 0) // period)
        missing = length + windows * period - steps
        # An episode that ends in a gap between two windows needs no padding.
        missing[(missing >= length) | ~ends] = 0
        for index in range(int(np.maximum.reduce(missing))):
            self._append_no_end(self._zeros, missing > index, priority)


def _zeros_like(leaf: Any) -> Any:
    """Zeros of the shape of a column. Those for `Rows` are made when their lengths are known."""
    return leaf if leaf is None or isinstance(leaf, Rows) else np.zeros_like(as_array(leaf))
