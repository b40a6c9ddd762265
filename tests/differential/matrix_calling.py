"""Single calls, errors and waits of clients of the matrix. See matrix_peer.py."""

import itertools

import numpy as np
from matrix_reading import dataset, info_of


def insert(peer, address, values, priorities):
    """Inserts numbers as items of one step. `priorities` maps tables to a priority, or to one for each value."""
    client = peer.client(address)
    for place, number in enumerate(values):
        of_item = {table: one[place] if isinstance(one, list) else one for table, one in priorities.items()}
        client.insert(np.int64(number), of_item)


def draw(peer, address, table, count):
    """Draws numbers, and returns each with its info."""
    return [(int(one.data[0][0]), info_of(one.info)) for one in draws(peer, address, table, count)]


def draws(peer, address, table, count):
    return peer.client(address).sample(table, count, emit_timesteps=False)


def draw_from(peer, address, table, kind, options, columns=("int64",)):
    """Returns the numbers that a dataset with these options has until it ends."""
    return [int(np.ravel(one.data[0].numpy())[0]) for one in dataset(peer, kind, address, table, columns, **options)]


def mutate(peer, address, table, updates, deletes):
    peer.client(address).mutate_priorities(table, updates=updates, deletes=deletes)


def update_by_tensorflow(peer, address, table, updates):
    """Sets priorities by the client of TensorFlow programs."""
    tf = peer.tf
    client = peer.reverb.TFClient(address)
    keys, priorities = tf.constant(list(updates), tf.uint64), tf.constant(list(updates.values()), tf.float64)
    client.update_priorities(table, keys, priorities)


def reset(peer, address, table):
    peer.client(address).reset(table)


def checkpoint(peer, address):
    return peer.client(address).checkpoint()


def road(peer, address):
    return peer.client(address).road


def infos(peer, address):
    """Returns what a server says of its tables, by their names."""
    found = {}
    for name, info in peer.client(address).server_info().items():
        limiter = info.rate_limiter_info
        fields = ("name", "max_size", "max_times_sampled", "current_size")
        counts = ("num_episodes", "num_deleted_episodes", "num_unique_samples")
        found[name] = {
            **{field: getattr(info, field) for field in (*fields, *counts)},
            "sampler": info.sampler_options.SerializeToString(deterministic=True),
            "remover": info.remover_options.SerializeToString(deterministic=True),
            "limiter": limiter.SerializeToString(deterministic=True),
            "signature": signature_of(info.signature),
        }
    return found


def signature_of(signature):
    """Returns the leaves of a signature: path, dtype, shape, and bounds."""
    import tree

    if signature is None:
        return None
    leaves = []
    for path, spec in tree.flatten_with_path(signature):
        bounds = [np.asarray(getattr(spec, bound, 0)).tolist() for bound in ("minimum", "maximum")]
        dtype = np.dtype(getattr(spec.dtype, "as_numpy_dtype", spec.dtype)).name
        shape = None if spec.shape is None or getattr(spec.shape, "rank", 0) is None else list(spec.shape)
        leaves.append((path, spec.name, dtype, shape, bounds))
    return leaves


def fail(peer, call, address):
    """Makes a call that must raise an error."""
    client = peer.client(address)
    calls = {
        "sample of no table": lambda: next(client.sample("nowhere")),
        "insert into no table": lambda: client.insert(1, {"nowhere": 1.0}),
        "insert of nothing": lambda: client.insert([], {"once": 1.0}),
        "insert of NaN": lambda: client.insert(1, {"once": float("nan")}),
        "insert of a negative priority": lambda: client.insert(1, {"victim": -1.0}),
        "insert against the signature": lambda: client.insert({"a": np.zeros(2, np.float32)}, {"signed": 1.0}),
        "item against the signature": lambda: write_one(client, "signed", np.zeros(2, np.float32)),
        "row against the signature": lambda: write_row(client, "signed", np.zeros(2, np.float32)),
        "item for no table": lambda: write_one(client, "nowhere", 1),
        "unchecked item for no table": lambda: write_one(client, "nowhere", 1, validate_items=False),
        "pattern for no table": lambda: write_pattern(peer, client, "nowhere"),
        "mutate of no table": lambda: client.mutate_priorities("nowhere", updates={1: 1.0}),
        "mutate to a negative priority": lambda: mutate_first(client, -1.0),
        "mutate to NaN": lambda: mutate_first(client, float("nan")),
        "reset of no table": lambda: client.reset("nowhere"),
        "zero samples": lambda: next(client.sample("once", 0)),
        "dataset of no table": lambda: next(iter(dataset(peer, "TrajectoryDataset", address, "nowhere", ["int64"]))),
        "dataset of another dtype": lambda: next(iter(dataset(peer, "TrajectoryDataset", address, "signed", ["int8"]))),
        "TFClient of no table": lambda: peer.reverb.TFClient(address).sample("nowhere", [peer.tf.int64]),
        "dataset without a signature": lambda: dataset_of_signature(peer, address, "once"),
    }
    calls[call]()


def write_one(client, table, value, **options):
    with client.trajectory_writer(1, **options) as writer:
        writer.append([value])
        writer.create_item(table, 1.0, [writer.history[0][-1:]])


def write_row(client, table, value):
    with client.writer(1) as writer:
        writer.append([value])
        writer.create_item(table, 1, 1.0)


def write_pattern(peer, client, table):
    module = peer.reverb.structured_writer
    step = module.create_reference_step([None])
    writer = client.structured_writer([module.create_config([step[0][-1]], table)])
    writer.append([1])
    writer.flush()


def mutate_first(client, priority):
    """Sets the priority of an item that exists."""
    client.insert(1, {"prioritized": 1.0})
    [one] = client.sample("prioritized", 1, emit_timesteps=False)
    client.mutate_priorities("prioritized", updates={one.info.key: priority})


def dataset_of_signature(peer, address, table):
    return peer.reverb.TrajectoryDataset.from_table_signature(address, table, 1)


def values_by_signature(peer, address, table, count, kind):
    """Returns the leaves of items or steps of a table's signature."""
    kind = getattr(peer.reverb, kind)
    samples = kind.from_table_signature(address, table, 2, max_samples=count)
    return [{name: part.numpy().tolist() for name, part in one.data.items()} for one in samples]


def unpacked(peer, address, table, count):
    """Returns items in the structure of their table's signature."""
    samples = peer.client(address).sample(table, count, emit_timesteps=False, unpack_as_table_signature=True)
    return [{name: part.tolist() for name, part in one.data.items()} for one in samples]


def insert_nests(peer, address, table, count):
    for number in range(count):
        nest = {"b": np.int64(number), "a": np.full(2, number, np.float32)}
        peer.client(address).insert(nest, {table: 1.0})


def patterns_of_steps(peer, address, table, count):
    """Returns the items that patterns make of the steps of a table."""
    module = peer.reverb.structured_writer
    steps = dataset(peer, "TimestepDataset", address, table, ["int64"], max_samples=count)
    steps = steps.map(lambda one: {"n": peer.tf.reshape(one.data[0], [])})
    step = module.create_reference_step({"n": None})
    config = module.create_config({"last": step["n"][-1], "window": step["n"][-2:]}, "table")
    items = peer.reverb.PatternDataset(steps, [config], True, lambda one: one["n"] % 5 == 4)
    return [(int(one["last"]), one["window"].numpy().tolist()) for one in items]


def flush_late(peer, address, table, count):
    """Flushes more items than fit into the table, with a limit. Returns the error, and how many items were there."""
    client = peer.client(address)
    writer = client.trajectory_writer(1)
    for number in range(count):
        writer.append([np.int64(number)])
        writer.create_item(table, 1.0, [writer.history[0][-1:]])
    try:
        writer.flush(0, 200)
    except peer.reverb.DeadlineExceededError as error:
        return str(error), client.server_info()[table].current_size
    finally:
        # Our writer would wait for its items when it is closed.
        client.reset(table)
        writer.flush()
        writer.close()
    return None


def sample_batch_late(peer, address, table, size):
    """Draws a batch with a short limit."""
    return len(peer.client(address).sample_batch(table, size, timeout=0.2).info.key)


def sample_batches(peer, address, table, sizes):
    """Draws batches, and waits for them as long as it takes."""
    return [len(peer.client(address).sample_batch(table, size).info.key) for size in sizes]


def signal(peer, event):
    """Sets an event for which tasks of this process wait."""
    peer.event(event).set()


def write_until(peer, address, table, event):
    """Writes numbers until the event is set, and returns how many. Goes on while the server restarts."""
    stop = peer.event(event)
    # As actors do, between steps: items that come as fast as they can would take long to draw.
    numbers = itertools.takewhile(lambda _: not stop.wait(0.002), itertools.count())
    return write_numbers(peer, address, table, numbers)


def write_numbers(peer, address, table, numbers):
    """Writes items of a number and a row that is made of it, and returns how many."""
    count = 0
    with peer.client(address).trajectory_writer(3) as writer:
        for number in numbers:
            writer.append([np.int64(number), np.full(3, number, np.float32)])
            writer.create_item(table, 1.0 + number % 7, [column[-1:] for column in writer.history])
            count += 1
            if count % 5 == 0:
                writer.flush()
        writer.flush()
    return count


def read_until(peer, address, table, event):
    """Draws from a queue until the event is set and nothing more comes, and returns the numbers in order."""
    stop = peer.event(event)
    numbers = []
    read_some = read_by_loader if peer.side == "ours" else read_by_dataset
    while True:
        is_last = stop.is_set()
        numbers += read_some(peer, address, table)
        if is_last:
            return numbers


def read_by_dataset(peer, address, table):
    kinds = ["int64", "float32"]
    samples = dataset(peer, "TrajectoryDataset", address, table, kinds, rate_limiter_timeout_ms=300)
    return [checked(one.data[0].numpy(), one.data[1].numpy()) for one in samples]


def read_by_loader(peer, address, table):
    from reverb.loaders import NumpyLoader

    numbers = []
    with NumpyLoader(peer.client(address), table, batch_size=4, timeout=0.3, on_timeout="stop") as batches:
        for batch in batches:
            numbers += [checked(*rows) for rows in zip(*batch.data)]  # noqa: B905 - Python 3.9 has no `strict`.
    return numbers


def checked(number, row):
    """Returns the number of an item of `write_numbers`, whose other column must fit."""
    assert number.shape == (1,)
    assert row.tolist() == [[float(number[0])] * 3]
    return int(number[0])


def use_until(peer, address, table, event):
    """Draws items of `write_numbers` and changes their priorities until the event is set."""
    stop = peer.event(event)
    client = peer.client(address)
    count = 0
    while not stop.is_set():
        keys = {}
        for one in client.sample(table, 4, emit_timesteps=False):
            keys[one.info.key] = 1.0 + checked(*one.data) % 5
            count += 1
        client.mutate_priorities(table, updates=keys, deletes=[min(keys)] if count % 40 == 0 else [])
    return count


TASKS = (
    *(insert, draw, draw_from, mutate, update_by_tensorflow, reset, checkpoint, road, infos, fail),
    *(values_by_signature, unpacked, insert_nests, patterns_of_steps, flush_late, sample_batch_late, sample_batches),
    *(signal, write_until, write_numbers, read_until, use_until),
)
