"""Steps as a `tf.data.Dataset`."""

from reverb.tf_dataset import ReverbDataset

__all__ = ["TimestepDataset"]


class TimestepDataset(ReverbDataset):
    """The steps of a table's items, one an element; those of an item come together, and all have its info.

    Arguments and errors are those of `reverb.TrajectoryDataset`; `shapes` are those of single steps, and `max_samples`
    counts items. An item whose columns differ in length is a `tf.errors.InvalidArgumentError`.
    """

    _of_steps = True
