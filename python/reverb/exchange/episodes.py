"""Episodes into tables: through patterns, or through an adder.

An episode is an iterable of steps, as RLDS has them (Ramos et al. 2021, "RLDS: an ecosystem to generate, share and use
datasets in reinforcement learning"): dicts of `observation`, `action`, `reward`, `discount`, `is_first`, `is_last`,
`is_terminal`, and what else there is. Action, reward and discount of a step are what followed its observation; those of
the last step mean nothing.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, Protocol

from reverb.adders import EpisodeAdder, NStepTransitionAdder, SequenceAdder
from reverb.client import Client
from reverb.errors import ReverbError
from reverb.exchange.progress import Progress

__all__ = ["Adder", "Configs", "Imported", "insert_episodes"]

Step = Mapping[str, Any]
Adder = NStepTransitionAdder | SequenceAdder | EpisodeAdder
# Of structured writers; or a function from the first step to them, where the structure is not known before.
Configs = Sequence[Any] | Callable[[Any], Sequence[Any]]


class Imported(NamedTuple):
    """What was read.

    Attributes:
      episodes: Whole ones.
      steps: In these.
    """

    episodes: int
    steps: int


class _Sink(Protocol):
    """Takes the steps of episodes."""

    def add(self, step: Any, *, is_last: bool) -> None: ...
    def close(self) -> None: ...


def insert_episodes(
    client: Client,
    episodes: Iterable[Iterable[Step]],
    configs: Configs | None,
    adder: Adder | None,
    transform: Callable[[Any], Any] | None,
    progress: Progress,
) -> Imported:
    """Makes items of episodes.

    Args:
      client: Of the server.
      episodes: Of steps.
      configs: Patterns that make the items; or
      adder: what makes them.
      transform: From a step to what patterns or the adder see; None: the step.
      progress: Is entered here, and counts episodes.

    Raises:
      ValueError, TypeError: Both or neither of `configs` and `adder` are given; or something is wrong with a step; says
        of which episode.
      UnavailableError: The server went away.
    """
    if (configs is None) == (adder is None):
        raise ValueError("give one of `configs` and `adder`: what is to make items of the steps.")
    sink: _Sink = _Patterns(client, configs) if configs is not None else _adder_sink(adder)
    number = count = steps = 0
    with progress:
        for number, episode in enumerate(episodes):
            count = 0
            try:
                for step, is_last in _with_last(episode):
                    sink.add(step if transform is None else transform(step), is_last=is_last)
                    count += 1
            except (ReverbError, ValueError, TypeError, KeyError) as error:
                _refuse(error, number, count)
            if not count:
                raise ValueError(f"episode {number} has no steps.")
            steps += count
            progress.advance()
        sink.close()
    return Imported(number + 1 if steps else 0, steps)


def _refuse(error: Exception, episode: int, step: int) -> NoReturn:
    """The same error, with its place; items of the episodes before are in the table."""
    text = f"it has no {error}" if isinstance(error, KeyError) else str(error)
    kind = type(error) if isinstance(error, ReverbError) else TypeError if isinstance(error, TypeError) else ValueError
    raise kind(f"episode {episode}, step {step}: {text}") from error


def _with_last(episode: Iterable[Step]) -> Iterator[tuple[Step, bool]]:
    """Steps, and whether they are the last of the episode."""
    before: Step | None = None
    for step in episode:
        if not isinstance(step, Mapping):
            raise TypeError(f"a step must be a dict, got {type(step).__name__}")
        if before is not None:
            if before.get("is_last", False):
                raise ValueError("`is_last` is set, and another step follows")
            yield before, False
        before = step
    if before is not None:
        yield before, True


class _Patterns:
    """Steps through a structured writer, which is made with the first."""

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

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class _Steps:
    """Steps into an adder that takes them one by one."""

    def __init__(self, adder: SequenceAdder | EpisodeAdder) -> None:
        self._adder = adder

    def add(self, step: Any, *, is_last: bool) -> None:
        self._adder.add(step, last=is_last)

    def close(self) -> None:
        self._adder.flush()


class _Transitions:
    """Pairs of steps into an adder of transitions."""

    def __init__(self, adder: NStepTransitionAdder) -> None:
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

    def close(self) -> None:
        self._adder.flush()


def _adder_sink(adder: Any) -> _Sink:
    if isinstance(adder, NStepTransitionAdder):
        return _Transitions(adder)
    if not isinstance(adder, (SequenceAdder, EpisodeAdder)):
        raise TypeError(f"`adder` must be one of reverb.adders, got a {type(adder).__name__}.")
    return _Steps(adder)
