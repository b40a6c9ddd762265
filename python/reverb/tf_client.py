"""A client whose calls are TensorFlow operations, in graphs and in eager mode."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tree
from numpy.typing import NDArray

from reverb.client import Client
from reverb.data import dtypes as dtype_numbers
from reverb.data.checks import as_key, check_key_bits
from reverb.errors import InternalError, InvalidArgumentError, TableNotFoundError
from reverb.frameworks import tensorflow_calls
from reverb.replay_sample import ReplaySample, SampleInfo
from reverb.reverb_types import table_infos
from reverb.tf import shapes as tf_shapes
from reverb.tf import streams
from reverb.tf.specs import check_batch, dtype_text, of_signature

__all__ = ["TFClient"]

_INFO_DTYPES = list(SampleInfo.tf_dtypes())
_NUM_INFOS = len(_INFO_DTYPES)
# Time limit, in seconds, for fetching the signature of a table.
_SIGNATURE_S = 30.0
# Time, in seconds, for which `sample` waits for a lost server, as `Client.sample` does.
_RECONNECT_S = 300.0


class TFClient:
    """Provides calls to a server as operations. For more than a few samples use `reverb.TrajectoryDataset`.

    Errors of the server are raised as `tf.errors`: NotFoundError for an unknown table, InvalidArgumentError for data
    that does not fit, and so on.

    Args:
      server_address: Address of the server, `host:port`; or a client, also one of a cluster, whose operations then work
        in this process only.
      shared_name: Argument of dm-reverb that is accepted and has no effect, because all clients of one address in a
        process share a connection.
      name: Prefix for the names of the operations, `reverb` by default.
    """

    def __init__(self, server_address: str | Client, shared_name: str | None = None, name: str = "reverb") -> None:
        # Keeps the client alive, of which graphs contain the name only.
        self._client = streams.client_of(server_address)
        self._server = streams.in_graphs(server_address)
        self._name = name
        self._shared_name = shared_name

    @property
    def server_address(self) -> str:
        """The address of the server, as passed to the constructor, or to that of the client."""
        return self._client.server_address

    def sample(self, table: Any, data_dtypes: Any, name: str | None = None) -> ReplaySample:
        """Draws one item and returns its first step.

        Args:
          table: Name of the table to draw from, a str or a tensor of one string.
          data_dtypes: Nest with the dtypes of the step's leaves.
          name: Name of the operation; None uses the prefix of the client and `_sample`.

        Returns:
          A sample whose data has the structure of `data_dtypes`, and whose info consists of scalar tensors. In a graph
          the shapes of the data are unknown.

        Raises:
          tf.errors.InvalidArgumentError: The item has another number of leaves, does not fit the table's signature, or
            cannot be split into steps. In eager mode also: a leaf has another dtype.
          tf.errors.InternalError: In a graph, a leaf has another dtype.
          tf.errors.NotFoundError: There is no such table.
        """
        flat = [tf.as_dtype(dtype) for dtype in tree.flatten(data_dtypes)]
        numbers = tf.constant([dtype.as_datatype_enum for dtype in flat], tf.int64)
        with tf.name_scope(name or f"{self._name}_sample"):
            server, table = self._in_graphs(), tf.reshape(tf.convert_to_tensor(table, tf.string), [])
            # TensorFlow itself checks the dtypes of dm-reverb's operation, with another error in graphs.
            sample = _sample_eagerly if tf.executing_eagerly() else _sample_in_graph
            results = tensorflow_calls.call(sample, [server, table, numbers], [*_INFO_DTYPES, *flat])
        for field in results[:_NUM_INFOS]:
            field.set_shape([])
        return ReplaySample(SampleInfo(*results[:_NUM_INFOS]), tree.unflatten_as(data_dtypes, results[_NUM_INFOS:]))

    def insert(self, data: Sequence[Any], tables: Any, priorities: Any, name: str | None = None) -> Any:
        """Inserts one step as an item into one or more tables, and waits until the items are in their tables.

        Args:
          data: Tensors with the leaves of the step.
          tables: Names of the tables, strings `[n]`.
          priorities: Priority of the item in each table, float64 `[n]`.
          name: Name of the operation; None uses the prefix of the client and `_insert`.

        Returns:
          The operation, or None if it ran eagerly.

        Raises:
          ValueError: `tables` or `priorities` has the wrong dtype or rank, or they differ in shape.
          tf.errors.InvalidArgumentError: A table does not exist, or does not accept the data or a priority.
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
            return tensorflow_calls.call(_insert, [self._in_graphs(), tables, priorities, *leaves], [])

    def update_priorities(self, table: Any, keys: Any, priorities: Any, name: str | None = None) -> Any:
        """Sets the priorities of items. Keys that are not in the table are ignored.

        Args:
          table: Name of the table that holds the items, a str or a tensor of one string.
          keys: Keys of the items, uint64 `[n]`.
          priorities: New priorities of the items, float64 `[n]`.
          name: Name of the operation; None uses the prefix of the client and `_update_priorities`.

        Returns:
          The operation, or None if it ran eagerly.

        Raises:
          TypeError: The keys are integers of less than 64 bits.
          ValueError: `keys` or `priorities` is a tensor of the wrong dtype.
          tf.errors.InvalidArgumentError: The shapes do not match, or the table does not accept a priority.
          tf.errors.NotFoundError: There is no such table.
        """
        with tf.name_scope(name or f"{self._name}_update_priorities"):
            table = tf.reshape(tf.convert_to_tensor(table, tf.string), [])
            keys = tf.convert_to_tensor(_exact(keys), tf.uint64)
            priorities = tf.convert_to_tensor(priorities, tf.float64)
            return tensorflow_calls.call(_update_priorities, [self._in_graphs(), table, keys, priorities], [])

    def _in_graphs(self) -> Any:
        return tf.constant(self._server)


def _exact(keys: Any) -> Any:
    """Converts lists of ints to arrays. In graphs, newer TensorFlow converts lists via floats, which rounds keys.

    Raises:
      TypeError: The keys are integers of less than 64 bits.
    """
    if isinstance(keys, (list, tuple)) and all(isinstance(key, (int, np.integer)) for key in keys):
        return np.array([as_key(key) for key in keys], np.uint64)
    if hasattr(keys, "dtype"):
        check_key_bits(np.dtype(tf.as_dtype(keys.dtype).as_numpy_dtype))
    return keys


def _sample_eagerly(server: bytes, table: bytes, dtypes: NDArray[np.int64]) -> list[Any]:
    arrays = _first_step(server, table, len(dtypes))
    for _, actual, expected in _type_mismatches(arrays, dtypes):
        raise InvalidArgumentError(f"Type mismatch: actual {actual} vs. expect {expected}")
    return arrays


def _sample_in_graph(server: bytes, table: bytes, dtypes: NDArray[np.int64]) -> list[Any]:
    arrays = _first_step(server, table, len(dtypes))
    for index, actual, expected in _type_mismatches(arrays, dtypes):
        raise InternalError(f"Output {index} of type {actual} does not match declared output type {expected}")
    return arrays


def _first_step(server: bytes, table: bytes, num_leaves: int) -> list[Any]:
    """Returns the fields of the info, and the leaves of the first step, of one sampled item."""
    client, name = streams.client_of(server.decode()), table.decode()
    client.engine.note_drawn(name)
    sampled, draw = client.engine.sample(name, 1, 1, 0, None, False, _RECONNECT_S)
    try:
        info = table_infos(client.engine, _SIGNATURE_S).get(name)
        if info is not None and info.signature is not None:
            specs, open_rows = of_signature(info.signature), sampled.has_open_rows
            check_batch(name, specs, sampled.columns, sampled.squeezed, open_rows, of_steps=True)
        (arrays,) = tf_shapes.steps(sampled)
        if len(arrays) != _NUM_INFOS + num_leaves:
            raise InvalidArgumentError(
                "Number of tensors in the replay sample did not match the expected count. "
                f"Got {len(arrays)} but wanted {_NUM_INFOS + num_leaves}"
            )
        if draw is not None:
            draw.received()
        return [array[0] for array in arrays]
    except BaseException:
        if draw is not None:
            draw.give_back()
        raise


def _type_mismatches(arrays: list[Any], dtypes: NDArray[np.int64]) -> Iterator[tuple[int, str, str]]:
    """Yields the index, the actual and the expected dtype of each leaf that does not have the dtype in `dtypes`."""
    for index, expected in enumerate(dtypes.tolist(), start=_NUM_INFOS):
        actual = dtype_numbers.number_of(np.asarray(arrays[index]).dtype)
        if actual != expected:
            yield index, dtype_text(actual), dtype_text(expected)


def _insert(server: bytes, tables: NDArray[Any], priorities: NDArray[np.float64], *data: Any) -> list[Any]:
    if tables.ndim != 1 or priorities.ndim != 1:
        raise InvalidArgumentError("Tensors `tables` and `priorities` must be of rank 1.")
    if len(tables) != len(priorities):
        raise InvalidArgumentError("Tensors `tables` and `priorities` do not match in shape.")
    left = [(table.decode(), priority) for table, priority in zip(tables.tolist(), priorities.tolist(), strict=True)]
    while left:
        # An item has one key in all tables of an insert. A table that occurs again gets another item.
        given: dict[str, float] = {}
        again = []
        for table, priority in left:
            if table in given:
                again.append((table, priority))
            else:
                given[table] = priority
        try:
            streams.client_of(server.decode()).engine.insert(list(data), given, None)
        except TableNotFoundError as error:
            # dm-reverb's writer raises this error, too.
            raise InvalidArgumentError(str(error)) from None
        left = again
    return []


def _update_priorities(server: bytes, table: bytes, keys: NDArray[Any], priorities: NDArray[Any]) -> list[Any]:
    if keys.ndim != 1 or priorities.ndim != 1:
        raise InvalidArgumentError("Tensors `keys` and `priorities` must be of rank 1.")
    if keys.shape != priorities.shape:
        raise InvalidArgumentError(
            f"Tensors `keys` and `priorities` do not match in shape ([{len(keys)}] vs. [{len(priorities)}])"
        )
    streams.client_of(server.decode()).update_priorities(table.decode(), keys, priorities)
    return []
