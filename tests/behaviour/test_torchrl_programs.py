"""TorchRL's own collectors, losses and trainers with ReverbReplayBuffer in place of their buffers."""

import example_support
import numpy as np
import pytest
from behaviour_support import info_of, make_table

import reverb

torch = pytest.importorskip("torch")
pytest.importorskip("torchrl")
pytest.importorskip("gymnasium")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def example():
    """The module of the example."""
    return example_support.load("torchrl_dqn")


class Agent:
    """What the programs of this file need of TorchRL, on CartPole."""

    def __init__(self, seed=0):
        from torchrl.envs import GymEnv
        from torchrl.modules import MLP, QValueActor
        from torchrl.objectives import DQNLoss, HardUpdate

        torch.manual_seed(seed)
        self.env = GymEnv("CartPole-v1", categorical_action_encoding=True)
        network = MLP(in_features=4, out_features=2, num_cells=[32])
        self.actor = QValueActor(network, spec=self.env.action_spec, action_space="categorical")
        self.loss = DQNLoss(self.actor, action_space="categorical", delay_value=True)
        self.loss.make_value_estimator(gamma=0.99)
        self.updater = HardUpdate(self.loss, value_network_update_interval=50)
        self.optimizer = torch.optim.Adam(self.loss.parameters(), lr=1e-3)

    def collector(self, **options):
        from torchrl.collectors import Collector

        return Collector(self.env, self.actor, frames_per_batch=50, total_frames=200, **options)

    def trainer(self, buffer):
        from torchrl.trainers.algorithms.dqn import DQNTrainer

        return DQNTrainer(
            collector=self.collector(),
            total_frames=200,
            frame_skip=1,
            optim_steps_per_batch=5,
            loss_module=self.loss,
            optimizer=self.optimizer,
            replay_buffer=buffer,
            target_net_updater=self.updater,
            progress_bar=False,
            enable_logging=False,
        )


def own_buffer(**options):
    from reverb.frameworks.torchrl import ReverbReplayBuffer

    return ReverbReplayBuffer(max_size=1000, batch_size=32, alpha=0.6, beta=0.4, **options)


def test_the_example_touches_the_buffer_in_at_most_five_lines():
    assert example_support.num_buffer_lines((example_support.EXAMPLES / "torchrl_dqn.py").read_text()) <= 5


def test_the_example_trains(example):
    lengths = example.train(num_frames=600)
    assert len(lengths) > 5
    assert max(lengths) <= 500


def test_a_trainer_uses_the_buffer():
    buffer = own_buffer()
    Agent().trainer(buffer).train()
    info = buffer.client.server_info()["replay"]
    assert (len(buffer), buffer.write_count) == (200, 200)
    assert info.rate_limiter_info.sample_stats.completed == 4 * 5 * 32
    assert info.priority_updates == 4 * 5 * 32


def test_the_hook_for_buffers_saves_and_loads_ours():
    from torchrl.trainers.trainers import ReplayBufferTrainer

    agent, hook = Agent(), ReplayBufferTrainer(own_buffer(), flatten_tensordicts=True)
    for frames in agent.collector():
        hook.extend(frames)
    sample = hook.sample(None)
    agent.loss(sample)["loss"].backward()
    hook.update_priority(sample)
    again = ReplayBufferTrainer(own_buffer(), flatten_tensordicts=True)
    again.load_state_dict(hook.state_dict())
    before, after = hook.replay_buffer.state_dict(), again.replay_buffer.state_dict()
    assert torch.equal(before["items"]["observation"], after["items"]["observation"])
    assert torch.equal(before["priorities"], after["priorities"])
    assert len(set(after["priorities"].tolist())) > 10
    sample = again.sample(None)
    agent.loss(sample)
    again.update_priority(sample)
    assert again.replay_buffer.client.server_info()["replay"].priority_updates == 32


def test_a_loss_weighs_by_our_weights_and_sets_our_priorities():
    agent, buffer = Agent(), own_buffer(eps=0.0)
    for frames in agent.collector():
        buffer.extend(frames)
    sample = buffer.sample()
    loss = agent.loss(sample)["loss"]
    weights, given = sample["priority_weight"], sample["td_error"].reshape(32)
    torch.testing.assert_close(loss, (weights * given).sum() / weights.sum())
    sample["priority_weight"] = torch.rand(32)
    assert agent.loss(sample)["loss"] != loss
    buffer.update_tensordict_priority(sample)
    items, is_there = buffer.client.get("replay", sample["index"].numpy().view(np.uint64))
    assert is_there.all()
    assert items.info.priority == pytest.approx(given.detach().numpy())


def test_a_collector_fills_the_table_of_another_process(serve):
    from reverb.frameworks.torchrl import ReverbReplayBuffer

    agent = Agent()
    first = next(iter(agent.collector()))
    specs = {key: value for key, value in _specs(first).items() if key in ("observation", "action", "next")}
    client = serve(make_table(sampler="uniform", signature=specs))
    buffer = ReverbReplayBuffer(client, "table", batch_size=16)
    for frames in agent.collector(
        postproc=lambda frames: frames.select(*specs), extend_buffer=True, replay_buffer=buffer
    ):
        assert frames is None
    assert info_of(client).current_size == 200
    sample = ReverbReplayBuffer(serve.address, "table").sample(8)
    assert sample["next", "observation"].shape == (8, 4)


def _specs(frames):
    return {
        key: _specs(value) if hasattr(value, "keys") else reverb.TensorSpec(value.shape[1:], value.dtype)
        for key, value in frames.items()
    }
