"""Our side of the areas `loaders` and `buffers`."""

import importlib.util

import numpy as np
import payloads
import timing

import reverb
from reverb.tensor_spec import TensorSpec

__all__ = [
    "buffer_add",
    "buffer_sample",
    "buffer_setup",
    "loader_can",
    "loader_end",
    "loader_load",
    "loader_setup",
]

state = {"calls": {}, "loaders": []}


def loader_can(work):
    needed = {"TorchLoader": "torch", "JaxLoader": "jax", "sample_batch + device_put": "jax"}.get(work)
    return needed is None or importlib.util.find_spec(needed) is not None


def loader_setup(address, work, payload):
    state["calls"][work] = _call(reverb.Client(address), work, payloads.batch_size(payload))


def _call(client, work, size):
    if work == "sample_batch":
        return lambda: client.sample_batch("out", size)
    if work == "sample_batch + device_put":
        import jax

        return lambda: jax.block_until_ready(jax.device_put(client.sample_batch("out", size).data))
    loader = getattr(reverb.loaders, work)(client, "out", batch_size=size)
    state["loaders"].append(loader)
    batches = iter(loader)
    if work != "JaxLoader":
        return lambda: next(batches)
    import jax

    return lambda: jax.block_until_ready(next(batches).data)


def loader_load(work, payload, seconds):
    return timing.measure(state["calls"][work], seconds, payloads.batch_size(payload), warm_up=10)


def loader_end():
    for loader in state["loaders"]:
        loader.close()
    state.update(calls={}, loaders=[])


def buffer_setup(payload, capacity, exponent, output="numpy"):
    spec = {name: TensorSpec(shape, np.dtype(dtype)) for name, (shape, dtype) in payloads.PAYLOADS[payload].items()}
    if exponent is None:
        buffer = reverb.buffers.UniformBuffer(spec, capacity, output=output)
    else:
        buffer = reverb.buffers.PrioritizedBuffer(spec, capacity, exponent=exponent, output=output)
    rows = payloads.rows_of(payload, 1000)
    for _ in range(0, capacity, 1000):
        buffer.add(rows)
    state["buffer"], state["payload"] = buffer, payload


def buffer_add(count, seconds):
    buffer, rows = state["buffer"], payloads.rows_of(state["payload"], count)
    return timing.measure(lambda: buffer.add(rows), seconds, count, warm_up=10)


def buffer_sample(count, seconds):
    buffer = state["buffer"]
    return timing.measure(lambda: buffer.sample(count), seconds, count, warm_up=10)
