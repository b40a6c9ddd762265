"""Double DQN on CartPole with TorchRL's environment, collector and loss, and prioritized replay from a table.

    pip install 'reverb-replay[tensordict]' 'torchrl>=0.14' 'gymnasium>=1.0,<2'
    python examples/torchrl_dqn.py

`# reverb` marks the lines that touch the buffer.
"""

import argparse

import torch
from reverb.frameworks.torchrl import ReverbReplayBuffer
from tensordict.nn import TensorDictSequential
from torchrl.collectors import Collector
from torchrl.envs import GymEnv, StepCounter, TransformedEnv
from torchrl.modules import MLP, EGreedyModule, QValueActor
from torchrl.objectives import DQNLoss, SoftUpdate


def train(num_frames: int = 20_000, frames_per_batch: int = 100, updates: int = 10, seed: int = 0) -> list[int]:
    """Trains an agent. Returns the lengths of its episodes."""
    torch.manual_seed(seed)
    env = TransformedEnv(GymEnv("CartPole-v1", categorical_action_encoding=True), StepCounter())
    env.set_seed(seed)
    network = MLP(in_features=4, out_features=2, num_cells=[120, 84], activation_class=torch.nn.ReLU)
    actor = QValueActor(network, in_keys=["observation"], spec=env.action_spec, action_space="categorical")
    explore = EGreedyModule(env.action_spec, annealing_num_steps=num_frames // 2, eps_end=0.05)
    policy = TensorDictSequential(actor, explore)
    collector = Collector(env, policy, frames_per_batch=frames_per_batch, total_frames=num_frames)
    loss = DQNLoss(actor, action_space="categorical", delay_value=True, double_dqn=True)
    loss.make_value_estimator(gamma=0.99)
    target = SoftUpdate(loss, eps=0.995)
    optimizer = torch.optim.Adam(loss.parameters(), lr=1e-3)

    buffer = ReverbReplayBuffer(max_size=num_frames, batch_size=128, alpha=0.6, beta=0.4)  # reverb
    lengths = []
    for frames in collector:
        buffer.extend(frames)  # reverb
        explore.step(frames.numel())
        ended = frames["next", "done"].squeeze(-1)
        lengths += frames["next", "step_count"].squeeze(-1)[ended].tolist()
        for _ in range(updates):
            sample = buffer.sample()  # reverb
            optimizer.zero_grad()
            loss(sample)["loss"].backward()
            optimizer.step()
            target.step()
            buffer.update_tensordict_priority(sample)  # reverb
    collector.shutdown()
    return lengths


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=20_000, help="frames of the environment")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    lengths = train(arguments.frames, seed=arguments.seed)
    print(f"{len(lengths)} episodes; the last ten took {sum(lengths[-10:]) / 10:.0f} steps on average")
