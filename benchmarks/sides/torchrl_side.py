"""The side of TorchRL: its buffers of TensorDicts in memory, on the CPU."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from torchrl.data import LazyTensorStorage, TensorDictPrioritizedReplayBuffer, TensorDictReplayBuffer

from sides import buffering, tensordicts
from sides.buffering import *  # noqa: F403 - a worker looks its calls up here


def make(payload, capacity, exponent):
    storage = LazyTensorStorage(capacity)
    if exponent is None:
        buffer = TensorDictReplayBuffer(storage=storage)
    else:
        buffer = TensorDictPrioritizedReplayBuffer(alpha=exponent, beta=buffering.BETA, storage=storage)
    return tensordicts.Buffer(buffer, payload)


def buffer_setup(payload, capacity, exponent):
    buffering.set_up(make, payload, capacity, exponent)
