"""Calls from TensorFlow graphs into Python, whose errors are raised as the right `tf.errors` classes.

TensorFlow turns most Python exceptions into UnknownError. So a call does not raise, but returns the number of its
error, and an operation of our own fails with that error (see `tensorflow_kernels`). If it cannot be registered, errors
are raised in Python, and TensorFlow converts them as it does all others.
"""

import ctypes
import functools
import itertools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from reverb import _binding, errors
from reverb.frameworks import tensorflow_kernels

_OP = "ReverbRaise"
_CALL = "ReverbCall"
_OUT_OF_RANGE = 11
_UNKNOWN = 2
# The code of an error is that of the first class that it is an instance of.
_CODES: list[tuple[type[BaseException], int]] = [
    (StopIteration, _OUT_OF_RANGE),
    (errors.DeadlineExceededError, 4),
    (errors.TableNotFoundError, 5),
    (errors.UnavailableError, 14),
    (errors.CancelledError, 1),
    (errors.ResourceExhaustedError, 8),
    (errors.DataLossError, 15),
    (errors.UnauthenticatedError, 16),
    (errors.PermissionDeniedError, 7),
    (errors.UnimplementedError, 12),
    (errors.InternalError, 13),
    (ValueError, 3),
    (TypeError, 3),
]

_raised: dict[int, tuple[int, bytes]] = {}
# Those that graphs of sessions call. Datasets of the same leaves share them.
_functions: dict[int, Callable[..., list[Any]]] = {}
_numbers = itertools.count(1)


def call(function: Callable[..., list[Any]], inputs: list[Any], dtypes: list[Any]) -> list[Any]:
    """Makes a graph call a Python function.

    Args:
      function: Function from NumPy arrays to a list of NumPy arrays. It raises StopIteration at the end of a dataset.
        Graphs are never freed, so it should hold little memory.
      inputs: Tensors that are passed to the function.
      dtypes: TensorFlow dtypes of the function's results.

    Returns:
      Tensors of unknown shape. Without results, the operation to run; None if the call was executed eagerly.
    """
    if tf.executing_eagerly():
        return _eagerly(function, tuple(dtypes), len(inputs))(*inputs)  # type: ignore[no-any-return]
    if not _is_registered():
        results: list[Any] = tf.numpy_function(function, inputs, dtypes)
        return results
    # An array of objects would hold the int 0, which TensorFlow does not accept as a string.
    nothing = [np.array(b"") if dtype == tf.string else np.zeros((), dtype.as_numpy_dtype) for dtype in dtypes]

    def guarded(*arrays: Any) -> list[Any]:
        try:
            return [np.int64(0), *function(*arrays)]
        except Exception as error:
            return [np.int64(_register_error(error)), *nothing]

    number, *tensors = tf.numpy_function(guarded, inputs, [tf.int64, *dtypes])
    failing = tf.compat.v1.get_default_graph().create_op(_OP, [number], [], name=_OP)
    if not dtypes:
        return failing  # type: ignore[no-any-return]
    with tf.control_dependencies([failing]):
        return [tf.identity(tensor) for tensor in tensors]


@functools.lru_cache(maxsize=256)
def _eagerly(function: Callable[..., list[Any]], dtypes: tuple[Any, ...], num_inputs: int) -> Any:
    """The call as a separate graph: operations that TensorFlow does not know work in graphs only.

    `num_inputs` separates graphs: TensorFlow 2.15 fails to relax a graph for another number of inputs.
    """

    def graph(*inputs: Any) -> Any:
        results = call(function, list(inputs), list(dtypes))
        return results if dtypes else None

    return tf.function(graph, autograph=False, reduce_retracing=True)


def _register_error(error: Exception) -> int:
    number = next(_numbers)
    _raised[number] = _code_of(error), _text_of(error)
    return number


def _code_of(error: Exception) -> int:
    return next((code for kind, code in _CODES if isinstance(error, kind)), _UNKNOWN)


def _text_of(error: Exception) -> bytes:
    return str(error).encode() or type(error).__name__.encode()


@functools.cache
def _is_registered() -> bool:
    """Registers the operation once. False if this TensorFlow does not support that."""
    return tensorflow_kernels.register(_OP, ["number: int64"], [], [], tensorflow_kernels.kernel_of(_raise))


def _raise(context: tensorflow_kernels.Context) -> None:
    """Fails with the error whose number is the input; 0 stands for no error."""
    number = int(context.input(0))
    if number:
        context.fail(*_raised.pop(number, (_UNKNOWN, b"an error that has been raised already")))


def session_call(function: Callable[..., list[Any]], inputs: list[Any], dtypes: list[Any]) -> list[Any]:
    """As `call`, in the graph of a session: TensorFlow's devices are not initialised when it first runs.

    TensorFlow's own operation for calls initialises them, and so it is only used for leaves of strings, which cannot be
    copied in Python, and by a TensorFlow that takes no operations at run time.

    Args:
      function: Function from NumPy arrays to a list of NumPy arrays, as for `call`; it is never freed.
      inputs: Tensors that are passed to the function, without strings.
      dtypes: TensorFlow dtypes of the function's results.
    """
    if tf.string in dtypes or not _can_call():
        return call(function, inputs, dtypes)
    number = next(_numbers)
    _functions[number] = function
    operation = tf.compat.v1.get_default_graph().create_op(
        _CALL,
        [tf.constant(number, tf.int64), *inputs],
        dtypes,
        name=_CALL,
        attrs={
            "Tin": tf.compat.v1.AttrValue(list=_types(tensor.dtype for tensor in inputs)),
            "Tout": tf.compat.v1.AttrValue(list=_types(dtypes)),
        },
    )
    return list(operation.outputs)


def _types(dtypes: Iterable[Any]) -> Any:
    return tf.compat.v1.AttrValue.ListValue(type=[dtype.as_datatype_enum for dtype in dtypes])


@functools.cache
def _can_call() -> bool:
    inputs, outputs = ["function: int64", "inputs: Tin"], ["outputs: Tout"]
    # TensorFlow runs it while the interpreter ends, if a session is still open.
    kernel = ctypes.c_void_p(_binding.tensorflow_kernel(_call_function))
    return tensorflow_kernels.register(
        _CALL, inputs, outputs, ["Tin: list(type) >= 0", "Tout: list(type) >= 0"], kernel
    )


def _call_function(pointer: int) -> None:
    """Calls the function whose number is the first input with the others."""
    context = tensorflow_kernels.Context(pointer)
    try:
        function = _functions[int(context.input(0))]
        results = function(*(context.input(index) for index in range(1, context.num_inputs)))
        for index, result in enumerate(results):
            context.set_output(index, result)
    except Exception as error:
        context.fail(_code_of(error), _text_of(error))
