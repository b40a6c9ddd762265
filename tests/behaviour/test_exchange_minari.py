"""A Minari data set is imported, exported to a file, and imported again."""

import types
import warnings

import numpy as np
import pytest
from behaviour_support import make_table

import reverb
from reverb import adders, checkpointers, exchange

minari = pytest.importorskip("minari", reason="the extra `minari` is not installed")
pytest.importorskip("pyarrow", exc_type=ImportError, reason="the extra `arrow` is not installed")
gymnasium = pytest.importorskip("gymnasium")

LENGTHS = (4, 1, 6)


@pytest.fixture
def client():
    server = reverb.Server([make_table("table"), make_table("back")])
    yield server.localhost_client()
    server.stop()


@pytest.fixture
def dataset(tmp_path, monkeypatch):
    """A data set of three episodes, of which the second was truncated."""
    from gymnasium import spaces
    from minari.data_collector import EpisodeBuffer

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    observations = spaces.Dict(
        {
            "image": spaces.Box(0, 255, (2, 2, 3), np.uint8),
            "pair": spaces.Tuple([spaces.Discrete(5), spaces.Box(-1, 1)]),
        }
    )

    def episode(number, length):
        random = np.random.default_rng(number)
        ends = np.arange(length) == length - 1
        return EpisodeBuffer(
            id=number,
            observations={
                "image": random.integers(0, 256, (length + 1, 2, 2, 3), np.uint8),
                "pair": (random.integers(0, 5, length + 1), random.random((length + 1, 1), np.float32)),
            },
            actions=random.random((length, 2), np.float32),
            rewards=random.random(length),
            terminations=ends & (number != 1),
            truncations=ends & (number == 1),
        )

    with warnings.catch_warnings():
        # Minari warns about metadata that a published data set should have.
        warnings.simplefilter("ignore", UserWarning)
        return minari.create_dataset_from_buffers(
            "test/exchange-v0",
            buffer=[episode(number, length) for number, length in enumerate(LENGTHS)],
            observation_space=observations,
            action_space=spaces.Box(-1, 1, (2,), np.float32),
            data_format="arrow",
        )


def dataset_of(observations, length):
    """A stand-in for a Minari data set with one episode."""
    episode = types.SimpleNamespace(
        id=7,
        observations=observations,
        actions=np.zeros(length),
        rewards=np.zeros(length),
        terminations=np.zeros(length, bool),
        truncations=np.zeros(length, bool),
    )
    return types.SimpleNamespace(total_episodes=1, iterate_episodes=lambda _: [episode])


def items(client, table):
    return [
        (item.info.priority, [(leaf.dtype, leaf.shape, leaf.tobytes()) for leaf in item.data])
        for item in checkpointers.open(client.checkpoint()).table(table)
    ]


def test_a_data_set_is_imported_exported_to_parquet_and_imported_again(client, dataset, tmp_path):
    with adders.EpisodeAdder(client, "table", max_length=10) as adder:
        assert exchange.from_minari(client, dataset, adder=adder) == (3, sum(LENGTHS) + 3)
    names = ["action", "discount", "is_first", "is_last", "is_terminal", "image", "pair/0", "pair/1", "reward"]
    saved = list(checkpointers.open(client.checkpoint()).table("table"))
    assert len(saved) == len(LENGTHS)
    for item, episode in zip(saved, dataset.iterate_episodes(), strict=True):
        columns = dict(zip(names, item.data, strict=True))
        for name, values in (
            ("image", episode.observations["image"]),
            ("pair/0", episode.observations["pair"][0]),
            ("pair/1", episode.observations["pair"][1]),
            ("action", [*episode.actions, np.zeros(2)]),
            ("reward", [*episode.rewards, 0.0]),
        ):
            np.testing.assert_array_equal(columns[name], values)
        terminated = bool(episode.terminations[-1])
        assert columns["image"].dtype == np.uint8
        assert columns["is_terminal"].tolist() == [False] * len(episode.rewards) + [terminated]
        assert columns["discount"].tolist() == [1.0] * (len(episode.rewards) - 1) + [float(not terminated), 0.0]

    file = tmp_path / "table.parquet"
    assert exchange.to_parquet(client, file, "table") == 3
    assert exchange.from_parquet(client, file, "back") == 3
    assert items(client, "back") == items(client, "table")


def test_patterns_can_read_some_episodes_of_a_data_set_given_by_name(client, dataset):
    def pairs(step):
        return adders.sequence_configs(step, "table", length=2, period=1, end="drop")

    imported = exchange.from_minari(
        client, dataset.spec.dataset_id, pairs, transform=lambda step: {"r": step["reward"]}, episodes=[2, 0]
    )
    assert imported == (2, LENGTHS[0] + LENGTHS[2] + 2)
    assert client.server_info()["table"].current_size == LENGTHS[0] + LENGTHS[2]


def test_texts_become_strings(client):
    dataset = dataset_of(["a", "bc", ""], 2)
    with adders.EpisodeAdder(client, "table", max_length=3) as adder:
        exchange.from_minari(client, dataset, adder=adder, transform=lambda step: step["observation"])
    [item] = checkpointers.open(client.checkpoint()).table("table")
    assert item.data[0].tolist() == [b"a", b"bc", b""]


def test_hindsight_sees_the_goals_of_a_data_set(client):
    places = np.arange(3, dtype=np.float32).reshape(3, 1)
    dataset = dataset_of({"observation": places, "achieved_goal": places + 10, "desired_goal": places - 10}, 2)
    with adders.HindsightAdder(
        client, "table", discount=0.5, compute_reward=lambda *_: 5.0, k=1, strategy="final"
    ) as adder:
        assert exchange.from_minari(client, dataset, adder=adder) == (1, 3)
    read = [item.data for item in checkpointers.open(client.checkpoint()).table("table")]
    rewards, goals = zip(*((item[-1].item(), item[3].item()) for item in read), strict=True)
    assert (rewards, goals) == ((0, 5, 0, 5), (-9, 12, -8, 12))


def test_an_episode_whose_lengths_do_not_match_is_named(client):
    dataset = dataset_of({"x": np.zeros(3)}, 3)
    with (
        adders.EpisodeAdder(client, "table", max_length=10) as adder,
        pytest.raises(ValueError, match=r"episode 0, step 0: observations/x of episode 7 has 3 entries, expected 4"),
    ):
        exchange.from_minari(client, dataset, adder=adder)
