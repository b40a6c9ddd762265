"""Gauges of a shard for Ray's metrics, which Prometheus reads from each node.

This is the only module that uses `ray.util.metrics`, which may change with a release of Ray.
"""

from __future__ import annotations

import importlib.util
import logging
import threading
from collections.abc import Iterable

from reverb.server import Table

_logger = logging.getLogger("reverb")
# Seconds between two looks at the tables.
_PERIOD_S = 5.0
# Ray's agent exports metrics only where the extra `ray[default]` has installed these.
_NEEDED = ("aiohttp", "opencensus", "prometheus_client")


def begin_gauges(tables: Iterable[Table], cluster: str, shard_id: int) -> None:
    """Sets gauges of tables every 5 s, until the process ends. Does nothing without `ray[default]`.

    Args:
      tables: Tables of a shard in this process.
      cluster: Name of the cluster.
      shard_id: Number of the shard.
    """
    if all(map(importlib.util.find_spec, _NEEDED)):
        threading.Thread(target=_run, args=(tables, cluster, shard_id), name="reverb-ray-metrics", daemon=True).start()


def _run(tables: Iterable[Table], cluster: str, shard_id: int) -> None:
    try:
        from ray.util.metrics import Gauge

        tags = ("cluster", "shard", "table")
        items = Gauge("reverb_shard_items", "Items in a table of a shard.", tags)
        size = Gauge("reverb_shard_bytes", "Bytes of the chunks that a table of a shard refers to.", tags)
        pause = threading.Event()
        while True:
            for table in tables:
                info, values = table.info, {"cluster": cluster, "shard": str(shard_id), "table": table.name}
                items.set(info.current_size, values)
                size.set(info.bytes or 0, values)
            pause.wait(_PERIOD_S)
    except Exception as error:
        _logger.warning("shard %d of cluster %s tells Ray no metrics: %s", shard_id, cluster, error)
