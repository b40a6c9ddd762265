"""Batches as PyTorch tensors, in this process and in workers of a DataLoader."""

import asyncio
import gc
import os
import signal
import threading

import numpy as np
import pytest
from behaviour_support import PATIENCE_S, eventually, info_of, make_table, program, run_program

import reverb

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore::UserWarning:torch.*"),
    # JAX, where it is imported beside PyTorch, warns of every fork. Workers do not use JAX.
    pytest.mark.filterwarnings(r"ignore:os\.fork\(\) was called:RuntimeWarning"),
]

import ml_dtypes  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from reverb.frameworks.torch import to_tensordict, to_tensors  # noqa: E402
from reverb.loaders import TorchLoader  # noqa: E402
from reverb.loaders.torch_to_device import together  # noqa: E402


def numbers_of(batch):
    return batch.data[0][:, 0].tolist()


def insert_numbers(client, count, table="table"):
    client.insert_batch({"a": np.arange(count)}, {table: 1.0})


def test_batches_are_tensors_and_infos_numpy_arrays(serve):
    client = serve(make_table(sampler="uniform"))
    client.insert_batch({"a": np.ones((3, 2), np.float32), "b": np.arange(3)}, {"table": 1.0})
    with TorchLoader(client, "table", batch_size=4, beta=0.5, pad_to=2) as loader:
        batch = next(iter(loader))
    assert [(leaf.dtype, tuple(leaf.shape)) for leaf in batch.data] == [
        (torch.float32, (4, 2, 2)),
        (torch.int64, (4, 2)),
    ]
    assert batch.weights.dtype == torch.float32
    assert batch.mask.dtype == torch.bool
    assert batch.mask.tolist() == [[True, False]] * 4
    assert batch.info.key.dtype == np.uint64


def test_next_of_the_loader_continues_one_iteration(serve):
    client = serve(reverb.Table.queue("table", 100))
    insert_numbers(client, 12)
    with TorchLoader(client, "table", batch_size=4, num_batches=2, prefetch=0) as loader:
        assert numbers_of(next(loader)) == [0, 1, 2, 3]
        loader.update_priorities(next(loader), 2.0)
        with pytest.raises(StopIteration):
            next(loader)


def test_ragged_columns_are_padded_and_split_as_tensors():
    values = torch.arange(12.0, requires_grad=True)
    ragged = reverb.Ragged(values.reshape(6, 2), torch.tensor([1, 0, 3, 2]))
    padded, mask = ragged.to_padded()
    assert padded[2].tolist() == [[2, 3], [4, 5], [6, 7]]
    assert mask.tolist() == [[True, False, False], [False] * 3, [True] * 3, [True, True, False]]
    assert not padded[~mask].any()
    padded.sum().backward()
    assert values.grad.tolist() == [1.0] * 12
    assert [len(rows) for rows in ragged.split()] == [1, 0, 3, 2]
    assert ragged[-1].tolist() == [[8, 9], [10, 11]]
    assert ragged[::-1].row_lengths.tolist() == [2, 3, 0, 1]
    assert ragged[::-1].values[0].tolist() == [8, 9]
    empty, mask = ragged[1:2].to_padded(2)
    assert (empty.tolist(), mask.tolist()) == ([[[0, 0]] * 2], [[False] * 2])


@pytest.mark.parametrize(
    "dtype",
    [
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "float32",
        "float64",
        "complex64",
        "complex128",
        "bfloat16",
        "float8_e5m2",
        "float8_e4m3fn",
    ],
)
def test_every_dtype_except_strings_arrives_unchanged(serve, dtype):
    client = serve(make_table())
    values = np.array([1, 0, 0], getattr(ml_dtypes, dtype, dtype))
    client.insert_batch([values, np.tile(np.float32([2, 3]), (3, 1))], {"table": 1.0})
    with TorchLoader(client, "table", batch_size=3, num_batches=2) as loader:
        batches = [batch.data for batch in loader]
    for leaf, other in batches:
        assert leaf.dtype == getattr(torch, dtype)
        assert (tuple(leaf.shape), leaf.stride()) == ((3, 1), (1, 1))
        assert leaf.to(torch.complex64).flatten().tolist() == [1, 1, 1], "the first item, three times"
        assert (other.dtype, other.tolist()) == (torch.float32, [[[2, 3]]] * 3)


def test_strings_are_refused_with_the_name_of_the_column(serve):
    client = serve(
        make_table(signature={"text": reverb.TensorSpec([1], str), "number": reverb.TensorSpec([1], np.int64)})
    )
    client.insert({"text": "a", "number": 1}, {"table": 1.0})
    with (
        TorchLoader(client, "table", batch_size=1) as loader,
        pytest.raises(TypeError, match="column text has strings"),
    ):
        next(iter(loader))
    with TorchLoader(client, "table", batch_size=1, fields=["number"]) as loader:
        assert list(next(iter(loader)).data) == ["number"]


@pytest.mark.parametrize("size", [20_000, 50_000], ids=["copied as it is drawn", "gathered"])
@pytest.mark.parametrize("before", [0, 1], ids=["first", "second"])
def test_tensors_keep_their_buffer_alive(serve, before, size):
    client = serve(make_table(sampler="fifo"))
    client.insert_batch([np.zeros((1, size), np.float32), np.zeros(1, bool)], {"table": 1.0})
    with TorchLoader(client, "table", batch_size=1) as loader:
        batches = iter(loader)
        for _ in range(before):
            next(batches)
        kept = next(batches).data[0][0, 0, 1:]
        client.reset("table")
        client.insert_batch([np.ones((1, size), np.float32), np.ones(1, bool)], {"table": 1.0})
        others = []
        for _ in range(20):
            others.append(next(batches).data)
            gc.collect()
        assert not kept.any()
        assert others[-1][0].all()


def test_fields_that_are_left_out_do_not_leak(serve):
    client = serve(
        make_table(signature={"a": reverb.TensorSpec([1, 20_000], np.float32), "b": reverb.TensorSpec([1], np.int64)})
    )
    client.insert({"a": np.ones(20_000, np.float32), "b": 7}, {"table": 1.0})
    with TorchLoader(client, "table", batch_size=1, fields=["b"]) as loader:
        batches = iter(loader)
        addresses = set()
        for _ in range(50):
            batch = next(batches)
            assert batch.data["b"].tolist() == [[7]]
            addresses.add(batch.data["b"].data_ptr())
            del batch
    assert len(addresses) < 10, "the same few buffers are used again"


def test_the_next_batch_is_put_on_the_device_in_advance(serve):
    client = serve(reverb.Table.queue("table", 100))
    insert_numbers(client, 20)
    with TorchLoader(client, "table", batch_size=4, device="cpu", timeout=0.2, on_timeout="stop") as loader:
        batches = iter(loader)
        assert numbers_of(next(batches)) == [0, 1, 2, 3]
        assert loader.stats().batches == 1
        assert loader.stats().undelivered >= 8, "in the same process, too"
    eventually(lambda: info_of(client).current_size == 16)
    with TorchLoader(client, "table", batch_size=4, device="cpu", timeout=0.1, on_timeout="stop") as loader:
        assert [number for batch in loader for number in numbers_of(batch)] == list(range(4, 20))


def test_an_error_in_the_next_batch_does_not_lose_this_one(serve):
    client = serve(reverb.Table.queue("table", 100))
    client.insert(np.int64(1), {"table": 1.0})
    client.insert("text", {"table": 1.0})
    with TorchLoader(client, "table", batch_size=1, device="cpu") as loader:
        batches = iter(loader)
        assert numbers_of(next(batches)) == [1]
        with pytest.raises(TypeError, match="strings"):
            next(batches)
    eventually(lambda: info_of(client).current_size == 1)


def test_tensordict_output(serve):
    tensordict = pytest.importorskip("tensordict")
    client = serve(make_table(signature={"o": {"x": reverb.TensorSpec([1], np.int64)}}))
    client.insert({"o": {"x": 1}}, {"table": 1.0})
    with TorchLoader(client, "table", batch_size=3, tensordict=True) as loader:
        data = next(iter(loader)).data
    assert isinstance(data, tensordict.TensorDict)
    assert data.batch_size == (3,)
    assert data["o", "x"].tolist() == [[1], [1], [1]]


def test_a_tensordict_has_the_memory_of_the_arrays():
    pytest.importorskip("tensordict")
    arrays = {"x": np.arange(3), "o": {"y": np.ones((3, 2), np.float32)}}
    data = to_tensordict(to_tensors(arrays), 3)
    arrays["x"][0], arrays["o"]["y"][2] = 7, 5
    assert data["x"].tolist() == [7, 1, 2]
    assert data["o", "y"].tolist() == [[1, 1], [1, 1], [5, 5]]


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.timeout(180)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_workers_share_a_queue_without_loss_or_repetition(serve, method):
    client = serve(reverb.Table.queue("table", 200))
    insert_numbers(client, 100)
    loader = TorchLoader(client, "table", batch_size=7, timeout=2, on_timeout="stop")
    batches = DataLoader(loader, batch_size=None, num_workers=2, multiprocessing_context=method)
    assert sorted(number for batch in batches for number in numbers_of(batch)) == list(range(100))
    eventually(lambda: info_of(client).undelivered_samples == 0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_num_batches_is_shared_by_the_workers(serve):
    client = serve(make_table(sampler="uniform"))
    insert_numbers(client, 10)
    loader = TorchLoader(client, "table", batch_size=2, num_batches=5)
    assert len(list(DataLoader(loader, batch_size=None, num_workers=3, multiprocessing_context="fork"))) == 5


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_batches_in_the_queues_of_a_stopped_data_loader_go_back(serve):
    client = serve(reverb.Table.queue("table", 200))
    insert_numbers(client, 100)
    loader = TorchLoader(client, "table", batch_size=5, prefetch=2)
    batches = iter(DataLoader(loader, batch_size=None, num_workers=2, multiprocessing_context="fork"))
    seen = [number for _ in range(4) for number in numbers_of(next(batches))]
    # Each worker has two batches in the queues, and two prefetched.
    eventually(lambda: info_of(client).undelivered_samples == 40)
    del batches
    eventually(lambda: info_of(client).undelivered_samples == 0)
    left = client.sample_batch("table", 100, timeout=0).data[0][:, 0].tolist()
    # Nothing is lost. A worker's last batch may be there again although it was seen: no other had been requested.
    assert set(seen) | set(left) == set(range(100))
    assert len(set(seen) & set(left)) <= 20
    assert len(left) == len(set(left))


SECURED = """
    import sys, reverb
    from torch.utils.data import DataLoader
    from reverb.loaders import TorchLoader
    loader = TorchLoader(sys.argv[1], "table", batch_size=7, timeout=2, on_timeout="stop")
    batches = DataLoader(loader, batch_size=None, num_workers=2, multiprocessing_context=sys.argv[2])
    try:
        print(sorted(number for batch in batches for number in batch.data[0][:, 0].tolist()))
    except PermissionError as error:
        print(f"refused: {error}")
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.timeout(180)
def test_workers_show_the_token_of_the_environment(serve_secured, method):
    server, address = serve_secured(reverb.Table.queue("table", 200))
    insert_numbers(server.localhost_client(), 100)
    out, _ = run_program(SECURED, address, method)
    assert out == f"{list(range(100))}\n"


@pytest.mark.timeout(180)
def test_workers_whose_token_may_not_draw_are_refused_at_once(serve_secured):
    _, address = serve_secured(reverb.Table.queue("table", 200), role="view")
    out, _ = run_program(SECURED, address, "fork")
    assert "token `program` has role view; Sample needs use" in out


KILLED = """
    import sys, reverb, os
    from torch.utils.data import DataLoader
    from reverb.loaders import TorchLoader
    loader = TorchLoader(sys.argv[1], "table", batch_size=5)
    workers = DataLoader(loader, batch_size=None, num_workers=4, multiprocessing_context="fork")
    batches = iter(workers)
    next(batches)
    print(" ".join(str(worker.pid) for worker in batches._workers), flush=True)
    sys.stdin.readline()
"""


@pytest.mark.timeout(180)
def test_a_killed_data_loader_leaks_no_thread_socket_or_item(serve_far):
    client = serve_far(reverb.Table.queue("table", 500))
    insert_numbers(client, 400)
    client.server_info()

    def resources():
        return threading.active_count(), len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    seen = []
    for _ in range(3):
        with program(KILLED, serve_far.address) as running:
            workers = [int(pid) for pid in running.line().split()]
            for pid in [running.process.pid, *workers]:
                os.kill(pid, signal.SIGKILL)
            running.process.wait(PATIENCE_S)
        eventually(lambda: info_of(client).undelivered_samples == 0)
        eventually(lambda: not seen or resources() <= seen[0])
        seen.append(resources())
    values = client.sample_batch("table", 400, timeout=0).data[0][:, 0].tolist()
    # The batch that each program took may or may not have been received when the program died.
    assert len(values) == len(set(values)) >= 400 - 3 * 5


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a GPU")
@pytest.mark.parametrize("device", ["cuda", "cuda:1", torch.device("cuda")])
def test_a_device_that_is_not_there_is_refused_at_once(device):
    with pytest.raises(ValueError, match=f'device "{device}": PyTorch sees none here'):
        TorchLoader("localhost:1", "table", batch_size=1, device=device)


def test_tensors_that_are_copied_together_keep_their_values_and_are_independent():
    tensors = [
        torch.arange(6.0).reshape(2, 3),
        torch.tensor([True, False, True]),
        torch.zeros(0, 4),
        torch.arange(5, dtype=torch.bfloat16)[::2],
        torch.tensor([1 + 2j]),
        torch.arange(300, dtype=torch.uint8),
        torch.tensor([[-1], [2**62]]),
        torch.rand(1 << 17, 3),
    ]
    copies, memory = together(tensors, torch.device("cpu"), pin_memory=False)
    for tensor, copy in zip(tensors, copies, strict=True):
        assert copy.dtype == tensor.dtype
        assert copy.shape == tensor.shape
        assert torch.equal(copy, tensor)
        assert copy.numel() == 0 or copy.data_ptr() % 64 == memory.data_ptr() % 64
    weights = torch.ones(3, requires_grad=True)
    loss = (copies[0] * weights).sum()
    # A change of another column is none of this one, which autograd has kept.
    copies[6].zero_()
    loss.backward()
    assert weights.grad.tolist() == [3, 5, 7]
    assert torch.equal(copies[0], tensors[0])


def test_an_unknown_option_names_the_options_of_this_loader_too():
    with pytest.raises(
        TypeError, match="TorchLoader has no option 'devices'; it has: batch_size.*receipt, device, pin"
    ):
        TorchLoader("localhost:1", "table", batch_size=1, devices="cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a GPU")
def test_a_buffer_refuses_a_device_that_is_not_there():
    spec = {"a": reverb.TensorSpec([], np.float32)}
    with pytest.raises(ValueError, match='device "cuda": PyTorch sees none here'):
        reverb.buffers.UniformBuffer(spec, 10, output="torch", device="cuda")


@pytest.mark.parametrize("device", [None, "cpu"])
def test_batches_are_awaited_in_an_event_loop(serve, device):
    client = serve(reverb.Table.queue("table", 20))
    insert_numbers(client, 8)

    async def main():
        async with TorchLoader(serve.address, "table", batch_size=2, num_batches=3, device=device) as loader:
            return [batch.data[0].ravel().tolist() async for batch in loader]

    assert asyncio.run(main()) == [[0, 1], [2, 3], [4, 5]]
    assert info_of(client).current_size == 2
