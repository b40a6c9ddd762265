"""Batches on a GPU, where there is one: PyTorch's, from pinned memory on a stream of their own, and JAX's."""

import asyncio
import os

import numpy as np
import pytest
from behaviour_support import eventually, info_of, make_table

import reverb

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore::UserWarning:torch.*"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="has no GPU"),
]

from reverb.loaders import TorchLoader  # noqa: E402

# About a second of the GPU, in its clock's ticks.
LONG = 2 * 10**9
ROWS, WIDTH = 400, 5_000


def numbers(count, width=WIDTH):
    """Rows each of which has its own number everywhere, in two columns."""
    rows = np.repeat(np.arange(count, dtype=np.float32)[:, None], width, 1)
    return {"a": rows, "b": -rows[:, :1]}


def table_of(width=WIDTH):
    signature = {"a": reverb.TensorSpec([width], np.float32), "b": reverb.TensorSpec([1], np.float32)}
    return make_table(sampler="uniform", signature=signature)


@pytest.mark.parametrize("width", [20, WIDTH], ids=["small", "copied by a thread"])
def test_batches_arrive_whole_while_the_learner_uses_those_before(serve, width):
    client = serve(table_of(width))
    client.insert_batch(numbers(ROWS, width), {"table": 1.0})
    with TorchLoader(client, "table", batch_size=64, device="cuda", beta=0.5, num_batches=60) as loader:
        kept = []
        for batch in loader:
            assert {leaf.device.type for leaf in (*batch.data.values(), batch.weights)} == {"cuda"}
            # Read by the GPU much later, after more batches were copied.
            torch.cuda._sleep(10**6)
            first = batch.data["a"][:, 0, :1]
            kept.append(((batch.data["a"][:, 0] == first).all() & (batch.data["b"][:, 0] == -first).all(), first))
            del batch
    assert all(bool(is_whole) for is_whole, _ in kept)
    seen = torch.cat([first for _, first in kept]).flatten().cpu().numpy()
    assert set(seen) <= set(range(ROWS))
    assert len(set(seen)) > ROWS // 2, "each batch has draws of its own"


def test_a_learner_on_another_stream_gets_whole_batches(serve):
    client = serve(table_of())
    client.insert_batch(numbers(ROWS), {"table": 1.0})
    stream = torch.cuda.Stream()
    with (
        TorchLoader(client, "table", batch_size=64, device="cuda", num_batches=60) as loader,
        torch.cuda.stream(stream),
    ):
        results = []
        for batch in loader:
            torch.cuda._sleep(10**6)
            results.append((batch.data["a"] == batch.data["a"][:, :, :1]).all())
            del batch
        assert all(map(bool, results))


def test_batches_do_not_wait_for_what_the_learner_has_queued(serve):
    client = serve(table_of())
    client.insert_batch(numbers(ROWS), {"table": 1.0})
    with TorchLoader(client, "table", batch_size=64, device="cuda") as loader:
        next(loader)
        torch.cuda.synchronize()
        for _ in range(3):
            torch.cuda._sleep(LONG)
        queued = torch.cuda.Event()
        queued.record()
        batches = [next(loader) for _ in range(4)]
        assert not queued.query(), "the batches were made while the learner's work was still queued"
        # The learner's stream reads them in its turn.
        assert all(bool((batch.data["b"] <= 0).all()) for batch in batches)
        assert queued.query()


def test_a_batch_that_could_not_be_copied_goes_back_and_the_loader_goes_on(serve, monkeypatch):
    client = serve(reverb.Table.queue("table", 10))
    client.insert_batch({"a": np.repeat(np.arange(6.0)[:, None], 200_000, 1)}, {"table": 1.0})

    def fail(*_, **__):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    with TorchLoader(client, "table", batch_size=2, device="cuda", prefetch=0) as loader:
        assert next(loader).data[0][:, 0, 0].tolist() == [0, 1]
        with monkeypatch.context() as patch:
            patch.setattr("reverb.loaders.torch_to_device.together", fail)
            with pytest.raises(torch.cuda.OutOfMemoryError):
                next(loader)
        eventually(lambda: info_of(client).undelivered_samples == 0)
        assert [next(loader).data[0][:, 0, 0].tolist() for _ in range(2)] == [[2, 3], [4, 5]]


@pytest.mark.parametrize("width", [20, 200_000], ids=["small", "large"])
def test_an_event_loop_loses_no_batch_that_could_not_be_copied(serve, monkeypatch, width):
    client = serve(reverb.Table.queue("table", 10))
    client.insert_batch({"a": np.repeat(np.arange(6.0)[:, None], width, 1)}, {"table": 1.0})

    def fail(*_, **__):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    async def read():
        loader = TorchLoader(client, "table", batch_size=2, device="cuda", prefetch=0)
        async with loader:
            batches = aiter(loader)
            seen = [await anext(batches)]
            with monkeypatch.context() as patch:
                patch.setattr("reverb.loaders.torch_to_device.together", fail)
                with pytest.raises(torch.cuda.OutOfMemoryError):
                    await anext(batches)
            seen += [await anext(batches), await anext(batches)]
            return [batch.data[0][:, 0, 0].tolist() for batch in seen]

    assert asyncio.run(read()) == [[0, 1], [2, 3], [4, 5]]


def test_pinned_batches_stay_in_the_memory_of_the_cpu(serve):
    client = serve(table_of())
    client.insert_batch(numbers(10), {"table": 1.0})
    with TorchLoader(client, "table", batch_size=8, pin_memory=True, beta=0.5) as loader:
        batch = next(loader)
    assert all(leaf.is_pinned() for leaf in (*batch.data.values(), batch.weights))
    assert (batch.data["a"] == batch.data["a"][:, :, :1]).all()


def test_tensordicts_padded_columns_and_masks_go_to_the_gpu(serve):
    pytest.importorskip("tensordict")
    client = serve(table_of(3))
    client.insert_batch(numbers(10, 3), {"table": 1.0})
    with TorchLoader(client, "table", batch_size=8, device="cuda", tensordict=True, pad_to=2) as loader:
        batch = next(loader)
    assert batch.data.device.type == batch.mask.device.type == "cuda"
    assert batch.mask.tolist() == [[True, False]] * 8
    assert (batch.data["a"][:, 1] == 0).all()


def test_tensors_of_the_gpu_are_inserted_and_are_priorities(serve):
    client = serve(make_table(sampler="prioritized", signature={"a": reverb.TensorSpec([], np.float32)}))
    client.insert_batch({"a": torch.arange(6.0, device="cuda").requires_grad_()}, {"table": 1.0})
    client.insert({"a": torch.tensor(6.0, device="cuda", dtype=torch.bfloat16).float()}, {"table": 1.0})
    with TorchLoader(client, "table", batch_size=50, device="cuda") as loader:
        batch = next(loader)
        assert set(batch.data["a"].flatten().tolist()) <= set(range(7))
        # Two items: number 3 and number 6.
        wanted = (batch.data["a"][:, 0] % 3 == 0) & (batch.data["a"][:, 0] > 0)
        loader.update_priorities(batch, wanted.double())
    drawn = client.sample_batch("table", 50).data["a"].flatten()
    assert set(drawn.tolist()) == {3.0, 6.0}


def test_a_gpu_that_is_not_there_is_refused_with_how_many_there_are():
    name = f"cuda:{torch.cuda.device_count()}"
    with pytest.raises(ValueError, match=f'device "{name}": PyTorch sees {torch.cuda.device_count()} here'):
        TorchLoader("localhost:1", "table", batch_size=1, device=name)


@pytest.mark.parametrize("output", ["torch", "jax"])
def test_buffers_put_samples_on_the_gpu(output):
    device = "cuda" if output == "torch" else gpu_of_jax()
    buffer = reverb.buffers.PrioritizedBuffer(
        {"a": reverb.TensorSpec([3], np.float32)}, 20, output=output, device=device, seed=1
    )
    for row in numbers(20, 3)["a"]:
        buffer.add({"a": row[None]})
    sample = buffer.sample(16)
    assert "cuda" in str(sample.data["a"].device).lower()
    buffer.update_priorities(sample, sample.data["a"][:, 0] + 1)
    rows = np.asarray(sample.data["a"].tolist())
    assert rows.shape == (16, 3)
    assert (rows == rows[:, :1]).all()


def gpu_of_jax():
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    jax = pytest.importorskip("jax")
    try:
        return jax.devices("gpu")[0]
    except RuntimeError:
        pytest.skip("JAX sees no GPU")


@pytest.mark.parametrize("double_buffer", [None, False])
def test_jax_arrays_arrive_whole_on_the_gpu(serve, double_buffer):
    device = gpu_of_jax()
    client = serve(table_of())
    client.insert_batch(numbers(ROWS), {"table": 1.0})
    loader = reverb.loaders.JaxLoader(
        client, "table", batch_size=64, device=device, beta=0.5, num_batches=60, double_buffer=double_buffer
    )
    with loader:
        results = []
        for batch in loader:
            assert {leaf.device for leaf in (*batch.data.values(), batch.weights)} == {device}
            first = batch.data["a"][:, :, :1]
            results.append((batch.data["a"] == first).all() & (batch.data["b"] == -first).all())
            del batch
    assert all(map(bool, results))
