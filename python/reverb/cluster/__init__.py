"""Clusters: several servers, the shards, that are one buffer together.

    replay = reverb.cluster.connect(["10.0.0.1:8000", "10.0.0.2:8000"])
    batch = replay.sample_batch("replay", 256)

The client has all calls of `reverb.Client`, so loaders, adders, datasets and `reverb.exchange` take it unchanged.
"""

from reverb.cluster.client import Client as Client
from reverb.cluster.client import connect as connect
from reverb.cluster.states import ClusterStats as ClusterStats
from reverb.cluster.states import ShardState as ShardState
from reverb.data.shard import Shard as Shard

__all__ = ["Client", "ClusterStats", "Shard", "ShardState", "connect"]
