"""Clusters on Ray: `start` places and names one, `connect` finds it, `stop` removes it. Needs the extra `ray`.

    replay = reverb.ray.start(make_tables, shards=4, checkpoint="/shared/replay")
    replay = reverb.ray.connect("replay")    # in any task or actor
    reverb.ray.stop("replay")

Each shard is a named actor with a `reverb.Server` in its process, which Ray restarts from its newest checkpoint. Ray
starts, places, restarts and names; the bytes of items and batches go over the connections of Reverb, and not through
the object store.
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reverb.ray.connecting import connect as connect
    from reverb.ray.starting import start as start
    from reverb.ray.stopping import stop as stop

_NAMES = {"connect": "connecting", "start": "starting", "stop": "stopping"}

# `import *`, `help` and `inspect` must not need Ray.
__all__ = list(_NAMES) if importlib.util.find_spec("ray") else []


def __getattr__(name: str) -> Any:
    module = _NAMES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise ModuleNotFoundError(
            f"reverb.ray.{name} needs Ray: pip install 'reverb-replay[ray]'", name="ray"
        ) from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
