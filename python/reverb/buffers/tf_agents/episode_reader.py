"""Reads whole episodes into TensorFlow."""

import collections
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from reverb.buffers.episodic import EpisodeStore
from reverb.buffers.replay_buffer import ReplayBuffer, dtypes_of, run
from reverb.buffers.tf_agents.passes import episode_windows

BufferInfo = collections.namedtuple("BufferInfo", ["ids"])


class EpisodeReader(ReplayBuffer):
    """The reading half of a `ReplayBuffer` of episodes.

    Args:
      data_spec: A nest of `tf.TensorSpec`s of one frame.
      capacity: Maximum number of episodes held.
      completed_only: Whether only completed episodes are read.
      seed: Seed of the draws; None takes one from the operating system.
      drop_remainder: Whether a single pass omits windows that are not full.
      window_shift: Number of frames from one window of a single pass to the next; None uses the window's length.
    """

    def __init__(
        self,
        data_spec: Any,
        capacity: int,
        completed_only: bool,
        seed: int | None,
        drop_remainder: bool,
        window_shift: int | None,
    ) -> None:
        super().__init__(data_spec, capacity)
        self._store = EpisodeStore(data_spec, capacity)
        self._shapes, self._pack = self._store.template.shapes, self._store.template.pack
        self._dtypes = dtypes_of(data_spec)
        self._completed_only = completed_only
        self._random = np.random.default_rng(seed)
        self._drop_remainder = drop_remainder
        self._window_shift = window_shift
        self._lock = threading.RLock()

    def _ids(self) -> list[int]:
        return [id_ for id_ in self._store.ids(self._completed_only) if self._store.length(id_)]

    def _num_frames(self) -> Any:
        def count() -> list[Any]:
            with self._lock:
                return [np.int64(sum(map(self._store.length, self._store.ids())))]

        return run(count, [], [tf.int64])[0]

    def _get_next(self, sample_batch_size: int | None, num_steps: int | None, time_stacked: bool) -> Any:
        *columns, id_ = run(lambda: self._draw_episode(), [], [*self._dtypes, tf.int64])
        for column, shape in zip(columns, self._shapes, strict=True):
            column.set_shape([None, *shape])
        id_.set_shape([])
        return self._pack(columns), BufferInfo(id_)

    def _draw_episode(self) -> list[Any]:
        with self._lock:
            ids = self._ids()
            if not ids:
                raise ValueError("the buffer is empty: it has no episode to read")
            id_ = ids[self._random.integers(len(ids))]
            return [*self._store.whole(id_), np.int64(id_)]

    def _draw_windows(self, count: int, num_steps: int) -> list[Any]:
        """Draws episodes in proportion to their lengths, omitting too short ones, and a uniform window of each."""
        with self._lock:
            ids = [id_ for id_ in self._ids() if self._store.length(id_) >= num_steps]
            if not ids:
                raise ValueError(f"the buffer has no episode of {num_steps} frames to read")
            lengths = np.array([self._store.length(id_) for id_ in ids], np.float64)
            chosen = self._random.choice(len(ids), count, p=lengths / lengths.sum())
            parts = []
            for place in chosen:
                first = int(self._random.integers(int(lengths[place]) - num_steps + 1))
                parts.append(self._store.frames(ids[place], first, num_steps))
        return [*(np.stack(leaf) for leaf in zip(*parts, strict=True)), np.array(ids, np.int64)[chosen]]

    def _as_dataset(
        self, sample_batch_size: Any, num_steps: Any, sequence_preprocess_fn: Any, num_parallel_calls: Any
    ) -> Any:
        if sample_batch_size is not None and num_steps is None:
            raise ValueError("sample_batch_size needs num_steps: whole episodes differ in length")
        draws = tf.data.Dataset.range(tf.int64.max)

        @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
        def draw(_: Any) -> Any:
            if num_steps is None:
                items, info = self._get_next(None, None, True)
                return self._preprocessed(items, sequence_preprocess_fn), info.ids
            *columns, ids = run(
                lambda: self._draw_windows(sample_batch_size or 1, num_steps), [], [*self._dtypes, tf.int64]
            )
            for column, shape in zip(columns, self._shapes, strict=True):
                column.set_shape([sample_batch_size or 1, num_steps, *shape])
            ids.set_shape([sample_batch_size or 1])
            if sample_batch_size is None:
                columns, ids = [column[0] for column in columns], ids[0]
            return self._preprocessed(self._pack(columns), sequence_preprocess_fn), ids

        return draws.map(draw, num_parallel_calls)

    @staticmethod
    def _preprocessed(items: Any, function: Callable[[Any], Any] | None) -> Any:
        return items if function is None else function(items)

    def _single_deterministic_pass_dataset(
        self, sample_batch_size: Any, num_steps: Any, sequence_preprocess_fn: Any, num_parallel_calls: Any
    ) -> Any:
        if sample_batch_size is not None and num_steps is None:
            raise ValueError("sample_batch_size needs num_steps: whole episodes differ in length")
        prefix = [None] if sample_batch_size is None else [None, None]
        signature = self._pack(
            [tf.TensorSpec([*prefix, *s], d) for s, d in zip(self._shapes, self._dtypes, strict=True)]
        )

        def elements() -> Iterator[Any]:
            with self._lock:
                episodes = list(map(self._store.whole, self._ids()))
            if not episodes:
                raise ValueError("the buffer is empty: it has no episode to read")
            options = (sample_batch_size, num_steps, self._window_shift, self._drop_remainder)
            yield from map(self._pack, episode_windows(episodes, *options))

        return tf.data.Dataset.from_generator(elements, output_signature=signature)

    def _gather_all(self) -> Any:
        def gather() -> list[Any]:
            with self._lock:
                episodes = list(map(self._store.whole, self._ids()))
            if not episodes:
                return self._store.whole(None)
            return [np.concatenate(leaf)[None] for leaf in zip(*episodes, strict=True)]

        return self._pack(run(gather, [], self._dtypes))

    def _clear(self) -> Any:
        def clear() -> list[Any]:
            with self._lock:
                self._store.clear()
            return [np.int64(0)]

        return run(clear, [], [tf.int64])[0]
