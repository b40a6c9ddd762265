"""Calls from TensorFlow graphs into Python, whose errors are raised as the right `tf.errors` classes.

TensorFlow turns most Python exceptions into UnknownError. So a call does not raise, but returns the number of its
error, and an operation of our own fails with that error. The operation is registered at run time through TensorFlow's C
API, which its shared library exports: nothing is compiled against TensorFlow. If the library cannot be found, errors
are raised in Python, and TensorFlow converts them as it does all others.
"""

import ctypes
import functools
import glob
import itertools
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from reverb import errors

_OP = "ReverbRaise"
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
    (errors.UnimplementedError, 12),
    (errors.InternalError, 13),
    (ValueError, 3),
    (TypeError, 3),
]

_raised: dict[int, tuple[int, bytes]] = {}
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
    code = next((code for kind, code in _CODES if isinstance(error, kind)), _UNKNOWN)
    number = next(_numbers)
    _raised[number] = (code, str(error).encode() or type(error).__name__.encode())
    return number


@functools.cache
def _is_registered() -> bool:
    """Registers the operation once. False if this TensorFlow does not support that."""
    paths = glob.glob(os.path.join(tf.sysconfig.get_lib(), "libtensorflow_framework*"))
    for path in sorted(paths):
        try:
            library = ctypes.CDLL(path)
            _register(library)
        except (OSError, AttributeError, RuntimeError):
            continue
        return True
    return False


# TensorFlow calls these as long as the process lives.
_kept_alive: list[Any] = []


def _register(library: ctypes.CDLL) -> None:
    for name in ("TF_NewOpDefinitionBuilder", "TF_NewKernelBuilder", "TF_NewStatus", "TF_TensorData"):
        getattr(library, name).restype = ctypes.c_void_p
    pointer = ctypes.c_void_p
    status = pointer(library.TF_NewStatus())
    builder = pointer(library.TF_NewOpDefinitionBuilder(_OP.encode()))
    library.TF_OpDefinitionBuilderAddInput(builder, b"number: int64")
    library.TF_OpDefinitionBuilderSetIsStateful(builder, ctypes.c_bool(True))
    unknown_shape = ctypes.cast(library.TF_ShapeInferenceContextSetUnknownShape, pointer)
    library.TF_OpDefinitionBuilderSetShapeInferenceFunction(builder, unknown_shape)
    library.TF_RegisterOpDefinition(builder, status)
    _check(library, status)
    compute = ctypes.CFUNCTYPE(None, pointer, pointer)(functools.partial(_compute, library))
    _kept_alive.extend([library, compute])
    # The kernel has no functions that create and delete it. TensorFlow would call them while a Python exception is
    # pending, which a call into Python loses, and after the interpreter has ended.
    kernel = pointer(library.TF_NewKernelBuilder(_OP.encode(), b"CPU", None, compute, None))
    library.TF_RegisterKernelBuilder(_OP.encode(), kernel, status)
    _check(library, status)
    library.TF_DeleteStatus(status)


def _check(library: ctypes.CDLL, status: ctypes.c_void_p) -> None:
    if library.TF_GetCode(status) != 0:
        raise RuntimeError(f"TensorFlow does not accept the operation {_OP}")


def _compute(library: ctypes.CDLL, _: Any, context: int) -> None:
    """Fails with the error whose number is the input; 0 stands for no error."""
    pointer = ctypes.c_void_p
    status, tensor = pointer(library.TF_NewStatus()), pointer()
    library.TF_GetInput(pointer(context), 0, ctypes.byref(tensor), status)
    number = ctypes.cast(library.TF_TensorData(tensor), ctypes.POINTER(ctypes.c_int64))[0]
    library.TF_DeleteTensor(tensor)
    if number:
        code, message = _raised.pop(number, (_UNKNOWN, b"an error that has been raised already"))
        library.TF_SetStatus(status, code, message)
        library.TF_OpKernelContext_Failure(pointer(context), status)
    library.TF_DeleteStatus(status)
