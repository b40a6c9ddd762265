"""Items have names: calls that make them return their keys, and `get` and `delete` take keys."""

import threading

import numpy as np
import pytest
from address_list_support import Servers
from behaviour_support import PATIENCE_S, draw, info_of, insert_values, make_table, value_of

import reverb
from reverb import errors
from reverb.adders import EpisodeAdder, HindsightAdder, NStepTransitionAdder, SequenceAdder

UNKNOWN = 2**64 - 1
SIGNATURE = {
    "observation": reverb.TensorSpec((None, 2), np.float32),
    "more": {"action": reverb.TensorSpec((None,), np.int64), "text": reverb.TensorSpec((None,), np.str_)},
}


def keys_of(client, table="table"):
    """The keys of all items of a Fifo table, oldest first."""
    count = client.server_info()[table].current_size
    return [int(item.info.key[0]) for item in client.engine.peek(table, count, False, PATIENCE_S)]


def values_of(client, keys, table="table"):
    items, found = client.get(table, keys)
    assert found.all()
    return items.data[0].ravel().tolist()


def counts(client, table="table"):
    info = client.server_info()[table]
    limiter = info.rate_limiter_info
    return (limiter.sample_stats.completed, limiter.insert_stats.completed, info.process_samples, info.current_size)


def signed(client):
    """Inserts three items of two steps, and returns their keys."""
    keys = []
    with client.trajectory_writer(2) as writer:
        for value in range(3):
            for step in range(2):
                more = {"action": np.int64(10 * value + step), "text": f"text {value}"}
                writer.append({"observation": np.full(2, value, np.float32), "more": more})
            history = writer.history
            trajectory = {
                "observation": history["observation"][-2:],
                "more": {"action": history["more"]["action"][-2:], "text": history["more"]["text"][-2:]},
            }
            keys.append(writer.create_item("table", 1.0, trajectory))
    return keys


def test_insert_returns_the_key_of_its_item(client):
    keys = [client.insert(np.int64(value), {"table": 1.0}) for value in range(3)]
    assert all(type(key) is int for key in keys)
    assert keys_of(client) == keys
    assert values_of(client, keys[::-1]) == [2, 1, 0]


def test_an_item_has_the_same_key_in_all_tables_of_an_insert(serve):
    client = serve(make_table("one"), make_table("two"))
    single = client.insert(np.int64(7), {"one": 1.0, "two": 2.0})
    many = client.insert_batch(np.arange(3), {"one": 1.0, "two": [1.0, 2.0, 3.0]})
    for table in ("one", "two"):
        assert keys_of(client, table) == [single, *many.tolist()]
        assert values_of(client, [single, *many.tolist()], table) == [7, 0, 1, 2]


def test_insert_batch_returns_the_keys_of_its_rows(client):
    keys = client.insert_batch(np.arange(50), {"table": 1.0})
    assert (keys.dtype, keys.shape) == (np.uint64, (50,))
    assert keys_of(client) == keys.tolist()
    assert values_of(client, keys) == list(range(50))
    ragged = client.insert_batch(reverb.Ragged(np.arange(5), np.array([2, 3])), {"table": 1.0})
    items, found = client.get("table", ragged)
    assert found.all()
    assert [row.tolist() for row in items.data[0].split()] == [[0, 1], [2, 3, 4]]
    nothing = client.insert_batch(np.zeros(0), {"table": 1.0})
    assert (nothing.dtype, nothing.shape) == (np.uint64, (0,))


def test_writers_return_the_keys_of_their_items(client):
    with client.trajectory_writer(1) as writer:
        writer.append(np.int64(1))
        first = writer.create_item("table", 1.0, writer.history[-1:])
    with client.trajectory_writer(1, validate_items=False) as writer:
        writer.append(np.int64(2))
        second = writer.create_item("table", 1.0, writer.history[-1:])
    with client.writer(1) as writer:
        writer.append(np.int64(3))
        third = writer.create_item("table", 1, 1.0)
    keys = [first, second, third]
    assert all(type(key) is int for key in keys)
    assert values_of(client, keys) == [1, 2, 3]


def test_create_items_returns_its_mask_and_on_demand_keys(client):
    with client.batched_writer(3, 2) as writer:
        writer.append(np.arange(3), mask=[True, False, True])
        columns = writer.history[-1:]
        mask = writer.create_items("table", 1.0, columns)
        assert mask.tolist() == [True, False, True]
        mask, keys = writer.create_items("table", 1.0, columns, mask=[False, True, True], return_keys=True)
    assert mask.tolist() == [False, False, True]
    assert (keys.dtype, keys[:2].tolist()) == (np.uint64, [0, 0])
    assert values_of(client, keys[mask]) == [2]


@pytest.mark.parametrize("num_envs", [None, 2])
def test_sequence_adders_return_the_keys_of_their_windows(client, num_envs):
    with SequenceAdder(client, "table", length=2, period=1, num_envs=num_envs) as adder:
        made = [adder.add(vector(step, num_envs), last=step == 3) for step in range(4)]
        made.append(adder.end_episode())
        adder.flush()
        assert lengths_of(made, num_envs) == [[0], [1], [1], [1], [0]]
        assert windows(client, made, num_envs) == [[0, 1], [1, 2], [2, 3]]


@pytest.mark.parametrize("num_envs", [None, 2])
def test_transition_adders_return_the_keys_of_their_transitions(client, num_envs):
    with NStepTransitionAdder(client, "table", n=2, discount=1.0, num_envs=num_envs) as adder:

        def add(step):
            reward = 1.0 if num_envs is None else np.ones(2)
            observation, following = vector(step, num_envs), vector(step + 1, num_envs)
            return adder.add(observation, observation, reward, following, truncated=step == 2)

        made = [add(step) for step in range(3)]
        adder.flush()
    assert lengths_of(made, num_envs) == [[0], [1], [2]]
    items, found = client.get("table", flat(made))
    assert found.all()
    # The columns of the dict in the order of their names: action, discount, next_observation, ...
    assert sorted(items.data[0].ravel().tolist()) == sorted([0, 1, 2] * (num_envs or 1))


@pytest.mark.parametrize("num_envs", [None, 2])
def test_episode_adders_return_the_keys_of_their_episodes(client, num_envs):
    with EpisodeAdder(client, "table", max_length=5, num_envs=num_envs) as adder:
        adder.add(vector(0, num_envs))
        last = adder.add(vector(1, num_envs), last=True if num_envs is None else [False, True])
        ended = adder.end_episode()
        adder.flush()
    if num_envs is None:
        assert (len(last), len(ended)) == (1, 0)
        assert windows(client, [last], None) == [[0, 1]]
    else:
        assert (last.row_lengths.tolist(), ended.row_lengths.tolist()) == ([0, 1], [1, 0])
        assert values_of(client, [int(last[1][0]), int(ended[0][0])]) == [0, 1, 0, 1]


@pytest.mark.parametrize("num_envs", [None, 2])
def test_hindsight_adders_return_the_keys_of_their_transitions(client, num_envs):
    def observation(step):
        goal = vector(float(step), num_envs)[..., None]
        return {"observation": goal, "achieved_goal": goal, "desired_goal": goal}

    def compute_reward(achieved, desired, info):
        return float(np.allclose(achieved, desired))

    adder = HindsightAdder(client, "table", discount=1.0, compute_reward=compute_reward, k=1, num_envs=num_envs, seed=0)
    with adder:
        reward = 0.0 if num_envs is None else np.zeros(2)
        first = adder.add(observation(0), vector(0, num_envs), reward, observation(1))
        last = adder.add(observation(1), vector(1, num_envs), reward, observation(2), truncated=True)
        adder.flush()
    assert lengths_of([first, last], num_envs) == [[0], [4]]
    items, found = client.get("table", flat([last]))
    assert found.all()
    assert items.info.key.tolist() == flat([last])


def test_the_keys_of_an_adder_are_those_of_each_environment(client):
    with SequenceAdder(client, "table", length=2, period=2, num_envs=2, first=("state",)) as adder:

        def add(step, **options):
            return adder.add({"state": vector(step, 2), "value": np.array([10, 20]) + step}, **options)

        add(0, mask=[True, False])
        # The item of environment 1, whose step begins a window, is made before that of environment 0.
        keys = add(1, last=[False, True])
        adder.flush()
    assert keys.row_lengths.tolist() == [1, 1]
    values = [client.get("table", keys[env], columns=[1])[0].data[0].ravel().tolist() for env in range(2)]
    assert values == [[10, 11], [21]]


def test_an_adder_that_reports_an_earlier_item_returns_later_keys(serve):
    signature = reverb.TensorSpec((2,), np.int64)
    client = serve(make_table(signature=signature))
    adder = SequenceAdder(client, "table", length=2, period=2)
    adder.add(np.int64(0))
    adder.add(np.int64(1))
    client.configure_table("table", max_size=5)
    keys = adder.add(np.int64(2))
    assert keys.tolist() == []
    (key,) = adder.add(np.int64(3)).tolist()
    adder.close()
    assert values_of(client, [key]) == [2, 3]


def vector(value, num_envs):
    return np.asarray(value) if num_envs is None else np.full(num_envs, value)


def flat(made):
    return [key for keys in made for key in (keys.values if isinstance(keys, reverb.Ragged) else keys).tolist()]


def lengths_of(made, num_envs):
    """How many keys each call has returned, which is the same for all environments."""
    if num_envs is None:
        return [[len(keys)] for keys in made]
    for keys in made:
        assert (len(keys), keys.values.dtype) == (num_envs, np.uint64)
        assert len(set(keys.row_lengths.tolist())) == 1
    return [[int(keys.row_lengths[0])] for keys in made]


def windows(client, made, num_envs):
    """The items of one environment, after a look that the others have equal ones."""
    each = [made] if num_envs is None else [[keys[env] for keys in made] for env in range(num_envs)]
    items = []
    for of_env in each:
        found = [client.get("table", [int(key)])[0].data[0][0].tolist() for keys in of_env for key in keys]
        items.append(found)
    assert all(found == items[0] for found in items)
    return items[0]


def test_get_reads_items_without_counting_anything(serve):
    table = reverb.Table.queue("table", 10)
    client = serve(table)
    keys = [client.insert(np.int64(value), {"table": 1.0}) for value in range(3)]
    before = counts(client)
    for _ in range(5):
        items, found = client.get("table", keys)
        assert (items.data[0].ravel().tolist(), found.tolist()) == ([0, 1, 2], [True] * 3)
        assert items.info.key.tolist() == keys
        assert items.info.times_sampled.tolist() == [0, 0, 0]
        assert items.info.priority.tolist() == [1.0] * 3
        assert items.info.table_size.tolist() == [3] * 3
    assert counts(client) == before
    assert [value_of(sample) for sample in draw(client, 3)] == [0, 1, 2]
    assert client.get("table", keys)[1].tolist() == [False] * 3


def test_get_asks_no_limiter(serve):
    client = serve(make_table(limiter=reverb.rate_limiters.MinSize(100)))
    key = client.insert(np.int64(4), {"table": 1.0})
    assert values_of(client, [key]) == [4]


def test_missing_keys_are_marked(client):
    keys = client.insert_batch(np.arange(4), {"table": 1.0}).tolist()
    items, found = client.get("table", [keys[3], UNKNOWN, keys[0], 5, keys[0]])
    assert (found.dtype, found.tolist()) == (np.bool_, [True, False, True, False, True])
    assert items.data[0].ravel().tolist() == [3, 0, 0]
    assert items.info.key.tolist() == [keys[3], keys[0], keys[0]]
    for unknown in ([UNKNOWN, 5], [], np.zeros(0, np.uint64)):
        items, found = client.get("table", unknown)
        assert (items.data, found.tolist()) == (None, [False] * len(unknown))
        assert [(field.dtype.name, len(field)) for field in items.info] == [
            ("uint64", 0),
            ("float64", 0),
            ("int64", 0),
            ("float64", 0),
            ("int32", 0),
        ]


def test_the_data_have_the_structure_of_the_signature(serve):
    client = serve(make_table(signature=SIGNATURE))
    keys = signed(client)
    items, found = client.get("table", keys[::-1])
    drawn = client.sample_batch("table", 1)
    assert found.all()
    assert items.data.keys() == drawn.data.keys()
    assert isinstance(items.data["observation"], reverb.Ragged)
    assert [row.tolist() for row in items.data["more"]["action"].split()] == [[20, 21], [10, 11], [0, 1]]
    assert items.data["more"]["text"].values.tolist() == [b"text 2"] * 2 + [b"text 1"] * 2 + [b"text 0"] * 2


def test_only_the_chosen_columns_are_read(serve):
    client = serve(make_table(signature=SIGNATURE))
    keys = signed(client)
    for columns in (["observation"], "observation", [("observation",)]):
        items, found = client.get("table", keys, columns)
        assert found.all()
        assert list(items.data) == ["observation"]
        assert items.data["observation"].values[:, 0].tolist() == [0, 0, 1, 1, 2, 2]
    for _ in range(2):
        items, _ = client.get("table", [keys[1]], columns=[("more", "text"), "observation"])
        assert list(items.data["more"]) == ["text"]
        assert items.data["more"]["text"][0].tolist() == [b"text 1"] * 2
        assert items.data["observation"][0].tolist() == [[1.0, 1.0]] * 2
    assert client.get("table", [UNKNOWN], ["observation"])[0].data is None
    with pytest.raises(ValueError, match="`columns` names 'reward' in the data, which has: 'more', 'observation'"):
        client.get("table", keys, ["reward"])
    with pytest.raises(ValueError, match="must name at least one column"):
        client.get("table", keys, [])


def test_columns_without_a_signature_are_chosen_by_number(client):
    key = client.insert({"a": np.int64(1), "b": np.float32(2.5), "c": "text"}, {"table": 1.0})
    items, _ = client.get("table", [key], columns=[2, 0])
    assert [column.ravel().tolist() for column in items.data] == [[b"text"], [1]]
    with pytest.raises(ValueError, match="must be numbers of columns"):
        client.get("table", [key], columns=["a"])
    with pytest.raises(ValueError, match="has 3 columns, numbered from 0, got a request for column 3"):
        client.get("table", [key], columns=[3])
    with pytest.raises(ValueError, match="got a request for 4 columns"):
        client.get("table", [key], columns=[0] * 4)
    assert values_of(client, [client.insert(np.int64(9), {"table": 1.0})]) == [9]


def test_columns_are_those_of_a_table_that_has_changed(serve, road, tmp_path):
    first = serve(make_table(signature={"a": reverb.TensorSpec((), np.int64), "b": reverb.TensorSpec((), np.int64)}))
    key = first.insert({"a": np.int64(1), "b": np.int64(2)}, {"table": 1.0})
    assert first.get("table", [key], ["b"])[0].data["b"].ravel().tolist() == [2]
    if road == "same_process":
        return
    port = serve.server.port
    serve.server.stop()
    other = make_table(signature={"b": reverb.TensorSpec((), np.int64), "c": reverb.TensorSpec((), np.int64)})
    serve.servers.append(reverb.Server([other], port))
    client = reverb.Client(f"localhost:{port}") if road == "unix" else first
    client.server_info()
    key = client.insert({"b": np.int64(3), "c": np.int64(4)}, {"table": 1.0})
    assert client.get("table", [key], ["b"])[0].data["b"].ravel().tolist() == [3]


def test_items_that_cannot_be_stacked_are_named(client):
    keys = [client.insert(np.zeros(shape), {"table": 1.0}) for shape in ((2, 2), (2, 3))]
    with pytest.raises(errors.InvalidArgumentError, match="item 1 differs from earlier ones"):
        client.get("table", keys)
    assert client.get("table", keys[1:])[0].data[0].shape == (1, 1, 2, 3)


def test_more_data_and_keys_than_one_answer_has_are_read(client):
    rows = np.arange(9 << 20, dtype=np.int64).reshape(9, 1 << 20)
    keys = client.insert_batch(rows, {"table": 1.0}).tolist()
    # 16 items have 128 MiB.
    wanted = [*keys[::-1], UNKNOWN, *keys[:7]]
    items, found = client.get("table", wanted)
    assert found.tolist() == [key != UNKNOWN for key in wanted]
    assert items.data[0][:, 0, 0].tolist() == [(row << 20) for row in [*range(8, -1, -1), *range(7)]]
    assert items.info.key.tolist() == [key for key in wanted if key != UNKNOWN]
    small = client.insert_batch(np.arange(5), {"table": 1.0})
    many = np.tile(small, 10_000)
    items, found = client.get("table", many)
    assert found.all()
    assert (items.data[0].ravel() == np.tile(np.arange(5), 10_000)).all()


def test_get_refuses_what_is_no_key_or_table(client):
    with pytest.raises(TypeError, match="keys that went through 32 bits"):
        client.get("table", np.zeros(2, np.int32))
    with pytest.raises(TypeError):
        client.get("table", [1.5])
    for columns in (None, ["x"]):
        with pytest.raises(errors.TableNotFoundError, match="nowhere"):
            client.get("nowhere", [1], columns)
    with pytest.raises(ValueError, match="timeout"):
        client.get("table", [1], timeout=-1.0)
    insert_values(client, [1])
    assert len(keys_of(client)) == 1


def test_delete_removes_items_by_their_keys(client):
    keys = client.insert_batch(np.arange(4), {"table": 1.0})
    assert client.delete("table", keys[:2]) == 2
    assert client.delete("table", [int(keys[0]), int(keys[2]), UNKNOWN]) == 1
    assert keys_of(client) == [int(keys[3])]
    assert client.get("table", keys)[1].tolist() == [False, False, False, True]
    assert client.server_info()["table"].removals["delete"] == 3
    with pytest.raises(errors.TableNotFoundError):
        client.delete("nowhere", keys)
    with pytest.raises(TypeError):
        client.delete("table", ["key"])


def test_many_threads_read_while_items_come_and_go(client):
    stop = threading.Event()
    failures = []

    def read():
        while not stop.is_set():
            try:
                items, found = client.get("table", keys)
                values = [] if items.data is None else items.data[0].ravel().tolist()
                assert values == [value for value, flag in enumerate(found) if flag]
            except BaseException as error:
                failures.append(error)
                return

    keys = client.insert_batch(np.arange(30), {"table": 1.0})
    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for key in keys.tolist():
        client.delete("table", [key])
        client.insert(np.int64(99), {"table": 1.0})
    stop.set()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert not failures


@pytest.fixture
def several():
    import contextlib

    with contextlib.ExitStack() as stack:
        servers = Servers(stack)
        servers.start()
        servers.start()
        yield servers


def test_a_client_of_several_servers_finds_an_item_wherever_it_is(several):
    client = reverb.Client(several.address)
    keys = [client.insert({"x": np.float32(value)}, {"signed": 1.0}) for value in range(6)]
    batch = client.insert_batch({"x": np.arange(6, 9, dtype=np.float32)}, {"signed": 1.0})
    wanted = [*keys[::-1], 5, *batch.tolist()]
    for columns in (None, ["x"]):
        items, found = client.get("signed", wanted, columns)
        assert found.tolist() == [key != 5 for key in wanted]
        assert items.data["x"].ravel().tolist() == [5, 4, 3, 2, 1, 0, 6, 7, 8]
        assert items.info.key.tolist() == [key for key in wanted if key != 5]
    sizes = several.sizes("signed")
    assert min(sizes) > 0
    assert client.delete("signed", wanted) == 9
    assert several.sizes("signed") == [0, 0]


def test_a_server_that_is_down_is_an_error_only_where_a_key_is_missing(several):
    client = reverb.Client(several.address)
    keys = {}
    for value in range(6):
        key = client.insert({"x": np.float32(value)}, {"signed": 1.0})
        keys[key] = value
    alone = reverb.Client(f"localhost:{several.ports[0]}")
    at_first = [key for key, found in zip(keys, alone.get("signed", list(keys))[1], strict=True) if found]
    assert 0 < len(at_first) < 6
    several.kill(several.ports[1])
    items, found = client.get("signed", at_first)
    assert found.all()
    assert items.data["x"].ravel().tolist() == [keys[key] for key in at_first]
    with pytest.raises(errors.UnavailableError):
        client.get("signed", list(keys), timeout=PATIENCE_S)


def test_ragged_items_of_several_servers_are_joined(several):
    client = reverb.Client(several.address)
    keys = [client.insert(np.arange(length, dtype=np.float32), {"table": 1.0}) for length in (1, 3, 2, 3)]
    items, found = client.get("table", keys)
    assert found.all()
    assert [len(rows) for rows in items.data[0].split()] == [1, 3, 2, 3]


def test_the_types_and_the_table_of_an_info_stay(serve):
    client = serve(make_table())
    key = client.insert(np.int64(1), {"table": 3.5})
    before = info_of(client, "table")
    items, _ = client.get("table", np.array([key], np.uint64))
    assert [type(field) for field in items.info] == [np.ndarray] * 5
    assert items.info.probability.tolist() == [1.0]
    assert items.info.priority.tolist() == [3.5]
    assert info_of(client, "table").num_unique_samples == before.num_unique_samples == 0
