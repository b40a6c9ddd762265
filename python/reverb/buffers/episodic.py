"""A buffer of whole episodes."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reverb.buffers.frame_nest import FrameNest, flatten_as
from reverb.buffers.outputs import converter
from reverb.buffers.transitions import Output
from reverb.data import checks

# Capacity of an episode, in frames. Memory is allocated as frames are added.
_MAX_EPISODE_FRAMES = 2**31


class EpisodeStore:
    """Episodes by id. Episode e has location `e mod capacity`, and evicts the episode that was there.

    Args:
      data_spec: A nest of specs of one frame.
      capacity: Maximum number of episodes held.
    """

    def __init__(self, data_spec: Any, capacity: int) -> None:
        self.spec = data_spec
        self.capacity = checks.as_count("capacity", capacity)
        self.next_id = 0
        self._episodes: dict[int, FrameNest] = {}
        self.completed: set[int] = set()
        self.template = FrameNest(data_spec, 1, 1)

    def ids(self, completed_only: bool = False) -> list[int]:
        """The ids of the episodes held, in ascending order."""
        return [id_ for id_ in sorted(self._episodes) if not completed_only or id_ in self.completed]

    def begin(self) -> int:
        """Begins a new episode, and returns its id."""
        new = self.next_id
        self.next_id += 1
        self._episodes.pop(new - self.capacity, None)
        self.completed.discard(new - self.capacity)
        self._episodes[new] = FrameNest(self.spec, 1, _MAX_EPISODE_FRAMES)
        return new

    def append(self, id_: int, leaves: list[NDArray[Any]]) -> bool:
        """Adds frames `[n, ...]` to an episode. Returns False if the episode has been evicted."""
        episode = self._episodes.get(id_)
        if episode is not None:
            episode.add_leaves(leaves)
        return episode is not None

    def length(self, id_: int | None) -> int:
        """The number of frames in an episode; 0 if it is not held."""
        return self._episodes[id_].stored if id_ in self._episodes else 0

    def frames(self, id_: int, first: int, count: int) -> list[NDArray[Any]]:
        """The leaves `[count, ...]` of an episode's frames, starting at index `first`."""
        return self._episodes[id_].gather([0], [first], count, [count])

    def whole(self, id_: int | None) -> list[NDArray[Any]]:
        """All frames of an episode that is held; None stands for one without frames."""
        episode = self.template if id_ is None else self._episodes[id_]
        return episode.gather([0], [0], episode.stored, [episode.stored])

    def at(self, location: int) -> int | None:
        """The id of the episode at a location; None if the location is empty."""
        latest = self.next_id - 1 - (self.next_id - 1 - location) % self.capacity
        return latest if latest in self._episodes else None

    def empty(self, id_: int) -> None:
        """Removes the frames of an episode. The episode stays, and frames can still be added to it."""
        self._episodes[id_] = FrameNest(self.spec, 1, _MAX_EPISODE_FRAMES)
        self.completed.discard(id_)

    def clear(self) -> None:
        """Removes all episodes. New episodes continue the sequence of ids."""
        self._episodes.clear()
        self.completed.clear()

    def state(self) -> dict[str, NDArray[Any]]:
        """Returns all episodes, as arrays by name."""
        ids = self.ids()
        state = {
            "next_id": np.array(self.next_id),
            "ids": np.array(ids, np.int64),
            "completed": np.array(sorted(self.completed), np.int64),
        }
        for id_ in ids:
            leaves = self.whole(id_) if self.length(id_) else []
            state.update({f"episode_{id_}_{index}": leaf for index, leaf in enumerate(leaves)})
        return state

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Replaces all episodes by those of `state`.

        Raises:
          ValueError: The state has more episodes than the capacity.
        """
        self.clear()
        ids = state["ids"].tolist()
        if len(ids) > self.capacity:
            raise ValueError(f"the state has {len(ids)} episodes, but the buffer has room for {self.capacity}")
        for id_ in ids:
            self._episodes[id_] = FrameNest(self.spec, 1, _MAX_EPISODE_FRAMES)
            names = [f"episode_{id_}_{index}" for index in range(len(self.template.dtypes))]
            if names[0] in state:
                self.append(id_, [state[name] for name in names])
        self.next_id = int(state["next_id"])
        self.completed = set(state["completed"].tolist())


class EpisodicBuffer:
    """A buffer of whole episodes, for users of NumPy, PyTorch and JAX. New episodes replace the oldest.

    Args:
      data_spec: A nest of specs of one frame, each with a `shape` and a `dtype`.
      capacity: Maximum number of episodes held, each of any length.
      output: Kind of the arrays in samples: `numpy`, `torch` (tensors that share the arrays' memory) or `jax`.
      device: PyTorch or JAX device that samples are put on; None uses the framework's default.
      seed: Seed of the draws; None takes one from the operating system.
    """

    def __init__(
        self,
        data_spec: Any,
        capacity: int,
        *,
        output: Output = "numpy",
        device: Any = None,
        seed: int | None = None,
    ) -> None:
        self._store = EpisodeStore(data_spec, capacity)
        self._convert = converter(output, device)
        self._random = np.random.default_rng(seed)

    def __len__(self) -> int:
        return len(self._store.ids())

    @property
    def num_frames(self) -> int:
        """The number of frames in all episodes."""
        return sum(self._store.length(id_) for id_ in self._store.ids())

    def begin_episode(self) -> int:
        """Begins a new episode, and returns its id."""
        return self._store.begin()

    def add(self, episode: int, data: Any) -> bool:
        """Adds frames to an episode.

        Args:
          episode: Id of the episode, from `begin_episode`.
          data: A nest of arrays `[n, ...]`, which are n frames.

        Returns:
          Whether the episode is still held. If it is not, the frames are dropped.

        Raises:
          ValueError: The structure or a shape differs from the data spec.
        """
        return self._store.append(episode, [np.asarray(leaf) for leaf in flatten_as(self._store.spec, data)])

    def sample_episode(self) -> tuple[Any, int]:
        """Draws a whole episode, each with the same probability.

        Returns:
          A nest of arrays `[frames, ...]`, and the episode's id.

        Raises:
          ValueError: No episode has frames.
        """
        ids = [id_ for id_ in self._store.ids() if self._store.length(id_)]
        if not ids:
            raise ValueError("the buffer has no episode")
        id_ = ids[self._random.integers(len(ids))]
        return self._convert(self._pack(self._store.whole(id_))), id_

    def sample(self, batch_size: int, num_steps: int) -> tuple[Any, NDArray[np.int64]]:
        """Draws windows of frames within episodes, each window with the same probability.

        Args:
          batch_size: Number of windows to draw.
          num_steps: Number of frames in each window.

        Returns:
          A nest of arrays `[batch, steps, ...]`, and the ids of the windows' episodes, int64 `[batch]`.

        Raises:
          ValueError: No episode is long enough.
        """
        ids = np.array(self._store.ids(), np.int64)
        windows = np.array([max(0, self._store.length(id_) - num_steps + 1) for id_ in ids.tolist()], np.int64)
        if not windows.sum():
            raise ValueError(f"the buffer has no episode of {num_steps} frames")
        chosen = self._random.choice(len(ids), batch_size, p=windows / windows.sum())
        parts = [
            self._store.frames(int(ids[place]), int(self._random.integers(windows[place])), num_steps)
            for place in chosen
        ]
        leaves = [np.stack(leaf) for leaf in zip(*parts, strict=True)]
        return self._convert(self._pack(leaves)), ids[chosen]

    def clear(self) -> None:
        """Removes all episodes."""
        self._store.clear()

    def _pack(self, leaves: list[NDArray[Any]]) -> Any:
        return self._store.template.pack(leaves)
