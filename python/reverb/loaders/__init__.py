"""Loaders, which draw batches from tables as arrays of a framework. Only the loader of a framework imports it."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reverb.loaders.batch import Batch as Batch
    from reverb.loaders.jax_loader import JaxLoader as JaxLoader
    from reverb.loaders.numpy_loader import NumpyLoader as NumpyLoader
    from reverb.loaders.options import LinearBeta as LinearBeta
    from reverb.loaders.options import Options as Options
    from reverb.loaders.source import BatchSource as BatchSource
    from reverb.loaders.stats import LoaderStats as LoaderStats
    from reverb.loaders.tensorflow_loader import TensorFlowLoader as TensorFlowLoader
    from reverb.loaders.torch_loader import TorchLoader as TorchLoader

_NAMES = {
    "Batch": "batch",
    "BatchSource": "source",
    "JaxLoader": "jax_loader",
    "LinearBeta": "options",
    "LoaderStats": "stats",
    "NumpyLoader": "numpy_loader",
    "Options": "options",
    "TensorFlowLoader": "tensorflow_loader",
    "TorchLoader": "torch_loader",
}

# `import *` must work without the frameworks: each module and the framework that it needs.
_HEAVY = {"jax_loader": "jax", "tensorflow_loader": "tensorflow", "torch_loader": "torch"}

__all__ = [name for name, module in _NAMES.items() if module not in _HEAVY]


def __getattr__(name: str) -> Any:
    module = _NAMES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    from importlib.util import find_spec

    # `help` and `inspect` ask for every name, so those whose framework is not installed are left out.
    missing = {module for module, framework in _HEAVY.items() if find_spec(framework) is None}
    return sorted({*globals(), *(name for name, module in _NAMES.items() if module not in missing)})
