"""Writes and samples with the names of `reverb.pybind` alone, and answers with all that can be seen of it."""

import json
import re
import socket
import sys

import numpy as np

from reverb import pybind
from reverb.cc import schema_pb2


def text(value):
    """The repr of an object, without what differs from run to run."""
    return re.sub(r"episode_id=\d+|port=\d+", "", repr(value))


def attempt(function, *arguments, **named):
    try:
        return text(function(*arguments, **named))
    except Exception as error:
        return [kind.__name__ for kind in (ValueError, RuntimeError, TypeError) if isinstance(error, kind)]


def info_of(table):
    """The table's info, without the times that its worker has spent."""
    message = schema_pb2.TableInfo.FromString(table.info())
    message.ClearField("table_worker_time")
    return message.SerializeToString(deterministic=True).hex()


def shown(arrays):
    """Arrays without the item's key, which is random."""
    return [[array.dtype.name, array.tolist()] for array in map(np.asarray, arrays[1:])]


def main():
    folder = json.load(sys.stdin)["folder"]
    limiter = pybind.RateLimiter(samples_per_insert=1.0, min_size_to_sample=1, min_diff=-1e9, max_diff=1e9)
    selectors = [pybind.FifoSelector(), pybind.LifoSelector(), pybind.UniformSelector()]
    selectors += [pybind.PrioritizedSelector(priority_exponent=0.5), pybind.HeapSelector(min_heap=True)]
    table = pybind.Table(
        name="table",
        sampler=pybind.FifoSelector(),
        remover=pybind.HeapSelector(False),
        max_size=10,
        max_times_sampled=0,
        rate_limiter=limiter,
        extensions=[],
        signature=None,
    )
    answer = {"objects": [text(made) for made in [*selectors, limiter, table]]}
    answer["table"] = [table.name(), table.can_insert(1), table.can_sample(1), info_of(table)]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    checkpointer = pybind.create_default_checkpointer(folder, "", None)
    server = pybind.Server(priority_tables=[table], port=port, checkpointer=checkpointer)
    answer["server"] = [text(server), text(checkpointer)]
    client = pybind.Client(server_name=f"ipv4:127.0.0.1:{port}")

    writer = client.NewWriter(chunk_length=2, max_timesteps=2, delta_encoded=False, max_in_flight_items=25)
    answer["writer"] = [text(writer)]
    answer["writer"] += [attempt(writer.AppendSequence, [np.array([1, 2], np.float32), np.zeros((2, 3))])]
    answer["writer"] += [attempt(writer.CreateItem, "table", *pair) for pair in ((2, 1.5), (3, 1.5))]
    answer["writer"] += [attempt(writer.Flush), attempt(writer.Close, True)]
    answer["writer"] += [attempt(writer.Close, True), attempt(writer.Append, [1])]

    sampler = client.NewSampler("table", 1, 1)
    answer["sampler"] = [pybind.Sampler.NUM_INFO_TENSORS, shown(sampler.GetNextTrajectory())]
    answer["sampler"] += [attempt(sampler.GetNextTrajectory), attempt(client.NewSampler, "table", 0, 1)]

    keep_two = pybind.ConstantChunkerOptions(max_chunk_length=1, num_keep_alive_refs=2)
    trajectories = client.NewTrajectoryWriter(keep_two, True)
    first, none, second = trajectories.Append([np.float32(3), None, np.arange(2)])
    [_, third] = trajectories.AppendPartial([None, np.float64(1)])
    trajectories.Append([np.float32(4)])
    answer["cells"] = [none is None, first.expired, list(second.shape), str(first.dtype), third.numpy().tolist()]
    answer["steps"] = [trajectories.episode_steps, trajectories.max_num_keep_alive_refs]
    trajectories.CreateItem("table", 2.0, [[first], [second]], [True, False])
    answer["flush"] = [attempt(trajectories.Flush, 0, -1), attempt(trajectories.EndEpisode, True, None)]
    answer["flush"] += [attempt(trajectories.Close), attempt(trajectories.Append, [1]), attempt(first.numpy)]
    for options in ((3, 2), (0, 2)):
        made = pybind.ConstantChunkerOptions(*options)
        answer[f"options {options}"] = attempt(client.NewTrajectoryWriter, made, False)
    answer["client"] = [attempt(client.Reset, "table"), "RuntimeError" in attempt(client.Reset, "missing")]
    answer["client"] += [attempt(client.MutatePriorities, "table", [(1, 1.0)], [2]), len(client.ServerInfo(5))]
    answer["constructors"] = [attempt(cls) for cls in (pybind.Sampler, pybind.Writer, pybind.Checkpointer)]
    server.Stop()
    answer["wait"] = server.Wait()
    json.dump(answer, sys.stdout)


main()
