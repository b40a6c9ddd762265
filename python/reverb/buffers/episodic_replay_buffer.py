"""Whole episodes, for TensorFlow: the interface of TF-Agents' EpisodicReplayBuffer, on our engine."""

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from reverb.buffers.frame_nest import flatten_as
from reverb.buffers.replay_buffer import ReplayBuffer, SavedState, run
from reverb.buffers.tf_agents.episode_lists import Episodes, from_lists, to_lists
from reverb.buffers.tf_agents.episode_reader import BufferInfo, EpisodeReader

__all__ = ["BufferInfo", "Episodes", "EpisodicReplayBuffer", "StatefulEpisodicReplayBuffer"]


class EpisodicReplayBuffer(EpisodeReader):
    """A buffer of episodes of any length. New episodes replace the oldest.

    Ids number episodes consecutively from 0; -1 stands for an episode that has not begun.

    Args:
      data_spec: A nest of `tf.TensorSpec`s of one frame.
      capacity: Maximum number of episodes held.
      completed_only: Whether only completed episodes are read.
      buffer_size: Size of a shuffle buffer, accepted for compatibility and without effect: draws cover all episodes.
      name_prefix: Prefix of variable names, accepted for compatibility and without effect.
      device: TensorFlow device, accepted for compatibility and without effect.
      seed: Seed of the draws; None takes one from the operating system.
      begin_episode_fn: Function from frames to whether each begins an episode; None calls their `is_first()`.
      end_episode_fn: Function from frames to whether each completes an episode; None calls their `is_last()`.
      dataset_drop_remainder: Whether a single pass omits windows that are not full.
      dataset_window_shift: Number of frames from one window of a single pass to the next; None uses the window's
        length.
    """

    def __init__(
        self,
        data_spec: Any,
        capacity: int = 1000,
        completed_only: bool = False,
        buffer_size: int = 8,
        name_prefix: str = "EpisodicReplayBuffer",
        device: str = "cpu:*",
        seed: int | None = None,
        begin_episode_fn: Callable[[Any], Any] | None = None,
        end_episode_fn: Callable[[Any], Any] | None = None,
        dataset_drop_remainder: bool = False,
        dataset_window_shift: int | None = None,
    ) -> None:
        super().__init__(data_spec, int(capacity), completed_only, seed, dataset_drop_remainder, dataset_window_shift)
        self._begins = begin_episode_fn or _method("is_first")
        self._ends = end_episode_fn or _method("is_last")
        self._state = SavedState(self._store.state, self._store.restore)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes all episodes to a file."""
        with self._lock:
            self._state.save(path)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Replaces all episodes by those that `save` wrote.

        Raises:
          ValueError: The file has frames of another data spec, or more episodes than the capacity.
        """
        with self._lock:
            self._state.load(path)

    def create_episode_ids(self, num_episodes: int | None = None) -> Any:
        """Returns ids of episodes that have not begun: int64 `[num_episodes]`, or a scalar without a number.

        Raises:
          ValueError: `num_episodes` is above the capacity.
        """
        if num_episodes is not None and num_episodes > self.capacity:
            raise ValueError(f"num_episodes ({num_episodes}) is above the capacity ({self.capacity})")
        return tf.constant(-1, tf.int64) if num_episodes is None else tf.fill([num_episodes], tf.constant(-1, tf.int64))

    def add_batch(self, items: Any, episode_ids: Any) -> Any:  # type: ignore[override]
        """Adds one frame to each of some episodes.

        Args:
          items: A nest of tensors `[batch, ...]`, one frame per episode.
          episode_ids: Ids of the episodes, int64 `[batch]`, as the last call returned them. A frame that begins an
            episode gets a new id.

        Returns:
          The ids to which frames were added. Frames of an episode that has been replaced are dropped.

        Raises:
          ValueError: The structure differs from the data spec.
          tf.errors.InvalidArgumentError: A shape differs from the data spec.
        """
        leaves = self._leaves(items)
        flags = [tf.convert_to_tensor(self._begins(items)), tf.convert_to_tensor(self._ends(items))]

        def add(ids: Any, begins: Any, ends: Any, *arrays: NDArray[Any]) -> list[Any]:
            new = np.array(ids, np.int64)
            with self._lock:
                for row in range(len(new)):
                    if new[row] < 0 or begins[row]:
                        new[row] = self._store.begin()
                    self._append(int(new[row]), [array[row : row + 1] for array in arrays], bool(ends[row]))
            return [new]

        (ids,) = run(add, [tf.convert_to_tensor(episode_ids, tf.int64), *flags, *leaves], [tf.int64])
        return ids

    def add_sequence(self, items: Any, episode_id: Any) -> Any:
        """Adds frames `[time, ...]` to one episode.

        Args:
          items: A nest of tensors `[time, ...]`, for which begin_episode_fn and end_episode_fn must each return one
            bool.
          episode_id: Id of the episode, an int64 scalar; -1, or a sequence that begins an episode, gets a new id.

        Returns:
          The id of the episode to which the frames were added.
        """
        leaves = self._leaves(items)
        flags = [tf.convert_to_tensor(self._begins(items)), tf.convert_to_tensor(self._ends(items))]

        def add(id_: Any, begins: Any, ends: Any, *arrays: NDArray[Any]) -> list[Any]:
            if np.ndim(begins) or np.ndim(ends):
                raise ValueError("begin_episode_fn and end_episode_fn must return one bool for a sequence")
            with self._lock:
                new = self._store.begin() if id_ < 0 or begins else int(id_)
                self._append(new, list(arrays), bool(ends))
            return [np.int64(new)]

        (id_,) = run(add, [tf.convert_to_tensor(episode_id, tf.int64), *flags, *leaves], [tf.int64])
        return id_

    def extend_episodes(self, episode_ids: Any, episode_ids_indices: Any, episodes: Any) -> Any:
        """Adds frames to some of the caller's episodes.

        Args:
          episode_ids: Ids of the caller's episodes, int64 `[max_episodes]`, as the last call returned them.
          episode_ids_indices: Indices into `episode_ids` of the episodes to extend, int64 `[episodes]`.
          episodes: An Episodes, such as `extract` returns, in the order of the indices. An episode whose id is -1, or
            for which `begin_episode_fn(episodes)` is true, gets a new id. `completed` says whether an episode is
            complete after the call.

        Returns:
          The ids, of which only those of new episodes have changed. Frames of an episode that has been replaced are
          dropped.

        Raises:
          ValueError: The nest of lists has another structure, or a leaf is not a vector of lists.
          tf.errors.InvalidArgumentError: The lists of an episode differ in length from its `length`, or hold tensors of
            another dtype or shape; or an index is out of range.
        """
        ids = tf.convert_to_tensor(episode_ids, tf.int64)
        places = tf.cast(episode_ids_indices, tf.int64)
        if ids.shape.rank != 1 or places.shape.rank != 1:
            raise ValueError(f"ids and indices must be vectors, got shapes {ids.shape} and {places.shape}")
        begins = tf.broadcast_to(tf.convert_to_tensor(self._begins(episodes)), tf.shape(places))
        parts = [
            from_lists(lists, shape, dtype)
            for lists, shape, dtype in zip(
                flatten_as(self.data_spec, episodes.tensor_lists), self._shapes, self._dtypes, strict=True
            )
        ]
        inputs = [ids, places, begins, tf.cast(episodes.length, tf.int64), tf.cast(episodes.completed, tf.bool)]
        inputs += [part for pair in parts for part in pair]
        (new,) = run(self._extend, inputs, [tf.int64])
        new.set_shape(ids.shape)
        return new

    def _extend(
        self, ids: Any, places: Any, begins: Any, lengths: Any, completed: Any, *parts: NDArray[Any]
    ) -> list[Any]:
        frames, counts = parts[::2], parts[1::2]
        if any(len(count) != len(places) or (count != lengths).any() for count in counts):
            found = [count.tolist() for count in counts]
            raise ValueError(f"expected lists of {lengths.tolist()} frames, as `length` says, got {found}")
        if ((places < 0) | (places >= len(ids))).any():
            raise ValueError(f"indices must lie in [0, {len(ids)}), got {places.tolist()}")
        new = np.array(ids, np.int64)
        ends = np.cumsum(lengths)
        with self._lock:
            for row, place in enumerate(places):
                if new[place] < 0 or begins[row]:
                    new[place] = self._store.begin()
                id_ = int(new[place])
                first, end = ends[row] - lengths[row], ends[row]
                if self._store.append(id_, [leaf[first:end] for leaf in frames]):
                    (self._store.completed.add if completed[row] else self._store.completed.discard)(id_)
        return [new]

    def extract(self, locations: Any, clear_data: bool = False) -> Episodes:
        """Returns episodes as lists of tensors, for `extend_episodes` of another buffer.

        Args:
          locations: Locations of the episodes, which are ids modulo the capacity, int64 `[episodes]`. A location
            without an episode yields an empty list.
          clear_data: Whether the frames are removed from this buffer. The episodes stay, and can be extended.

        Raises:
          tf.errors.InvalidArgumentError: A location is out of range.
        """

        def take(places: Any) -> list[Any]:
            if ((places < 0) | (places >= self.capacity)).any():
                raise ValueError(f"locations must lie in [0, {self.capacity}), got {places.tolist()}")
            with self._lock:
                held = [self._store.at(place) for place in places.tolist()]
                lengths = list(map(self._store.length, held))
                frames = list(map(self._store.whole, held))
                completed = [id_ in self._store.completed for id_ in held]
                if clear_data:
                    for id_ in {id_ for id_ in held if id_ is not None}:
                        self._store.empty(id_)
            leaves = [np.concatenate(leaf) for leaf in zip(self._store.whole(None), *frames, strict=True)]
            return [np.array(lengths, np.int64), np.array(completed, np.uint8), *leaves]

        lengths, completed, *leaves = run(take, [tf.cast(locations, tf.int64)], [tf.int64, tf.uint8, *self._dtypes])
        lengths.set_shape([None])
        completed.set_shape([None])
        lists = [to_lists(leaf, lengths, shape) for leaf, shape in zip(leaves, self._shapes, strict=True)]
        return Episodes(lengths, completed, self._pack(lists))

    def get_valid_ids_mask(self, episode_ids: Any) -> Any:
        """Returns whether each of some episodes is held: bool, in the shape of the ids."""

        def held(ids: Any) -> list[Any]:
            with self._lock:
                return [np.isin(ids, self._store.ids())]

        return run(held, [tf.convert_to_tensor(episode_ids, tf.int64)], [tf.bool])[0]

    def _append(self, id_: int, leaves: list[NDArray[Any]], completes: bool) -> None:
        if self._store.append(id_, leaves) and completes:
            self._store.completed.add(id_)

    def _leaves(self, items: Any) -> list[Any]:
        leaves = flatten_as(self.data_spec, items)
        return [tf.convert_to_tensor(leaf, dtype) for leaf, dtype in zip(leaves, self._dtypes, strict=True)]


class StatefulEpisodicReplayBuffer(ReplayBuffer):
    """An EpisodicReplayBuffer that keeps the ids itself, so that `add_batch` can serve as an observer.

    Args:
      replay_buffer: Buffer that holds the episodes.
      num_episodes: Number of frames per batch, one per episode; None takes single frames without a batch axis.
    """

    def __init__(self, replay_buffer: EpisodicReplayBuffer, num_episodes: int | None = None) -> None:
        super().__init__(replay_buffer.data_spec, replay_buffer.capacity)
        self._buffer = replay_buffer
        self._episode_ids = tf.Variable(replay_buffer.create_episode_ids(num_episodes), trainable=False)

    @property
    def episode_ids(self) -> Any:
        """The ids of the episodes to which the next batch is added."""
        return self._episode_ids.read_value()

    def _add_batch(self, items: Any) -> Any:
        if self._episode_ids.shape.rank == 0:
            ids = self._buffer.add_batch(tf.nest.map_structure(lambda leaf: leaf[None], items), self.episode_ids[None])[
                0
            ]
        else:
            ids = self._buffer.add_batch(items, self.episode_ids)
        ids.set_shape(self._episode_ids.shape)
        return self._episode_ids.assign(ids)

    def extend_episodes(self, episode_ids_indices: Any, episodes: Any) -> Any:
        """Extends episodes of `episode_ids` as `EpisodicReplayBuffer.extend_episodes` does, and returns the new ids."""
        ids = self._buffer.extend_episodes(self.episode_ids, episode_ids_indices, episodes)
        self._episode_ids.assign(ids)
        return ids

    def _num_frames(self) -> Any:
        return self._buffer.num_frames()

    def _get_next(self, sample_batch_size: int | None, num_steps: int | None, time_stacked: bool) -> Any:
        return self._buffer.get_next(sample_batch_size, num_steps, time_stacked)

    def _as_dataset(self, *arguments: Any) -> Any:
        return self._buffer._as_dataset(*arguments)

    def _single_deterministic_pass_dataset(self, *arguments: Any) -> Any:
        return self._buffer._single_deterministic_pass_dataset(*arguments)

    def _gather_all(self) -> Any:
        return self._buffer.gather_all()

    def _clear(self) -> Any:
        return self._buffer.clear()


def _method(name: str) -> Callable[[Any], Any]:
    """A function that calls a method of frames by its name.

    Raises (the result, when called):
      TypeError: The frames do not have the method.
    """

    def call(items: Any) -> Any:
        method = getattr(items, name, None)
        if method is None:
            raise TypeError(f"frames have no method `{name}`: give the buffer begin_episode_fn and end_episode_fn")
        return method()

    return call
