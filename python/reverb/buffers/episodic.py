"""A buffer of whole episodes."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reverb import _checks
from reverb.buffers.frame_nest import FrameNest, flatten_as
from reverb.buffers.outputs import converter
from reverb.buffers.transitions import Output

__all__ = ["EpisodeStore", "EpisodicBuffer"]

# Frames of an episode. Memory is taken as frames come.
_LONGEST = 2**31


class EpisodeStore:
    """Episodes by id. Episode e has place `e mod capacity`, and throws out the one that was there.

    Args:
      data_spec: A nest of specs of a frame.
      capacity: Episodes.
    """

    def __init__(self, data_spec: Any, capacity: int) -> None:
        self.spec = data_spec
        self.capacity = _checks.as_count("capacity", capacity)
        self.next_id = 0
        self._episodes: dict[int, FrameNest] = {}
        self.completed: set[int] = set()
        self.template = FrameNest(data_spec, 1, 1)

    def ids(self, completed_only: bool = False) -> list[int]:
        """The ids of the episodes held, ascending."""
        return [id_ for id_ in sorted(self._episodes) if not completed_only or id_ in self.completed]

    def begin(self) -> int:
        """A new episode."""
        new = self.next_id
        self.next_id += 1
        self._episodes.pop(new - self.capacity, None)
        self.completed.discard(new - self.capacity)
        self._episodes[new] = FrameNest(self.spec, 1, _LONGEST)
        return new

    def append(self, id_: int, leaves: list[NDArray[Any]]) -> bool:
        """Adds frames `[n, ...]` to an episode; False if it is not held any more."""
        episode = self._episodes.get(id_)
        if episode is not None:
            episode.add_leaves(leaves)
        return episode is not None

    def length(self, id_: int) -> int:
        """Frames of an episode, 0 if it is not held."""
        return self._episodes[id_].stored if id_ in self._episodes else 0

    def frames(self, id_: int, first: int, count: int) -> list[NDArray[Any]]:
        """Leaves `[count, ...]` of an episode's frames from `first` on."""
        return self._episodes[id_].gather([0], [first], count, [count])

    def at(self, location: int) -> int | None:
        """The id of the episode that has this place; None if none has."""
        latest = self.next_id - 1 - (self.next_id - 1 - location) % self.capacity
        return latest if latest in self._episodes else None

    def empty(self, id_: int) -> None:
        """Forgets the frames of an episode, which is held and goes on."""
        self._episodes[id_] = FrameNest(self.spec, 1, _LONGEST)
        self.completed.discard(id_)

    def clear(self) -> None:
        """Forgets all episodes. Ids go on."""
        self._episodes.clear()
        self.completed.clear()

    def state(self) -> dict[str, NDArray[Any]]:
        """All episodes, as arrays by name."""
        ids = self.ids()
        state = {
            "next_id": np.array(self.next_id),
            "ids": np.array(ids, np.int64),
            "completed": np.array(sorted(self.completed), np.int64),
        }
        for id_ in ids:
            leaves = self.frames(id_, 0, self.length(id_)) if self.length(id_) else []
            state.update({f"episode_{id_}_{index}": leaf for index, leaf in enumerate(leaves)})
        return state

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Takes the episodes of `state`; what was there is gone.

        Raises:
          ValueError: They are those of another buffer.
        """
        self.clear()
        ids = state["ids"].tolist()
        if len(ids) > self.capacity:
            raise ValueError(f"the state has {len(ids)} episodes, the buffer has room for {self.capacity}")
        for id_ in ids:
            self._episodes[id_] = FrameNest(self.spec, 1, _LONGEST)
            names = [f"episode_{id_}_{index}" for index in range(len(self.template.dtypes))]
            if names[0] in state:
                self.append(id_, [state[name] for name in names])
        self.next_id = int(state["next_id"])
        self.completed = set(state["completed"].tolist())


class EpisodicBuffer:
    """Whole episodes, for users of NumPy, PyTorch and JAX. The oldest make room.

    Args:
      data_spec: A nest of specs of a frame.
      capacity: Episodes, of any length.
      output: As of UniformBuffer.
      device: As of UniformBuffer.
      seed: Of the draws; None: from the operating system.
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
        """Frames of all episodes."""
        return sum(self._store.length(id_) for id_ in self._store.ids())

    def begin_episode(self) -> int:
        """The id of a new episode."""
        return self._store.begin()

    def add(self, episode: int, data: Any) -> bool:
        """Adds frames to an episode.

        Args:
          episode: Its id.
          data: A nest of arrays `[n, ...]`.

        Returns:
          Whether it is still held; if not, nothing has happened.

        Raises:
          ValueError: Another structure or shape.
        """
        return self._store.append(episode, [np.asarray(leaf) for leaf in flatten_as(self._store.spec, data)])

    def sample_episode(self) -> tuple[Any, int]:
        """A whole episode, each with the same probability: a nest of arrays `[frames, ...]`, and its id.

        Raises:
          ValueError: There is none.
        """
        ids = [id_ for id_ in self._store.ids() if self._store.length(id_)]
        if not ids:
            raise ValueError("the buffer has no episode")
        id_ = ids[self._random.integers(len(ids))]
        return self._convert(self._pack(self._store.frames(id_, 0, self._store.length(id_)))), id_

    def sample(self, batch_size: int, num_steps: int) -> tuple[Any, NDArray[np.int64]]:
        """Windows of frames within episodes, each window with the same probability.

        Args:
          batch_size: How many.
          num_steps: Frames of each.

        Returns:
          A nest of arrays `[batch, steps, ...]`, and the ids of their episodes, int64 `[batch]`.

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
        """Forgets all episodes."""
        self._store.clear()

    def _pack(self, leaves: list[NDArray[Any]]) -> Any:
        return self._store.template.pack(leaves)
