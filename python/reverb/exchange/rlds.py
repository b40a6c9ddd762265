"""RLDS and TFDS episodes into tables. Nothing here imports TensorFlow: its tensors are asked for their arrays."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from reverb.client import Client
from reverb.exchange.episodes import Adder, Configs, Imported, insert_episodes
from reverb.exchange.progress import Progress

__all__ = ["from_rlds"]


def from_rlds(
    client: Client,
    episodes: Iterable[Mapping[str, Any]],
    configs: Configs | None = None,
    *,
    adder: Adder | None = None,
    transform: Callable[[Any], Any] | None = None,
    progress: bool = True,
) -> Imported:
    """Makes items of RLDS episodes.

        reverb.exchange.from_rlds(
            client,
            tfds.load("d4rl_mujoco_hopper", split="train"),
            lambda step: reverb.adders.sequence_configs(step, "replay", length=20, period=10),
        )

    Args:
      client: Of the server.
      episodes: Dicts with `steps`, an iterable of dicts; a `tf.data.Dataset` of such, or anything of NumPy arrays. Read
        one step at a time. What else an episode has is passed over.
      configs: Patterns for a structured writer, or a function from the first step to them. They name the tables.
      adder: Instead of these, one of `reverb.adders`, for one environment: a NStepTransitionAdder gets the transition
        from each step to the next, and needs `observation`, `action`, `reward` and `is_terminal`; a SequenceAdder or an
        EpisodeAdder gets all steps, the last one, too. It is flushed, and left open.
      transform: From a step to what patterns or the adder see; for instance to leave fields out.
      progress: Whether to show a bar, on a terminal and with the package `rich`.

    Returns:
      How many episodes and steps were read.

    Raises:
      ValueError, TypeError: Both or neither of `configs` and `adder` are given; an episode has no steps; something is
        wrong with a step. Says which. Items of the steps before are in the table.
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
        got = f"the keys {sorted(episode)}" if isinstance(episode, Mapping) else f"a {type(episode).__name__}"
        raise ValueError(f"episode {number} must be a dict with `steps`, got {got}.")
    steps = episode["steps"]
    if isinstance(steps, Mapping) or not hasattr(steps, "__iter__"):
        raise ValueError(f"`steps` of episode {number} must be an iterable of dicts, got a {type(steps).__name__}.")
    # A dataset of TensorFlow gives arrays by itself, and faster.
    arrays = getattr(steps, "as_numpy_iterator", None)
    if arrays is not None:
        yield from arrays()
        return
    for step in steps:
        yield _as_arrays(step)


def _as_arrays(step: Any) -> Any:
    import tree

    return tree.map_structure(lambda leaf: leaf.numpy() if hasattr(leaf, "numpy") else leaf, step)
