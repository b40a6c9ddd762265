"""Tables as `tf.data.Dataset`s."""

import threading
import time

import numpy as np
import pytest
from behaviour_support import PATIENCE_S, Background, comes_true, eventually, info_of, make_table, run_program

import reverb
from reverb.tf import streams

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

NUMBERS = {"a": tf.int64, "b": tf.float32}


def queue(name="table"):
    return reverb.Table.queue(name, 1000)


def insert_numbers(client, count, table="table"):
    client.insert_batch({"a": np.arange(count), "b": np.ones((count, 2), np.float32)}, {table: 1.0})


def items(serve, in_flight=8, length=1, table="table", **options):
    shapes = {"a": tf.TensorShape([length]), "b": tf.TensorShape([length, 2])}
    return reverb.TrajectoryDataset(serve.address, table, NUMBERS, shapes, in_flight, **options)


def steps(serve, in_flight=8, **options):
    shapes = {"a": tf.TensorShape([]), "b": tf.TensorShape([2])}
    return reverb.TimestepDataset(serve.address, "table", NUMBERS, shapes, in_flight, **options)


def numbers(dataset):
    return [int(np.ravel(element.data["a"])[0]) for element in dataset]


@pytest.mark.parametrize("length", [1, None])
@pytest.mark.parametrize("in_flight", [1, 2, 7, 200])
def test_a_queue_is_read_completely_in_order_and_ends_with_the_timeout(serve, in_flight, length):
    client = serve(queue())
    insert_numbers(client, 100)
    dataset = items(serve, in_flight, length, rate_limiter_timeout_ms=50)
    assert numbers(dataset) == list(range(100))
    insert_numbers(client, 3)
    assert numbers(dataset) == [0, 1, 2], "a new iterator starts afresh"


def test_a_writer_that_waits_says_that_a_dataset_or_tf_client_of_its_process_has_drawn(serve, caplog):
    names = {"dataset": True, "client": True, "nobody": False}
    serve(*(reverb.Table.queue(name, 1) for name in names))
    client = reverb.Client(serve.address)
    for name in names:
        client.insert_batch({"a": np.arange(1)}, {name: 1.0})
    dtypes, shapes = {"a": tf.int64}, {"a": tf.TensorShape([1])}
    assert len(list(reverb.TrajectoryDataset(serve.address, "dataset", dtypes, shapes, 1, max_samples=1))) == 1
    reverb.TFClient(serve.address).sample("client", [tf.int64])
    waits = []
    for name in names:
        writer = client.trajectory_writer(1, max_in_flight_items=1)
        writer.append({"a": 1})
        waits.append((writer, Background(_fill, writer, name)))
    eventually(lambda: sum("a writer waits" in text for text in caplog.messages) == len(names), 60)
    for name, has_drawn in names.items():
        (text,) = (text for text in caplog.messages if f"for table `{name}`" in text)
        assert (f"This process has drawn from `{name}`" in text) == has_drawn, text
    for writer, wait in waits:
        with pytest.raises(reverb.DeadlineExceededError):
            wait.result(60)
        writer.close()


def _fill(writer, table):
    for _ in range(3):
        writer.create_item(table, 1.0, {"a": writer.history["a"][-1:]}, timeout=15)


def test_elements_are_replay_samples_that_fit_the_spec(serve):
    client = serve(make_table(sampler="uniform"))
    insert_numbers(client, 5)
    dataset = items(serve, length=None)
    assert isinstance(dataset, tf.data.Dataset)
    assert dataset.element_spec == reverb.ReplaySample(
        reverb.SampleInfo(*(tf.TensorSpec([], dtype) for dtype in reverb.SampleInfo.tf_dtypes())),
        {"a": tf.TensorSpec([None], tf.int64), "b": tf.TensorSpec([None, 2], tf.float32)},
    )
    element = next(iter(dataset))
    assert isinstance(element, reverb.ReplaySample)
    assert element.data["b"].shape == [1, 2]
    assert element.info.probability == 0.2
    assert element.info.key.dtype == tf.uint64


def test_lists_become_tuples_and_empty_structures_are_allowed(serve):
    client = serve(make_table())
    client.insert([1, 2.0], {"table": 1.0})
    dataset = reverb.TrajectoryDataset(
        serve.address, "table", [tf.int64, tf.float64], [tf.TensorShape([1])] * 2, max_in_flight_samples_per_worker=1
    )
    assert isinstance(next(iter(dataset)).data, tuple)
    assert isinstance(dataset.element_spec.data, tuple)


def test_max_samples_counts_items_of_each_iterator(serve):
    insert_numbers(serve(make_table(sampler="uniform")), 5)
    for dataset in (items(serve, max_samples=7), steps(serve, max_samples=7)):
        assert len(list(dataset)) == len(list(dataset)) == 7


def test_steps_are_yielded_one_by_one(serve):
    insert_numbers(serve(queue()), 10)
    assert numbers(steps(serve, rate_limiter_timeout_ms=0)) == list(range(10))


def test_transformations_and_graphs_work(serve):
    insert_numbers(serve(make_table(sampler="uniform")), 5)
    dataset = items(serve, max_samples=20)
    assert [batch.data["b"].shape for batch in dataset.batch(8)] == [[8, 1, 2], [8, 1, 2], [4, 1, 2]]

    @tf.function
    def total(dataset):
        return dataset.reduce(0.0, lambda sum_, element: sum_ + element.data["b"][0, 0])

    assert total(dataset) == 20.0
    made_inside = tf.data.Dataset.range(4).interleave(
        lambda _: items(serve, max_samples=5), cycle_length=4, num_parallel_calls=4, deterministic=False
    )
    assert len(list(made_inside)) == 20


def test_from_table_signature_takes_dtypes_and_shapes_from_the_table(serve):
    signature = {"a": reverb.TensorSpec([None], np.int64, "name"), "b": reverb.TensorSpec([None, 2], np.float32)}
    insert_numbers(serve(make_table(signature=signature), make_table("bare")), 5)
    dataset = reverb.TrajectoryDataset.from_table_signature(serve.address, "table", 10, max_samples=3)
    assert dataset.element_spec.data == {
        "a": tf.TensorSpec([None], tf.int64),
        "b": tf.TensorSpec([None, 2], tf.float32),
    }
    assert len(list(dataset)) == 3
    with pytest.raises(
        ValueError, match=f"Server at {serve.address} does not contain any table named x. Found: bare, t"
    ):
        reverb.TrajectoryDataset.from_table_signature(serve.address, "x", 10)
    with pytest.raises(ValueError, match=f"Table bare at {serve.address} does not have a signature."):
        reverb.TimestepDataset.from_table_signature(serve.address, "bare", 10)


def test_a_request_that_cannot_fit_the_signature_is_refused_with_both_texts(serve):
    insert_numbers(serve(make_table(signature={k: reverb.TensorSpec(None, t) for k, t in NUMBERS.items()})), 5)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Requested 1 tensors, but table signature shows 2"):
        next(iter(reverb.TrajectoryDataset(serve.address, "table", tf.int64, tf.TensorShape([1]), 1)))
    other = {"a": tf.int32, "b": tf.float32}
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"index 0 .*Requested \(dtype, shape\): \(int32, \[1\]\)"):
        next(iter(reverb.TrajectoryDataset(serve.address, "table", other, dict.fromkeys("ab", tf.TensorShape([1])), 1)))


def test_data_that_do_not_fit_the_request_are_refused(serve):
    insert_numbers(serve(make_table()), 5)
    shapes = {"a": tf.TensorShape([1]), "b": tf.TensorShape([1, 3])}
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"index 1 .*\(float, \[1,3\]\).*\(float, \[1,2\]\)"):
        next(iter(reverb.TrajectoryDataset(serve.address, "table", NUMBERS, shapes, 1)))


def test_an_unknown_table_is_not_found(serve):
    serve(make_table())
    with pytest.raises(tf.errors.NotFoundError, match="nowhere was not found"):
        next(iter(items(serve, table="nowhere")))


def test_samples_in_flight_go_back_when_an_iterator_is_deleted(serve):
    client = serve(queue())
    insert_numbers(client, 100)
    iterator = iter(items(serve, in_flight=20))
    next(iterator)
    assert info_of(client).current_size <= 90
    del iterator
    eventually(lambda: info_of(client).undelivered_samples == 0)
    # TensorFlow had received half of the samples that may be in flight.
    assert info_of(client).current_size == 90


def test_a_waiting_iterator_can_be_deleted_at_once(serve):
    client = serve(queue())
    iterator = iter(items(serve).prefetch(2))
    threading.Thread(target=lambda held: next(held, None), args=(iterator,), daemon=True)
    time.sleep(0.2)
    begun = time.monotonic()
    del iterator
    assert time.monotonic() - begun < PATIENCE_S / 4
    eventually(lambda: info_of(client).undelivered_samples == 0)


def test_a_learner_slower_than_the_timeout_keeps_its_iterator(serve):
    client = serve(queue())
    insert_numbers(client, 4)
    iterator = iter(items(serve, in_flight=2, rate_limiter_timeout_ms=300))
    assert len([next(iterator) for _ in range(4)]) == 4
    time.sleep(0.8)
    insert_numbers(client, 1)
    assert int(next(iterator).data["a"][0]) == 0


def test_an_iterator_whose_server_went_away_can_be_deleted(serve):
    client = serve(make_table(sampler="uniform"))
    insert_numbers(client, 3)
    # The prefetch always waits in a fetch, which TensorFlow cannot interrupt.
    held = [iter(items(serve, in_flight=1).prefetch(1))]
    next(held[0])
    serve.server.stop()
    Background(held.clear).result(patience_s=2)


@pytest.mark.ports
def test_a_restarted_server_is_found_again(serve_far):
    insert_numbers(serve_far(make_table(sampler="uniform")), 5)
    port = serve_far.server.port
    dataset = reverb.TrajectoryDataset(
        f"ipv4:127.0.0.1:{port}", "table", NUMBERS, dict.fromkeys("ab", tf.TensorShape(None)), 4
    )
    iterator = iter(dataset)
    next(iterator)
    serve_far.server.stop(returns=True)
    server = reverb.Server([make_table(sampler="uniform")], port=port)
    try:
        reverb.Client(f"ipv4:127.0.0.1:{port}").insert({"a": 77, "b": np.ones(2, np.float32)}, {"table": 1.0})
        eventually(lambda: int(next(iterator).data["a"][0]) == 77)
    finally:
        server.stop()


def test_a_server_that_is_stopped_for_good_ends_a_dataset(serve_far):
    insert_numbers(serve_far(make_table(sampler="uniform")), 5)
    address = f"ipv4:127.0.0.1:{serve_far.server.port}"
    iterator = iter(reverb.TrajectoryDataset(address, "table", NUMBERS, dict.fromkeys("ab", tf.TensorShape(None)), 4))
    next(iterator)
    serve_far.server.stop()
    with pytest.raises(tf.errors.CancelledError, match="was stopped for good"):
        Background(list, iterator).result()


@pytest.mark.ports
def test_a_lost_server_is_waited_for_longer_than_a_first_connection(serve_far, monkeypatch):
    monkeypatch.setattr(streams, "_CONNECT_TIMEOUT_S", 2.0)
    insert_numbers(serve_far(make_table(sampler="uniform")), 5)
    port = serve_far.server.port
    dataset = reverb.TrajectoryDataset(
        f"ipv4:127.0.0.1:{port}", "table", NUMBERS, dict.fromkeys("ab", tf.TensorShape(None)), 4
    )
    iterator = iter(dataset)
    next(iterator)
    serve_far.server.stop(returns=True)

    def until_new_item():
        while int(next(iterator).data["a"][0]) != 77:
            pass

    waiting = Background(until_new_item)
    assert not comes_true(lambda: not waiting.is_running, patience_s=4.0)
    server = reverb.Server([make_table(sampler="uniform")], port=port)
    try:
        reverb.Client(f"ipv4:127.0.0.1:{port}").insert({"a": 77, "b": np.ones(2, np.float32)}, {"table": 1.0})
        waiting.result()
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"in_flight": 0}, r"max_in_flight_samples_per_worker \(0\) must be a positive integer"),
        ({"num_workers_per_iterator": 0}, r"num_workers_per_iterator \(0\) must be a positive integer or -1"),
        ({"max_samples_per_stream": -2}, r"max_samples_per_stream \(-2\) must be a positive integer or -1"),
        ({"rate_limiter_timeout_ms": -2}, r"rate_limiter_timeout_ms \(-2\) must be an integer >= -1"),
        ({"max_samples": 0}, r"max_samples \(0\) must be a positive integer or -1"),
    ],
)
def test_numbers_out_of_range_are_refused(serve, options, message):
    serve(make_table())
    with pytest.raises(ValueError, match=message):
        items(serve, **options)


def test_dtypes_and_shapes_must_have_the_same_structure():
    with pytest.raises(ValueError, match="don't have the same nested structure"):
        reverb.TrajectoryDataset("localhost:1", "table", [tf.int64], [tf.TensorShape([])] * 2, 1)


EXITING = """
    import reverb, numpy as np, tensorflow as tf
    server = reverb.Server([reverb.Table.queue("queue", 9), reverb.Table("table", reverb.selectors.Uniform(),
        reverb.selectors.Fifo(), 9, reverb.rate_limiters.MinSize(1))])
    server.localhost_client().insert(np.zeros(1000), {"table": 1.0})
    datasets = [reverb.TrajectoryDataset(f"localhost:{server.port}", table, tf.float64, tf.TensorShape([1, 1000]), 99)
                for table in ("table", "table")]
    iterators = [iter(dataset.batch(32).prefetch(3)) for dataset in datasets]
    for _ in range(50):
        next(iterators[0])
"""


@pytest.mark.timeout(180)
def test_a_program_ends_while_its_iterators_are_running():
    # An iterator that outlived the interpreter hung in one of three runs.
    for _ in range(5):
        run_program(EXITING)


def test_no_tensorflow_is_loaded_before_it_is_needed():
    run_program("import reverb, sys; reverb.loaders.NumpyLoader; assert 'tensorflow' not in sys.modules")


SECURED = """
    import sys, tensorflow as tf, reverb
    address, dtypes = sys.argv[1], {"a": tf.int64, "b": tf.float32}
    client = reverb.TFClient(address)
    data = [tf.constant([7], tf.int64), tf.constant([[1.0, 1.0]])]
    try:
        client.insert(data, tf.constant(["table"]), tf.constant([1.0], tf.float64))
        options = {"max_in_flight_samples_per_worker": 1, "rate_limiter_timeout_ms": 1000}
        shapes = {"a": tf.TensorShape([1]), "b": tf.TensorShape([1, 2])}
        items = reverb.TrajectoryDataset(address, "table", dtypes, shapes, **options)
        print([int(item.data["a"][0]) for item in items.take(2)])
        shapes = {"a": tf.TensorShape([]), "b": tf.TensorShape([2])}
        steps = reverb.TimestepDataset(address, "table", dtypes, shapes, **options)
        print([int(step.data["a"]) for step in steps.take(1)])
        print(int(client.sample("table", [tf.int64, tf.float32]).data[0][0]))
    except Exception as error:
        print(f"refused: {error}")
"""


@pytest.mark.timeout(180)
@pytest.mark.parametrize("role", ["use", "view"])
def test_datasets_and_operations_show_the_token_of_the_environment(serve_secured, role):
    server, address = serve_secured(queue(), role=role)
    insert_numbers(server.localhost_client(), 3)
    out, _ = run_program(SECURED, address)
    if role == "use":
        assert out == "[0, 1]\n[2]\n7\n"
    else:
        assert "token `program` has role view; Insert needs use" in out
