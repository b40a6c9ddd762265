"""The place of a server in a cluster, as programs give it."""

import pickle

import numpy as np
import pytest

import reverb
from reverb.cluster import Shard


def test_a_shard_is_a_value_that_pickles():
    shard = Shard(id=3, cluster="replay")
    assert (shard.id, shard.cluster) == (3, "replay")
    assert pickle.loads(pickle.dumps(shard)) == shard == Shard(np.int32(3), "replay")
    assert type(Shard(np.int32(3), "replay").id) is int
    with pytest.raises(AttributeError):
        shard.id = 4
    assert [Shard(id, "Übung 7").id for id in (0, 255)] == [0, 255]


@pytest.mark.parametrize(
    ("id", "cluster", "error", "text"),
    [
        (256, "replay", ValueError, "id must be 0 to 255, the numbers of a cluster's shards, got 256"),
        (-1, "replay", ValueError, "id must be 0 to 255, .* got -1"),
        ("3", "replay", TypeError, "`id` must be an int, got '3'"),
        (3.0, "replay", TypeError, "`id` must be an int, got 3.0"),
        (3, "", ValueError, "cluster must be a printable name, got ''"),
        (3, "a\nb", ValueError, r"cluster must be a printable name, got 'a\\nb'"),
        (3, b"replay", TypeError, "cluster must be a str, the name of the cluster, got b'replay'"),
        (3, None, TypeError, "cluster must be a str, the name of the cluster, got None"),
    ],
)
def test_what_is_no_shard_is_refused(id, cluster, error, text):
    with pytest.raises(error, match=text):
        Shard(id, cluster)


def test_a_server_takes_a_shard_and_nothing_else():
    for wrong, error in ((3, TypeError), ((3, "replay"), TypeError), (Shard(3, "r" * 257), ValueError)):
        with pytest.raises(error, match="shard|cluster"):
            reverb.Server([reverb.Table.queue("queue", 1)], shard=wrong)
