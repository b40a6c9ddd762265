"""The side of TorchRL: its buffers of TensorDicts in memory, on the CPU."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import payloads
import timing
import torch
from tensordict import TensorDict
from torchrl.data import (
    LazyTensorStorage,
    TensorDictPrioritizedReplayBuffer,
    TensorDictReplayBuffer,
)

# Batches are small: more threads were never faster, and on busy cores each call waited up to 24 ms for them.
torch.set_num_threads(1)

state = {}


def rows_of(payload, count):
    rows = payloads.rows_of(payload, count)
    return TensorDict({name: torch.from_numpy(column) for name, column in rows.items()}, batch_size=[count])


def buffer_setup(payload, capacity, exponent, output="torch"):
    del output  # The buffer has only one.
    storage = LazyTensorStorage(capacity)
    if exponent is None:
        buffer = TensorDictReplayBuffer(storage=storage)
    else:
        buffer = TensorDictPrioritizedReplayBuffer(alpha=exponent, beta=0.4, storage=storage)
    rows = rows_of(payload, 1000)
    for _ in range(0, capacity, 1000):
        buffer.extend(rows)
    state["buffer"], state["payload"] = buffer, payload


def buffer_add(count, seconds):
    buffer, rows = state["buffer"], rows_of(state["payload"], count)
    return timing.measure(lambda: buffer.extend(rows), seconds, count, warm_up=10)


def buffer_sample(count, seconds):
    buffer = state["buffer"]
    return timing.measure(lambda: buffer.sample(count), seconds, count, warm_up=10)
