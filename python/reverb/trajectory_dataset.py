"""Items as a `tf.data.Dataset`."""

from reverb.tf_dataset import ReverbDataset

__all__ = ["TrajectoryDataset"]


class TrajectoryDataset(ReverbDataset):
    """The items of a table, one an element: `ReplaySample(info, data)` with scalars in the info.

    Sampling starts when an iterator is first asked for an element. What is on its way when the iterator is deleted goes
    back to the table; a batch that TensorFlow has taken over does not.

    Args:
      server_address: Of the server; a str or a scalar tensor.
      table: Likewise, its name.
      dtypes: A nest of the leaves' dtypes.
      shapes: A nest of `tf.TensorShape`s of whole items, with a time axis unless it is squeezed.
      max_in_flight_samples_per_worker: Items that may be drawn and not yet be elements, for each worker.
      num_workers_per_iterator: Multiplies the former; -1: 1. All samples come over one stream, in the table's order.
      max_samples_per_stream: Accepted, and without effect.
      rate_limiter_timeout_ms: The data end when the table has let nothing go for so long while an element was waited
        for; -1: never.
      max_samples: Items after which the data of an iterator end; -1: never.

    Raises:
      ValueError: A number is out of its range, or `dtypes` and `shapes` differ in structure.
    """

    _of_steps = False
