"""Items that patterns make of a dataset of steps, without a server. Needs TensorFlow."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from reverb import _structure, nests, pybind, structured_writer
from reverb.replay_sample import ReplaySample, SampleInfo

__all__ = ["PatternDataset", "pattern_dataset_with_info"]


class PatternDataset(tf.data.Dataset):  # type: ignore[misc]
    """A `tf.data.Dataset` of the items that patterns make of the steps of another; eager only.

    Args:
      input_dataset: A dataset of steps.
      configs: What items to make, as for `Client.structured_writer`; all of one table and structure. Tables and
        priorities mean nothing here.
      respect_episode_boundaries: Whether items never span episodes.
      is_end_of_episode: From a step to a scalar bool: whether the episode ends with it. Traced like a map function.

    Raises:
      ValueError: A config is not valid, the configs differ in table or structure or their items in dtypes or shapes, or
        `is_end_of_episode` returns something else than a scalar bool.
    """

    def __new__(
        cls,
        input_dataset: tf.data.Dataset,
        configs: Sequence[Any],
        respect_episode_boundaries: bool,
        is_end_of_episode: Callable[[Any], Any],
    ) -> "PatternDataset":
        """The dataset."""
        signature = _without_lists(structured_writer.infer_signature(configs, input_dataset.element_spec))
        spec = tf.nest.map_structure(lambda leaf: tf.TensorSpec(leaf.shape, leaf.dtype), signature)
        serialized = [config.SerializeToString() for config in configs]
        # Checked now, and not when iteration begins.
        pybind.PatternReader(_structure.FixedStructure(), serialized)
        whole = input_dataset.element_spec
        steps = input_dataset.map(lambda *step: (_one(step, whole), is_end_of_episode(_one(step, whole))))
        _check_end(steps.element_spec[1])
        pack = nests.compile_packer(_without_lists(structured_writer.unpack_pattern(configs[0])))

        def items() -> Iterator[Any]:
            reader = pybind.PatternReader(_structure.FixedStructure(), serialized)
            for step, is_end in steps.as_numpy_iterator():
                yield from map(pack, reader.append(step))
                if is_end:
                    yield from map(pack, reader.end_episode(respect_episode_boundaries))

        dataset = tf.data.Dataset.from_generator(items, output_signature=spec)
        if int(input_dataset.cardinality()) == tf.data.INFINITE_CARDINALITY:
            dataset = dataset.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))
        return dataset  # type: ignore[no-any-return]


def pattern_dataset_with_info(
    input_dataset: tf.data.Dataset,
    configs: Sequence[Any],
    respect_episode_boundaries: bool,
    is_end_of_episode: Callable[[Any], Any],
) -> tf.data.Dataset:
    """As PatternDataset, each item as a ReplaySample whose info is all zeros.

    Args:
      input_dataset: As there.
      configs: As there.
      respect_episode_boundaries: As there.
      is_end_of_episode: As there.
    """
    dataset = PatternDataset(input_dataset, configs, respect_episode_boundaries, is_end_of_episode)
    info = SampleInfo(key=0, probability=0.0, table_size=0, priority=0.0, times_sampled=0)
    return dataset.map(lambda *item: ReplaySample(info=info, data=_one(item, dataset.element_spec)))


def _one(elements: tuple[Any, ...], spec: Any) -> Any:
    """An element, as a dataset has it: map functions get the parts of plain tuples one by one."""
    return elements if type(spec) is tuple else elements[0]


def _without_lists(nest: Any) -> Any:
    """A nest with tuples for lists, which are arrays to a dataset."""
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
