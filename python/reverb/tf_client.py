"""A client whose calls are operations of TensorFlow, in graphs and eagerly."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tree
from numpy.typing import NDArray

from reverb import dtypes as dtype_numbers
from reverb import tf_errors, tf_shapes, tf_streams
from reverb.errors import InvalidArgumentError, TableNotFoundError
from reverb.replay_sample import ReplaySample, SampleInfo
from reverb.tf_specs import check_batch, of_signature

__all__ = ["TFClient"]

_INFO_DTYPES = list(SampleInfo.tf_dtypes())
# A table's signature must come within so many seconds.
_SIGNATURE_S = 30.0


class TFClient:
    """Calls to a server as operations. For more than a few samples take `reverb.TrajectoryDataset`.

    Errors of the server are `tf.errors`: NotFoundError for an unknown table, InvalidArgumentError for data that do not
    fit, and so on.

    Args:
      server_address: `host:port`.
      shared_name: Accepted, and without effect: all clients of one address in a process share a connection.
      name: A prefix for the names of operations.
    """

    def __init__(self, server_address: str, shared_name: str | None = None, name: str = "reverb") -> None:
        self._server_address = server_address
        self._name = name
        self._shared_name = shared_name
        # Keeps the shared client alive.
        self._client = tf_streams.client_of(server_address)

    @property
    def server_address(self) -> str:
        """The address, as it was given."""
        return self._server_address

    def sample(self, table: Any, data_dtypes: Any, name: str | None = None) -> ReplaySample:
        """Draws one item, and gives its first step.

        Args:
          table: A str, or a tensor of one string.
          data_dtypes: A nest of the dtypes of the step's leaves.
          name: Of the operation.

        Returns:
          A sample whose data have the structure of `data_dtypes`, and whose info are scalar tensors. In a graph the
          shapes of the data are unknown.

        Raises:
          tf.errors.InvalidArgumentError: The item has other leaves or dtypes, does not fit the table's signature, or
            is not made of steps.
          tf.errors.NotFoundError: There is no such table.
        """
        flat = [tf.as_dtype(dtype) for dtype in tree.flatten(data_dtypes)]
        numbers = tf.constant([dtype.as_datatype_enum for dtype in flat], tf.int64)
        with tf.name_scope(name or f"{self._name}_sample"):
            address, table = self._address(), tf.reshape(tf.convert_to_tensor(table, tf.string), [])
            results = tf_errors.call(_sample, [address, table, numbers], [*_INFO_DTYPES, *flat])
        for field in results[:5]:
            field.set_shape([])
        return ReplaySample(SampleInfo(*results[:5]), tree.unflatten_as(data_dtypes, results[5:]))

    def insert(self, data: Sequence[Any], tables: Any, priorities: Any, name: str | None = None) -> Any:
        """Inserts one step, as an item of each of some tables. Waits until it is there.

        Args:
          data: Tensors, the leaves of the step.
          tables: Strings `[n]`.
          priorities: float64 `[n]`.
          name: Of the operation.

        Returns:
          The operation, or None if it ran eagerly.

        Raises:
          ValueError: `tables` or `priorities` have another dtype or rank, or differ in shape.
          tf.errors.InvalidArgumentError: A table does not exist, or does not take the data or a priority.
        """
        tables, priorities = tf.convert_to_tensor(tables), tf.convert_to_tensor(priorities)
        if tables.dtype != tf.string or tables.shape.rank != 1:
            raise ValueError("tables must be a string tensor of rank 1")
        if priorities.dtype != tf.float64 or priorities.shape.rank != 1:
            raise ValueError("priorities must be a float64 tensor of rank 1")
        if not tables.shape.is_compatible_with(priorities.shape):
            raise ValueError("priorities and tables must have the same shape")
        leaves = [tf.convert_to_tensor(leaf) for leaf in tf.nest.flatten(data)]
        with tf.name_scope(name or f"{self._name}_insert"):
            return tf_errors.call(_insert, [self._address(), tables, priorities, *leaves], [])

    def update_priorities(self, table: Any, keys: Any, priorities: Any, name: str | None = None) -> Any:
        """Sets the priorities of items. Keys that the table does not hold are passed over.

        Args:
          table: A str, or a tensor of one string.
          keys: uint64 `[n]`.
          priorities: float64 `[n]`.
          name: Of the operation.

        Returns:
          The operation, or None if it ran eagerly.

        Raises:
          ValueError: Tensors of other dtypes.
          tf.errors.InvalidArgumentError: The shapes do not fit, or the table cannot take a priority.
          tf.errors.NotFoundError: There is no such table.
        """
        with tf.name_scope(name or f"{self._name}_update_priorities"):
            table = tf.reshape(tf.convert_to_tensor(table, tf.string), [])
            keys = tf.convert_to_tensor(_exact(keys), tf.uint64)
            priorities = tf.convert_to_tensor(priorities, tf.float64)
            return tf_errors.call(_update_priorities, [self._address(), table, keys, priorities], [])

    def _address(self) -> Any:
        return tf.constant(self._server_address)


def _exact(keys: Any) -> Any:
    """Lists of ints as arrays: newer TensorFlow takes them through floats in graphs, which cuts keys."""
    if isinstance(keys, (list, tuple)) and all(isinstance(key, (int, np.integer)) for key in keys):
        return np.array(keys, np.uint64)
    return keys


class _Pairs(Mapping[str, float]):
    """A mapping in which a table may occur twice: each time is an item."""

    def __init__(self, tables: list[str], priorities: list[float]) -> None:
        self._pairs = list(zip(tables, priorities, strict=True))

    def items(self) -> Any:
        return self._pairs

    def __getitem__(self, table: str) -> float:
        return dict(self._pairs)[table]

    def __iter__(self) -> Iterator[str]:
        return iter([table for table, _ in self._pairs])

    def __len__(self) -> int:
        return len(self._pairs)


def _sample(address: bytes, table: bytes, dtypes: NDArray[np.int64]) -> list[Any]:
    client, name = tf_streams.client_of(address.decode()), table.decode()
    sampled = client._client.sample(name, 1, 1, 0, None, False)
    info = client._table_infos(_SIGNATURE_S).get(name)
    if info is not None and info.signature is not None:
        check_batch(name, of_signature(info.signature), sampled[1], sampled[3], of_steps=True)
    (arrays,) = tf_shapes.steps(sampled)
    if len(arrays) != 5 + len(dtypes):
        raise InvalidArgumentError(
            "Number of tensors in the replay sample did not match the expected count. "
            f"Got {len(arrays)} but wanted {5 + len(dtypes)}"
        )
    for array, expected in zip(arrays[5:], dtypes.tolist(), strict=True):
        if dtype_numbers.number_of(array.dtype) != expected:
            wanted = dtype_numbers.dtype_from_number(expected)
            raise InvalidArgumentError(f"Type mismatch: actual {array.dtype} vs. expect {wanted}")
    return [array[0] for array in arrays]


def _insert(address: bytes, tables: NDArray[Any], priorities: NDArray[np.float64], *data: Any) -> list[Any]:
    if tables.ndim != 1 or priorities.ndim != 1:
        raise InvalidArgumentError("Tensors `tables` and `priorities` must be of rank 1.")
    if len(tables) != len(priorities):
        raise InvalidArgumentError("Tensors `tables` and `priorities` do not match in shape.")
    if len(tables):
        pairs = _Pairs([table.decode() for table in tables.tolist()], priorities.tolist())
        try:
            tf_streams.client_of(address.decode())._client.insert(list(data), pairs, None)
        except TableNotFoundError as error:
            # What the reference's writer makes of it.
            raise InvalidArgumentError(str(error)) from None
    return []


def _update_priorities(address: bytes, table: bytes, keys: NDArray[Any], priorities: NDArray[Any]) -> list[Any]:
    if keys.ndim != 1 or priorities.ndim != 1:
        raise InvalidArgumentError("Tensors `keys` and `priorities` must be of rank 1.")
    if keys.shape != priorities.shape:
        raise InvalidArgumentError(
            f"Tensors `keys` and `priorities` do not match in shape ([{len(keys)}] vs. [{len(priorities)}])"
        )
    tf_streams.client_of(address.decode()).update_priorities(table.decode(), keys, priorities)
    return []
