"""The base of this package's datasets, made of TensorFlow's public operations; nothing is compiled against TensorFlow.

TensorFlow fetches whole batches from a stream (see `reverb.tf.streams`) and splits them itself: a call into Python for
each item would be forty times as slow.
"""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tree

from reverb.client import Client
from reverb.data import dtypes as dtype_numbers
from reverb.frameworks import tensorflow_calls, tensorflow_exit
from reverb.replay_sample import ReplaySample, SampleInfo
from reverb.tf import shapes as tf_shapes
from reverb.tf import streams
from reverb.tf.graph_functions import GraphFunction
from reverb.tf.specs import LeafSpec

_INFO_DTYPES = tuple(SampleInfo.tf_dtypes())
_NUM_INFOS = len(_INFO_DTYPES)


class ReverbDataset(tf.compat.v1.data.Dataset):  # type: ignore[misc]
    """The base class of TimestepDataset and TrajectoryDataset, which document the arguments.

    Like dm-reverb's, they are datasets of TensorFlow 1 too, which can make iterators for sessions.

    Raises:
      ValueError: A number is out of range, or `dtypes` and `shapes` differ in structure.
    """

    # Whether elements are single steps, rather than items.
    _of_steps: bool

    def __init__(
        self,
        server_address: Any,
        table: Any,
        dtypes: Any,
        shapes: Any,
        max_in_flight_samples_per_worker: int,
        num_workers_per_iterator: int = -1,
        max_samples_per_stream: int = -1,
        rate_limiter_timeout_ms: int = -1,
        max_samples: int = -1,
    ) -> None:
        tree.assert_same_structure(dtypes, shapes, check_types=False)
        _check_at_least_1("max_in_flight_samples_per_worker", max_in_flight_samples_per_worker)
        _check_at_least_1("num_workers_per_iterator", num_workers_per_iterator, or_minus_1=True)
        _check_at_least_1("max_samples_per_stream", max_samples_per_stream, or_minus_1=True)
        if rate_limiter_timeout_ms < -1:
            raise ValueError(f"rate_limiter_timeout_ms ({rate_limiter_timeout_ms}) must be an integer >= -1")
        _check_at_least_1("max_samples", max_samples, or_minus_1=True)
        self._dtypes = tree.map_structure(tf.as_dtype, dtypes)
        self._shapes = tree.map_structure(tf.TensorShape, shapes)
        in_flight = max_in_flight_samples_per_worker * max(1, num_workers_per_iterator)
        # The client outlives the functions, which contain only its name.
        self._client = server_address if isinstance(server_address, Client) else None
        self._source = (streams.in_graphs(server_address), table, [in_flight, rate_limiter_timeout_ms, max_samples])
        self._made_eagerly = tf.executing_eagerly()
        self._variant: Any = None
        super().__init__()
        if not self._made_eagerly and tf.inside_function():
            self._make_variant()

    def _as_variant_tensor(self) -> Any:
        # The base class asks for it as the dataset is made, which is too early.
        return None

    @property
    def _variant_tensor(self) -> Any:
        # Functions initialise TensorFlow's devices, whose number a program may still want to set after it has made the
        # dataset. So they are made when the dataset is used. In a function the devices are there already.
        if self._variant is None:
            with tf.init_scope() if self._made_eagerly else self._graph_attr.as_default():
                self._make_variant()
        return self._variant

    def _make_variant(self) -> None:
        flat_dtypes = tuple(tree.flatten(self._dtypes))
        flat_shapes = tuple(None if s.rank is None else tuple(s.as_list()) for s in tree.flatten(self._shapes))
        # In a graph outside a function, the devices may still not be there.
        in_session = not tf.executing_eagerly() and not tf.inside_function()
        # These references keep the functions alive: a graph cannot run after its functions have been freed.
        self._functions = _functions(flat_dtypes, flat_shapes, self._of_steps, in_session)
        self._batches = self._functions.dataset(*self._source)
        self._variant = tf.data.experimental.to_variant(self._batches)

    def _inputs(self) -> list[Any]:
        return []

    @property
    def element_spec(self) -> ReplaySample:
        """A `ReplaySample` of specs: scalars in its info, and the data in their structure, with tuples for lists."""
        info = SampleInfo(*(tf.TensorSpec([], dtype) for dtype in _INFO_DTYPES))
        data = tf.nest.map_structure(
            lambda shape, dtype: tf.TensorSpec(shape, dtype), _without_lists(self._shapes), _without_lists(self._dtypes)
        )
        return ReplaySample(info, data)

    @classmethod
    def from_table_signature(
        cls,
        server_address: str | Client,
        table: str,
        max_in_flight_samples_per_worker: int,
        num_workers_per_iterator: int = -1,
        max_samples_per_stream: int = -1,
        rate_limiter_timeout_ms: int = -1,
        get_signature_timeout_secs: int | None = None,
        max_samples: int = -1,
    ) -> Any:
        """Makes a dataset with the dtypes and shapes of the table's signature.

        Args:
          server_address: Address `host:port` of the server, or a client, also one of a cluster. The server is asked for
            the signature immediately.
          table: Name of the table to sample from.
          max_in_flight_samples_per_worker: Number of items per worker that may be drawn before they become elements.
          num_workers_per_iterator: Factor for `max_in_flight_samples_per_worker`; -1 means 1. All samples come over one
            stream, in the table's order.
          max_samples_per_stream: Accepted for compatibility and without effect.
          rate_limiter_timeout_ms: Milliseconds after which the data end if the rate limiter lets no item go while an
            element is waited for; -1 waits without limit.
          get_signature_timeout_secs: Seconds to wait for the server's answer; None waits without limit.
          max_samples: Number of items after which the data of an iterator end; -1 sets no limit.

        Raises:
          ValueError: The table does not exist, or has no signature.
          DeadlineExceededError: The server did not answer in time.
        """
        client = streams.client_of(server_address)
        infos = client.server_info(get_signature_timeout_secs)
        if table not in infos:
            raise ValueError(
                f"Server at {client.server_address} does not contain any table named {table}. Found: "
                f"{', '.join(sorted(infos))}."
            )
        signature = infos[table].signature
        if not signature:
            raise ValueError(f"Table {table} at {client.server_address} does not have a signature.")
        return cls(
            server_address,
            table,
            tree.map_structure(lambda spec: tf.as_dtype(dtype_numbers.as_dtype(spec.dtype)), signature),
            tree.map_structure(lambda spec: spec.shape, signature),
            max_in_flight_samples_per_worker,
            num_workers_per_iterator,
            max_samples_per_stream,
            rate_limiter_timeout_ms,
            max_samples,
        )


def _check_at_least_1(name: str, value: int, or_minus_1: bool = False) -> None:
    if value < 1 and not (or_minus_1 and value == -1):
        raise ValueError(f"{name} ({value}) must be a positive integer{' or -1' if or_minus_1 else ''}")


def _without_lists(nest: Any) -> Any:
    if isinstance(nest, dict):
        return type(nest)((key, _without_lists(value)) for key, value in nest.items())
    if isinstance(nest, tuple) and hasattr(nest, "_fields"):
        return type(nest)(*map(_without_lists, nest))
    if isinstance(nest, (list, tuple)):
        return tuple(map(_without_lists, nest))
    return nest


class _Functions:
    """The functions that TensorFlow calls for datasets with certain leaves, which all such datasets share.

    Args:
      dtypes: TensorFlow dtypes of the leaves.
      shapes: Shapes of the leaves, with None for an unknown size or an unknown rank.
      of_steps: Whether elements are single steps, rather than items.
      in_session: Whether the datasets run in sessions, so that making them must not initialise TensorFlow's devices.
    """

    def __init__(self, dtypes: tuple[Any, ...], shapes: tuple[Any, ...], of_steps: bool, in_session: bool) -> None:
        self._dtypes = dtypes
        self._shapes = shapes
        self._of_steps = of_steps
        self._in_session = in_session
        self._specs = [
            LeafSpec("?", dtype.as_datatype_enum, shape) for dtype, shape in zip(dtypes, shapes, strict=True)
        ]
        unknown_length = [bool(shape) and shape[0] is None for shape in shapes]
        # Items of unknown length are sliced from the rows of a whole batch: separate arrays would need a call each.
        # The operations that slice need functions of `tf.data`, which initialise the devices.
        is_sliced = not of_steps and not in_session and None not in shapes
        self._sliced = unknown_length if is_sliced else [False] * len(shapes)
        # TensorFlow's operation that splits batches crashes on rows without elements, and the other needs a function.
        self._may_lack_elements = not in_session and not all(shape is not None and all(shape) for shape in shapes)
        self._fetched = self._fetched_specs()
        self._empty = [np.empty(_no_rows(spec.shape), spec.dtype.as_numpy_dtype) for spec in self._fetched]
        text, number = tf.TensorSpec([], tf.string), tf.TensorSpec([], tf.int64)
        make = _graph_function if in_session else _concrete_function
        with tf.init_scope():
            self._init = make(self._open, [text, text, tf.TensorSpec([3], tf.int64)])
            self._next = make(self._fetch, [number])
            self._finalize = make(self._close, [number])

    def dataset(self, address: Any, table: Any, numbers: list[int]) -> Any:
        """A dataset of items or steps as flat tuples, which the caller packs into its structure."""
        arguments = [
            tf.convert_to_tensor(address, tf.string),
            tf.convert_to_tensor(table, tf.string),
            tf.constant(numbers, tf.int64),
        ]
        variant = tf.raw_ops.GeneratorDataset(
            init_func_other_args=arguments,
            next_func_other_args=[],
            finalize_func_other_args=[],
            init_func=_in_graph(self._init),
            next_func=_in_graph(self._next),
            finalize_func=_in_graph(self._finalize),
            output_types=[spec.dtype for spec in self._fetched],
            output_shapes=[spec.shape for spec in self._fetched],
        )
        if any(self._sliced):
            batches = tf.data.experimental.from_variant(variant, tuple(self._fetched))
            cut = batches.flat_map(tf.autograph.experimental.do_not_convert(self._cut))
        else:
            # The operation itself, since `unbatch` also makes a function, which initialises TensorFlow's devices.
            specs = tuple(_unbatched(spec) for spec in self._fetched)
            types, shapes = [spec.dtype for spec in specs], [spec.shape for spec in specs]
            if self._may_lack_elements:
                batches = tf.data.experimental.from_variant(variant, tuple(self._fetched))
                cut = batches.flat_map(tf.autograph.experimental.do_not_convert(self._split))
            else:
                split = tf.raw_ops.UnbatchDataset(input_dataset=variant, output_types=types, output_shapes=shapes)
                cut = tf.data.experimental.from_variant(split, specs)
        # TensorFlow can append a prefetch to pipelines by itself. That would always be waiting for a sample, and so
        # reach the rate limiter's timeout although the learner is not waiting at all.
        options = tf.data.Options()
        options.experimental_optimization.inject_prefetch = False
        return cut.with_options(options)

    def _fetched_specs(self) -> list[Any]:
        specs = [tf.TensorSpec([None], dtype) for dtype in _INFO_DTYPES]
        for dtype, shape in zip(self._dtypes, self._shapes, strict=True):
            specs.append(tf.TensorSpec(None if shape is None else [None, *shape], dtype))
        if not any(self._sliced):
            return specs
        specs += specs[:_NUM_INFOS]
        for dtype, shape, sliced in zip(self._dtypes, self._shapes, self._sliced, strict=True):
            if sliced:
                specs += [tf.TensorSpec(shape, dtype), tf.TensorSpec([None], tf.int64)]
            else:
                specs.append(tf.TensorSpec([None, *shape], dtype))
        return specs

    def _split(self, *arrays: Any) -> Any:
        """Splits a batch into its rows, which may have any shape."""
        specs = tuple(_unbatched(spec) for spec in self._fetched)
        shapes = [spec.shape for spec in specs]
        rows = tf.raw_ops.TensorSliceDataset(components=list(arrays), output_shapes=shapes)
        return tf.data.experimental.from_variant(rows, specs)

    def _cut(self, *arrays: Any) -> Any:
        """Splits a batch that `reverb.tf.shapes.slices` made into its items."""
        num_even = _NUM_INFOS + len(self._dtypes)
        even, uneven = arrays[:num_even], arrays[num_even:]

        @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
        def item(index: Any) -> tuple[Any, ...]:
            parts, rest = [field[index] for field in uneven[:_NUM_INFOS]], iter(uneven[_NUM_INFOS:])
            for shape, sliced in zip(self._shapes, self._sliced, strict=True):
                values = next(rest)
                if sliced:
                    offsets = next(rest)
                    part = values[offsets[index] : offsets[index + 1]]
                    part.set_shape(shape)
                else:
                    part = values[index]
                parts.append(part)
            return tuple(parts)

        of_same_length = tf.data.Dataset.from_tensor_slices(even)
        return of_same_length.concatenate(tf.data.Dataset.range(tf.shape(uneven[0], tf.int64)[0]).map(item))

    def _open(self, address: Any, table: Any, numbers: Any) -> Any:
        if not self._in_session:
            return tf.numpy_function(self._open_stream, [address, table, numbers], tf.int64)

        def opened(address: Any, table: Any, numbers: Any) -> list[Any]:
            return [self._open_stream(address.tobytes(), table.tobytes(), numbers)]

        texts = [tf.io.decode_raw(text, tf.uint8) for text in (address, table)]
        return tensorflow_calls.session_call(opened, [*texts, numbers], [tf.int64])[0]

    def _fetch(self, number: Any) -> list[Any]:
        call = tensorflow_calls.session_call if self._in_session else tensorflow_calls.call
        arrays = call(self._fetch_arrays, [number], [spec.dtype for spec in self._fetched])
        for array, spec in zip(arrays, self._fetched, strict=True):
            array.set_shape(spec.shape)
        return arrays

    def _close(self, number: Any) -> Any:
        if not self._in_session:
            return tf.numpy_function(_close_stream, [number], tf.int64)
        return tensorflow_calls.session_call(lambda number: [_close_stream(number)], [number], [tf.int64])[0]

    def _open_stream(self, address: bytes, table: bytes, numbers: Any) -> Any:
        options = streams.StreamOptions(*numbers.tolist())
        shape = self._shape_function()
        # Programs of TensorFlow 1 may count on steps being drawn as dm-reverb draws them.
        whole = self._of_steps and self._in_session
        stream = streams.Stream(address.decode(), table.decode(), options, self._specs, shape, self._of_steps, whole)
        return np.int64(streams.open_stream(stream))

    def _shape_function(self) -> streams.ToArrays:
        if self._of_steps:
            return tf_shapes.steps
        if any(self._sliced):
            return lambda sampled: tf_shapes.slices(sampled, self._sliced)
        return tf_shapes.items

    def _fetch_arrays(self, number: Any) -> list[Any]:
        arrays = streams.fetch(int(number))
        if arrays is None:
            raise StopIteration
        return arrays or self._empty


def _unbatched(spec: Any) -> Any:
    return tf.TensorSpec(None if spec.shape.rank is None else spec.shape[1:], spec.dtype)


def _concrete_function(function: Callable[..., Any], specs: list[Any]) -> Any:
    return tf.function(function, autograph=False).get_concrete_function(*specs)


def _graph_function(function: Callable[..., Any], specs: list[Any]) -> GraphFunction:
    return GraphFunction(f"reverb_{next(_numbers)}", function, specs)


def _in_graph(function: Any) -> Any:
    """The function as an argument of an operation of the current graph."""
    if isinstance(function, GraphFunction):
        function.add_to(tf.compat.v1.get_default_graph())
        return function.name
    return function


_numbers = itertools.count(1)


def _no_rows(shape: Any) -> list[int]:
    return [0] if shape.rank is None else [dim or 0 for dim in shape]


def _close_stream(number: Any) -> Any:
    streams.close(int(number))
    return np.int64(0)


tensorflow_exit.at_exit(streams.end_all, streams.wait_until_closed)

_functions: Callable[..., _Functions] = functools.lru_cache(maxsize=None)(_Functions)
