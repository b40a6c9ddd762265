"""examples/multi_agent.py runs, learns, and touches the buffer in few lines."""

import importlib.util
import pathlib
import re

import numpy as np
import pytest

pytest.importorskip("gymnasium", reason="Gymnasium comes with the extra `minari`")

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples/multi_agent.py"


@pytest.fixture(scope="module")
def example():
    """The module of the example."""
    spec = importlib.util.spec_from_file_location("multi_agent", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_example_touches_the_buffer_in_at_most_six_lines(example):
    code = EXAMPLE.read_text().removeprefix(f'"""{example.__doc__}"""').splitlines()
    marked = [line for line in code if line.endswith("  # reverb")]
    assert len(marked) <= 6
    assert marked == [line for line in code if re.search("reverb|[Aa]dder|[Tt]able|[Ss]erver|client", line)]


def test_the_agents_learn_to_leave(example):
    lengths = example.train(num_episodes=60)
    assert np.mean(lengths[-10:]) < 30 < example.train(num_episodes=1)[0]


def test_the_environment_has_the_interface_of_pettingzoo(example):
    pettingzoo = pytest.importorskip("pettingzoo")
    from pettingzoo.test import parallel_api_test

    class Conforming(example.Corridor, pettingzoo.ParallelEnv):
        metadata = {"name": "corridor"}  # noqa: RUF012

    parallel_api_test(Conforming(), num_cycles=100)
