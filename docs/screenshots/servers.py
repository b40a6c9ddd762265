"""The servers and clients whose live pages are photographed: `python servers.py ROLE [ADDRESS]`.

`serve` prints the addresses of its servers as one line of JSON, and ends with its standard input. Other roles are
clients of one server, until they are terminated.
"""

import ctypes
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np

import reverb

SIDE = 84
STEPS = 16


def name_the_machine(name: str) -> None:
    """Names the machine for this process alone. Only root may; otherwise the real name is in the pictures."""
    new_uts_namespace = 0x04000000
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(new_uts_namespace) == 0:
        libc.sethostname(name.encode(), len(name))


def replay_table(name: str, size: int = 100_000) -> reverb.Table:
    """A table for prioritized replay, eight samples for each insert."""
    limiter = reverb.rate_limiters.SampleToInsertRatio(8.0, min_size_to_sample=500, error_buffer=2000.0)
    sampler, remover = reverb.selectors.Prioritized(0.6), reverb.selectors.Fifo()
    return reverb.Table(name, sampler, remover, size, limiter, max_bytes=1 << 30)


def many_tables() -> list[reverb.Table]:
    """Three tables of different kinds for each of ten agents."""
    tables = []
    for agent in range(10):
        demos = reverb.Table(
            f"agent_{agent}/demos",
            reverb.selectors.Uniform(),
            reverb.selectors.Fifo(),
            [2000, 10_000, 50_000][agent % 3],
            reverb.rate_limiters.MinSize([200, 1000, 5000][agent % 3]),
        )
        queue = reverb.Table.queue(f"agent_{agent}/unrolls", 200)
        tables += [replay_table(f"agent_{agent}/replay", 20_000), demos, queue]
    return tables


def blocked_table() -> reverb.Table:
    """A table whose actors are too slow for its learner."""
    limiter = reverb.rate_limiters.SampleToInsertRatio(4.0, min_size_to_sample=100, error_buffer=200.0)
    return reverb.Table("replay", reverb.selectors.Uniform(), reverb.selectors.Fifo(), 50_000, limiter)


def image_table() -> reverb.Table:
    """A table of sequences with pictures, rewards and text."""
    return reverb.Table(
        "frames", reverb.selectors.Uniform(), reverb.selectors.Fifo(), 500, reverb.rate_limiters.MinSize(1)
    )


def serve(*names: str) -> None:
    """Runs a server for each name until standard input ends."""
    name_the_machine("replay-1")
    tables: dict[str, Callable[[], list[reverb.Table]]] = {
        "one": lambda: [replay_table("replay")],
        "thirty": many_tables,
        "blocked": lambda: [blocked_table()],
        "item": lambda: [image_table()],
        "empty": lambda: [replay_table("replay")],
        "dead": lambda: [replay_table("replay"), reverb.Table.queue("unrolls", 500)],
    }
    servers = {name: reverb.Server(tables[name]()) for name in names}
    addresses = {name: [f"127.0.0.1:{server.port}", server.dashboard_url] for name, server in servers.items()}
    print(json.dumps(addresses), flush=True)
    sys.stdin.read()
    for server in servers.values():
        server.stop()


def paced(rate: Callable[[float], float]) -> Iterator[None]:
    """Yields about `rate(seconds since the start)` times a second, for ever."""
    start = time.monotonic()
    done = 0.0
    last = start
    while True:
        time.sleep(0.05)
        now = time.monotonic()
        done += rate(now - start) * (now - last)
        last = now
        while done >= 1:
            done -= 1
            yield


def step(random: np.random.Generator) -> list[np.ndarray]:
    """A step of a small environment."""
    return [random.normal(size=(64,)).astype(np.float32), np.int32(random.integers(6)), np.float32(random.normal())]


def act(address: str, tables: list[str], rate: Callable[[float], float]) -> None:
    """Inserts into the tables in turn."""
    client = reverb.Client(address)
    random = np.random.default_rng(0)
    for number, _ in enumerate(paced(rate)):
        client.insert(step(random), {tables[number % len(tables)]: float(random.exponential())})


def learn(address: str, table: str, rate: Callable[[float], float], batch: int = 32) -> None:
    """Samples batches from a table, and sets the priorities of the items."""
    client = reverb.Client(address)
    random = np.random.default_rng(1)
    for _ in paced(lambda seconds: rate(seconds) / batch):
        samples = client.sample_batch(table, batch)
        keys = np.asarray(samples.info.key).reshape(-1)[:4]
        client.mutate_priorities(table, updates={int(key): float(random.exponential()) for key in keys})


def wave(middle: float, period: float, share: float = 0.3) -> Callable[[float], float]:
    """A rate that swings around its middle."""
    return lambda seconds: middle * (1 + share * np.sin(2 * np.pi * seconds / period))


def frame(ball: np.ndarray, paddle: float, side: int = SIDE) -> np.ndarray:
    """A frame of a game with a ball and two paddles."""
    picture = np.full((side, side), 24, np.uint8)
    picture[:2], picture[-2:] = 110, 110
    picture[2:-2:6, side // 2] = 70
    top = int(paddle * (side - 20)) + 2
    picture[top : top + 16, 4:7] = 200
    picture[-top - 16 : -top, -7:-4] = 200
    row, column = (ball * (side - 8)).astype(int) + 2
    picture[row : row + 4, column : column + 4] = 255
    return picture


def road(seconds: float, side: int = 96) -> np.ndarray:
    """A picture in colours of a car on a road."""
    rows, columns = np.mgrid[0:side, 0:side]
    picture = np.empty((side, side, 3), np.uint8)
    stripes = ((rows + int(seconds * 40)) // 12 + columns // 12) % 2
    picture[:] = np.where(stripes[..., None] == 0, (92, 168, 80), (102, 180, 88))
    middle = side / 2 + 20 * np.sin(rows / 28 + seconds)
    distance = np.abs(columns - middle)
    picture[distance < 15] = (200, 60, 50)
    picture[distance < 13] = (104, 104, 108)
    left = int(middle[side - 24, 0]) - 4
    picture[side - 28 : side - 14, left : left + 8] = (206, 32, 42)
    picture[side - 25 : side - 22, left + 1 : left + 7] = (40, 44, 60)
    return picture


def play(address: str) -> None:
    """Inserts sequences of a game."""
    client = reverb.Client(address)
    random = np.random.default_rng(2)
    frames = [frame(np.array([0.5, 0.5]), 0.5)] * 4
    clock = 0.0
    with client.trajectory_writer(num_keep_alive_refs=STEPS) as writer:
        for _ in paced(lambda _: 60.0):
            clock += 1 / 30
            ball = np.array([abs((clock * 0.7) % 2 - 1), abs((clock * 0.45) % 2 - 1)])
            frames = [*frames[1:], frame(ball, 0.5 + 0.4 * np.sin(clock))]
            writer.append(
                {
                    "observation": {"frames": np.stack(frames, axis=-1), "camera": road(clock)},
                    "action": np.int64(random.integers(6)),
                    "reward": np.float32(np.sin(clock * 2) + 0.2 * random.normal()),
                    "value": (np.cos(clock + np.arange(4)) + 0.1 * random.normal(size=4)).astype(np.float32),
                }
            )
            if writer.episode_steps % STEPS == 0:
                history = writer.history
                writer.create_item(
                    "frames",
                    float(random.exponential()),
                    {
                        "observation": {
                            "frames": history["observation"]["frames"][-1],
                            "camera": history["observation"]["camera"][-8:],
                        },
                        "action": history["action"][-STEPS:],
                        "reward": history["reward"][-STEPS:],
                        "value": history["value"][-STEPS:],
                    },
                )


def run(role: str, address: str) -> None:
    """Runs a client."""
    names = [f"agent_{agent}" for agent in range(10)]
    threads: dict[str, list[tuple[Callable[..., None], tuple[object, ...]]]] = {
        "one-actor": [(act, (address, ["replay"], wave(60, 70)))],
        "one-learner": [(learn, (address, "replay", wave(1000, 110)))],
        "thirty-actor": [
            *((act, (address, [f"{name}/replay"], wave(6 * (at % 5), 60 + 7 * at))) for at, name in enumerate(names)),
            *((act, (address, [f"{name}/demos"], wave(4 * (at % 4), 90))) for at, name in enumerate(names)),
            *((act, (address, [f"{name}/unrolls"], wave(3 * (at % 3), 80))) for at, name in enumerate(names)),
        ],
        "thirty-learner": [
            *((learn, (address, f"{name}/replay", wave(8 * 6 * (at % 5) + 3, 75))) for at, name in enumerate(names)),
            *((learn, (address, f"{name}/unrolls", wave(3 * (at % 4), 65, 0.1), 1)) for at, name in enumerate(names)),
        ],
        "blocked-actor": [(act, (address, ["replay"], lambda seconds: 30 if seconds < 60 else 0.0))],
        "blocked-learner": [(learn, (address, "replay", lambda seconds: 110 if seconds < 35 else 200.0))],
        "blocked-evaluator": [(learn, (address, "replay", lambda seconds: 0 if seconds < 50 else 40.0, 8))],
        "item-actor": [(play, (address,))],
        "item-learner": [(learn, (address, "frames", wave(40, 60), 4))],
    }
    *others, (target, arguments) = threads[role]
    for other, its_arguments in others:
        threading.Thread(target=other, args=its_arguments, daemon=True).start()
    target(*arguments)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(*sys.argv[2:])
    else:
        name_the_machine(sys.argv[2])
        run(sys.argv[1], sys.argv[3])
