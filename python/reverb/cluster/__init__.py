"""Clusters: several servers, the shards, that are one buffer together."""

from reverb.data.shard import Shard as Shard

__all__ = ["Shard"]
