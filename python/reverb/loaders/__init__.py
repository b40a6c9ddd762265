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

# The frameworks of modules, by their names for users and by those of the extras that install them.
_FRAMEWORKS = {
    "jax_loader": ("JAX", "jax"),
    "tensorflow_loader": ("TensorFlow", "tensorflow"),
    "torch_loader": ("PyTorch", "torch"),
}

# `import *` must work without the frameworks.
__all__ = [name for name, module in _NAMES.items() if module not in _FRAMEWORKS]


def __getattr__(name: str) -> Any:
    module = _NAMES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    except ModuleNotFoundError as error:
        framework, extra = _FRAMEWORKS.get(module, ("", None))
        if error.name != extra:
            raise
        text = f"{name} needs {framework}: pip install 'reverb-replay[{extra}]'"
        raise ModuleNotFoundError(text, name=extra) from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    from importlib.util import find_spec

    # `help` and `inspect` ask for every name, so those whose framework is not installed are left out.
    missing = {module for module, (_, framework) in _FRAMEWORKS.items() if find_spec(framework) is None}
    return sorted({*globals(), *(name for name, module in _NAMES.items() if module not in missing)})
