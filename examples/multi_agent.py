"""Independent Q-learning of agents that leave early, in an environment with PettingZoo's interface.

    pip install reverb-replay gymnasium
    python examples/multi_agent.py

The agents share one table of values, so each is a row of the adder, with transitions of its own. `# reverb` marks the
lines that touch the buffer.
"""

import argparse

import numpy as np
from gymnasium import spaces
from reverb import Server, Table, adders, rate_limiters, selectors

LENGTH, NUM_ACTIONS, GAMMA = 10, 2, 0.9
PLACES, MOVES = spaces.Discrete(LENGTH + 1), spaces.Discrete(NUM_ACTIONS)


class Corridor:
    """Stands for a `pettingzoo.ParallelEnv`: walkers get a reward at the end of a corridor, and leave there."""

    possible_agents = ("walker_0", "walker_1", "walker_2")

    def observation_space(self, agent: str) -> spaces.Space:
        """The space of places."""
        return PLACES

    def action_space(self, agent: str) -> spaces.Space:
        """The space of moves: to the left, to the right."""
        return MOVES

    def reset(self, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        """Puts the walkers at places near the beginning."""
        self.agents = list(self.possible_agents)
        self.places = {agent: np.int64(place) for place, agent in enumerate(self.agents)}
        self.steps = 0
        return dict(self.places), {agent: {} for agent in self.agents}

    def step(self, actions: dict) -> tuple[dict, dict, dict, dict, dict]:
        """Moves the walkers that are there."""
        acting = self.agents
        self.steps += 1
        for agent in acting:
            self.places[agent] = np.int64(max(0, self.places[agent] + (1 if actions[agent] else -1)))
        arrived = {agent: bool(self.places[agent] == LENGTH) for agent in acting}
        late = {agent: self.steps == 100 and not arrived[agent] for agent in acting}
        self.agents = [agent for agent in acting if not arrived[agent] and not late[agent]]
        observations = {agent: self.places[agent] for agent in acting}
        return observations, {agent: float(arrived[agent]) for agent in acting}, arrived, late, {a: {} for a in acting}


def train(num_episodes: int, seed: int = 0) -> list[int]:
    """Trains the agents. Returns the steps that each episode took."""
    random = np.random.default_rng(seed)
    values = np.ones((LENGTH + 1, NUM_ACTIONS))  # so that each action is tried
    table = Table("replay", selectors.Uniform(), selectors.Fifo(), 10_000, rate_limiters.MinSize(1))  # reverb
    server = Server([table])  # reverb
    client = server.localhost_client()  # reverb
    env = adders.NStepTransitionAdder(client, "replay", n=3, discount=GAMMA, num_envs=3).add_from(Corridor())  # reverb
    lengths = []
    for _ in range(num_episodes):
        observations, _ = env.reset()
        while env.agents:
            greedy = {agent: int(values[observations[agent]].argmax()) for agent in env.agents}
            explores = random.random() < 0.3
            actions = {agent: int(random.integers(NUM_ACTIONS)) if explores else greedy[agent] for agent in env.agents}
            observations, *_ = env.step(actions)
        lengths.append(env.steps)
        for _ in range(20):
            columns = client.sample_batch("replay", 64, squeeze_time=True).data  # reverb
            action, discount, following, observation, reward = columns  # in the order of their names
            error = reward + discount * values[following].max(axis=1) - values[observation, action]
            np.add.at(values, (observation, action), 0.05 * error)
    return lengths


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=100, help="episodes of the environment")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    lengths = train(arguments.episodes, arguments.seed)
    print(f"steps of an episode: first ten {np.mean(lengths[:10]):.0f}, last ten {np.mean(lengths[-10:]):.0f}")
