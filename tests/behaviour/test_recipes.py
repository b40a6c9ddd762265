"""The programs of docs/recipes.md, and the snippets of the README and the guide, run as they are printed."""

import pathlib
import re

import example_support
import numpy as np
import pytest
from behaviour_support import make_table

import reverb

pytest.importorskip("gymnasium")
pytestmark = pytest.mark.ports

ROOT = pathlib.Path(__file__).parents[2]
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^## (.*)$", re.MULTILINE)
# Seconds that a program may take on a busy machine.
PATIENCE_S = 300


def recipes():
    """The program under each heading that has one."""
    _, *parts = HEADING.split((ROOT / "docs/recipes.md").read_text())
    programs = {name: FENCE.findall(text) for name, text in zip(parts[::2], parts[1::2], strict=True)}
    return [pytest.param(blocks[0], id=name) for name, blocks in programs.items() if blocks]


def run(program, folder):
    """Runs a program in an empty folder, and returns what it printed."""
    path = folder / "program.py"
    path.write_text(program)
    out, _ = example_support.run(path, folder=folder, patience_s=PATIENCE_S)
    return out


def test_there_is_a_recipe_for_each_family_of_algorithms():
    names = " ".join(param.id for param in recipes())
    for family in ("DQN", "R2D2", "IMPALA", "PPO", "GRPO", "SAC", "HER", "Atari", "agents", "asyncio", "arameters"):
        assert family in names


# The largest number of lines that touch the buffer, imports included, where the program marks the others.
MARKED_LINES = {"GRPO": 25, "asyncio": 5}


@pytest.mark.parametrize("family", MARKED_LINES)
def test_few_lines_of_the_recipe_touch_the_buffer(family):
    ((program,),) = (param.values for param in recipes() if param.id.startswith(family))
    assert example_support.num_buffer_lines(program) <= MARKED_LINES[family]


@pytest.mark.parametrize("program", recipes())
def test_the_recipe_runs(program, tmp_path):
    assert "learned" in run(program, tmp_path)


def test_the_programs_of_the_readme_run(start, tmp_path):
    of_client, whole = FENCE.findall((ROOT / "README.md").read_text())
    signature = {"observation": reverb.TensorSpec((4,), np.float32)}
    server, _ = start(make_table("replay", sampler="uniform", signature=signature))
    assert run(of_client.replace("localhost:8000", f"localhost:{server.port}"), tmp_path) == "(32, 4)\n"
    assert "(256, 4) 1.0\n1000 items; see them at http://localhost:" in run(whole, tmp_path)


def test_the_snippets_of_the_guide_run_in_order_in_one_file(tmp_path):
    snippets = FENCE.findall((ROOT / "docs/guide.md").read_text())
    assert len(snippets) >= 5
    assert "1.5" in run("\n".join(snippets), tmp_path)
