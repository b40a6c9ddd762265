"""ReverbReplayBuffer beside TorchRL's buffers, and in its collectors, losses and trainers."""

import io
import tempfile

import numpy as np
import pytest
from behaviour_support import info_of, make_table

import reverb
from reverb import errors, selectors

torch = pytest.importorskip("torch")
tensordict = pytest.importorskip("tensordict")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

from reverb.frameworks.torchrl import ReverbReplayBuffer  # noqa: E402


def frames(*batch, first=0):
    """Frames of this batch size, numbered from `first` on."""
    count = int(np.prod(batch))
    x = torch.arange(first, first + count).reshape(batch)
    nested = {"x": x, "next": {"reward": x[..., None].to(torch.float32), "done": x[..., None] % 5 == 0}}
    return tensordict.TensorDict(nested, batch_size=batch)


def table_for(sampler="uniform", **options):
    specs = {"reward": reverb.TensorSpec((1,), np.float32), "done": reverb.TensorSpec((1,), np.bool_)}
    return make_table(sampler=sampler, signature={"x": reverb.TensorSpec((), np.int64), "next": specs}, **options)


def priorities_of(buffer, draws=2000):
    """The priorities of all items by their numbers, found by drawing."""
    found = {}
    for sample in buffer.client.sample("replay", draws, emit_timesteps=False, unpack_as_table_signature=True):
        found[int(sample.data["x"].item())] = sample.info.priority
    return found


def test_samples_are_what_a_buffer_of_torchrl_gives():
    data = pytest.importorskip("torchrl.data")
    storage = data.LazyTensorStorage(100)
    theirs = data.TensorDictPrioritizedReplayBuffer(alpha=0.6, beta=0.4, storage=storage, batch_size=32)
    ours = ReverbReplayBuffer(max_size=100, batch_size=32, alpha=0.6, beta=0.4)
    samples = []
    for buffer in (theirs, ours):
        buffer.extend(frames(20))
        buffer.add(frames(1, first=20)[0])
        assert (len(buffer), buffer.batch_size, buffer.write_count) == (21, 32, 21)
        sample = buffer.sample()
        sample["td_error"] = torch.rand(32)
        buffer.update_tensordict_priority(sample)
        assert buffer.sample(5).batch_size == (5,)
        samples.append(sample)
        with pytest.raises(Exception, match="batch_size"):
            type(buffer)(**(options_of(theirs) if buffer is theirs else {"max_size": 100})).sample()
    entries = [{key: (value.dtype, value.shape) for key, value in sample.items(True, True)} for sample in samples]
    assert entries[0] == entries[1]
    assert samples[0].batch_size == samples[1].batch_size
    assert (samples[1]["next", "reward"].squeeze(-1) == samples[1]["x"]).all()


def options_of(buffer):
    return {"alpha": 0.6, "beta": 0.4, "storage": type(buffer.storage)(100)}


def test_a_clients_table_is_filled_and_drawn_from(serve):
    client = serve(table_for(selectors.Prioritized(1.0)))
    buffer = ReverbReplayBuffer(client, "table", batch_size=64, beta=1.0)
    assert (len(buffer), buffer.write_count) == (0, 0)
    index = buffer.extend(frames(10))
    sample = buffer.sample()
    assert sample.batch_size == (64,)
    assert (index.dtype, torch.equal(index[sample["x"]], sample["index"])) == (torch.int64, True)
    assert (sample["next", "done"].squeeze(-1) == (sample["x"] % 5 == 0)).all()
    learned = tensordict.TensorDict({"index": index, "td_error": (torch.arange(10) == 3).to(torch.float64)}, [10])
    buffer.update_tensordict_priority(learned)
    assert (len(buffer), info_of(client).priority_updates) == (10, 10)
    assert set(buffer.sample()["x"].tolist()) == {3}
    assert (buffer.state_dict(), len(buffer)) == ({}, 10)


def test_samples_can_be_drawn_ahead(serve):
    client = serve(table_for())
    buffer = ReverbReplayBuffer(client, "table", batch_size=4, prefetch=2)
    buffer.extend(frames(10))
    buffer.sample()
    assert info_of(client).undelivered_samples == 8


def test_weights_are_those_of_prioritized_replay():
    buffer = ReverbReplayBuffer(max_size=100, batch_size=256, alpha=0.5, beta=0.4)
    rows = frames(10)
    rows["td_error"] = torch.arange(1.0, 11.0)
    buffer.extend(rows)
    sample = buffer.sample()
    probability = sample["td_error"].sqrt() / rows["td_error"].sqrt().sum()
    weights = (10 * probability) ** -0.4
    torch.testing.assert_close(sample["priority_weight"], weights / weights.max(), rtol=1e-4, atol=0)
    assert sample["priority_weight"].dtype == torch.float32


def test_new_items_have_their_own_priority_or_the_largest():
    buffer = ReverbReplayBuffer(max_size=100, batch_size=8, alpha=1.0, eps=0.5, priority_key=("next", "error"))
    buffer.extend(frames(1))
    assert priorities_of(buffer) == {0: 1.0}
    given = frames(2, first=1)
    given["next", "error"] = torch.tensor([[3.0, 7.0], [2.0, 1.0]])
    with pytest.raises(errors.SignatureMismatchError, match="error"):
        buffer.extend(given)
    again = ReverbReplayBuffer(max_size=100, batch_size=8, alpha=1.0, eps=0.5, priority_key=("next", "error"))
    again.extend(given)
    assert priorities_of(again) == {1: 7.5, 2: 2.5}
    again.update_priority(again.sample()["index"], torch.tensor(9.0).expand(8))
    assert set(priorities_of(again).values()) <= {9.5, 7.5, 2.5}
    more = frames(1, first=3)
    more["next", "error"] = torch.zeros(1, 2)
    again.extend(more)
    assert priorities_of(again)[3] == 0.5
    buffer.update_priority(buffer.sample()["index"], torch.tensor(4.0).expand(8))
    buffer.add(frames(1, first=1)[0])
    assert priorities_of(buffer) == {0: 4.5, 1: 4.5}


def test_priorities_do_not_matter_where_a_table_of_its_own_draws_uniformly():
    buffer = ReverbReplayBuffer(max_size=100, batch_size=8)
    buffer.extend(frames(10))
    sample = buffer.sample()
    assert "priority_weight" not in sample.keys()  # noqa: SIM118
    buffer.update_tensordict_priority(sample)
    assert set(priorities_of(buffer).values()) == {1.0}


def test_a_sample_without_priorities_is_refused():
    buffer = ReverbReplayBuffer(max_size=100, batch_size=8, alpha=1.0)
    buffer.extend(frames(10))
    with pytest.raises(KeyError, match="td_error"):
        buffer.update_tensordict_priority(buffer.sample())
    sample = buffer.sample()
    sample["td_error"] = torch.full((8,), torch.nan)
    with pytest.raises(errors.InvalidPriorityError):
        buffer.update_tensordict_priority(sample)
    assert set(priorities_of(buffer).values()) == {1.0}


def test_sequences_keep_their_batch_size():
    buffer = ReverbReplayBuffer(max_size=100, batch_size=3, alpha=1.0, beta=1.0, eps=0.0, batch_dims=1)
    buffer.extend(frames(4, 10))
    sample = buffer.sample()
    assert sample.batch_size == sample["index"].shape == sample["priority_weight"].shape == (3, 10)
    assert (sample["x"] - sample["x"][:, :1] == torch.arange(10)).all()
    sample["td_error"] = (sample["x"] + 1.0).unsqueeze(-1)
    buffer.update_tensordict_priority(sample)
    drawn = {first: first + 10.0 for first in sample["x"][:, 0].tolist()}
    found = buffer.client.sample("replay", 1000, emit_timesteps=False, unpack_as_table_signature=True)
    assert {int(one.data["x"].flat[0]): one.info.priority for one in found}.items() >= drawn.items()
    buffer.add(frames(10, first=70))
    assert len(buffer) == 5


def test_several_batch_dims_are_counted_or_refused():
    buffer = ReverbReplayBuffer(max_size=100, batch_size=4)
    with pytest.raises(ValueError, match=r"batch size \[4, 10\] could be 40 items, or 4 items"):
        buffer.extend(frames(4, 10))
    assert len(buffer) == 0
    buffer = ReverbReplayBuffer(max_size=100, batch_size=4, batch_dims=2)
    buffer.extend(frames(4, 10))
    assert len(buffer) == 40
    assert buffer.sample().batch_size == (4,)


def test_a_sample_can_be_inserted_again():
    buffer = ReverbReplayBuffer(max_size=100, batch_size=4, alpha=1.0, beta=1.0)
    buffer.extend(frames(4))
    buffer.extend(buffer.sample())
    key = buffer.add(buffer.sample()[0])
    assert len(buffer) == 9
    assert buffer.extend(frames(4)[:0]).shape == (0,)
    assert len(buffer) == 9
    buffer.update_priority(torch.tensor([key]), torch.tensor([1e9]))
    assert set(buffer.sample()["index"].tolist()) == {key}


def test_an_empty_table_of_its_own_does_not_keep_a_sample_waiting():
    buffer = ReverbReplayBuffer(max_size=100, batch_size=4, alpha=1.0)
    buffer.extend(frames(4)[:0])
    assert (len(buffer), buffer.write_count, buffer.state_dict()) == (0, 0, {})
    with pytest.raises(RuntimeError, match="the buffer is empty"):
        buffer.sample()
    refused = frames(4)
    refused["td_error"] = torch.full((4,), -1.0)
    with pytest.raises(errors.InvalidPriorityError):
        buffer.extend(refused)
    with pytest.raises(RuntimeError, match="the buffer is empty"):
        next(iter(buffer))
    buffer.extend(frames(4))
    assert next(iter(buffer)).batch_size == (4,)


def test_items_that_do_not_fit_the_first_are_refused():
    buffer = ReverbReplayBuffer(max_size=100, batch_size=4)
    buffer.extend(frames(4))
    wide = frames(4)
    wide["x"] = torch.zeros(4, 2, dtype=torch.int64)
    with pytest.raises(errors.SignatureMismatchError, match="x"):
        buffer.extend(wide)
    with pytest.raises(errors.SignatureMismatchError, match="next"):
        buffer.extend(frames(4).exclude(("next", "done")))
    buffer.extend(frames(4))
    assert len(buffer) == 8


def test_a_state_has_all_items_in_order_with_their_priorities():
    buffer = ReverbReplayBuffer(max_size=2500, batch_size=16, alpha=1.0)
    for first in range(0, 3000, 1000):
        rows = frames(1000, first=first)
        rows["td_error"] = rows["x"] + 1.0
        buffer.extend(rows)
    file = io.BytesIO()
    torch.save(buffer.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    assert state["items"]["x"].tolist() == list(range(500, 3000))

    again = ReverbReplayBuffer(max_size=2500, batch_size=16, alpha=1.0)
    again.extend(frames(3))
    again.sample()
    again.load_state_dict(state)
    assert len(again) == 2500
    sample = again.sample()
    assert torch.equal(sample["next", "reward"].squeeze(-1), sample["x"].to(torch.float32))
    assert again.state_dict()["priorities"].tolist() == pytest.approx(np.arange(501.0, 3001.0))
    rows = frames(1, first=3000)
    rows["td_error"] = torch.ones(1)
    again.extend(rows)
    assert again.state_dict()["items"]["x"].tolist() == list(range(501, 3001)), "the oldest item goes first"
    again.load_state_dict({})
    assert len(again) == 0


def test_a_state_keeps_the_batch_size_of_sequences():
    buffer = ReverbReplayBuffer(max_size=10, batch_size=2, batch_dims=1)
    buffer.extend(frames(4, 10))
    again = ReverbReplayBuffer(max_size=10, batch_size=2, batch_dims=1)
    again.load_state_dict(buffer.state_dict())
    assert again.sample().batch_size == (2, 10)


def test_a_state_leaves_no_files(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    buffer = ReverbReplayBuffer(max_size=10, batch_size=2)
    buffer.extend(frames(4))
    buffer.state_dict()
    assert [path for path in tmp_path.rglob("*") if path.suffix == ".tfrecord"] == []
    buffer.load_state_dict({})
    assert list(tmp_path.iterdir()) == []


def test_the_table_of_a_client_is_not_loaded(serve):
    client = serve(table_for())
    buffer = ReverbReplayBuffer(client, "table", batch_size=4)
    buffer.extend(frames(4))
    buffer.load_state_dict({})
    with pytest.raises(ValueError, match="loaded by its server"):
        buffer.load_state_dict({"items": {}, "priorities": torch.ones(1)})
    assert len(buffer) == 4


def test_arguments_that_contradict_each_other_are_refused(serve):
    with pytest.raises(ValueError, match="give `max_size`, or the `client`"):
        ReverbReplayBuffer()
    client = serve(table_for())
    for options in ({"max_size": 5}, {"alpha": 0.6}):
        with pytest.raises(ValueError, match="there already"):
            ReverbReplayBuffer(client, "table", **options)
    with pytest.raises(ValueError, match="batch_size"):
        ReverbReplayBuffer(client, "table").sample()
    assert "'table' at" in repr(ReverbReplayBuffer(serve.address, "table"))
    assert repr(ReverbReplayBuffer(max_size=5)) == "ReverbReplayBuffer(table 'replay' of its own, 0 items)"
