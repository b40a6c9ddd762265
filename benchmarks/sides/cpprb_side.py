"""The side of cpprb 11: its own survey."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import cpprb
import payloads
import timing

state = {}


def survey_setup(size, exponent):
    columns = {
        name: {"shape": shape or 1, "dtype": dtype} for name, (shape, dtype) in payloads.PAYLOADS["transition"].items()
    }
    if exponent is None:
        buffer = cpprb.ReplayBuffer(size, columns)
    else:
        buffer = cpprb.PrioritizedReplayBuffer(size, columns, alpha=exponent)
    buffer.add(**payloads.rows_of("transition", size))
    state["buffer"] = buffer


def survey_add(count, seconds):
    buffer, rows = state["buffer"], payloads.rows_of("transition", count)
    return timing.measure(lambda: buffer.add(**rows), seconds, count, warm_up=10)


def survey_sample(count, seconds, prioritized):
    buffer = state["buffer"]
    if prioritized:  # Returns weights and indices with the batch.
        return timing.measure(lambda: buffer.sample(count, beta=0.4), seconds, count, warm_up=10)
    return timing.measure(lambda: buffer.sample(count), seconds, count, warm_up=10)


def buffer_setup(payload, capacity, exponent):
    columns = {
        name: {"shape": shape or 1, "dtype": dtype} for name, (shape, dtype) in payloads.PAYLOADS[payload].items()
    }
    if exponent is None:
        buffer = cpprb.ReplayBuffer(capacity, columns)
    else:
        buffer = cpprb.PrioritizedReplayBuffer(capacity, columns, alpha=exponent)
    rows = payloads.rows_of(payload, 1000)
    for _ in range(0, capacity, 1000):
        buffer.add(**rows)
    state["buffer"], state["payload"], state["prioritized"] = buffer, payload, exponent is not None


def buffer_add(count, seconds):
    buffer, rows = state["buffer"], payloads.rows_of(state["payload"], count)
    return timing.measure(lambda: buffer.add(**rows), seconds, count, warm_up=10)


def buffer_sample(count, seconds):
    return survey_sample(count, seconds, state["prioritized"])
