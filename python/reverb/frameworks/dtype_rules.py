"""The dtypes that each framework has, and how other dtypes are converted.

| table            | NumPy            | PyTorch           | JAX                           | TensorFlow  |
|------------------|------------------|-------------------|-------------------------------|-------------|
| bool, int8..32   | same             | same              | same                          | same        |
| int64            | same             | same              | int32 if all fit, else error¹ | same        |
| uint8            | same             | same              | same                          | same        |
| uint16, uint32   | same             | same²             | same                          | same        |
| uint64           | same             | same²             | uint32 if all fit, else error¹| same        |
| float16, 32      | same             | same              | same                          | same        |
| float64          | same             | same              | float32¹                      | same        |
| bfloat16         | ml_dtypes        | same              | same                          | same        |
| float8_e5m2, e4m3fn | ml_dtypes     | same³             | same                          | same        |
| complex64        | same             | same              | same                          | same        |
| complex128       | same             | same              | complex64¹                    | same        |
| strings          | object of bytes  | error             | error                         | tf.string   |

¹ The same if `jax_enable_x64` is set.
² PyTorch has these types since 2.3. Before, uint16 and uint32 become int32 and int64, and uint64 becomes int64 if all
  values fit, else error.
³ PyTorch has these types since 2.1; before, error.

Errors name the column, and the option `fields`, which can leave it out.
"""

from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray


def refuse(name: str, dtype: np.dtype[Any], framework: str) -> NoReturn:
    """Raises the TypeError for a dtype that a framework does not have."""
    what = "strings" if dtype.kind == "O" else f"elements of dtype {dtype}"
    raise TypeError(
        f"column {name} has {what}, for which {framework} has no arrays. Leave it out with `fields`, or "
        "use NumpyLoader."
    )


def narrow(array: NDArray[Any], dtype: Any, name: str, framework: str) -> NDArray[Any]:
    """Converts integers to a narrower or signed type.

    Raises:
      OverflowError: A value does not fit.
    """
    limits = np.iinfo(dtype)
    if array.size and (array.max() > limits.max or array.min() < limits.min):
        raise OverflowError(
            f"column {name} has {array.dtype} values outside of {np.dtype(dtype)}, to which {framework} would truncate "
            "them. Leave it out with `fields`, or use NumpyLoader."
        )
    return array.astype(dtype)
