"""What does a batch cost a learner on a GPU, beside TorchRL with its storage on the GPU and in the CPU's memory?

    python benchmarks/cuda.py --out benchmarks/results/DATE-cuda.json

Our tables are in the CPU's memory, of this process or of another on the same machine. In each turn the learner takes a
batch that is on the GPU: alone, and with a step of bf16 matrix products that reads the batch and whose result the CPU
waits for. `batch_us` is a turn without a step, at whose end the GPU is waited for. `step_us` is a turn with a step and
a batch that is there already, and `over_us` what a turn with a new batch takes in addition.

"then copied" copies a batch when the learner has it; other loaders return it copied, and begin the copy of a large one
while the learner uses the one before.
`priorities` draws by priority, with weights, and sets new priorities of the whole batch from a tensor on the GPU. What
is not installed is left out.
"""

import argparse
import contextlib
import os
import pathlib
import statistics
import sys
import time
import typing

# JAX would take most of the GPU's memory at its start.
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"

import machine
import payloads
import records
import torch
import workers
from sides.ours_readers import serve_drawn

import reverb
from reverb.loaders import TorchLoader

try:
    import jax
except ImportError:
    jax = None
try:
    import torchrl
    from tensordict import TensorDict
    from torchrl.data import LazyTensorStorage, TensorDictPrioritizedReplayBuffer, TensorDictReplayBuffer
except ImportError:
    torchrl = None

# Items of the tables.
PAYLOADS = {"transition": 10_000, "4 kB": 10_000, "stacks": 2_000}
BATCH = 256
EXPONENT, BETA = 0.6, 0.4
# Rows of the matrices of a step, and its products.
SIZE, PRODUCTS = 8192, 2


class Cell(typing.NamedTuple):
    side: str
    work: str
    # Or, for TorchRL, where its storage is.
    road: str
    # Returns a column of a new batch, which is on the GPU.
    take: typing.Callable


class TorchStep:
    """The learner's step in PyTorch."""

    def __init__(self):
        self._factors = [torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(2)]

    def __call__(self, column):
        mean = column.float().mean()
        for _ in range(PRODUCTS):
            product = torch.mm(*self._factors)
        return float(product[0, 0] + mean)

    def wait(self, column):
        del column
        torch.cuda.synchronize()


class JaxStep:
    """The same step in JAX."""

    def __init__(self):
        keys = jax.random.split(jax.random.key(0))
        self._factors = [jax.random.normal(key, (SIZE, SIZE), jax.numpy.bfloat16) for key in keys]
        self._step = jax.jit(self._make)

    @staticmethod
    def _make(column, first, second):
        mean = column.astype(jax.numpy.float32).mean()
        for _ in range(PRODUCTS):
            # Each needs the one before, so that none is left out.
            first = jax.numpy.matmul(first, second) * jax.numpy.bfloat16(1e-2)
        return first[0, 0] + mean

    def __call__(self, column):
        return float(self._step(column, *self._factors))

    def wait(self, column):
        jax.block_until_ready(column)


def column_of(data):
    """A column of a batch, which stands for all of them."""
    names = list(data.keys())
    return data["obs" if "obs" in names else "x"]


def our_cells(roads, payload, stack):
    for road, address in roads.items():
        ahead = stack.enter_context(TorchLoader(address, "out", batch_size=BATCH, device="cuda"))
        yield Cell("ours", "TorchLoader", road, lambda loader=ahead: column_of(next(loader).data))
        bare = stack.enter_context(TorchLoader(address, "out", batch_size=BATCH))
        yield Cell("ours", "TorchLoader, then copied", road, lambda loader=bare: column_of(copied(next(loader).data)))
        weighted = stack.enter_context(TorchLoader(address, "prioritized", batch_size=BATCH, device="cuda", beta=BETA))
        yield Cell("ours", "priorities", road, lambda loader=weighted: updated(loader))
    spec = {name: reverb.TensorSpec(shape, dtype) for name, (shape, dtype) in payloads.PAYLOADS[payload].items()}
    buffer = reverb.buffers.UniformBuffer(spec, PAYLOADS[payload], segments=100, output="torch", device="cuda")
    for _ in range(0, PAYLOADS[payload], 100):
        buffer.add(payloads.rows_of(payload, 100))
    yield Cell("ours", "UniformBuffer", "same_process", lambda: column_of(buffer.sample(BATCH).data))


def copied(data):
    return {name: column.to("cuda") for name, column in data.items()}


def updated(loader):
    """Takes a batch, and sets priorities as a learner does that has an error of each item."""
    batch = next(loader)
    loader.update_priorities(batch, batch.weights + 0.5)
    return column_of(batch.data)


def torchrl_cells(payload):
    items = PAYLOADS[payload]
    rows = payloads.rows_of(payload, items)
    data = TensorDict({name: torch.from_numpy(column) for name, column in rows.items()}, [items])
    for device, road in (("cuda", "on the GPU"), ("cpu", "on the CPU")):
        storage = LazyTensorStorage(items, device=device)
        uniform = TensorDictReplayBuffer(storage=storage, batch_size=BATCH)
        uniform.extend(data.to(device))
        yield Cell("torchrl", "TorchRL", road, lambda buffer=uniform: column_of(buffer.sample().to("cuda")))
    for device, road in (("cuda", "on the GPU"), ("cpu", "on the CPU")):
        storage = LazyTensorStorage(items, device=device)
        prioritized = TensorDictPrioritizedReplayBuffer(alpha=EXPONENT, beta=BETA, storage=storage, batch_size=BATCH)
        try:
            prioritized.extend(data.to(device))
        except RuntimeError as error:
            # Its wheels for the CPU have no sums of priorities on a GPU.
            print(f"left out: TorchRL's priorities {road}: {error}", file=sys.stderr)
            continue
        yield Cell("torchrl", "priorities", road, lambda buffer=prioritized: updated_in_torchrl(buffer))
    storage = LazyTensorStorage(items)
    ahead = TensorDictReplayBuffer(storage=storage, batch_size=BATCH, pin_memory=True, prefetch=3)
    ahead.extend(data)
    take = lambda: column_of(ahead.sample().to("cuda", non_blocking=True))  # noqa: E731
    yield Cell("torchrl", "TorchRL, pinned ahead", "on the CPU", take)


def updated_in_torchrl(buffer):
    batch = buffer.sample().to("cuda")
    batch.set("td_error", batch["priority_weight"].reshape(-1) + 0.5)
    buffer.update_tensordict_priority(batch)
    return column_of(batch)


def our_jax_cells(roads, stack):
    device = jax.devices("gpu")[0]
    for road, address in roads.items():
        ahead = stack.enter_context(reverb.loaders.JaxLoader(address, "out", batch_size=BATCH, device=device))
        yield Cell("ours", "JaxLoader", road, lambda loader=ahead: column_of(next(loader).data))
        bare = stack.enter_context(reverb.loaders.NumpyLoader(address, "out", batch_size=BATCH))
        take = lambda loader=bare: column_of(jax.device_put(next(loader).data, device))  # noqa: E731
        yield Cell("ours", "NumpyLoader, then device_put", road, take)


def turn_us(take, wait, seconds):
    """The microseconds of a turn."""
    count, begun = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - begun) < seconds or count < 5:
        wait(take())
        count += 1
    return 1e6 * elapsed / count


def measured(cells, step, payload, options):
    """The rows of one framework. All cells take turns in rounds, without a step and with one."""
    resident = cells[0].take()
    takes = [*(cell.take for cell in cells), lambda: resident]
    times = {wait: [[] for _ in takes] for wait in (step.wait, step)}
    for _ in range(1 + options.rounds):
        for wait, columns in times.items():
            for take, column in zip(takes, columns, strict=True):
                column.append(turn_us(take, wait, options.seconds))
    # The first round warms up.
    bare, (*full, alone) = ([column[1:] for column in columns] for columns in times.values())
    for cell, batch, turns in zip(cells, bare, full, strict=False):
        batch_us = statistics.median(batch)
        row = {**cell._asdict(), "payload": payload, "batch_us": round(batch_us, 1)}
        del row["take"]
        row["gb_per_s"] = round(BATCH * payloads.bytes_of(payload) / batch_us / 1e3, 2)
        row["step_us"] = round(statistics.median(alone), 1)
        over = [turn - own for turn, own in zip(turns, alone, strict=True)]
        yield row | {"over_us": round(statistics.median(over), 1)}


def bare_copies(payload):
    """What the machine can do: the cells of a batch in one piece, from pinned memory and from other."""
    for is_pinned in (True, False):
        memory = torch.ones(BATCH * payloads.bytes_of(payload), dtype=torch.uint8, pin_memory=is_pinned)
        take = lambda memory=memory: memory.to("cuda", non_blocking=True)  # noqa: E731
        yield Cell("base", "one copy", "pinned" if is_pinned else "not pinned", take)


def run(options):
    torch_step, jax_step = TorchStep(), jax and JaxStep()
    for payload, items in PAYLOADS.items():
        arguments = {"payload": payload, "items": items, "exponent": EXPONENT}
        with contextlib.ExitStack() as stack:
            other = stack.enter_context(workers.Worker(sys.executable, "ours")).call("serve_drawn", **arguments)
            roads = {**other, "same_process": serve_drawn(**arguments)["same_process"]}
            cells = [*bare_copies(payload), *our_cells(roads, payload, stack)]
            cells += torchrl_cells(payload) if torchrl else []
            yield from measured(cells, torch_step, payload, options)
            if jax:
                yield from measured(list(our_jax_cells(roads, stack)), jax_step, payload, options)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    described = machine.describe() | {"gpu": torch.cuda.get_device_name()}
    rows = []
    for row in run(options):
        print(row, flush=True)
        rows.append(row)
    versions = {"torch": torch.__version__} | ({"jax": jax.__version__} if jax else {})
    others = {"torchrl": {"torchrl": torchrl.__version__, "torch": torch.__version__}} if torchrl else None
    records.write(options.out, "cuda", rows, options.rounds < 5, described, others, **versions)


if __name__ == "__main__":
    main()
