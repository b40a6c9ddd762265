"""Datasets in programs of TensorFlow 1, which iterate in sessions, and before TensorFlow's devices are set up."""

import threading

import numpy as np
import pytest
from behaviour_support import PATIENCE_S, make_table, run_program

import reverb

tf = pytest.importorskip("tensorflow")
tf1 = tf.compat.v1
pytestmark = pytest.mark.tensorflow


@pytest.fixture
def session(serve):
    """A session of a graph of its own, beside a server that has five items in `table` and none in `queue`."""
    client = serve(make_table(sampler="fifo", max_times_sampled=1), reverb.Table.queue("queue", 10))
    client.insert_batch(np.arange(6, dtype=np.int64), {"table": 1.0})
    with tf.Graph().as_default(), tf1.Session() as session:
        yield session


def items(serve, table="table", length=1, **options):
    return reverb.TrajectoryDataset(serve.address, table, tf.int64, tf.TensorShape([length]), 1, **options)


def steps(serve, **options):
    return reverb.TimestepDataset(serve.address, "table", tf.int64, tf.TensorShape([]), 1, **options)


def run_all(session, element):
    """The numbers of all elements, until the data end."""
    found = []
    try:
        while True:
            found += np.ravel(session.run(element).data).tolist()
    except tf.errors.OutOfRangeError:
        return found


@pytest.mark.parametrize("length", [1, None])
@pytest.mark.parametrize("make", [items, steps], ids=["trajectories", "timesteps"])
def test_initializable_iterators_can_be_started_again(serve, session, make, length):
    options = {"length": length} if make is items else {}
    dataset = make(serve, max_samples=2, **options)
    assert isinstance(dataset, tf1.data.Dataset)
    iterator = dataset.make_initializable_iterator()
    element = iterator.get_next()
    for expected in ([0, 1], [2, 3]):
        session.run(iterator.initializer)
        assert run_all(session, element) == expected


@pytest.mark.parametrize("make", [items, steps], ids=["trajectories", "timesteps"])
def test_one_shot_iterators(serve, session, make):
    element = make(serve, max_samples=3).make_one_shot_iterator().get_next()
    assert run_all(session, element) == [0, 1, 2]


@pytest.mark.parametrize("in_flight", [1, 2, 3, 5])
def test_steps_are_drawn_in_whole_rounds_of_what_may_be_in_flight(serve, in_flight):
    client = serve(make_table())
    with client.trajectory_writer(1) as writer:
        for _ in range(20):
            writer.append({"x": np.zeros(3, np.int64)})
            writer.create_item("table", 1.0, {"x": writer.history["x"][-1:]})
    with tf.Graph().as_default(), tf1.Session() as session:
        dataset = reverb.TimestepDataset(serve.address, "table", {"x": tf.int64}, {"x": tf.TensorShape([3])}, in_flight)
        iterator = dataset.make_initializable_iterator()
        element = iterator.get_next()
        session.run(iterator.initializer)
        counts = []
        for _ in range(4 * in_flight):
            session.run(element)
            counts.append(client.server_info()["table"].rate_limiter_info.sample_stats.completed)
    assert [count % in_flight for count in counts] == [0] * len(counts)
    assert counts[-1] >= 4 * in_flight


def test_an_error_in_a_session_has_its_class_and_the_session_goes_on(serve, session):
    missing = reverb.TimestepDataset(serve.address, "nowhere", tf.int64, tf.TensorShape([]), 1)
    iterator = missing.make_initializable_iterator()
    element = iterator.get_next()
    for _ in range(2):
        session.run(iterator.initializer)
        with pytest.raises(tf.errors.NotFoundError, match="nowhere"):
            session.run(element)
    good = steps(serve, max_samples=2).make_initializable_iterator()
    element = good.get_next()
    session.run(good.initializer)
    assert run_all(session, element) == [0, 1]


def test_texts_arrive_in_sessions_too(serve):
    client = serve(make_table(sampler="fifo"))
    client.insert({"text": np.array(["a", "\u00e4" * 40])}, {"table": 1.0})
    with tf.Graph().as_default(), tf1.Session() as session:
        dataset = reverb.TrajectoryDataset(
            serve.address, "table", {"text": tf.string}, {"text": tf.TensorShape([None, 2])}, 1
        )
        element = dataset.make_one_shot_iterator().get_next()
        assert session.run(element).data["text"].tolist() == [[b"a", ("\u00e4" * 40).encode()]]


@pytest.mark.parametrize(
    "transform",
    [
        lambda dataset: dataset.batch(2),
        lambda dataset: dataset.map(lambda sample: sample),
        lambda dataset: dataset.batch(2).prefetch(1),
        lambda dataset: dataset.repeat(1).filter(lambda _: True),
    ],
    ids=["batch", "map", "batch and prefetch", "repeat and filter"],
)
def test_transformed_datasets_make_iterators_too(serve, session, transform):
    iterator = transform(items(serve, max_samples=4)).make_initializable_iterator()
    element = iterator.get_next()
    session.run(iterator.initializer)
    assert run_all(session, element) == [0, 1, 2, 3]


def test_several_iterators_run_in_one_session(serve, session):
    iterators = [items(serve).batch(2).make_initializable_iterator() for _ in range(3)]
    elements = [iterator.get_next() for iterator in iterators]
    session.run([iterator.initializer for iterator in iterators])
    assert sorted(number for found in session.run(elements) for number in found.data.ravel()) == list(range(6))


def test_a_session_can_be_closed_while_next_waits(serve, session):
    iterator = items(serve, "queue").make_initializable_iterator()
    element = iterator.get_next()
    session.run(iterator.initializer)
    ended = []

    def wait():
        try:
            session.run(element)
        except (tf.errors.OpError, RuntimeError) as error:
            ended.append(error)

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    waiting.join(0.5)
    assert waiting.is_alive()
    session.close()
    waiting.join(PATIENCE_S)
    assert not waiting.is_alive()
    assert len(ended) == 1


WITHOUT_V2 = """
    import numpy as np, reverb, tensorflow.compat.v1 as tf
    tf.disable_v2_behavior()
    server = reverb.Server([reverb.Table.queue("queue", 9)])
    address = f"localhost:{server.port}"
    server.localhost_client().insert_batch(np.arange(4.0), {"queue": 1.0})
    dataset = reverb.TrajectoryDataset(address, "queue", tf.float64, tf.TensorShape([None]), 1)
    iterator = dataset.batch(2).make_initializable_iterator()
    element = iterator.get_next()
    session = tf.Session()
    session.run(iterator.initializer)
    print(session.run(element).data.ravel().tolist(), session.run(element).data.ravel().tolist())
"""


def test_a_program_without_tensorflow_2_behaviour():
    assert run_program(WITHOUT_V2)[0] == "[0.0, 1.0] [2.0, 3.0]\n"


DEVICES = """
    import contextlib, sys, numpy as np, reverb, tensorflow as tf
    table = reverb.Table("table", reverb.selectors.Fifo(), reverb.selectors.Fifo(), 9, reverb.rate_limiters.MinSize(1),
                         signature=tf.TensorSpec([1], tf.float32))
    server = reverb.Server([table])
    address = f"localhost:{server.port}"
    server.localhost_client().insert(np.float32(1), {"table": 1.0})
    def make():
        return reverb.TrajectoryDataset(address, "table", tf.float32, tf.TensorShape([1]), 1)
    in_graph = sys.argv[1] == "graph"
    with tf.Graph().as_default() if in_graph else contextlib.nullcontext():
        dataset = make()
        reverb.TrajectoryDataset.from_table_signature(address, "table", 1)
        reverb.TFClient(address)
    cpu = tf.config.list_physical_devices("CPU")[0]
    virtual = [tf.config.experimental.VirtualDeviceConfiguration() for _ in range(4)]
    tf.config.experimental.set_virtual_device_configuration(cpu, virtual)
    assert len(tf.config.list_logical_devices("CPU")) == 4
    if not in_graph:
        assert next(iter(dataset)).data.numpy().tolist() == [1.0]
        first = tf.function(lambda: next(iter(dataset)).data)
        assert first().numpy().tolist() == [1.0]
    strategy = tf.distribute.MirroredStrategy([f"CPU:{number}" for number in range(4)])
    with strategy.scope():
        distributed = strategy.experimental_distribute_dataset(make().batch(4))
    total = tf.function(lambda batch: strategy.run(lambda sample: tf.reduce_sum(sample.data), (batch,)))
    results = strategy.experimental_local_results(total(next(iter(distributed))))
    print([float(result) for result in results])
"""


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_devices_can_be_configured_after_a_dataset_was_made(mode):
    assert run_program(DEVICES, mode, patience_s=4 * PATIENCE_S)[0] == "[1.0, 1.0, 1.0, 1.0]\n"


DEVICES_OF_SESSIONS = """
    import sys, numpy as np, reverb, tensorflow as tf
    tf1 = tf.compat.v1
    server = reverb.Server([reverb.Table.queue("queue", 9)])
    server.localhost_client().insert_batch(np.arange(4.0), {"queue": 1.0})
    options = dict(server_address=f"localhost:{server.port}", table="queue", dtypes=tf.float64, max_samples=4,
                   max_in_flight_samples_per_worker=2)
    with tf.Graph().as_default():
        if sys.argv[1] == "timesteps":
            dataset = reverb.TimestepDataset(shapes=tf.TensorShape([]), **options)
        else:
            length = int(sys.argv[1]) or None
            dataset = reverb.TrajectoryDataset(shapes=tf.TensorShape([length]), **options)
        dataset = dataset.batch(2).prefetch(1)
        iterator = getattr(tf1.data, sys.argv[2])(dataset)
        element = iterator.get_next()
        def configure():
            cpu = tf.config.list_physical_devices("CPU")[0]
            virtual = [tf.config.experimental.VirtualDeviceConfiguration() for _ in range(4)]
            tf.config.experimental.set_virtual_device_configuration(cpu, virtual)
        if sys.argv[3] == "before":
            configure()
        with tf1.Session() as session:
            if sys.argv[2] == "make_initializable_iterator":
                session.run(iterator.initializer)
            print([session.run(element).data.ravel().tolist() for _ in range(2)])
            try:
                session.run(element)
                raise AssertionError("there are four items")
            except tf.errors.OutOfRangeError:
                pass
        if sys.argv[3] == "after":
            configure()
    assert len(tf.config.list_logical_devices("CPU")) == 4
"""


@pytest.mark.parametrize("make", ["make_initializable_iterator", "make_one_shot_iterator"])
@pytest.mark.parametrize("form", ["timesteps", "1", "0"], ids=["timesteps", "trajectories", "unknown length"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_devices_can_be_configured_before_and_after_an_iterator_runs_in_a_graph(form, make, when):
    printed = run_program(DEVICES_OF_SESSIONS, form, make, when, patience_s=4 * PATIENCE_S)[0]
    assert printed == "[[0.0, 1.0], [2.0, 3.0]]\n"
