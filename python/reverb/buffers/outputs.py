"""Conversion of samples to arrays of NumPy, PyTorch or JAX."""

from collections.abc import Callable
from typing import Any


def converter(output: str, device: Any) -> Callable[[Any], Any]:
    """Makes a function from a nest of NumPy arrays to a nest of a framework's arrays.

    Args:
      output: Name of the framework, `numpy`, `torch` or `jax`, which is imported here.
      device: Device that the arrays are put on; None uses the framework's default.

    Raises:
      ValueError: The name is unknown, a device is given with `numpy`, or the framework sees no such device.
    """
    if output == "numpy" and device is None:
        return lambda nest: nest
    if output == "torch":
        from reverb.frameworks.torch import as_device as as_torch_device
        from reverb.frameworks.torch import to_tensors

        device = as_torch_device(device)
        return lambda nest: to_tensors(nest, device)
    if output == "jax":
        from reverb.frameworks.jax import as_device, to_arrays

        device = as_device(device)
        return lambda nest: to_arrays(nest, device)
    raise ValueError(f"`output` must be 'numpy' (without a device), 'torch' or 'jax', got {output!r}.")
