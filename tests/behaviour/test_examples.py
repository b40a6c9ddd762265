"""The programs of `examples/` that need no framework run, take few lines that touch the buffer, and end."""

import pathlib
import re
import subprocess
import sys

import pytest

pytest.importorskip("gymnasium")

FOLDER = pathlib.Path(__file__).parents[2] / "examples"
PPO = FOLDER / "ppo_cartpole.py"
# Seconds that a program may take on a busy machine.
PATIENCE_S = 120
MARK = "# reverb"
# What a line calls that touches the buffer; names of types and of errors are not calls.
CALL = re.compile(r"\b(client|adder|server|reverb|selectors|rate_limiters)\.[a-zA-Z_.]+\(|make_adder\(\"?[a-z]+\"?\)")


def run(arguments, status=0):
    """Runs a program, and returns what it printed."""
    ended = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=FOLDER,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ended.returncode == status, ended.stdout + ended.stderr
    return ended.stdout, ended.stderr


def test_ppo_learns_from_rollouts_of_its_newest_policy():
    out, err = run([PPO, "--iterations", 12, "--seed", 1])
    assert int(re.search(r"lag of at most (\d+) versions", out)[1]) <= 1
    steps = [int(number) for number in re.findall(r"(\d+) steps per episode", out)]
    assert len(steps) == 12
    assert max(steps[6:]) > 1.5 * steps[0]
    assert "Traceback" not in err


def test_ppo_takes_at_most_14_lines_that_touch_the_buffer():
    lines = PPO.read_text().splitlines()
    marked = [line for line in lines if line.endswith(MARK)]
    assert 0 < len(marked) <= 14
    unmarked = [line for line in lines if CALL.search(line) and line not in marked and not line.startswith("def ")]
    assert not unmarked


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
    program.write_text(FAILING.format(folder=FOLDER))
    out, err = run([program], status=1)
    assert "ArithmeticError: the learner fails" in err
    # That of the learner is the only one: actors end in order.
    assert err.count("Traceback") == 1
    assert out.count("iteration") == 2
