"""The programs of `examples/` that need no framework run, take few lines that touch the buffer, and end."""

import re

import pytest
from example_support import EXAMPLES, num_buffer_lines, run

pytest.importorskip("gymnasium")

PPO = EXAMPLES / "ppo_cartpole.py"
# Seconds that a program may take on a busy machine.
PATIENCE_S = 120


def test_ppo_learns_from_rollouts_of_its_newest_policy():
    out, err = run(PPO, "--iterations", 12, "--seed", 1, folder=EXAMPLES, patience_s=PATIENCE_S)
    assert int(re.search(r"lag of at most (\d+) versions", out)[1]) <= 1
    steps = [int(number) for number in re.findall(r"(\d+) steps per episode", out)]
    assert len(steps) == 12
    assert max(steps[6:]) > 1.5 * steps[0]
    assert "Traceback" not in err


def test_ppo_takes_at_most_14_lines_that_touch_the_buffer():
    assert num_buffer_lines(PPO.read_text()) <= 14


FAILING = """
import sys

sys.path.insert(0, "{folder}")
import ppo_cartpole

calls = []


def learn(*arguments):
    calls.append(None)
    if len(calls) == 3:
        raise ArithmeticError("the learner fails")
    return arguments[1:]


ppo_cartpole.learn = learn
if __name__ == "__main__":
    ppo_cartpole.main(0, 100)
"""


def test_the_actors_of_ppo_end_when_the_learner_raises(tmp_path):
    program = tmp_path / "failing.py"
    program.write_text(FAILING.format(folder=EXAMPLES))
    out, err = run(program, folder=tmp_path, patience_s=PATIENCE_S, status=1)
    assert "ArithmeticError: the learner fails" in err
    # That of the learner is the only one: actors end in order.
    assert err.count("Traceback") == 1
    assert out.count("iteration") == 2
