"""The servers and clients whose live pages are photographed: `serve NAME`, or `ROLE MACHINE ADDRESS`.

`serve` prints its address and that of its page as one line of JSON, and ends with its standard input. Other roles are
clients of one server, until they are terminated.
"""

import ctypes
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np

import reverb
from reverb.platform.checkpointers_lib import DefaultCheckpointer

Spec = reverb.TensorSpec
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
            [2000, 10_000, 20_000][agent % 3],
            reverb.rate_limiters.MinSize([200, 500, 1500][agent % 3]),
        )
        queue = reverb.Table.queue(f"agent_{agent}/unrolls", 200).replace(stall_after=20.0)
        tables += [replay_table(f"agent_{agent}/replay", 20_000), demos, queue]
    return tables


def blocked_table() -> reverb.Table:
    """A table whose actors are too slow for its learner."""
    limiter = reverb.rate_limiters.SampleToInsertRatio(4.0, min_size_to_sample=100, error_buffer=200.0)
    return reverb.Table("replay", reverb.selectors.Uniform(), reverb.selectors.Fifo(), 50_000, limiter)


def chained_tables() -> list[reverb.Table]:
    """A queue that nobody empties, and a table that then gets nothing from its actors."""
    return [reverb.Table.queue("episodes", 200), replay_table("replay")]


def narrow_table() -> reverb.Table:
    """A table with a narrow band, for half a million samples a second."""
    limiter = reverb.rate_limiters.SampleToInsertRatio(64.0, min_size_to_sample=1000, error_buffer=16_384.0)
    return reverb.Table("replay", reverb.selectors.Uniform(), reverb.selectors.Fifo(), 100_000, limiter)


def fill_the_disk(folder: str) -> None:
    """Gives this process alone a full disk at `folder`. Only root may."""
    new_mount_namespace, private = 0x00020000, 0x00040000 | 0x4000
    libc = ctypes.CDLL(None, use_errno=True)
    libc.unshare(new_mount_namespace)
    libc.mount(b"none", b"/", None, private, None)
    libc.mount(b"tmpfs", folder.encode(), b"tmpfs", 0, b"size=3m")


def image_table() -> reverb.Table:
    """A table of sequences with pictures and series."""
    signature = {
        "observation": {"frames": Spec([SIDE, SIDE, 4], np.uint8), "camera": Spec([None, 96, 96, 3], np.uint8)},
        "action": Spec([None], np.int64),
        "reward": Spec([None], np.float32),
        "value": Spec([None, 4], np.float32),
    }
    return reverb.Table(
        "frames",
        reverb.selectors.Uniform(),
        reverb.selectors.Fifo(),
        500,
        reverb.rate_limiters.MinSize(1),
        signature=signature,
    )


def serve(name: str) -> None:
    """Runs a server until standard input ends."""
    name_the_machine("replay-1")
    tables: dict[str, Callable[[], list[reverb.Table]]] = {
        "one": lambda: [replay_table("replay")],
        "thirty": many_tables,
        "blocked": lambda: [blocked_table()],
        "item": lambda: [image_table()],
        "empty": lambda: [replay_table("replay")],
        "dead": lambda: [replay_table("replay"), reverb.Table.queue("unrolls", 500)],
        "chain": chained_tables,
        "narrow": lambda: [narrow_table()],
        "full": lambda: [replay_table("replay")],
        "restored": lambda: [replay_table("replay")],
        "killed": lambda: [replay_table("replay")],
    }
    with tempfile.TemporaryDirectory(prefix="reverb-run-") as folder:
        if name == "full":
            fill_the_disk(folder)
        if name == "restored":
            before = reverb.Server(tables[name](), checkpointer=DefaultCheckpointer(folder))
            client = before.localhost_client()
            random = np.random.default_rng(0)
            client.insert_batch(steps(random, 500), {"replay": 1.0})
            for _ in range(200):
                client.insert_batch(steps(random, 250), {"replay": 1.0})
                client.sample_batch("replay", 2000)
            client.checkpoint()
            before.stop()
            time.sleep(20)
        # A program that makes its own server passes `interval`, as `reverb serve` does.
        server = reverb.Server(tables[name](), checkpointer=DefaultCheckpointer(folder, interval=30.0))
        print(json.dumps([f"127.0.0.1:{server.port}", server.dashboard_url]), flush=True)
        sys.stdin.read()
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


def steps(random: np.random.Generator, count: int, width: int = 128) -> list[np.ndarray]:
    """Steps of a small environment."""
    observations = random.normal(size=(count, width)).astype(np.float32)
    return [observations, random.integers(6, size=count), random.normal(size=count).astype(np.float32)]


def act(
    address: str, table: str, rate: Callable[[float], float], batch: int = 20, first: int = 0, width: int = 128
) -> None:
    """Inserts batches of items; at once `first` of them. Observations have `width` numbers."""
    client = reverb.Client(address)
    random = np.random.default_rng(0)
    if first:
        client.insert_batch(steps(random, first, width), {table: random.exponential(size=first)})
    for _ in paced(lambda seconds: rate(seconds) / batch):
        client.insert_batch(steps(random, batch, width), {table: random.exponential(size=batch)})


def learn(address: str, table: str, rate: Callable[[float], float], batch: int = 160) -> None:
    """Samples batches from a table, and sets the priorities of the items."""
    client = reverb.Client(address)
    random = np.random.default_rng(1)
    for _ in paced(lambda seconds: rate(seconds) / batch):
        samples = client.sample_batch(table, batch)
        keys = np.asarray(samples.info.key).reshape(-1)[:4]
        client.mutate_priorities(table, updates={int(key): float(random.exponential()) for key in keys})


def act_in_turn(address: str, queue: str, table: str) -> None:
    """Inserts each episode into a queue, and then its steps into a table."""
    client = reverb.Client(address)
    random = np.random.default_rng(0)
    for _ in paced(lambda _: 3.0):
        client.insert_batch(steps(random, 10), {queue: 1.0})
        client.insert_batch(steps(random, 200), {table: 1.0})


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
                    "observation": {"frames": np.stack(frames, axis=-1), "camera": road(clock * 5)},
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
    agents = [(at, f"agent_{at}") for at in range(10)]
    # Of one agent nobody takes the unrolls, which a program of their own inserts.
    healthy, stuck = [agent for agent in agents if agent[0] != 6], "agent_6/unrolls"
    threads: dict[str, list[tuple[Callable[..., None], tuple[object, ...]]]] = {
        "one-actor": [(act, (address, "replay", wave(120, 70)))],
        "one-learner": [(learn, (address, "replay", wave(2900, 110)))],
        "thirty-actor": [
            *((act, (address, f"{name}/replay", wave(20 + 30 * (at % 4), 60 + 7 * at))) for at, name in agents),
            *((act, (address, f"{name}/demos", wave(5, 90), 10, 900 * at)) for at, name in agents),
            *((act, (address, f"{name}/unrolls", wave(12 + 9 * (at % 3), 80), 5)) for at, name in healthy),
        ],
        "thirty-learner": [
            *((learn, (address, f"{name}/replay", wave(170 + 240 * (at % 4), 75))) for at, name in agents),
            *((learn, (address, f"{name}/demos", wave(30 + 10 * (at % 5), 50), 20)) for at, name in agents),
            *((learn, (address, f"{name}/unrolls", wave(14 + 8 * (at % 3), 65, 0.1), 5)) for at, name in healthy),
        ],
        "stuck-actor": [(act, (address, stuck, wave(30, 80), 5))],
        "blocked-actor": [(act, (address, "replay", lambda seconds: 120 if seconds < 80 else 0.0))],
        "blocked-learner": [(learn, (address, "replay", lambda seconds: 440 if seconds < 50 else 700.0, 40))],
        "blocked-evaluator": [(learn, (address, "replay", lambda seconds: 0 if seconds < 70 else 80.0, 40))],
        "chain-actor": [(act_in_turn, (address, "episodes", "replay"))],
        "chain-learner": [(learn, (address, "replay", wave(2400, 60)))],
        "narrow-actor": [(act, (address, "replay", lambda _: 20_000.0, 256, 2000, 4))],
        "narrow-learner": [(learn, (address, "replay", lambda _: 600_000.0, 8192))],
        "item-actor": [(play, (address,))],
        "item-learner": [(learn, (address, "frames", wave(40, 60), 4))],
    }
    *others, (target, arguments) = threads[role]
    for other, its_arguments in others:
        threading.Thread(target=other, args=its_arguments, daemon=True).start()
    target(*arguments)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        name_the_machine(sys.argv[2])
        run(sys.argv[1], sys.argv[3])
