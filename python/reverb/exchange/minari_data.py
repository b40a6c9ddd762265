"""Imports Minari data sets into tables."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import tree

from reverb.client import Client
from reverb.exchange.episodes import Adder, Configs, Imported, insert_episodes
from reverb.exchange.progress import Progress


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
    """Inserts items made from a Minari data set. See `minari_episodes` for the steps.

    Args:
      client: Client of the server to insert into.
      dataset: A `minari.MinariDataset`, or the id of a local one.
      configs: Patterns for a structured writer, or a function from the first step to them, which name the tables; None
        if `adder` is given.
      adder: Adder of `reverb.adders` for one environment, which makes the items instead of `configs`; see `from_rlds`.
      transform: Function from a step to what the patterns or the adder see; None passes steps on unchanged.
      episodes: Numbers of the episodes to read; None reads all.
      progress: Whether to show a progress bar. This needs a terminal and the package `rich`.

    Returns:
      The numbers of episodes and steps read. An episode has one more step than it has actions.

    Raises:
      ModuleNotFoundError: `dataset` is an id, and Minari is not installed.
      ValueError, TypeError, UnavailableError: The same failures as in `from_rlds`.
    """
    if isinstance(dataset, str):
        dataset = _load(dataset)
    numbers = None if episodes is None else list(episodes)
    total = int(dataset.total_episodes) if numbers is None else len(numbers)
    read = minari_episodes(dataset, numbers)
    return insert_episodes(client, read, configs, adder, transform, Progress(progress, "episodes", total))


def minari_episodes(dataset: Any, episodes: Iterable[int] | None = None) -> Iterator[Iterator[dict[str, Any]]]:
    """Reads the episodes of a Minari data set as RLDS steps; see `reverb.exchange.episodes`.

    An episode of n actions has n + 1 steps. The last step has the last observation, and zeros for action, reward and
    discount. The discount of a step is 0 if the environment terminated after its action, else 1. Dtypes are those of
    the data set; `is_first`, `is_last` and `is_terminal` are bool, `discount` is float32.

    Args:
      dataset: A `minari.MinariDataset`, of which one episode is in memory at a time.
      episodes: Numbers of the episodes to read; None reads all.

    Raises:
      ValueError: The lengths of an episode's arrays do not match. Raised when its steps are read.
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
            action, reward = tree.map_structure(_zeros, (action, reward))
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
    """Turns lists, in which Minari stores texts, into arrays of objects, which are leaves."""
    if isinstance(nest, dict):
        return {key: _with_leaves(value) for key, value in nest.items()}
    if isinstance(nest, tuple):
        return tuple(map(_with_leaves, nest))
    if isinstance(nest, np.ndarray) and nest.dtype.kind not in "US":
        return nest
    leaf = np.empty(len(nest), object)
    leaf[:] = [text.encode() if isinstance(text, str) else text for text in nest]
    return leaf


def _zeros(value: Any) -> Any:
    return np.array(b"", object) if value.dtype.kind == "O" else np.zeros_like(value)


def _load(name: str) -> Any:
    try:
        import minari
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"the data set {name!r} needs {error.name}: pip install 'reverb-replay[minari]'", name=error.name
        ) from error
    return minari.load_dataset(name)
