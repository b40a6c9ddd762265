"""Steps as a `tf.data.Dataset`."""

from reverb.tf.dataset import ReverbDataset

__all__ = ["TimestepDataset"]


class TimestepDataset(ReverbDataset):
    """A dataset whose elements are the steps of a table's items.

    The steps of an item are consecutive and share its info. The arguments and errors are those of
    `reverb.TrajectoryDataset`, but `shapes` are those of single steps, and `max_samples` counts items. An item whose
    columns differ in length raises `tf.errors.InvalidArgumentError`.
    """

    _of_steps = True
