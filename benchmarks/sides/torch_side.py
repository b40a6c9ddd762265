"""Our side for users of TorchRL: the buffer that has TorchRL's methods, with a table of its own in this process."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from reverb.frameworks.torchrl import ReverbReplayBuffer
from sides import buffering, tensordicts
from sides.buffering import *  # noqa: F403 - a worker looks its calls up here


def make(payload, capacity, exponent):
    beta = None if exponent is None else buffering.BETA
    return tensordicts.Buffer(ReverbReplayBuffer(max_size=capacity, alpha=exponent, beta=beta), payload)


def buffer_setup(payload, capacity, exponent):
    buffering.set_up(make, payload, capacity, exponent)
