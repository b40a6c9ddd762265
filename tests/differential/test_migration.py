"""The steps of docs/migrate.md, with one process of either side for all of them."""

import itertools
import socket

import guide
import pytest
from both_sides import SIDES
from conversation import Conversation

pytestmark = [pytest.mark.reference, pytest.mark.alone, pytest.mark.timeout(240)]

ROADS = {"reference": "tcp (dm-reverb)", "ours": "tcp"}


def start(side):
    process = Conversation(side)
    process.run("".join(guide.pieces("The programs")))
    if side == "ours":
        process.run(next(piece for piece in guide.pieces("Step 1") if "def " in piece))
    return process


@pytest.fixture(scope="module")
def kept():
    processes = {}
    yield processes
    for process in processes.values():
        process.__exit__()


@pytest.fixture
def processes(kept):
    """A process of each side, that of an earlier test unless it was left in the middle of something."""
    for side in SIDES:
        if side in kept and kept[side].is_stuck:
            kept.pop(side).__exit__()
        kept.setdefault(side, None)
        kept[side] = kept[side] or start(side)
    yield kept
    for process in kept.values():
        if not process.is_stuck:
            process.run("if 'server' in globals(): server.stop(); del server")


@pytest.fixture
def port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def serve(process, port, folder):
    process.run(f"server = serve({port}, {str(folder)!r})")


def connect(process, port):
    process.run(f"client = reverb.Client('ipv4:127.0.0.1:{port}')")


def open_writer(process):
    process.run("writer = client.trajectory_writer(num_keep_alive_refs=2)")


def act(process, episode):
    process.run(f"act(client, writer, {episode})\nwriter.flush()")


def items_of(process):
    """Each item by its key: its rows as bits, and its priority. Draws until all have come."""
    statements = """
found = {}
while len(found) < client.server_info()["windows"].current_size:
    for sample in client.sample("windows", 200, emit_timesteps=False):
        data = [np.asarray(column).tobytes().hex() for column in sample.data]
        found[str(sample.info.key)] = [*data, sample.info.priority]
"""
    return process.run(statements, "found")


def returns_of(process, count):
    return process.run("", f"[float(s.data[0][0]) for s in client.sample('returns', {count}, emit_timesteps=False)]")


def counts_of(process):
    """What a table says of itself and its limiter."""
    statements = """
counts = {}
for name, info in client.server_info().items():
    limiter = info.rate_limiter_info
    counts[name] = [info.current_size, info.num_unique_samples]
    counts[name] += [limiter.insert_stats.completed, limiter.sample_stats.completed]
"""
    return process.run(statements, "counts")


@pytest.mark.parametrize(("server", "actor", "learner"), list(itertools.product(SIDES, repeat=3)))
def test_any_mixture_of_processes_works(processes, port, tmp_path, server, actor, learner):
    serve(processes[server], port, tmp_path)
    connect(processes[actor], port)
    open_writer(processes[actor])
    act(processes[actor], 7)
    connect(processes[learner], port)
    priorities = processes[learner].run("", "{str(key): value for key, value in learn(client).items()}")
    assert priorities
    items = items_of(processes[learner])
    assert len(items) == 9
    for _, rewards, priority in items.values():
        assert priority in (1.0, sum(memoryview(bytes.fromhex(rewards)).cast("f")))
    assert {key: items[key][2] for key in priorities} == priorities
    # The actor sees what the learner sees, to the bit.
    assert items_of(processes[actor]) == items
    assert returns_of(processes[learner], 1) == [45.0]
    processes[actor].run("writer.close()")


def test_step_1_the_client_says_which_protocol_it_speaks(processes, port, tmp_path):
    for side in SIDES:
        serve(processes[side], port, tmp_path / side)
        connect(processes["ours"], port)
        open_writer(processes["ours"])
        act(processes["ours"], 1)
        printed = guide.pieces("Step 1")[0].replace("address", f"'ipv4:127.0.0.1:{port}'")
        assert processes["ours"].run(printed, "client.road") == ROADS[side]
        processes["ours"].run("writer.close()")
        processes[side].run("server.stop(); del server")


@pytest.mark.parametrize("side", SIDES)
def test_step_1_a_moved_learner_draws_and_updates_in_batches(processes, port, tmp_path, side):
    serve(processes[side], port, tmp_path)
    connect(processes["ours"], port)
    open_writer(processes["ours"])
    act(processes["ours"], 3)
    priorities = processes["ours"].run("", "{str(key): value for key, value in learn_in_batches(client).items()}")
    items = items_of(processes["ours"])
    assert {key: items[key][2] for key in priorities} == priorities
    processes["ours"].run("writer.close()")


@pytest.mark.parametrize("side", SIDES)
def test_step_1_a_moved_learner_draws_ahead(processes, port, tmp_path, side):
    serve(processes[side], port, tmp_path)
    connect(processes["ours"], port)
    open_writer(processes["ours"])
    act(processes["ours"], 3)
    processes["ours"].run(f"learn_from_loader('ipv4:127.0.0.1:{port}', num_batches=5, batch_size=64)\nwriter.close()")
    # Most of nine items are among 320 draws; each has the priority that the learner set.
    priorities = {rewards: priority for _, rewards, priority in items_of(processes["ours"]).values() if priority != 1.0}
    assert len(priorities) >= 5
    for rewards, priority in priorities.items():
        assert priority == sum(memoryview(bytes.fromhex(rewards)).cast("f"))


@pytest.mark.parametrize(("before", "after"), [SIDES, SIDES[::-1]])
def test_steps_2_and_back_a_checkpoint_moves_across_with_all_counts(processes, port, tmp_path, before, after):
    serve(processes[before], port, tmp_path)
    for side in SIDES:
        connect(processes[side], port)
        open_writer(processes[side])
        act(processes[side], 10 if side == before else 20)
    assert returns_of(processes[before], 1) == [45.0]
    processes[after].run("learn(client)")
    items, counts = items_of(processes[before]), counts_of(processes[before])
    assert len(items) == 18
    for side in SIDES:
        processes[side].run("writer.close()")
    processes[before].run(guide.pieces("Step 2")[0])
    processes[before].run("server.stop(); del server")
    serve(processes[after], port, tmp_path)
    for side in SIDES:
        connect(processes[side], port)
    assert counts_of(processes["reference"]) == counts
    assert counts_of(processes["ours"]) == counts
    assert items_of(processes["reference"]) == items_of(processes["ours"]) == items
    # The limiter and the queue go on where they were.
    assert returns_of(processes[before], 1) == [45.0]
    assert counts_of(processes["ours"])["returns"][0] == 0


def test_clients_of_dm_reverb_that_stay_find_the_new_server_and_the_old_one_again(processes, port, tmp_path):
    old, new = processes["reference"], processes["ours"]
    serve(old, port, tmp_path)
    connect(old, port)
    open_writer(old)
    act(old, 1)
    episodes = 1
    for before, after in ((old, new), (new, old)):
        old.run(guide.pieces("Step 2")[0])
        before.run("server.stop(); del server")
        serve(after, port, tmp_path)
        episodes += 1
        # The same client and the same writer, with its history and its chunks.
        act(old, episodes)
        old.run("learn(client)")
        assert len(items_of(old)) == 9 * episodes
        assert counts_of(old)["returns"][0] == episodes
    old.run("writer.close()")


def test_clients_of_this_package_that_stay_find_either_server(processes, port, tmp_path):
    old, new = processes["reference"], processes["ours"]
    serve(old, port, tmp_path)
    connect(new, port)
    open_writer(new)
    act(new, 1)
    episodes = 1
    for before, after in ((old, new), (new, old)):
        new.run(guide.pieces("Step 2")[0])
        before.run("server.stop(); del server")
        serve(after, port, tmp_path)
        # As the guide says, the first call may find that the connection is lost.
        new.run("try: client.server_info()\nexcept reverb.errors.UnavailableError: client.server_info()")
        episodes += 1
        act(new, episodes)
        new.run("learn(client)")
        assert len(items_of(new)) == 9 * episodes
        assert counts_of(new)["returns"][0] == episodes
        assert new.run("", "client.road") == ROADS[after.side]
    new.run("writer.close()")


@pytest.mark.parametrize("side", SIDES)
def test_step_3_clients_of_both_kinds_share_a_queue(processes, port, tmp_path, side):
    serve(processes[side], port, tmp_path)
    for one in SIDES:
        connect(processes[one], port)
    for value, one in enumerate([*SIDES, *SIDES]):
        processes[one].run(f"client.insert(np.float32({value}), {{'returns': 1.0}})")
    drawn = [returns_of(processes[one], 1) for one in (*SIDES, *SIDES)]
    assert drawn == [[0.0], [1.0], [2.0], [3.0]]
    assert counts_of(processes["ours"])["returns"][0] == 0


@pytest.mark.parametrize("side", SIDES)
def test_an_old_learner_reads_with_a_dataset(processes, port, tmp_path, side):
    serve(processes[side], port, tmp_path)
    connect(processes["reference"], port)
    open_writer(processes["reference"])
    act(processes["reference"], 5)
    statements = f"""
dataset = reverb.TrajectoryDataset.from_table_signature(
    "ipv4:127.0.0.1:{port}", "windows", max_in_flight_samples_per_worker=4, max_samples=20)
shapes = {{tuple(sample.data["observation"].shape) for sample in dataset.as_numpy_iterator()}}
writer.close()
"""
    assert processes["reference"].run(statements, "sorted(shapes)") == [[2, 3]]
