"""What the adders share: the writer, the episodes under way, and the options that go to the writer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reverb.adders import columns, rows
from reverb.adders.agents import AgentsRecorder
from reverb.adders.flags import per_env
from reverb.adders.priorities import Priorities
from reverb.adders.recording import Caught, Recorder, Recording, Transition
from reverb.client import Client, as_client
from reverb.data import checks
from reverb.errors import CancelledError
from reverb.replay_sample import Ragged
from reverb.reverb_types import table_infos
from reverb.writing.options import WriterOptions
from reverb.writing.reports import Reports

# Unconfirmed items of an adder of one environment; for a vector, the steps of each environment that make as many. It is
# the number of rows in a chunk of small steps. With fewer, callers wait for chunks that are not full, and items cost
# more.
# limit (Writers): number of an adder's unconfirmed items; other writers have no limit | {}; with `num_envs` as many as
# {} steps of each environment make, at least two of each | the call that makes items waits | `max_in_flight_items=` of
# each adder
_IN_FLIGHT_ITEMS = 64

# Keys of the items that a call has created: an array, or for a vector of environments a Ragged with the keys of each.
AdderKeys = NDArray[np.uint64] | Ragged

_Adder = TypeVar("_Adder", bound="AdderBase")


class AdderBase:
    """Base class of adders.

    Args:
      client: Client for the server that holds the table, or the server's address.
      table: Name of the table for the items.
      priority: Priority of the items: a number, "max", or a formula.
      num_envs: Number of environments in the vector; None for a single environment.
      options: Options of the writer, which is created with the first step, when the structure is known.
      given: Options of the writer by name, which override those in `options`.
      takes_formula: Whether `priority` may be a formula of `reverb.structured` that reads columns.
      period: Number of steps between two items of an environment; None if episodes are items.
    """

    def __init__(
        self,
        client: Client | str,
        table: str,
        priority: Any,
        num_envs: int | None,
        options: WriterOptions | None,
        given: Mapping[str, Any],
        *,
        takes_formula: bool = True,
        period: int | None = None,
    ) -> None:
        self._priorities = Priorities(priority, num_envs, takes_formula=takes_formula)
        options = WriterOptions.of(f"{type(self).__name__}.__init__", options, given)
        self._client = as_client(client)
        self._table = table
        self._num_envs = None if num_envs is None else checks.as_count("num_envs", num_envs)
        if options.max_in_flight_items is None:
            of_each = 2 if period is None else max(2, _IN_FLIGHT_ITEMS // period)
            in_flight = max(_IN_FLIGHT_ITEMS, of_each * (self._num_envs or 1))
            options = dataclasses.replace(options, max_in_flight_items=in_flight)
        self._options = options
        self._writer: Any = None
        # Errors of writer calls that have done their work. `add` raises them when it has done its own. From its start
        # those of the writer, which raises or logs what no `add` has raised.
        self._reports = Reports()
        # Whether a step had a `Ragged` or a list, so that rows may have a leaf that is not for the writer.
        self._has_rows = False
        # The signature of the table, or nothing if it has none; None until a step has a list.
        self._signature: tuple[Any, ...] | None = None
        # The structure of what the writer takes.
        self._blank: Any = None
        # For each environment the number of steps in its episode, and whether the rows before the first are there.
        self._steps = np.zeros(self._num_envs or 1, np.int64)
        self._is_led = np.zeros(self._num_envs or 1, np.bool_)
        # Whether a call has failed in the midst, so that the writer may have rows that are not counted in `_steps`.
        self._is_torn = False
        # Whether it takes no more steps, and whether by `close` rather than by the end of a `with` block.
        self._is_closed = self._was_closed = False

    def __enter__(self: _Adder) -> _Adder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Waits for the items as long as `close`, and logs those that are not in their table then."""
        self._is_closed = True
        if self._writer is not None:
            self._writer.leave(error)

    @property
    def num_envs(self) -> int | None:
        """Number of environments in the vector; None for a single environment."""
        return self._num_envs

    def flush(
        self, block_until_num_items: int = 0, timeout_ms: int | None = None, *, timeout: float | None = None
    ) -> None:
        """Waits until the items are in their tables; see `TrajectoryWriter.flush`.

        Args:
          block_until_num_items: Number of items that may stay unconfirmed, at least 0.
          timeout_ms: Time limit in milliseconds; None waits as long as the tables' rate limiters block.
          timeout: Time limit in seconds, instead of `timeout_ms`.

        Raises:
          CancelledError: The adder was closed. After a `with` block, a flush goes on waiting for what is queued.
        """
        if self._was_closed:
            self._check_open()
        if self._writer is not None:
            self._writer.flush(block_until_num_items, timeout_ms, timeout=timeout)

    def close(self) -> None:
        """Closes the writer; see `TrajectoryWriter.close`. A closed adder takes no steps."""
        self._is_closed = self._was_closed = True
        if self._writer is not None:
            self._writer.close()

    def note_priorities(self, priorities: ArrayLike) -> None:
        """Takes priorities into account for `priority="max"`, beside those that the table has seen.

        A server of this package sees all priorities itself, and the client of a cluster hears of those at all shards.
        A server of dm-reverb tells none, so that "max" is the largest of 1, the priorities that this process has set
        there, and those noted here. A learner in another process may publish its largest priority beside its
        parameters.

        Args:
          priorities: Priorities, one number or an array of any shape.
        """
        self._priorities.note(priorities)
        if self._writer is not None:
            self._writer.note_priority(self._priorities.noted)

    def add_from(
        self, env: Any, *, autoreset_mode: Any = None, transform: Callable[[Any], Any] | None = None
    ) -> Recorder:
        """An environment whose steps are added as they are made, for use in place of `env`.

        It reads how the environment resets itself: with the step after the last, whose step belongs to no episode
        (`NEXT_STEP`, Gymnasium's default for vectors); within the last step, whose observation is then in the infos
        (`SAME_STEP`); or not at all (`DISABLED`, and single environments).

            envs = adder.add_from(gymnasium.make_vec("CartPole-v1", num_envs=64))
            observations, _ = envs.reset(seed=0)
            while True:
                observations, *_ = envs.step(policy(observations))

        Transitions need nothing more. Sequences and episodes store a dict of `observation`, `action`, `reward`,
        `terminated`, `truncated`, and the dict that `step(actions, extras=...)` adds.

        A parallel environment of PettingZoo has several agents, of which some may leave before the others. With as many
        `num_envs` as possible agents each agent is a row, with items of its own. Without `num_envs` an item has all
        agents: each column is a dict by agent, `alive` says which of them acted in the (first) step of the item, and
        `reward` and `discount` of a transition are those of each agent. See `reverb.adders.AgentsRecorder`.

        Args:
          env: Environment with Gymnasium's interface: a `gymnasium.Env`, or a vector of as many environments as the
            adder was made for; or a `pettingzoo.ParallelEnv`.
          autoreset_mode: Autoreset mode of a vector that does not name it in its metadata: `NextStep`, `SameStep`,
            `Disabled`, or a member of Gymnasium's AutoresetMode. None, the default, reads it in the metadata.
          transform: Function from the dict of a step of a sequence or an episode to the nest that is stored, for
            instance to leave columns out; None stores the dict.

        Raises:
          TypeError: `env` is no such environment.
          ValueError: The numbers of environments, or of agents, differ, or the autoreset mode is unknown.
        """
        return _recorder(self, env, autoreset_mode, transform)

    def signature(
        self,
        env: Any,
        *,
        extras: Any = None,
        transform: Callable[[Any], Any] | None = None,
        autoreset_mode: Any = None,
    ) -> Any:
        """The signature of the table for the steps of an environment, as `add_from` adds them.

        It contacts no server, so that an adder can be made for the address of a server that does not run yet:

            adder = reverb.adders.SequenceAdder(f"localhost:{port}", "unrolls", length=20, period=20)
            unrolls = reverb.Table.queue("unrolls", max_size=64, signature=adder.signature(env))
            server = reverb.Server([unrolls], port)

        The environment is reset and makes one step, since only a step shows the dtype of its rewards: float64 in some
        environments and vectors, float32 in others. Reset it before it is used.

        Args:
          env: Environment with Gymnasium's interface: a `gymnasium.Env`, or a vector of as many environments as the
            adder was made for; or a `pettingzoo.ParallelEnv`.
          extras: Example of what `step(actions, extras=...)` of the recorder will get, with a first axis of `num_envs`
            for a vector. None if there are no extras.
          transform: The function that `add_from` will get; None if it gets none.
          autoreset_mode: The autoreset mode that `add_from` will get; None reads it in the metadata.

        Returns:
          The nest of an item, with a `reverb.TensorSpec` for each column.

        Raises:
          TypeError: `env` is no such environment.
          ValueError: The numbers of environments differ, the autoreset mode is unknown, or `transform` was given to an
            adder that takes none.
        """
        caught = Caught(self._num_envs)
        recorder = _recorder(caught, env, autoreset_mode, None)
        recorder.reset()
        recorder.step(recorder.sample_action(), extras=extras)
        assert caught.transition is not None
        return self._signature_of(caught.transition, transform)

    def _signature_of(self, transition: Transition, transform: Callable[[Any], Any] | None) -> Any:
        """The signature of the items of steps like this one."""
        raise NotImplementedError(f"{type(self).__name__} takes no steps of environments.")

    def _specs(self, nest: Any) -> Any:
        """The specs of the row that each environment has of a step, or of a part of one."""
        return rows.specs(rows.as_leaves(nest, self._num_envs or 1), self._num_envs)

    def record(self, transition: Transition, transform: Callable[[Any], Any] | None) -> None:
        """Adds a step of a recorder. For `add_from`; it is not part of the public interface."""
        raise NotImplementedError(f"{type(self).__name__} takes no steps of environments.")

    def end_episode(self, mask: ArrayLike | None = None, *, timeout: float | None = None) -> AdderKeys:
        """Ends episodes that are under way after their last step, as if that had been truncated.

        Args:
          mask: Bools `[num_envs]` that mark the environments whose episodes end; None marks all.
          timeout: Time limit in seconds to wait for room for the items, before anything is done; None, the default,
            waits as long as the table's rate limiter blocks.

        Returns:
          The keys of the items that the ends created, as `add` returns them.

        Raises:
          DeadlineExceededError: There was no room within the timeout. No episode has ended, and the same call may be
            repeated.
          CancelledError: The adder was closed.
        """
        self._check_open()
        ends = self._flags("mask", True if mask is None else mask) & (self._steps > 0)
        seconds = checks.as_timeout(timeout)
        if True in ends or self._is_torn:
            num_items = self._num_last(ends, self._steps)
            self._take_room(num_items, seconds)
            self._end_now(ends)
        keys = self._take_keys()
        self._reports.finish()
        return keys

    def break_off(self) -> None:
        """Ends all episodes that are under way, without a wait for room. For imports that fail."""
        self._end_now(self._steps > 0)

    def _end_now(self, ends: NDArray[np.bool_]) -> None:
        """Ends the episodes of these environments after their last steps."""
        self._begin_call()
        if True in ends:
            self._end_episodes(ends, self._priorities.of_step(None))
        self._is_torn = self._reports.take_failed()

    def _end_episodes(self, ends: NDArray[np.bool_], priority: Any) -> None:
        """Ends the episodes of these environments, whose next steps are the first of others."""
        try:
            self._finish(ends, priority)
        finally:
            self._begin_anew(ends)

    def _begin_call(self) -> None:
        """Begins to write. Where an episode has no step yet, it drops the rows that an earlier call has left."""
        if self._is_torn and self._writer is not None:
            self._take_keys()
            ends = self._steps == 0
            if True in ends:
                self._drop_rows(ends)
                self._is_led[ends] = False
        self._is_torn = True

    def _end_call(self) -> AdderKeys:
        """Ends what `_begin_call` has begun, and raises an error that a part of the call has kept.

        Returns:
          The keys of the items that the call has created.
        """
        self._is_torn = self._reports.take_failed()
        keys = self._take_keys()
        self._reports.finish()
        return keys

    def _take_keys(self) -> AdderKeys:
        """The keys of the items that were created since the last time."""
        num_envs = self._num_envs or 1
        if self._writer is None:
            values, lengths = np.zeros(0, np.uint64), np.zeros(num_envs, np.int64)
        else:
            values, lengths = self._writer.take_keys(num_envs)
        return values if self._num_envs is None else Ragged(values, lengths)

    def _drop_rows(self, ends: NDArray[np.bool_]) -> None:
        """Lets no later item have the rows of these environments."""
        if self._num_envs is None:
            self._reports.call(self._writer.finish_episode, None)
        else:
            self._reports.call(self._writer.append, self._blank, mask=np.zeros_like(ends), episode_end=ends)

    def _begin_anew(self, ends: NDArray[np.bool_]) -> None:
        """Counts the steps of these environments anew."""
        self._steps[ends] = 0
        self._is_led[ends] = False

    def _finish(self, ends: NDArray[np.bool_], priority: Any) -> None:
        """Ends the episodes of these environments. Patterns that apply there create their items."""
        finish = self._reports.finish_part
        if self._num_envs is None:
            finish(self._writer.finish_episode, priority)
        else:
            finish(self._writer.append, self._blank, mask=np.zeros_like(ends), episode_end=ends, priorities=priority)

    def _pace(self, writer: Any) -> Any:
        """Makes a writer wait only where this adder takes the room for its items. Returns the writer."""
        self._reports = writer.reports
        writer.pace()
        return writer

    def _take_room(self, at_most: int, timeout: float | None, count: Callable[[], int] | None = None) -> None:
        """Waits until there is room for items, before anything is appended.

        Args:
          at_most: Number of items that the call creates at most.
          timeout: Time limit in seconds; None means no limit.
          count: Function that returns the number of items, which takes longer to find out; None if it is `at_most`.
        """
        if self._writer is not None and at_most and not self._writer.has_room(at_most):
            items = at_most if count is None else count()
            if items:
                self._writer.take_room(items, timeout)

    def _num_last(self, ends: NDArray[np.bool_], steps: NDArray[np.int64]) -> int:
        """The number of items that the end of episodes with so many steps creates, after their last steps."""
        raise NotImplementedError

    def _leaves(self, nest: Any, timeout: float | None, name: str = "") -> Any:
        """The nest of a step, or of its part `name`, with rows of open length as leaves; see `rows.as_leaves`.

        The first step that has lists looks up the signature of the table, for at most `timeout` seconds.
        """
        leaves = rows.as_leaves(nest, self._num_envs or 1, name, lambda part: self._spec(part, timeout))
        self._has_rows |= leaves is not nest
        return leaves

    def _spec(self, name: str, timeout: float | None) -> Any:
        """The specs of the table for the part `name` of a step; None if it has none."""
        if self._signature is None:
            info = table_infos(self._client.engine, timeout).get(self._table)
            self._signature = () if info is None or info.signature is None else (info.signature,)
        signature = self._signature[0] if self._signature else None
        # The step itself, and the values after the last one.
        if name in ("", "final"):
            return signature
        return signature.get(name) if isinstance(signature, Mapping) else None

    def _for_writer(self, row: Any) -> Any:
        """A row with each `Ragged` as it was given."""
        return rows.as_ragged(row) if self._has_rows else row

    def _open(self, step: Any, configs: Sequence[Any]) -> None:
        """Creates the writer for steps of this structure."""
        self._blank = columns.blank(step)
        if self._num_envs is None:
            self._writer = self._pace(self._client.structured_writer(configs, options=self._options))
        else:
            writer = self._client.batched_writer(self._num_envs, configs=configs, options=self._options)
            self._writer = self._pace(writer)
        self._writer.note_priority(self._priorities.noted)

    def _append(self, step: Any, present: NDArray[np.bool_], ends: NDArray[np.bool_], priority: Any) -> None:
        """Appends a step of the environments that are present, then ends the episodes of those in `ends`."""
        step = self._for_writer(step)
        if self._num_envs is not None:
            self._reports.call(self._writer.append, step, episode_end=ends, mask=present, priorities=priority)
        elif present[0]:
            self._reports.call(self._writer.append, step, priority=priority)
            if ends[0]:
                self._reports.finish_part(self._writer.finish_episode, priority)

    def _append_no_end(self, step: Any, present: NDArray[np.bool_], priority: Any) -> None:
        self._append(step, present, np.zeros_like(present), priority)

    def _lead(self, make_row: Callable[[], Any], times: int, present: NDArray[np.bool_]) -> None:
        """Appends a row, several times, where the step that comes is the first of an episode."""
        starts = present & ~self._is_led
        if True in starts:
            row = make_row()
            for _ in range(times):
                self._append_no_end(row, starts, None)
            self._is_led |= starts

    def _check_open(self) -> None:
        if self._is_closed:
            raise CancelledError("this adder was closed; make another one for further steps")

    def _flags(self, name: str, flags: ArrayLike) -> NDArray[np.bool_]:
        """One flag for each environment, as an array of its own. Raises the error of `per_env`."""
        own: NDArray[np.bool_] = per_env(name, flags, np.bool_, self._num_envs).copy()
        return own

    def _present(self, mask: ArrayLike | None) -> NDArray[np.bool_]:
        """A flag for each environment that has a step. The first call of each `add`."""
        self._check_open()
        if mask is None:
            return np.ones(self._num_envs or 1, np.bool_)
        if self._num_envs is None:
            raise ValueError("`mask` requires a vector of environments, but this adder was made without `num_envs`.")
        return self._flags("mask", mask)


def _recorder(adder: Recording, env: Any, autoreset_mode: Any, transform: Callable[[Any], Any] | None) -> Recorder:
    """The recorder for an environment of one agent, a vector of them, or several agents.

    Raises:
      TypeError: It is none of these.
    """
    if isinstance(env, type) or not (hasattr(env, "reset") and hasattr(env, "step")):
        raise TypeError(
            "env: expected an environment with Gymnasium's `reset` and `step`, a vector of them, or a "
            f"pettingzoo.ParallelEnv, got {env!r} ({type(env).__name__})."
        )
    if getattr(env, "possible_agents", None) is not None:
        return AgentsRecorder(adder, env, transform)
    return Recorder(adder, env, autoreset_mode, transform)
