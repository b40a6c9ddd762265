"""How clients of the matrix read. See matrix_peer.py.

Each way returns the items in the order of the draws: the fields of their infos, and `columns`, `steps`, or the `first`
step, as leaves of matrix_values.py.
"""

import numpy as np
from matrix_values import leaf_of
from matrix_writing import tensor_leaf


def read(peer, way, address, table, count, dtypes):
    """Draws `count` items of columns with these dtypes."""
    return WAYS[way](peer, address, table, count, dtypes)


def info_of(info):
    names = ("key", "probability", "table_size", "priority", "times_sampled")
    return {name: getattr(info, name) for name in names}


def sample(peer, address, table, count, dtypes):
    samples = peer.client(address).sample(table, count, emit_timesteps=False)
    return [{**info_of(one.info), "columns": [leaf_of(column) for column in one.data]} for one in samples]


def sample_timesteps(peer, address, table, count, dtypes):
    items = []
    for steps in peer.client(address).sample(table, count):
        assert all(step.info == steps[0].info for step in steps)
        items.append({**info_of(steps[0].info), "steps": [[leaf_of(part) for part in step.data] for step in steps]})
    return items


def dataset(peer, kind, address, table, dtypes, **options):
    tf = peer.tf
    kinds = tuple(tf.string if name == "bytes" else tf.as_dtype(name) for name in dtypes)
    options = {"max_in_flight_samples_per_worker": 4, **options}
    return getattr(peer.reverb, kind)(address, table, kinds, tuple(tf.TensorShape(None) for _ in dtypes), **options)


def tensors_of(sample):
    info = {name: part.numpy().item() for name, part in info_of(sample.info).items()}
    return info, [tensor_leaf(tensor) for tensor in sample.data]


def trajectory_dataset(peer, address, table, count, dtypes, **options):
    items = []
    for one in dataset(peer, "TrajectoryDataset", address, table, dtypes, max_samples=count, **options):
        info, columns = tensors_of(one)
        items.append({**info, "columns": columns})
    return items


def timestep_dataset(peer, address, table, count, dtypes, **options):
    items = []
    for one in dataset(peer, "TimestepDataset", address, table, dtypes, max_samples=count, **options):
        info, step = tensors_of(one)
        # Nothing but the info says where an item ends.
        if not items or items[-1]["key"] != info["key"]:
            items.append({**info, "steps": []})
        items[-1]["steps"].append(step)
    return items


def tf_client(peer, address, table, count, dtypes):
    """Draws one by one. Each call returns the first step of an item."""
    tf = peer.tf
    client = peer.reverb.TFClient(address)
    kinds = [tf.string if name == "bytes" else tf.as_dtype(name) for name in dtypes]
    items = []
    for _ in range(count):
        info, step = tensors_of(client.sample(table, kinds))
        items.append({**info, "first": step})
    return items


def items_of_batch(batch):
    """Cuts a batch of ours into items."""
    info = batch.info
    items = []
    for row in range(len(info.key)):
        # Rows of columns whose items differ in length are arrays, too.
        columns = [leaf_of(row_of(column, row)) for column in batch.data]
        items.append({**{name: part[row].item() for name, part in info_of(info).items()}, "columns": columns})
    return items


def row_of(column, row):
    array = column[row]
    if isinstance(array, (bytes, str)):
        whole = np.empty((), object)
        whole[()] = array
        return whole
    return array


def sample_batch(peer, address, table, count, dtypes):
    """Draws half of the items, and then the others. They may differ in length, but not in dtype."""
    client = peer.client(address)
    items = []
    for size in (count // 2, count - count // 2):
        if size:
            items += items_of_batch(client.sample_batch(table, size, timeout=60))
    return items


def loader(peer, address, table, count, dtypes):
    from reverb.loaders import NumpyLoader

    size = max(size for size in range(1, 5) if count % size == 0)
    items = []
    with NumpyLoader(peer.client(address), table, batch_size=size, num_batches=count // size, timeout=60) as batches:
        for batch in batches:
            items += items_of_batch(batch)
    return items


WAYS = {
    "sample": sample,
    "sample timesteps": sample_timesteps,
    "TrajectoryDataset": trajectory_dataset,
    "TimestepDataset": timestep_dataset,
    "TFClient": tf_client,
    "sample_batch": sample_batch,
    "loader": loader,
}

TASKS = (read,)
