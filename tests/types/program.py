"""A user's program, which is checked by mypy and pyright and never runs: what they know of samples and batches."""

from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray
from typing_extensions import assert_type

import reverb
from reverb.loaders import Batch, NumpyLoader
from reverb.replay_sample import BatchInfo, ItemInfo


class Steps(TypedDict):
    observation: NDArray[np.float32]
    reward: NDArray[np.float32]


def learn(batch: Batch[Steps]) -> NDArray[np.float64]:
    errors: NDArray[np.float64] = np.abs(batch.data["reward"]).sum(axis=1, dtype=np.float64)
    return errors


def sample(client: reverb.Client) -> reverb.ReplaySample:
    batch = client.sample_batch("replay", 256)
    assert_type(batch.info, BatchInfo)
    assert_type(batch.info.key, NDArray[np.uint64])
    assert_type(batch.info.probability, NDArray[np.float64])
    assert_type(batch.info.table_size, NDArray[np.int64])
    assert_type(batch.info.priority, NDArray[np.float64])
    assert_type(batch.info.times_sampled, NDArray[np.int32])
    client.update_priorities("replay", batch.info.key, batch.info.priority * 0.5)
    assert_type(reverb.importance_weights(batch, 0.5), NDArray[np.float32])
    assert_type(reverb.importance_weights(batch.info, 0.5), NDArray[np.float32])

    info, _ = batch
    assert_type(info, BatchInfo)

    for item in client.sample("replay", 3, emit_timesteps=False):
        assert_type(item.info, ItemInfo)
        assert_type(item.info.key, int)
        assert_type(item.info.probability, float)
        assert_type(item.info.table_size, int)
        client.mutate_priorities("replay", {item.info.key: 2.0})
    for steps in client.sample("replay", 3):
        assert_type(steps, list[reverb.ReplaySample[ItemInfo]])
    return batch


def load(client: reverb.Client) -> None:
    with NumpyLoader[Steps](client, "replay", batch_size=256, beta=0.6, pad_to=40) as loader:
        for batch in loader:
            assert_type(batch, Batch[Steps, NDArray[np.float32], NDArray[np.bool_]])
            assert_type(batch.info.key, NDArray[np.uint64])
            assert_type(batch.info.probability, NDArray[np.float64])
            assert_type(batch.data["observation"], NDArray[np.float32])
            # `Any` stands for None, and for the nest of masks of `mask_per_column`.
            assert_type(batch.weights, NDArray[np.float32] | Any)
            assert_type(batch.mask, NDArray[np.bool_] | Any)
            assert_type(batch.table, NDArray[np.int32] | Any)
            loader.update_priorities(batch, learn(batch))
        assert_type(next(loader).info.priority, NDArray[np.float64])
    for untyped in NumpyLoader("localhost:8000", {"a": 1, "b": 1}, batch_size=8, shares="exact"):
        assert_type(untyped.info.key, NDArray[np.uint64])
        weights: NDArray[np.float32] = untyped.weights
        print(weights, untyped.data["anything"])


def write(client: reverb.Client) -> None:
    with client.trajectory_writer(num_keep_alive_refs=3) as writer:
        writer.append({"observation": {"image": np.zeros(3)}, "action": 1})
        assert_type(writer.history["observation"]["image"][-3:], reverb.TrajectoryColumn)
        assert_type(writer.history["action"][-1], reverb.TrajectoryColumn | Any)
        assert_type(len(writer.history["action"]), int)
    shared = reverb.WriterOptions(compression="zstd", max_in_flight_items=100)
    assert_type(shared.max_in_flight_items, int | None)
    client.structured_writer([], options=shared, reconnect_timeout=60.0)
    client.batched_writer(4, max_chunk_length=None, compression="lz4", delta_encoded=True, max_pending_bytes=1 << 20)
    reverb.adders.EpisodeAdder(client, "table", max_length=9, options=shared, max_in_flight_items=10)
    client.trajectory_writer(3, compression=4)  # type: ignore[arg-type]
    client.trajectory_writer(3, max_in_flight=4)  # type: ignore[call-arg]


def ragged(column: reverb.Ragged) -> None:
    values, row_lengths = column
    assert_type(column.row_lengths, NDArray[np.int64])
    assert_type(reverb.Ragged(values, row_lengths), reverb.Ragged)
    assert_type(column[7], NDArray[Any])
    assert_type(column[1:], reverb.Ragged)
    assert_type(column.split(), list[NDArray[Any]])
    assert_type(column.to_padded(40), tuple[NDArray[Any], NDArray[np.bool_]])
    assert_type(len(column), int)
