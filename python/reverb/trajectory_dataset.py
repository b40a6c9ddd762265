"""Items as a `tf.data.Dataset`."""

from reverb.tf.dataset import ReverbDataset

__all__ = ["TrajectoryDataset"]


class TrajectoryDataset(ReverbDataset):
    """A dataset whose elements are the items of a table, each a `ReplaySample(info, data)` with scalars in the info.

    Sampling starts when the first element of an iterator is requested. When the iterator is deleted, samples in transit
    return to the table. A batch that TensorFlow has already received does not return, except for the
    last one if the program is killed.

    Args:
      server_address: Address of the server, `host:port`, as a str or a scalar tensor; or a client, such as that of a
        cluster, and the dataset works in this process only.
      table: Name of the table to sample from, as a str or a scalar tensor.
      dtypes: Nest with the dtypes of the data's leaves.
      shapes: Nest with the `tf.TensorShape`s of whole items, including the time axis unless it is squeezed.
      max_in_flight_samples_per_worker: Maximum number of items per worker that are drawn but not yet elements.
      num_workers_per_iterator: Factor for `max_in_flight_samples_per_worker`; -1 means 1. All samples arrive over one
        stream, in the order of the draws.
      max_samples_per_stream: Argument of dm-reverb that is accepted and has no effect.
      rate_limiter_timeout_ms: Time in milliseconds after which an iterator ends if the table's rate limiter has allowed
        no sample while an element was awaited; -1 means no limit.
      max_samples: Number of items after which an iterator ends; -1 means no limit.

    Raises:
      ValueError: A number is out of range, or `dtypes` and `shapes` differ in structure.
    """

    _of_steps = False
