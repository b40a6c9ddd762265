"""The keys of data are those of the signature: a misspelt key never puts a value into another column."""

import collections

import attr
import numpy as np
import pytest
import tree
from address_list_support import free_port
from behaviour_support import draw, info_of, make_table

import reverb
from reverb import adders, errors, structured_writer
from reverb.tensor_spec import TensorSpec

SCALAR = TensorSpec([], np.float32)
SIGNATURE = {"reward": SCALAR, "value": SCALAR}
ONE, TWO = np.float32(1), np.float32(2)
SWAPPED = {"value": ONE, "zreward": TWO}
LINE = 'table "t": missing: reward; unknown: zreward'


def stacked(step, count):
    return {key: np.repeat(value, count) for key, value in step.items()}


def insert(client, step):
    client.insert(step, {"t": 1.0})


def insert_batch(client, step):
    client.insert_batch(stacked(step, 3), {"t": np.ones(3)})


def create_item(client, step):
    with client.trajectory_writer(1) as writer:
        writer.append(step)
        writer.create_item("t", 1.0, {key: writer.history[key][-1] for key in step})


def create_row_item(client, step):
    with client.writer(1) as writer:
        writer.append(step)
        writer.create_item("t", 1, 1.0)


def create_items(client, step):
    with client.batched_writer(2) as writer:
        writer.append(stacked(step, 2))
        writer.create_items("t", 1.0, {key: writer.history[key][-1] for key in step})


def config_of(step):
    pattern = structured_writer.pattern_from_transform(step, lambda ref: {key: ref[key][-1] for key in step})
    return structured_writer.create_config(pattern, "t")


def append_to_patterns(client, step):
    with client.structured_writer([config_of(step)]) as writer:
        writer.append(step)


def append_to_batched_patterns(client, step):
    with client.batched_writer(2, configs=[config_of(step)]) as writer:
        writer.append(stacked(step, 2))


WAYS_IN = [
    insert,
    insert_batch,
    create_item,
    create_row_item,
    create_items,
    append_to_patterns,
    append_to_batched_patterns,
]


@pytest.fixture
def client(serve):
    return serve(make_table("t", signature=SIGNATURE))


@pytest.mark.parametrize("put", WAYS_IN)
def test_another_key_is_refused_in_every_way_in(client, put):
    with pytest.raises(errors.SignatureMismatchError) as caught:
        put(client, SWAPPED)
    assert str(caught.value).splitlines()[0] == LINE
    assert info_of(client, "t").current_size == 0


@pytest.mark.parametrize("put", WAYS_IN)
def test_the_keys_of_the_signature_are_taken_in_any_order(client, put):
    put(client, {"value": TWO, "reward": ONE})
    put(client, {"reward": ONE, "value": TWO})
    for sample in client.sample("t", 2, emit_timesteps=False, unpack_as_table_signature=True):
        assert (sample.data["reward"].item(), sample.data["value"].item()) == (1.0, 2.0)


@pytest.mark.parametrize("put", WAYS_IN)
def test_another_key_is_refused_after_good_data(client, put):
    put(client, {"reward": ONE, "value": TWO})
    before = info_of(client, "t").current_size
    for _ in range(2):
        with pytest.raises(errors.SignatureMismatchError, match="unknown: zreward"):
            put(client, SWAPPED)
    assert info_of(client, "t").current_size == before


def test_keys_are_compared_at_every_level(serve):
    client = serve(make_table("t", signature={"obs": [{"a": SCALAR, "b": SCALAR}], "x": SCALAR}))
    with pytest.raises(errors.SignatureMismatchError) as caught:
        client.insert({"obs": [{"a": ONE, "c": ONE}], "x": ONE}, {"t": 1.0})
    assert str(caught.value).splitlines()[0] == 'table "t": missing: obs/0/b; unknown: obs/0/c'
    client.insert({"obs": [{"a": ONE, "b": ONE}], "x": ONE}, {"t": 1.0})


def test_missing_and_additional_keys_are_named_before_the_references_text(client):
    with pytest.raises(errors.SignatureMismatchError) as caught:
        client.insert({"value": ONE}, {"t": 1.0})
    assert str(caught.value).startswith('table "t": missing: reward\n')
    assert "was called with 1 tensors, but table requires 2 tensors per entry" in str(caught.value)
    with pytest.raises(errors.SignatureMismatchError, match=r'^table "t": unknown: rewards') as caught:
        client.insert({"value": ONE, "reward": ONE, "rewards": TWO}, {"t": 1.0})
    assert "was called with 3 tensors" in str(caught.value)


def test_other_mappings_than_dicts_have_keys_too(client):
    with pytest.raises(errors.SignatureMismatchError, match="missing: reward; unknown: zreward"):
        client.insert(collections.OrderedDict(SWAPPED), {"t": 1.0})
    client.insert(collections.OrderedDict(value=TWO, reward=ONE), {"t": 1.0})
    [sample] = client.sample("t", emit_timesteps=False, unpack_as_table_signature=True)
    assert sample.data["reward"].item() == 1.0


@pytest.mark.parametrize("data", [[ONE, TWO], (ONE, TWO)], ids=["list", "tuple"])
def test_structures_of_another_kind_are_matched_by_position(client, data):
    client.insert(data, {"t": 1.0})
    with client.writer(1) as writer:
        writer.append(data)
        writer.create_item("t", 1, 1.0)
    assert info_of(client, "t").current_size == 2


def test_an_item_for_two_tables_is_compared_with_both(serve):
    client = serve(make_table("free"), make_table("t", signature=SIGNATURE))
    client.insert(SWAPPED, {"free": 1.0})
    with pytest.raises(errors.SignatureMismatchError, match="unknown: zreward"):
        client.insert(SWAPPED, {"free": 1.0, "t": 1.0})
    assert info_of(client, "free").current_size == 1


def test_all_rows_of_an_item_of_the_row_writer_are_compared(client):
    with client.writer(2, chunk_length=2) as writer:
        writer.append(SWAPPED)
        writer.append({"reward": ONE, "value": TWO})
        with pytest.raises(errors.SignatureMismatchError, match="unknown: zreward"):
            writer.create_item("t", 2, 1.0)
        writer.create_item("t", 1, 1.0)
    assert draw(client, table="t")[0].data[0].tolist() == [1.0]


def test_a_new_server_at_the_address_is_asked_again(serve):
    client = serve(make_table("t"))
    client.insert(SWAPPED, {"t": 1.0})
    port = serve.server.port
    serve.stop()
    serve(make_table("t", signature=SIGNATURE), port=port)
    # This call connects again, where a connection was lost.
    client.server_info()
    with pytest.raises(errors.SignatureMismatchError, match="unknown: zreward"):
        client.insert(SWAPPED, {"t": 1.0})


def test_a_table_that_does_not_exist_is_reported_as_before(client):
    with pytest.raises(errors.TableNotFoundError, match="this server has: t"):
        client.insert(SWAPPED, {"nowhere": 1.0})


Named = collections.namedtuple("Named", ["value", "reward"])
Sorted = collections.namedtuple("Sorted", ["reward", "value"])
Fields = attr.make_class("Fields", ["value", "reward"])


def puts_by_item(client):
    """The ways in that match fields by name."""

    def stack(data):
        return tree.map_structure(lambda value: np.stack([value]), data)

    def insert_batch(data):
        client.insert_batch(stack(data), {"t": 1.0})

    def row_writer(data):
        with client.writer(1) as writer:
            writer.append(data)
            writer.create_item("t", 1, 1.0)

    def trajectory_writer(data):
        with client.trajectory_writer(1) as writer:
            writer.append(data)
            writer.create_item("t", 1.0, tree.map_structure(lambda column: column[-1:], writer.history))

    def batched_writer(data):
        with client.batched_writer(1) as writer:
            writer.append({"value": np.stack([TWO]), "reward": np.stack([ONE])})
            views = [writer.history[name][-1:] for name in ("value", "reward")]
            writer.create_items("t", 1.0, type(data)(*views))

    def config(data):
        pattern = structured_writer.pattern_from_transform(
            data, lambda step: tree.map_structure(lambda x: x[-1:], step)
        )
        return structured_writer.create_config(pattern, "t")

    def patterns(data):
        with client.structured_writer([config(data)]) as writer:
            writer.append(data)

    def batched_patterns(data):
        with client.batched_writer(1, configs=[config(data)]) as writer:
            writer.append(stack(data))

    def sequence_adder(data):
        with adders.SequenceAdder(client, "t", length=1, period=1) as adder:
            adder.add(data, last=True)

    def episode_adder(data):
        with adders.EpisodeAdder(client, "t", max_length=1) as adder:
            adder.add(data, last=True)

    return {
        "insert": lambda data: client.insert(data, {"t": 1.0}),
        "insert_batch": insert_batch,
        "writer": row_writer,
        "trajectory_writer": trajectory_writer,
        "batched_writer": batched_writer,
        "patterns": patterns,
        "batched_patterns": batched_patterns,
        "sequence_adder": sequence_adder,
        "episode_adder": episode_adder,
    }


WAYS = list(puts_by_item(None))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", [Named, Fields], ids=["named_tuple", "attrs"])
def test_fields_are_matched_by_name_where_the_signature_is_a_mapping(client, kind, way):
    put = puts_by_item(client)[way]
    for _ in range(3):
        put(kind(TWO, ONE))
        [sample] = client.sample("t", emit_timesteps=False, unpack_as_table_signature=True)
        assert {name: value.item() for name, value in sample.data.items()} == {"reward": 1.0, "value": 2.0}
        client.reset("t")


@pytest.mark.parametrize("kind", [Named, Fields], ids=["named_tuple", "attrs"])
def test_observations_of_transitions_are_matched_by_name(serve, kind):
    parts = {"observation": SIGNATURE, "next_observation": SIGNATURE, "action": SCALAR, "reward": SCALAR}
    client = serve(make_table("t", signature={**parts, "discount": SCALAR}))
    with adders.NStepTransitionAdder(client, "t", n=1, discount=0.5) as adder:
        adder.add(kind(TWO, ONE), ONE, 1.0, kind(ONE, TWO))
    [sample] = client.sample("t", emit_timesteps=False, unpack_as_table_signature=True)
    assert {name: value.item() for name, value in sample.data["observation"].items()} == {"reward": 1, "value": 2}
    assert {name: value.item() for name, value in sample.data["next_observation"].items()} == {"reward": 2, "value": 1}


@pytest.mark.parametrize("way", WAYS)
def test_fields_of_other_names_are_refused(client, way):
    wrong = collections.namedtuple("Wrong", ["value", "zreward"])
    put = puts_by_item(client)[way]
    for _ in range(2):
        with pytest.raises(errors.SignatureMismatchError, match="missing: reward; unknown: zreward"):
            put(wrong(TWO, ONE))
    assert info_of(client, "t").current_size == 0


def test_fields_are_matched_by_name_at_every_level(serve):
    client = serve(make_table("t", signature={"obs": [{"a": SCALAR, "b": SCALAR}], "x": SCALAR}), make_table("free"))
    inner = collections.namedtuple("Inner", ["b", "a"])
    outer = collections.namedtuple("Outer", ["x", "obs"])
    client.insert(outer(np.float32(3), [inner(TWO, ONE)]), {"t": 1.0})
    [sample] = client.sample("t", emit_timesteps=False, unpack_as_table_signature=True)
    assert [value.item() for value in tree.flatten(sample.data)] == [1.0, 2.0, 3.0]
    client.insert(inner(TWO, ONE), {"free": 1.0})
    assert [column.item() for column in draw(client, table="free")[0].data] == [2.0, 1.0]


@pytest.mark.parametrize("signature", [(SCALAR, SCALAR), None], ids=["tuple", "no_signature"])
def test_one_item_is_not_matched_by_name_and_by_position(serve, signature):
    client = serve(make_table("t", signature=SIGNATURE), make_table("other", signature=signature))
    for _ in range(2):
        with pytest.raises(errors.SignatureMismatchError, match="by name.*by position"):
            client.insert(Named(TWO, ONE), {"t": 1.0, "other": 1.0})
    client.insert(Named(TWO, ONE), {"other": 1.0})
    assert [column.item() for column in draw(client, table="other")[0].data] == [2.0, 1.0]
    assert info_of(client, "t").current_size == 0
    # In the order of the keys, both are the same.
    client.insert(Sorted(ONE, TWO), {"t": 1.0, "other": 1.0})
    assert info_of(client, "t").current_size == 1


def test_many_structures_do_not_let_fields_of_one_be_taken_by_position(client):
    for number in range(70):
        kind = collections.namedtuple(f"Kind{number}", ["value", "reward"])
        client.insert(Named(TWO, ONE), {"t": 1.0})
        client.insert(kind(TWO, ONE), {"t": 1.0})
    samples = client.sample("t", 200, emit_timesteps=False, unpack_as_table_signature=True)
    assert all(sample.data["value"].item() == 2.0 for sample in samples)


@pytest.mark.parametrize("num_rows", [1, 2])
def test_rows_of_an_item_have_their_fields_in_one_order(client, num_rows):
    with client.writer(2) as writer:
        writer.append({"reward": ONE, "value": TWO})
        writer.append(Named(TWO, ONE))
        if num_rows == 2:
            with pytest.raises(errors.SignatureMismatchError, match="their fields in one order"):
                writer.create_item("t", 2, 1.0)
        writer.create_item("t", 1, 1.0)
    [sample] = client.sample("t", emit_timesteps=False, unpack_as_table_signature=True)
    assert {name: value.item() for name, value in sample.data.items()} == {"reward": 1.0, "value": 2.0}


def test_an_item_whose_order_is_not_known_is_not_made():
    port = free_port()
    step = structured_writer.create_reference_step(Named(TWO, ONE))
    config = structured_writer.create_config(tree.map_structure(lambda node: node[-1:], step), "t")
    with reverb.Client(f"ipv4:127.0.0.1:{port}").structured_writer([config]) as writer:
        with pytest.raises(errors.UnavailableError):
            writer.append(Named(TWO, ONE))
        with reverb.Server([make_table("t", signature=SIGNATURE)], port=port) as server:
            writer.append(Named(TWO, ONE))
            writer.flush()
            [sample] = server.localhost_client().sample("t", emit_timesteps=False, unpack_as_table_signature=True)
            assert {name: value.item() for name, value in sample.data.items()} == {"reward": 1.0, "value": 2.0}
            assert info_of(server.localhost_client(), "t").current_size == 1
