"""examples/multi_agent.py runs, learns, and touches the buffer in few lines."""

import example_support
import numpy as np
import pytest

pytest.importorskip("gymnasium", reason="Gymnasium comes with the extra `minari`")


@pytest.fixture(scope="module")
def example():
    """The module of the example."""
    return example_support.load("multi_agent")


def test_the_example_touches_the_buffer_in_at_most_six_lines():
    assert example_support.num_buffer_lines((example_support.EXAMPLES / "multi_agent.py").read_text()) <= 6


def test_the_agents_learn_to_leave(example):
    lengths = example.train(num_episodes=60)
    assert np.mean(lengths[-10:]) < 30 < example.train(num_episodes=1)[0]


def test_the_environment_has_the_interface_of_pettingzoo(example):
    pettingzoo = pytest.importorskip("pettingzoo")
    from pettingzoo.test import parallel_api_test

    class Conforming(example.Corridor, pettingzoo.ParallelEnv):
        metadata = {"name": "corridor"}  # noqa: RUF012

    parallel_api_test(Conforming(), num_cycles=100)
