"""Operations of TensorFlow whose kernels are Python functions, registered at run time through TensorFlow's C API.

TensorFlow's shared library exports that API: nothing is compiled against TensorFlow.
"""

import ctypes
import functools
import glob
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

_POINTERS = (
    "TF_NewOpDefinitionBuilder",
    "TF_NewKernelBuilder",
    "TF_NewStatus",
    "TF_TensorData",
    "TF_AllocateOutput",
)
_Pointer = ctypes.c_void_p
# TensorFlow calls these as long as the process lives.
_kept_alive: list[Any] = []


class Context:
    """One run of an operation.

    Args:
      context: TensorFlow's pointer to it.
    """

    def __init__(self, context: int) -> None:
        self._context = _Pointer(context)
        self._library = _library()

    def input(self, index: int) -> NDArray[Any]:
        """Returns a copy of an input, whose dtype has no strings."""
        library, tensor = self._library, _Pointer()
        with _Status(library) as status:
            library.TF_GetInput(self._context, index, ctypes.byref(tensor), status)
            dtype = tf.as_dtype(library.TF_TensorType(tensor)).as_numpy_dtype
            shape = [library.TF_Dim(tensor, axis) for axis in range(library.TF_NumDims(tensor))]
            array: NDArray[Any] = np.empty(shape, dtype)
            ctypes.memmove(array.ctypes.data, library.TF_TensorData(tensor), array.nbytes)
            library.TF_DeleteTensor(tensor)
        return array

    @property
    def num_inputs(self) -> int:
        """The number of inputs."""
        return int(self._library.TF_NumInputs(self._context))

    def set_output(self, index: int, array: NDArray[Any]) -> None:
        """Copies an array, whose dtype has no strings, to an output.

        Raises:
          TypeError: The operation has another dtype for this output.
        """
        array = np.asarray(array, order="C")
        number = self._library.TF_ExpectedOutputDataType(self._context, index)
        if tf.as_dtype(array.dtype).as_datatype_enum != number:
            raise TypeError(f"output {index} must be {tf.as_dtype(number).name}, got {array.dtype}")
        sizes = (ctypes.c_int64 * array.ndim)(*array.shape)
        with _Status(self._library) as status:
            tensor = _Pointer(
                self._library.TF_AllocateOutput(
                    self._context, index, number, sizes, array.ndim, ctypes.c_size_t(array.nbytes), status
                )
            )
            _check(self._library, status, "an output could not be allocated")
            ctypes.memmove(self._library.TF_TensorData(tensor), array.ctypes.data, array.nbytes)
            self._library.TF_DeleteTensor(tensor)

    def fail(self, code: int, message: bytes) -> None:
        """Makes the operation fail with one of `tf.errors`' codes."""
        with _Status(self._library) as status:
            self._library.TF_SetStatus(status, code, message)
            self._library.TF_OpKernelContext_Failure(self._context, status)


class _Status:
    """A status of TensorFlow. A context manager that frees it."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._status = _Pointer(library.TF_NewStatus())

    def __enter__(self) -> Any:
        return self._status

    def __exit__(self, *_: object) -> None:
        self._library.TF_DeleteStatus(self._status)


def register(name: str, inputs: Sequence[str], outputs: Sequence[str], attributes: Sequence[str], kernel: Any) -> bool:
    """Registers an operation of the processor. False if this TensorFlow does not support that.

    Args:
      name: Name of the operation, which must be new.
      inputs: Inputs in TensorFlow's notation, such as `number: int64`.
      outputs: Outputs in the notation of inputs.
      attributes: Attributes in TensorFlow's notation, such as `types: list(type) >= 0`.
      kernel: Function that TensorFlow calls for each run; see `kernel_of`.
    """
    try:
        _register(_library(), name, (inputs, outputs, attributes), kernel)
    except (OSError, AttributeError, RuntimeError):
        return False
    return True


@functools.cache
def _library() -> ctypes.CDLL:
    """The library that exports the API.

    Raises:
      OSError: There is none.
    """
    for path in sorted(glob.glob(os.path.join(tf.sysconfig.get_lib(), "libtensorflow_framework*"))):
        try:
            library = ctypes.CDLL(path)
            for function in _POINTERS:
                getattr(library, function).restype = _Pointer
            library.TF_Dim.restype = ctypes.c_int64
        except (OSError, AttributeError):
            continue
        return library
    raise OSError("TensorFlow has no library with its C API")


def kernel_of(compute: Callable[[Context], None]) -> Any:
    """A kernel that calls a Python function with a Context.

    The function must not raise. TensorFlow must not run the operation while the interpreter ends.
    """
    kernel = ctypes.CFUNCTYPE(None, _Pointer, _Pointer)(lambda _, context: compute(Context(context)))
    _kept_alive.append(kernel)
    return kernel


def _register(library: ctypes.CDLL, name: str, parts: tuple[Sequence[str], ...], kernel: Any) -> None:
    with _Status(library) as status:
        builder = _Pointer(library.TF_NewOpDefinitionBuilder(name.encode()))
        for kind, texts in zip(("Input", "Output", "Attr"), parts, strict=True):
            for text in texts:
                getattr(library, f"TF_OpDefinitionBuilderAdd{kind}")(builder, text.encode())
        library.TF_OpDefinitionBuilderSetIsStateful(builder, ctypes.c_bool(True))
        unknown_shape = ctypes.cast(library.TF_ShapeInferenceContextSetUnknownShape, _Pointer)
        library.TF_OpDefinitionBuilderSetShapeInferenceFunction(builder, unknown_shape)
        library.TF_RegisterOpDefinition(builder, status)
        _check(library, status, f"TensorFlow does not accept the operation {name}")
        # The kernel has no functions that create and delete it. TensorFlow would call them while a Python exception is
        # pending, which a call into Python loses, and after the interpreter has ended.
        kernels = _Pointer(library.TF_NewKernelBuilder(name.encode(), b"CPU", None, kernel, None))
        library.TF_RegisterKernelBuilder(name.encode(), kernels, status)
        _check(library, status, f"TensorFlow does not accept the kernel of {name}")


def _check(library: ctypes.CDLL, status: Any, message: str) -> None:
    if library.TF_GetCode(status) != 0:
        raise RuntimeError(message)
