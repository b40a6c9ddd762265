"""Our side of the area `environments`."""

import importlib.util

import numpy as np
import timing

import reverb
from sides.ours_buffers import addresses_of

__all__ = ["environments_can", "environments_serve", "environments_setup", "environments_step"]

NUM_ENVS = 64
STEPS_A_CALL = 20

state = {}


def environments_can():
    return importlib.util.find_spec("gymnasium") is not None


def environments_serve():
    table = reverb.Table(
        "table", reverb.selectors.Uniform(), reverb.selectors.Fifo(), 100_000, reverb.rate_limiters.MinSize(1)
    )
    state["server"] = server = reverb.Server([table])
    return addresses_of(server)


def environments_setup(address):
    import gymnasium

    envs = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * NUM_ENVS)
    state["envs"], state["random"] = envs, np.random.default_rng(0)
    state["observations"], _ = envs.reset(seed=0)
    state["has_step"] = np.ones(NUM_ENVS, bool)
    state["adder"] = None
    if address is not None:
        client = reverb.Client(address)
        state["adder"] = reverb.adders.NStepTransitionAdder(client, "table", n=3, discount=0.99, num_envs=NUM_ENVS)


def environments_step(seconds):
    envs, random, adder = state["envs"], state["random"], state["adder"]

    def call():
        observations = state["observations"]
        for _ in range(STEPS_A_CALL):
            actions = random.integers(0, 2, NUM_ENVS)
            following, rewards, terminated, truncated, _ = envs.step(actions)
            if adder is not None:
                ends = {"terminated": terminated, "truncated": truncated}
                adder.add(observations, actions, rewards, following, **ends, mask=state["has_step"])
                state["has_step"] = ~(terminated | truncated)
            observations = following
        state["observations"] = observations

    return timing.measure(call, seconds, STEPS_A_CALL * NUM_ENVS)
