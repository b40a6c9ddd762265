"""The order in which a single pass reads rings of frames, or episodes."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Frames = tuple[NDArray[np.int64], NDArray[np.int64]]


def windows(
    num_segments: int,
    ids: range,
    batch_size: int | None,
    num_steps: int | None,
    shift: int | None,
    drop_remainder: bool,
) -> Iterator[Frames]:
    """Yields the frames of each element of a pass over rings.

    Args:
      num_segments: Number of rings, each of which is a segment.
      ids: Ids of the frames in each segment, oldest first.
      batch_size: Number of segments that are read together; None reads one segment after another.
      num_steps: Number of frames in each window; None yields single frames.
      shift: Number of frames from one window to the next; None uses `num_steps`.
      drop_remainder: Whether windows and batches that are not full are omitted.

    Yields:
      The segments and ids of the frames, of equal shape: `()`, `[steps]`, `[batch]` or `[batch, steps]`.

    Raises:
      ValueError: The buffer is empty.
    """
    if not ids:
        raise ValueError("the buffer is empty")
    if batch_size is None:
        for segment in range(num_segments):
            yield from _of_one(segment, ids, num_steps, shift, drop_remainder)
        return
    groups = [range(first, min(first + batch_size, num_segments)) for first in range(0, num_segments, batch_size)]
    if drop_remainder:
        groups = [group for group in groups if len(group) == batch_size]
    steps = [(np.array(group), np.full(len(group), id_)) for group in groups for id_ in ids]
    if num_steps is None:
        yield from steps
        return
    for first in range(0, len(steps) - num_steps + 1, shift or num_steps):
        window = steps[first : first + num_steps]
        if len({len(segments) for segments, _ in window}) == 1:
            yield np.stack([step[0] for step in window], 1), np.stack([step[1] for step in window], 1)


def _of_one(
    segment: int, ids: range, num_steps: int | None, shift: int | None, drop_remainder: bool
) -> Iterator[Frames]:
    if num_steps is None:
        for id_ in ids:
            yield np.array(segment), np.array(id_)
        return
    for first in range(0, len(ids), shift or num_steps):
        window = np.array(ids[first : first + num_steps])
        if len(window) == num_steps or not drop_remainder:
            yield np.full(len(window), segment), window


def episode_windows(
    episodes: list[list[NDArray[Any]]],
    batch_size: int | None,
    num_steps: int | None,
    shift: int | None,
    drop_remainder: bool,
) -> Iterator[list[NDArray[Any]]]:
    """Yields the elements of a pass over episodes.

    Args:
      episodes: Columns `[time, ...]` of each episode; at least one episode.
      batch_size: Number of streams whose windows are stacked; episode i goes to stream i modulo `batch_size`. None
        makes one stream without a batch axis.
      num_steps: Number of frames in each window of a stream, which concatenates its episodes; None yields whole
        episodes.
      shift: Number of frames from one window to the next; None uses `num_steps`.
      drop_remainder: Whether windows of a single stream that are not full are omitted.

    Yields:
      The columns of an element, `[steps, ...]` or `[batch, steps, ...]`.
    """
    if num_steps is None:
        yield from episodes
        return
    if batch_size is None:
        yield from _stream_windows(episodes, num_steps, shift, drop_remainder)
        return
    streams = [episodes[first::batch_size] for first in range(batch_size)]
    cut = [list(_stream_windows(stream, num_steps, shift, True)) if stream else [] for stream in streams]
    for together in zip(*cut, strict=False):
        yield [np.stack(leaf) for leaf in zip(*together, strict=True)]


def _stream_windows(
    episodes: list[list[NDArray[Any]]], num_steps: int, shift: int | None, drop_remainder: bool
) -> Iterator[list[NDArray[Any]]]:
    joined = [np.concatenate(leaf) for leaf in zip(*episodes, strict=True)]
    for first in range(0, len(joined[0]), shift or num_steps):
        window = [leaf[first : first + num_steps] for leaf in joined]
        if len(window[0]) == num_steps or not drop_remainder:
            yield window
