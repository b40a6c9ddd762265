"""How fast is ReverbReplayBuffer compared with TorchRL's own prioritized buffer?

    .venv-torch/bin/python benchmarks/torchrl_buffer.py --out benchmarks/results/torchrl.json

Both hold 100 000 frames of 12 columns, as TorchRL's collector makes them on CartPole. A learner's step draws a
TensorDict of 256 frames, writes TD errors into it, and updates their priorities; a collector's step extends the buffer
by 400 frames. The buffers take turns in every round: TorchRL's, ours with a table of its own, and ours with a server in
another process. It fails if the learner's step with a table of its own is less than 2.5 times as fast as TorchRL's.
"""

import argparse
import importlib.metadata
import multiprocessing
import pathlib
import statistics
import sys
import warnings

import records
import timing

import reverb

LEAST_RATIO = 2.5
CAPACITY, BATCH_SIZE, FRAMES = 100_000, 256, 400
OPTIONS = {"alpha": 0.6, "beta": 0.4, "batch_size": BATCH_SIZE}
THEIRS, OWN, OTHER = "TorchRL", "ours, table of its own", "ours, server in another process"


def main():
    options = parse()
    warnings.simplefilter("ignore")
    import torch

    # Batches are small: more threads were never faster, and on busy cores each call waited for them.
    torch.set_num_threads(1)
    results = []
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        buffers = make_buffers(pool.apply(serve))
        works = {"learner's step": learner_step, "collector's step": collector_step}
        times = {(work, side): [] for work in works for side in buffers}
        for _ in range(options.rounds):
            for work, make_call in works.items():
                for side, buffer in buffers.items():
                    measured = timing.measure(make_call(buffer), options.seconds)
                    times[work, side].append(statistics.median(measured["times_us"]))
        results = [row(work, side, rounds, times[work, THEIRS]) for (work, side), rounds in times.items()]
    for result in results:
        print(line(result))
    versions = {name: importlib.metadata.version(name) for name in ("torch", "tensordict", "torchrl")}
    records.write(options.out, "torchrl", results, options.rounds < 9, **versions)
    sys.exit(not all(result["holds"] for result in results))


def frames(count):
    """Frames as a collector makes them of CartPole with a step counter."""
    import torch
    from tensordict import TensorDict

    def flags():
        return {name: torch.zeros(count, 1, dtype=torch.bool) for name in ("done", "terminated", "truncated")}

    def state():
        return {"observation": torch.rand(count, 4), "step_count": torch.zeros(count, 1, dtype=torch.int64), **flags()}

    after = {**state(), "reward": torch.ones(count, 1)}
    return TensorDict({**state(), "action": torch.zeros(count, dtype=torch.int64), "next": after}, batch_size=[count])


def table():
    def specs(nest):
        return {
            name: specs(part) if hasattr(part, "keys") else reverb.TensorSpec(part.shape[1:], part.dtype)
            for name, part in nest.items()
        }

    return reverb.Table(
        "replay",
        sampler=reverb.selectors.Prioritized(OPTIONS["alpha"]),
        remover=reverb.selectors.Fifo(),
        max_size=CAPACITY,
        rate_limiter=reverb.rate_limiters.MinSize(1),
        signature=specs(frames(1)),
    )


def serve():
    """Starts a server in a process of the pool, and returns its address."""
    serve.server = reverb.Server([table()])
    return f"localhost:{serve.server.port}"


def make_buffers(address):
    from torchrl.data import LazyTensorStorage, TensorDictPrioritizedReplayBuffer

    from reverb.frameworks.torchrl import ReverbReplayBuffer

    buffers = {
        THEIRS: TensorDictPrioritizedReplayBuffer(storage=LazyTensorStorage(CAPACITY), **OPTIONS),
        OWN: ReverbReplayBuffer(max_size=CAPACITY, **OPTIONS),
        OTHER: ReverbReplayBuffer(address, beta=OPTIONS["beta"], batch_size=BATCH_SIZE),
    }
    for buffer in buffers.values():
        while len(buffer) < CAPACITY:
            buffer.extend(frames(1000))
    return buffers


def learner_step(buffer):
    import torch

    errors = torch.rand(BATCH_SIZE)

    def step():
        sample = buffer.sample()
        sample.set("td_error", errors)
        buffer.update_tensordict_priority(sample)

    return step


def collector_step(buffer):
    rows = frames(FRAMES)
    return lambda: buffer.extend(rows)


def row(work, side, rounds, theirs):
    ratio = statistics.median(their / our for their, our in zip(theirs, rounds, strict=True))
    return {
        "work": work,
        "side": side,
        "median_us": round(statistics.median(rounds), 1),
        "rounds_us": [round(one, 1) for one in rounds],
        "TorchRL / this": round(ratio, 2),
        "holds": ratio >= LEAST_RATIO or (work, side) != ("learner's step", OWN),
    }


def line(result):
    rounds = result["rounds_us"]
    return (
        f"{result['work']:>16}, {result['side']:<32} {result['median_us']:7.1f} µs, rounds {min(rounds)} to "
        f"{max(rounds)}, {result['TorchRL / this']:.2f} × TorchRL{'' if result['holds'] else '  TOO SLOW'}"
    )


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9, help="rounds in which each buffer is measured once")
    parser.add_argument("--seconds", type=float, default=1.0, help="seconds of each measurement")
    parser.add_argument("--out", type=pathlib.Path, help="a JSON file for the record")
    return parser.parse_args()


if __name__ == "__main__":
    main()
