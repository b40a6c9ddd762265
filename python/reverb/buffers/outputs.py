"""What buffers give: arrays of NumPy, PyTorch or JAX."""

from collections.abc import Callable
from typing import Any

__all__ = ["converter"]


def converter(output: str, device: Any) -> Callable[[Any], Any]:
    """From a nest of NumPy arrays to one of a framework's.

    Args:
      output: `numpy`, `torch` or `jax`, which is imported here.
      device: Where they go; None: the default.

    Raises:
      ValueError: Another output, or a device for NumPy.
    """
    if output == "numpy" and device is None:
        return lambda nest: nest
    if output == "torch":
        from reverb.loaders.torch_arrays import to_tensors

        return lambda nest: to_tensors(nest, device)
    if output == "jax":
        from reverb.loaders.jax_loader import to_arrays

        return lambda nest: to_arrays(nest, device)
    raise ValueError(f"`output` must be 'numpy' (without a device), 'torch' or 'jax', got {output!r}.")
