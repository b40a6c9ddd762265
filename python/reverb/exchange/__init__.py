"""Imports into tables and exports from them: Minari data sets, RLDS episodes, Arrow and Parquet.

    reverb.exchange.from_minari(client, "D4RL/door/human-v2", adder=adder)
    reverb.exchange.to_parquet(client, "replay.parquet", table="replay")
    reverb.exchange.from_parquet(client, "replay.parquet", table="replay")

Arrow and Parquet need the extra `arrow`, and Minari the extra `minari`. RLDS episodes may be of any source.

An export reads a checkpoint that the server saves for it, since a live table has no single moment, and holds some 16
MiB or one item of it in memory. Conversion from and to Arrow moves bytes and interprets no value, so that NaNs and
equal strings keep their bits. Episodes are written through the patterns and adders of an actor. A file gets its name
when it is on the disk, and its pages have checksums.
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reverb.exchange.arrow import from_arrow as from_arrow
    from reverb.exchange.arrow import to_arrow as to_arrow
    from reverb.exchange.episodes import Imported as Imported
    from reverb.exchange.minari_data import from_minari as from_minari
    from reverb.exchange.minari_data import minari_episodes as minari_episodes
    from reverb.exchange.parquet import from_parquet as from_parquet
    from reverb.exchange.parquet import parquet_signature as parquet_signature
    from reverb.exchange.parquet import to_parquet as to_parquet
    from reverb.exchange.rlds import from_rlds as from_rlds

_NAMES = {
    "Imported": "episodes",
    "from_arrow": "arrow",
    "from_minari": "minari_data",
    "from_parquet": "parquet",
    "from_rlds": "rlds",
    "minari_episodes": "minari_data",
    "parquet_signature": "parquet",
    "to_arrow": "arrow",
    "to_parquet": "parquet",
}
# Optional dependencies of the modules, and the extra that installs each.
_EXTRAS = {"pyarrow": "arrow"}

# `import *`, `help` and `inspect` must not need the extras.
_MISSING = () if importlib.util.find_spec("pyarrow") else ("arrow", "parquet")

__all__ = [name for name, module in _NAMES.items() if module not in _MISSING]


def __getattr__(name: str) -> Any:
    module = _NAMES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(error.name or "")
        if extra is None:
            raise
        raise ModuleNotFoundError(
            f"reverb.exchange.{name} needs {error.name}: pip install 'reverb-replay[{extra}]'", name=error.name
        ) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
