"""Data of several batch dimensions, in one call."""

import numpy as np
import pytest
from behaviour_support import draw, info_of, make_table

import reverb

STEPS = {"x": reverb.TensorSpec((2,), np.float32), "y": {"z": reverb.TensorSpec((), np.int64)}}
SEQUENCES = {"x": reverb.TensorSpec((3, 2), np.float32), "y": {"z": reverb.TensorSpec((3,), np.int64)}}


def data(*batch):
    count = int(np.prod(batch))
    x = np.arange(2 * count, dtype=np.float32).reshape(*batch, 2)
    return {"x": x, "y": {"z": np.arange(count).reshape(batch)}}


def numbers(client, count, table="table"):
    """The column `z` of items in order of insertion."""
    samples = draw(client, count, table)
    return [np.squeeze(sample.data[1], 0).tolist() for sample in samples]


def table(signature, name="table"):
    return make_table(name, max_times_sampled=1, signature=signature)


def test_two_batch_dims_are_merged_into_items(serve):
    client = serve(table(STEPS))
    client.insert_batch(data(4, 3), {"table": np.arange(12.0)}, batch_dims=2)
    assert info_of(client).current_size == 12
    assert numbers(client, 12) == list(range(12))


def test_one_batch_dim_leaves_the_others_to_the_items(serve):
    client = serve(table(SEQUENCES))
    client.insert_batch(data(4, 3), {"table": 1.0}, batch_dims=1)
    assert numbers(client, 4) == np.arange(12).reshape(4, 3).tolist()


def test_columns_with_too_few_axes_are_refused(client):
    steps = {"x": np.zeros((4, 3, 2)), "y": np.zeros(4)}
    with pytest.raises(ValueError, match=r"column y: expected at least 2 axes, got shape \[4\]"):
        client.insert_batch(steps, {"table": 1.0}, batch_dims=2)
    ragged = reverb.Ragged(np.arange(3), np.array([1, 2]))
    with pytest.raises(TypeError, match="column x: a Ragged has one axis of items"):
        client.insert_batch({"x": ragged}, {"table": 1.0}, batch_dims=2)
    with pytest.raises(ValueError, match="batch_dims"):
        client.insert_batch(steps, {"table": 1.0}, batch_dims=0)
    assert info_of(client).current_size == 0
    client.insert_batch(steps["x"], {"table": 1.0}, batch_dims=2)
    assert info_of(client).current_size == 12


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
class TestTensorDict:
    @pytest.fixture(autouse=True)
    def libraries(self):
        self.torch = pytest.importorskip("torch")
        self.tensordict = pytest.importorskip("tensordict")

    def tensordict_of(self, *batch):
        nest = data(*batch)
        nested = {"x": self.torch.from_numpy(nest["x"]), "y": {"z": self.torch.from_numpy(nest["y"]["z"])}}
        return self.tensordict.TensorDict(nested, batch_size=batch)

    def test_one_batch_dim_needs_no_argument(self, serve):
        client = serve(table(STEPS))
        client.insert_batch(self.tensordict_of(12), {"table": 1.0})
        assert numbers(client, 12) == list(range(12))

    def test_several_are_refused_unless_they_are_counted(self, serve):
        client = serve(table(STEPS), table(SEQUENCES, "sequences"), table(None, "any"))
        frames = self.tensordict_of(4, 3)
        for name in ("table", "sequences", "any"):
            with pytest.raises(
                ValueError, match=r"batch size \[4, 3\] could be 12 items, or 4 items .*\[3\].*batch_dims=2"
            ):
                client.insert_batch(frames, {name: 1.0})
            assert info_of(client, name).current_size == 0
        client.insert_batch(frames, {"table": 1.0}, batch_dims=2)
        client.insert_batch(frames, {"sequences": 1.0}, batch_dims=1)
        assert numbers(client, 12) == list(range(12))
        assert numbers(client, 4, "sequences") == np.arange(12).reshape(4, 3).tolist()

    def test_a_stack_of_steps_that_is_not_in_one_tensor_is_taken(self, serve):
        client = serve(table(STEPS))
        steps = self.tensordict_of(4, 3)
        client.insert_batch(self.tensordict.lazy_stack(list(steps)), {"table": 1.0}, batch_dims=2)
        assert numbers(client, 12) == list(range(12))

    def test_a_wrong_number_is_refused(self, serve):
        client = serve(table(STEPS))
        with pytest.raises(ValueError, match=r"expected a TensorDict with 3 batch dimensions, got batch size \[4, 3\]"):
            client.insert_batch(self.tensordict_of(4, 3), {"table": 1.0}, batch_dims=3)
        with pytest.raises(ValueError, match=r"got batch size \[\]; `insert` takes one item"):
            client.insert_batch(self.tensordict_of(4)[0], {"table": 1.0})
        client.insert(self.tensordict_of(4)[0], {"table": 1.0})
        assert info_of(client).current_size == 1
