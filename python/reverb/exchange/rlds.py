"""Imports RLDS and TFDS episodes into tables.

Nothing here imports TensorFlow: its tensors are read through their own methods.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import tree

from reverb.client import Client
from reverb.exchange.episodes import Adder, Configs, Imported, insert_episodes
from reverb.exchange.progress import Progress


def from_rlds(
    client: Client,
    episodes: Iterable[Mapping[str, Any]],
    configs: Configs | None = None,
    *,
    adder: Adder | None = None,
    transform: Callable[[Any], Any] | None = None,
    progress: bool = True,
) -> Imported:
    """Inserts items made from RLDS episodes.

        reverb.exchange.from_rlds(
            client,
            tfds.load("d4rl_mujoco_hopper", split="train"),
            lambda step: reverb.adders.sequence_configs(step, "replay", length=20, period=10),
        )

    Args:
      client: Client of the server to insert into.
      episodes: Iterable of dicts with the key `steps`, an iterable of dicts of NumPy arrays or tensors; for instance a
        `tf.data.Dataset`. Steps are read one at a time. Further keys of an episode are ignored.
      configs: Patterns for a structured writer, or a function from the first step to them, which name the tables; None
        if `adder` is given.
      adder: Adder of `reverb.adders` for one environment, which makes the items instead of `configs`. A
        NStepTransitionAdder or a HindsightAdder receives the transition from each step to the next, and needs
        `observation`, `action`, `reward` and `is_terminal`. The infos that `compute_reward` of a HindsightAdder gets
        are empty. A SequenceAdder or an EpisodeAdder receives all steps, including the last. The adder is flushed, and
        stays open. An error ends its episode, as if the last step before had been truncated.
      transform: Function from a step to what the patterns or the adder see, for instance to leave fields out; None
        passes steps on unchanged.
      progress: Whether to show a progress bar. This needs a terminal and the package `rich`.

    Returns:
      The numbers of episodes and steps read.

    Raises:
      ValueError, TypeError: Both or neither of `configs` and `adder` are given, an episode has no steps, or a step is
        invalid. The text names the episode and the step. Items of earlier steps are in the table.
      UnavailableError: The server went away.
    """
    try:
        total = len(episodes)  # type: ignore[arg-type]
    except TypeError:
        total = None
    steps = (_steps(episode, number) for number, episode in enumerate(episodes))
    return insert_episodes(client, steps, configs, adder, transform, Progress(progress, "episodes", total))


def _steps(episode: Any, number: int) -> Iterator[Mapping[str, Any]]:
    if not isinstance(episode, Mapping) or "steps" not in episode:
        got = f"the keys {sorted(episode)}" if isinstance(episode, Mapping) else type(episode).__name__
        raise ValueError(f"episode {number} must be a dict with `steps`, got {got}.")
    steps = episode["steps"]
    if isinstance(steps, Mapping) or not hasattr(steps, "__iter__"):
        raise ValueError(f"`steps` of episode {number} must be an iterable of dicts, got {type(steps).__name__}.")
    # A TensorFlow dataset converts its elements to arrays itself, which is faster.
    arrays = getattr(steps, "as_numpy_iterator", None)
    if arrays is not None:
        yield from arrays()
        return
    for step in steps:
        yield _as_arrays(step)


def _as_arrays(step: Any) -> Any:
    return tree.map_structure(lambda leaf: leaf.numpy() if hasattr(leaf, "numpy") else leaf, step)
