"""Creates items from a dataset of steps and patterns, without a server. Needs TensorFlow."""

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from reverb import _binding, structured_writer
from reverb.data import nests
from reverb.replay_sample import ReplaySample, SampleInfo
from reverb.writing.structure import FixedStructure

__all__ = ["PatternDataset", "pattern_dataset_with_info"]


class PatternDataset(tf.data.Dataset):  # type: ignore[misc]
    """A `tf.data.Dataset` of the items that patterns create from the steps of another dataset."""

    def __new__(
        cls,
        input_dataset: tf.data.Dataset,
        configs: Sequence[Any],
        respect_episode_boundaries: bool,
        is_end_of_episode: Callable[[Any], Any],
    ) -> "PatternDataset":
        """Creates the dataset.

        Args:
          input_dataset: Dataset whose elements are steps.
          configs: Configs of the items to create, as for `Client.structured_writer`. All have the same table and
            structure; tables and priorities are otherwise ignored.
          respect_episode_boundaries: Whether to prevent items from spanning episodes.
          is_end_of_episode: Function from a step to a scalar bool that says whether the step ends its episode. It is
            traced like a map function.

        Raises:
          ValueError: A config is invalid, the configs differ in their tables or structures, their items differ in
            dtypes or shapes, or `is_end_of_episode` does not return a scalar bool.
        """
        signature = _without_lists(structured_writer.infer_signature(configs, input_dataset.element_spec))
        spec = tf.nest.map_structure(lambda leaf: tf.TensorSpec(leaf.shape, leaf.dtype), signature)
        serialized = [config.SerializeToString() for config in configs]
        # Checks the configs now instead of at the start of an iteration.
        _binding.PatternReader(FixedStructure(), serialized)
        whole = input_dataset.element_spec
        steps = input_dataset.map(lambda *step: (_one(step, whole), is_end_of_episode(_one(step, whole))))
        _check_end(steps.element_spec[1])
        pack = nests.compile_packer(_without_lists(structured_writer.unpack_pattern(configs[0])))
        columns = tf.nest.flatten(spec)
        pack_step = nests.compile_packer(_without_lists(whole))

        def append(number: Any, is_end: Any, *leaves: Any) -> list[NDArray[Any]]:
            reader = _readers[int(number)]
            items = reader.append(pack_step(leaves))
            if is_end:
                items += reader.end_episode(respect_episode_boundaries)
            return _stack(items, columns)

        def items_of(number: Any, step: Any, is_end: Any) -> tuple[Any, ...]:
            arguments = [number, is_end, *tf.nest.flatten(step)]
            arrays = tf.numpy_function(append, arguments, [column.dtype for column in columns])
            for array, column in zip(arrays, columns, strict=True):
                array.set_shape([None, *column.shape])
            return tuple(arrays)

        # Each iteration has a reader of its own, which is named by a number.
        readers = tf.compat.v1.data.Dataset.from_generator(
            functools.partial(_reader_number, serialized), output_signature=tf.TensorSpec([], tf.int64)
        )
        plain = tf.autograph.experimental.do_not_convert
        made = readers.flat_map(plain(lambda number: steps.map(plain(functools.partial(items_of, number))).unbatch()))
        dataset = made.map(plain(lambda *leaves: _element(pack(leaves))))
        if tf.executing_eagerly() and int(input_dataset.cardinality()) == tf.data.INFINITE_CARDINALITY:
            dataset = dataset.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))
        return dataset  # type: ignore[no-any-return]


def pattern_dataset_with_info(
    input_dataset: tf.data.Dataset,
    configs: Sequence[Any],
    respect_episode_boundaries: bool,
    is_end_of_episode: Callable[[Any], Any],
) -> tf.data.Dataset:
    """Creates a PatternDataset whose elements are ReplaySamples with an info of zeros.

    Args:
      input_dataset: Dataset whose elements are steps.
      configs: Configs of the items to create, all with the same table and structure.
      respect_episode_boundaries: Whether to prevent items from spanning episodes.
      is_end_of_episode: Function from a step to a scalar bool that says whether the step ends its episode.
    """
    dataset = PatternDataset(input_dataset, configs, respect_episode_boundaries, is_end_of_episode)
    info = SampleInfo.zeros()
    return dataset.map(lambda *item: ReplaySample(info=info, data=_one(item, dataset.element_spec)))


_readers: dict[int, _binding.PatternReader] = {}
_numbers = itertools.count(1)


def _reader_number(configs: list[bytes]) -> Iterator[int]:
    """Yields the number of a new reader, which lives until the generator is closed."""
    number = next(_numbers)
    _readers[number] = _binding.PatternReader(FixedStructure(), configs)
    try:
        yield number
    finally:
        del _readers[number]


def _stack(items: list[list[NDArray[Any]]], columns: list[Any]) -> list[NDArray[Any]]:
    """The columns of items, each stacked along a new first axis."""
    if items:
        return [np.stack(arrays) for arrays in zip(*items, strict=True)]
    return [np.empty([0, *(size or 0 for size in column.shape)], column.dtype.as_numpy_dtype) for column in columns]


def _element(item: Any) -> Any:
    """What a map function returns for an item: a plain list would become an array."""
    return tuple(item) if type(item) is list else item


def _one(elements: tuple[Any, ...], spec: Any) -> Any:
    """The whole element. Map functions receive the parts of a plain tuple as separate arguments."""
    return elements if type(spec) is tuple else elements[0]


def _without_lists(nest: Any) -> Any:
    """Replaces the lists in a nest by tuples, because a dataset would convert lists to arrays."""
    if isinstance(nest, dict):
        return {key: _without_lists(child) for key, child in nest.items()}
    if isinstance(nest, tuple) and hasattr(nest, "_fields"):
        return type(nest)(*map(_without_lists, nest))
    return tuple(map(_without_lists, nest)) if isinstance(nest, (list, tuple)) else nest


def _check_end(spec: Any) -> None:
    if not isinstance(spec, tf.TensorSpec) or spec.dtype != tf.bool or spec.shape.rank != 0:
        raise ValueError(
            f"Invalid `is_end_of_episode`. `is_end_of_episode` must return `bool`, but its return type is {spec}."
        )
