"""Datasets of TensorFlow and `TFClient` of a client, such as that of a cluster."""

import gc

import numpy as np
import pytest
from behaviour_support import eventually, make_table
from cluster_support import insert_each, prioritized_table

import reverb
from reverb.tf import streams

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow


def steps(client):
    return reverb.TimestepDataset.from_table_signature(client, "table", 10)


def test_a_dataset_of_a_cluster_draws_as_from_one_table(shards):
    client = shards.start()
    insert_each(client, range(1, 31))
    assert min(shards.sizes()) > 0
    samples = list(steps(client).take(300))
    total = sum(range(1, 31))
    for sample in samples:
        assert int(sample.info.table_size) == 30
        assert float(sample.info.probability) == pytest.approx(int(sample.data["x"]) / total)
    assert len({int(sample.data["x"]) for sample in samples}) > 20
    assert client.stats().rounds > 0, "the dataset uses this very client"


def test_a_dataset_of_items_takes_a_client_of_one_server_too():
    server = reverb.Server([make_table()])
    client = server.localhost_client()
    client.insert({"x": np.int64(7)}, {"table": 1.0})
    dataset = reverb.TrajectoryDataset(client, "table", {"x": tf.int64}, {"x": tf.TensorShape([1])}, 1)
    assert [int(sample.data["x"][0]) for sample in dataset.take(3)] == [7, 7, 7]
    server.stop()


def test_a_dataset_of_a_cluster_goes_on_without_a_lost_shard_and_takes_it_back(shards):
    shards.start(2)
    client = shards.connect(shard_timeout=0.5)
    insert_each(client, range(1, 21))
    near = shards.each()
    kept = {int(x) for x in near[1].sample_batch("table", 1000).data["x"].ravel()}
    elements = iter(steps(client))
    next(elements)
    port = shards.servers[0].port
    shards.servers[0].stop()
    # What was drawn before comes first.
    values = [int(next(elements).data["x"]) for _ in range(50)]
    assert set(values[20:]) <= kept
    shards.servers[0] = reverb.Server([prioritized_table()], port, shard=reverb.cluster.Shard(0, "replay"))
    shards.each()[0].insert({"x": np.int64(1000)}, {"table": 1e6})
    eventually(lambda: int(next(elements).data["x"]) == 1000)


def test_a_tf_client_of_a_cluster_inserts_draws_and_updates(shards):
    client = shards.start()
    ours = reverb.TFClient(client)
    assert ours.server_address == client.server_address
    for value in range(30):
        ours.insert([tf.constant(value, tf.int64)], tf.constant(["table"]), tf.constant([1.0], tf.float64))
    assert sum(shards.sizes()) == 30
    shards.assert_own()
    keys = sorted(set().union(*shards.keys()))
    ours.update_priorities("table", tf.constant(keys, tf.uint64), [0.0] * 29 + [1.0])
    samples = [ours.sample("table", {"x": tf.int64}) for _ in range(5)]
    assert {int(sample.info.key) for sample in samples} == {keys[-1]}
    in_graph = tf.function(lambda: ours.sample("table", {"x": tf.int64}).info.key)
    assert int(in_graph()) == keys[-1]


def test_a_graph_whose_client_is_gone_says_so(shards):
    name = streams.in_graphs(shards.start(1))
    gc.collect()
    with pytest.raises(ValueError, match="keep a reference to the client"):
        streams.client_of(name)
