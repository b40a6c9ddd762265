"""Writes episodes into tables, by patterns or by an adder.

An episode is an iterable of steps as in RLDS (Ramos et al. 2021, "RLDS: an ecosystem to generate, share and use
datasets in reinforcement learning"): dicts of `observation`, `action`, `reward`, `discount`, `is_first`, `is_last`,
`is_terminal`, and any further fields. The action, reward and discount of a step follow its observation; those of the
last step have no meaning.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, Protocol

from reverb.adders import EpisodeAdder, HindsightAdder, NStepTransitionAdder, SequenceAdder
from reverb.client import Client
from reverb.errors import ReverbError
from reverb.exchange.progress import Progress

Step = Mapping[str, Any]
Adder = NStepTransitionAdder | HindsightAdder | SequenceAdder | EpisodeAdder
# Configs of a structured writer; or a function that makes them from the first step, if the structure is not known
# before.
Configs = Sequence[Any] | Callable[[Any], Sequence[Any]]


class Imported(NamedTuple):
    """Counts of what an import has read.

    Attributes:
      episodes: Number of whole episodes.
      steps: Number of steps in these episodes.
    """

    episodes: int
    steps: int


class _Sink(Protocol):
    """Consumes the steps of episodes."""

    def add(self, step: Any, *, is_last: bool) -> None: ...
    def break_off(self) -> None: ...
    def close(self) -> None: ...


def insert_episodes(
    client: Client,
    episodes: Iterable[Iterable[Step]],
    configs: Configs | None,
    adder: Adder | None,
    transform: Callable[[Any], Any] | None,
    progress: Progress,
) -> Imported:
    """Inserts items made from episodes.

    Args:
      client: Client of the server to insert into.
      episodes: Iterable of episodes, each an iterable of steps.
      configs: Patterns that make the items, or a function from the first step to them; None if `adder` is given.
      adder: Adder that makes the items; None if `configs` are given.
      transform: Function from a step to what the patterns or the adder see; None passes steps on unchanged.
      progress: Progress bar, which this function enters and which counts episodes.

    Raises:
      ValueError, TypeError: Both or neither of `configs` and `adder` are given, or a step is invalid. The text names
        the episode and the step.
      UnavailableError: The server went away.
    """
    if (configs is None) == (adder is None):
        raise ValueError("give exactly one of `configs` and `adder`, which make items from the steps.")
    sink: _Sink = _PatternSink(client, configs) if configs is not None else _adder_sink(adder)
    number = count = steps = 0
    with progress:
        for number, episode in enumerate(episodes):
            count = 0
            try:
                for step, is_last in _with_last(episode):
                    sink.add(step if transform is None else transform(step), is_last=is_last)
                    count += 1
            except BaseException as error:
                # The adder may be used again, also after Ctrl-C. The steps that it then gets are of another episode.
                with contextlib.suppress(Exception):
                    sink.break_off()
                if isinstance(error, (ReverbError, ValueError, TypeError, KeyError)):
                    _refuse(error, number, count)
                raise
            if not count:
                raise ValueError(f"episode {number} has no steps.")
            steps += count
            progress.advance()
        sink.close()
    return Imported(number + 1 if steps else 0, steps)


def _refuse(error: Exception, episode: int, step: int) -> NoReturn:
    """Raises the same error with its position. Items of earlier episodes are in the table already."""
    text = f"the step has no field {error}" if isinstance(error, KeyError) else str(error)
    kind = type(error) if isinstance(error, ReverbError) else TypeError if isinstance(error, TypeError) else ValueError
    raise kind(f"episode {episode}, step {step}: {text}") from error


def _with_last(episode: Iterable[Step]) -> Iterator[tuple[Step, bool]]:
    """Yields each step, and whether it is the last of its episode."""
    before: Step | None = None
    for step in episode:
        if not isinstance(step, Mapping):
            raise TypeError(f"a step must be a dict, got {type(step).__name__}")
        if before is not None:
            if before.get("is_last", False):
                raise ValueError("`is_last` is set, but another step follows")
            yield before, False
        before = step
    if before is not None:
        yield before, True


class _PatternSink:
    """Writes steps with a structured writer, which is created at the first step."""

    def __init__(self, client: Client, configs: Configs) -> None:
        self._client = client
        self._configs = configs
        self._writer: Any = None

    def add(self, step: Any, *, is_last: bool) -> None:
        if self._writer is None:
            configs = self._configs(step) if callable(self._configs) else self._configs
            self._writer = self._client.structured_writer(configs)
        self._writer.append(step)
        if is_last:
            self._writer.end_episode()

    def break_off(self) -> None:
        """Leaves the steps to the writer, which is not used again."""

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class _StepSink:
    """Passes steps to an adder one by one."""

    def __init__(self, adder: SequenceAdder | EpisodeAdder) -> None:
        self._adder = adder

    def add(self, step: Any, *, is_last: bool) -> None:
        self._adder.add(step, last=is_last)

    def break_off(self) -> None:
        self._adder.break_off()

    def close(self) -> None:
        self._adder.flush()


class _TransitionSink:
    """Passes pairs of consecutive steps to an adder of transitions."""

    def __init__(self, adder: NStepTransitionAdder | HindsightAdder) -> None:
        self._adder = adder
        self._before: Any = None

    def add(self, step: Any, *, is_last: bool) -> None:
        observation = step["observation"]
        if self._before is not None:
            terminated = is_last and bool(step["is_terminal"])
            before = self._before
            self._adder.add(
                before["observation"],
                before["action"],
                before["reward"],
                observation,
                terminated=terminated,
                truncated=is_last and not terminated,
            )
        self._before = None if is_last else step

    def break_off(self) -> None:
        self._adder.break_off()

    def close(self) -> None:
        self._adder.flush()


def _adder_sink(adder: Any) -> _Sink:
    if isinstance(adder, (NStepTransitionAdder, HindsightAdder)):
        return _TransitionSink(adder)
    if not isinstance(adder, (SequenceAdder, EpisodeAdder)):
        raise TypeError(f"`adder` must be one of reverb.adders, got {type(adder).__name__}.")
    return _StepSink(adder)
