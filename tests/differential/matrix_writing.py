"""How clients of the matrix write. See matrix_peer.py.

Each case writes items into one table, in order, and returns them as a reader must see them.
"""

import numpy as np
from matrix_values import INTEGERS, SHAPES, as_bytes, extreme_step, item, leaf_of, stacked, step, texts_of, value


def write(peer, case, address, table):
    """Writes the items of a case and returns them once all are in the table."""
    return CASES[case](peer, address, table)


def insert(peer, address, table):
    """Every dtype and shape, as an item of one step."""
    client = peer.client(address)
    steps = [step(seed, SHAPES) for seed in range(2)]
    for number, one in enumerate(steps):
        client.insert(one, {table: number + 0.5})
    return [item(number + 0.5, [stacked([array]) for array in one]) for number, one in enumerate(steps)]


def insert_nest(peer, address, table):
    """Nests, Python's own numbers and strings, and arrays that are not contiguous."""
    square = np.arange(9, dtype=np.int16).reshape(3, 3)
    nest = {
        "z": (1, [2.5, True]),
        "a": {"text": "hé", "bytes": texts_of([b"\0\0"], ())},
        "m": square.T,
        "n": square[::2, ::-1],
    }
    peer.client(address).insert(nest, {table: -1.0})
    flat_texts = [texts_of([text], 1) for text in (b"\0\0", "hé".encode())]
    flat = [*flat_texts, square.T[None], square[::2, ::-1][None], np.int64([1]), np.float64([2.5]), np.array([True])]
    return [item(-1.0, flat)]


def insert_large(peer, address, table):
    """Items of five chunks of 700 kB each, which are split over messages."""
    random = np.random.default_rng(0)
    steps = [random.integers(0, 2**32, 175_000, np.uint32) for _ in range(6)]
    with peer.client(address).trajectory_writer(5) as writer:
        writer.configure((), num_keep_alive_refs=5, max_chunk_length=1)
        writer.append(steps[0])
        for number, one in enumerate(steps[1:], 1):
            writer.append(one)
            if number >= 4:
                writer.create_item(table, number, writer.history[-5:])
        writer.flush()
    return [item(number, [stacked(steps[number - 4 : number + 1])]) for number in (4, 5)]


def legacy(steps, length, chunk_length, delta, **options):
    """A case of the writer of whole steps: overlapping items of `length` steps, and one of the last step."""

    def case(peer, address, table):
        expected = []
        with peer.client(address).writer(length, delta_encoded=delta, chunk_length=chunk_length, **options) as writer:
            for number, one in enumerate(steps()):
                writer.append(one)
                if number >= length - 1:
                    writer.create_item(table, length, number)
                    expected.append(item(number, windows(steps()[number - length + 1 : number + 1])))
            writer.create_item(table, 1, 0.25)
            expected.append(item(0.25, windows(steps()[-1:])))
            writer.flush()
        return expected

    return case


def windows(steps):
    return [stacked(column) for column in zip(*steps)]  # noqa: B905 - Python 3.9 has no `strict`.


def sequence(peer, address, table):
    """Steps that are appended together."""
    columns = [value(dtype, (7, 2), place) for place, dtype in enumerate(("f4", *INTEGERS))]
    with peer.client(address).writer(4, chunk_length=3, delta_encoded=True) as writer:
        writer.append_sequence(columns)
        writer.create_item(table, 4, 1.5)
        writer.flush()
        writer.append_sequence([column[:2] for column in columns])
        writer.create_item(table, 3, 2.5)
    whole = [np.concatenate([column, column[:2]]) for column in columns]
    return [item(1.5, [column[3:7] for column in whole]), item(2.5, [column[6:9] for column in whole])]


class Items:
    """Creates the items of a trajectory writer, and notes them.

    Args:
      writer: Writer of either side.
      table: Name of the table.
    """

    def __init__(self, writer, table):
        self.writer = writer
        self.table = table
        self.expected = []

    def create(self, priority, *columns, arrays=None):
        """Creates an item of columns whose rows are `arrays`, by default what the columns say."""
        self.writer.create_item(self.table, priority, list(columns))
        self.expected.append(item(priority, arrays or [column.numpy() for column in columns]))


def trajectory_steps(keep):
    """Overlapping items of every dtype and shape."""

    def case(peer, address, table):
        with peer.client(address).trajectory_writer(keep) as writer:
            items = Items(writer, table)
            for number in range(keep + 2):
                writer.append(step(number))
                if number >= keep - 1:
                    arrays = windows([step(one) for one in range(number - keep + 1, number + 1)])
                    items.create(number, *(column[-keep:] for column in writer.history), arrays=arrays)
            writer.flush()
        return items.expected

    return case


def trajectory_columns(peer, address, table):
    """Columns of different lengths, squeezed ones, chunks of different lengths, partial steps, several episodes."""
    with peer.client(address).trajectory_writer(6) as writer:
        items = Items(writer, table)
        for name, length in (("a", 1), ("b", 3), ("c", None), ("s", 6)):
            writer.configure((name,), num_keep_alive_refs=6, max_chunk_length=length)
        for number in range(14):
            writer.append({"a": np.float32([number, np.nan]), "s": texts_of([b"%d\0" % number], ())}, partial_step=True)
            if number == 4:
                create(items, number, a=slice(-1, None), b=-2)
            writer.append({"b": np.int64(-number), "c": np.full((2, 2), number, np.uint8)})
            if number % 7 >= 3:
                create(items, number, a=slice(-4, None), b=-1)
            if number == 9:
                writer.flush(1)
            if number == 6:
                writer.end_episode(clear_buffers=False)
                create(items, 0.5, a=slice(-6, None), b=-3)
        writer.end_episode()
    return items.expected


def create(items, priority, a, b):
    """Creates an item of six columns, with these rows of `a`, and this one of `b` and some before."""
    history = items.writer.history
    b_and_before = slice(b - 2, b)
    columns = (history["a"][a], history["b"][b], history["b"][b_and_before], history["c"][b_and_before])
    items.create(priority, *columns, history["s"][-3:], history["s"][-1])


def trajectory_many(peer, address, table):
    """More items at once than a writer may have on their way."""
    options = {"max_in_flight_items": 2} if peer.side == "ours" else {}
    with peer.client(address).trajectory_writer(2, **options) as writer:
        items = Items(writer, table)
        for number in range(150):
            writer.append([np.int32([number]), np.float64(number)])
            if number:
                items.create(number, *(column[-2:] for column in writer.history))
        writer.flush()
    return items.expected


def structured(peer, address, table):
    """Items of patterns: with conditions, at the end of episodes, and of one squeezed step."""
    module = peer.reverb.structured_writer
    step_of = module.create_reference_step({"a": None, "b": None})
    index = module.Condition.step_index()
    configs = [
        module.create_config({"x": step_of["a"][-2:], "y": step_of["b"][-1]}, table, [index % 2 == 1]),
        module.create_config(
            {"x": step_of["a"][-3:-1], "y": step_of["b"][-3]},
            table,
            [module.Condition.is_end_episode()],
            module.constant_priority_fn(2.5),
        ),
        module.create_config(
            {"x": step_of["a"][-2:], "y": step_of["b"][-1]},
            table,
            [module.Condition.data({"a": None, "b": None})["b"] == 100, index >= 2],
        ),
    ]
    writer = peer.client(address).structured_writer(configs)
    a = [np.int16([number, -number, 7]) for number in range(10)]
    b = [np.int32(number if number != 7 else 100) for number in range(10)]
    expected = []
    for number in range(10):
        writer.append({"a": a[number], "b": b[number]})
        in_episode = number % 5
        if in_episode % 2 == 1:
            expected.append(item(1.0, [stacked(a[number - 1 : number + 1]), b[number]]))
        if b[number] == 100 and in_episode >= 2:
            expected.append(item(1.0, [stacked(a[number - 1 : number + 1]), b[number]]))
        if in_episode == 4:
            expected.append(item(2.5, [stacked(a[number - 2 : number]), b[number - 2]]))
            writer.end_episode()
    writer.flush()
    return expected


def tf_client(peer, address, table):
    """Tensors of TensorFlow, of every dtype that it can insert; bfloat16 is one that NumPy lacks."""
    tf = peer.tf
    tensors = [tf.constant(one) for one in (np.int32([1, -2]), np.uint64(2**64 - 1), np.complex128(1 - 2j), True)]
    tensors += [tf.constant(["a\0", "", "hé"]), tf.constant([1.5, -0.0, float("nan")], tf.bfloat16)]
    tensors += [tf.zeros((0, 2), tf.float16)]
    client = peer.reverb.TFClient(address)
    client.insert(tensors, tf.constant([table, table]), tf.constant([1.0, 2.0], tf.float64))
    columns = [tensor_leaf(tensor[None]) for tensor in tensors]
    return [{"priority": priority, "columns": columns} for priority in (1.0, 2.0)]


def tensor_leaf(tensor):
    """Converts a tensor to the form between processes."""
    array = tensor.numpy()
    if tensor.dtype.name != "string":
        return leaf_of(array)
    flat = array.ravel() if isinstance(array, np.ndarray) else [array]
    return "bytes", tuple(tensor.shape), tuple(as_bytes(text) for text in flat)


def insert_batch(step):
    """A case of our inserts of many rows at once: one chunk, each row an item."""

    def case(peer, address, table):
        rows = [step(number) for number in range(6)]
        peer.client(address).insert_batch(windows(rows), {table: np.arange(6) + 0.5})
        return [item(number + 0.5, [stacked([array]) for array in one]) for number, one in enumerate(rows)]

    return case


def small_step(number):
    """Returns a step of few numbers, whose columns lie side by side in a batch."""
    return [value(dtype, shape, number) for dtype, shape in (("f4", (3,)), ("?", (1,)), ("i8", ()), ("c8", (2, 1)))]


def batched_writer(peer, address, table):
    """Steps of our writer for several environments."""
    expected = []
    with peer.client(address).batched_writer(3, 4) as writer:
        rows = [[value(dtype, (3, 2), (number, place)) for place, dtype in enumerate("?Of")] for number in range(6)]
        for number, one in enumerate(rows):
            writer.append(one)
            if number >= 2:
                history = writer.history
                writer.create_items(table, number, [history[0][-3:], history[1][-1], history[2][-2:]])
                for env in range(3):
                    window = [[column[env] for column in row] for row in rows[number - 2 : number + 1]]
                    of_all = windows(window)
                    expected.append(item(number, [of_all[0], of_all[1][-1], of_all[2][1:]]))
        writer.flush()
    return expected


def compressed(codec, delta):
    """Chunks that our writers compress, of columns in which that pays."""

    def case(peer, address, table):
        options = {"compression": codec, "delta_encoded": delta, "max_chunk_length": 8}
        with peer.client(address).trajectory_writer(8, **options) as writer:
            items = Items(writer, table)
            for number in range(20):
                columns = [np.arange(number, number + 300, dtype=np.int64), np.full((40, 3), number, np.float32)]
                writer.append([*columns, np.uint8(number), b"%d" % number])
                if number >= 7:
                    history = writer.history
                    items.create(number, *(column[-8:] for column in history[:3]), history[3][-1])
            writer.flush()
        return items.expected

    return case


def strided(peer, address, table):
    """Rows of one chunk that are not neighbours, which the reference's writers cannot select."""
    with peer.client(address).trajectory_writer(6, max_chunk_length=6) as writer:
        items = Items(writer, table)
        for number in range(6):
            writer.append([np.int32([number, 10 * number])])
        [column] = writer.history
        for selected in (slice(None, None, 2), [4, 0, 0], slice(None, None, -1), [1, 2, 5]):
            items.create(1.0, column[selected])
        writer.flush()
    return items.expected


def of_ml_dtypes(peer, address, table):
    """Arrays of dtypes that TensorFlow knows, and NumPy only by a package."""
    import ml_dtypes

    kinds = [ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn]
    steps = [[np.full((2,), number, kind) for kind in kinds] for number in range(3)]
    with peer.client(address).trajectory_writer(3) as writer:
        items = Items(writer, table)
        for one in steps:
            writer.append(one)
        items.create(1.0, *(column[-3:] for column in writer.history), arrays=windows(steps))
        writer.flush()
    return items.expected


def all_steps():
    return [step(number) for number in range(5)]


def extreme_steps():
    return [extreme_step(number) for number in range(8)]


CASES = {
    "insert": insert,
    "insert nest": insert_nest,
    "insert large": insert_large,
    "writer 1": legacy(all_steps, 3, 1, False),
    "writer 2": legacy(all_steps, 3, 2, False),
    "writer 3 delta": legacy(all_steps, 3, 3, True),
    "writer 2 delta": legacy(extreme_steps, 4, 2, True, max_in_flight_items=1),
    "writer default delta": legacy(extreme_steps, 4, None, True, max_in_flight_items=None),
    "writer sequence": sequence,
    "trajectory 1": trajectory_steps(1),
    "trajectory 3": trajectory_steps(3),
    "trajectory columns": trajectory_columns,
    "trajectory many": trajectory_many,
    "structured": structured,
    "tf client": tf_client,
    "insert batch": insert_batch(step),
    "insert batch interleaved": insert_batch(small_step),
    "batched writer": batched_writer,
    "compressed lz4": compressed("lz4", False),
    "compressed zstd delta": compressed("zstd", True),
    "compressed auto": compressed("auto", False),
    "strided": strided,
    "ml_dtypes": of_ml_dtypes,
}

TASKS = (write,)
