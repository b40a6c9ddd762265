"""The order in which one pass over rings of frames, or over episodes, takes them."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["episode_windows", "windows"]

Frames = tuple[NDArray[np.int64], NDArray[np.int64]]


def windows(
    num_segments: int,
    ids: range,
    batch_size: int | None,
    num_steps: int | None,
    shift: int | None,
    drop_remainder: bool,
) -> Iterator[Frames]:
    """What each element of a pass is made of.

    Args:
      num_segments: Rings.
      ids: Of the frames in each of them, oldest first.
      batch_size: Segments that come together, `batch_size` at a time; None: one after the other.
      num_steps: Frames of a window; None: single frames.
      shift: From one window to the next; None: `num_steps`.
      drop_remainder: Whether windows and batches that are not full are left out.

    Yields:
      Segments and ids, of equal shape: `()`, `[steps]`, `[batch]` or `[batch, steps]`.

    Raises:
      ValueError: There is no frame.
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
    """The elements of a pass over episodes.

    Args:
      episodes: The columns `[time, ...]` of each; at least one.
      batch_size: Streams whose windows come together; episode i goes to stream i modulo it. None: one stream.
      num_steps: Frames of a window of a stream, whose episodes follow each other; None: whole episodes.
      shift: From one window to the next; None: `num_steps`.
      drop_remainder: Whether windows of a single stream that are not full are left out.

    Yields:
      Columns `[steps, ...]`, or `[batch, steps, ...]`.
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
