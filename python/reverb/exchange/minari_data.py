"""Minari data sets into tables."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import tree

from reverb.client import Client
from reverb.exchange.episodes import Adder, Configs, Imported, insert_episodes
from reverb.exchange.progress import Progress

__all__ = ["from_minari", "minari_episodes"]


def from_minari(
    client: Client,
    dataset: Any,
    configs: Configs | None = None,
    *,
    adder: Adder | None = None,
    transform: Callable[[Any], Any] | None = None,
    episodes: Iterable[int] | None = None,
    progress: bool = True,
) -> Imported:
    """Makes items of a Minari data set.

    Args:
      client: Of the server.
      dataset: A `minari.MinariDataset`, or the id of a local one.
      configs: Patterns for a structured writer, or a function from the first step to them; see `from_rlds`, and
        `minari_episodes` for the steps.
      adder: Instead of these, one of `reverb.adders`, for one environment; see `from_rlds`.
      transform: From a step to what patterns or the adder see.
      episodes: Numbers of the episodes to read; None: all.
      progress: Whether to show a bar, on a terminal and with the package `rich`.

    Returns:
      How many episodes and steps were read; an episode has a step more than it has actions.

    Raises:
      ModuleNotFoundError: `dataset` is an id, and Minari is not installed.
      ValueError, TypeError, UnavailableError: As `from_rlds`.
    """
    if isinstance(dataset, str):
        dataset = _load(dataset)
    numbers = None if episodes is None else list(episodes)
    total = int(dataset.total_episodes) if numbers is None else len(numbers)
    read = minari_episodes(dataset, numbers)
    return insert_episodes(client, read, configs, adder, transform, Progress(progress, "episodes", total))


def minari_episodes(dataset: Any, episodes: Iterable[int] | None = None) -> Iterator[Iterator[dict[str, Any]]]:
    """The episodes of a Minari data set as steps of RLDS; see `reverb.exchange.episodes`.

    An episode of n actions has n + 1 steps: the last has the last observation, and zeros for action, reward and
    discount. The discount of a step is 0 if the environment terminated with it, else 1. Dtypes are those of the data
    set; `is_first`, `is_last` and `is_terminal` are bool, `discount` is float32.

    Args:
      dataset: A `minari.MinariDataset`. One episode of it is in memory at a time.
      episodes: Numbers of the episodes; None: all.

    Raises:
      ValueError: The lengths of an episode's arrays do not fit; as its steps are read.
    """
    for episode in dataset.iterate_episodes(None if episodes is None else list(episodes)):
        yield _steps(episode)


def _steps(episode: Any) -> Iterator[dict[str, Any]]:
    count = len(episode.rewards)
    terminations = np.asarray(episode.terminations, bool)
    for name, nest, expected in (
        ("observations", episode.observations, count + 1),
        ("actions", episode.actions, count),
        ("terminations", terminations, count),
    ):
        for path, leaf in tree.flatten_with_path(_with_leaves(nest)):
            if len(leaf) != expected:
                where = "/".join([name, *map(str, path)])
                raise ValueError(f"{where} of episode {episode.id} has {len(leaf)} entries, expected {expected}")
    observations, actions = _with_leaves(episode.observations), _with_leaves(episode.actions)
    rewards = np.asarray(episode.rewards)
    for index in range(count + 1):
        at = min(index, count - 1)
        is_last = index == count
        action, reward = tree.map_structure(lambda leaf: leaf[at, ...], (actions, rewards))  # noqa: B023 - at once
        if is_last:
            action, reward = tree.map_structure(_nothing, (action, reward))
        yield {
            "observation": tree.map_structure(lambda leaf: leaf[index, ...], observations),  # noqa: B023 - at once
            "action": action,
            "reward": reward,
            "discount": np.float32(not is_last and not terminations[at]),
            "is_first": np.bool_(index == 0),
            "is_last": np.bool_(is_last),
            "is_terminal": np.bool_(is_last and terminations[-1]),
        }


def _with_leaves(nest: Any) -> Any:
    """Lists, in which Minari gives texts, are leaves: arrays of objects."""
    if isinstance(nest, dict):
        return {key: _with_leaves(value) for key, value in nest.items()}
    if isinstance(nest, tuple):
        return tuple(map(_with_leaves, nest))
    if isinstance(nest, np.ndarray) and nest.dtype.kind not in "US":
        return nest
    leaf = np.empty(len(nest), object)
    leaf[:] = [text.encode() if isinstance(text, str) else text for text in nest]
    return leaf


def _nothing(value: Any) -> Any:
    return np.array(b"", object) if value.dtype.kind == "O" else np.zeros_like(value)


def _load(name: str) -> Any:
    try:
        import minari
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"the data set {name!r} needs {error.name}: pip install 'reverb-replay[minari]'", name=error.name
        ) from error
    return minari.load_dataset(name)
