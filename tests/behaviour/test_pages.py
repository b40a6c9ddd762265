"""The programs of the site's first pages run as they are printed, those of one page in order in one file."""

import pathlib
import re
import subprocess
import sys

import example_support
import pytest

pytestmark = pytest.mark.ports

DOCS = pathlib.Path(__file__).parents[2] / "docs"
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Seconds that a program may take on a busy machine.
PATIENCE_S = 100
PRINTS = {
    "index": "(32, 1)\n",
    "tables": "actors may be at most 125 items ahead",
    "writers": "[8, 8, 64]\n",
}


def programs(page):
    return FENCE.findall((DOCS / f"{page}.md").read_text())


@pytest.mark.parametrize("page", PRINTS)
def test_the_programs_of_a_page_run(page, tmp_path):
    path = tmp_path / "program.py"
    path.write_text("\n".join(programs(page)))
    out, _ = example_support.run(path, folder=tmp_path, patience_s=PATIENCE_S)
    assert PRINTS[page] in out


def test_five_lines_get_a_batch_of_the_server_of_the_tutorial(tmp_path):
    server, client = programs("tutorial")
    assert len(client.splitlines()) == 5
    (tmp_path / "server.py").write_text(server.replace("port=8000", "port=0"))
    arguments = [sys.executable, "server.py"]
    with subprocess.Popen(arguments, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        try:
            port = re.match(r"serves at port (\d+) ", process.stdout.readline())[1]
            path = tmp_path / "client.py"
            path.write_text(client.replace("localhost:8000", f"localhost:{port}"))
            out, _ = example_support.run(path, folder=tmp_path, patience_s=PATIENCE_S)
        finally:
            process.terminate()
    assert out.startswith("(256, 4) [")


def test_every_program_of_the_guide_to_migration_is_one_that_a_test_runs():
    text = (DOCS / "migrate.md").read_text()
    parts = re.split(r"^#{2,3} (.*)$", text, flags=re.MULTILINE)[1:]
    found = {heading: len(FENCE.findall(part)) for heading, part in zip(parts[::2], parts[1::2], strict=True)}
    assert {heading: number for heading, number in found.items() if number} == {
        # tests/differential/test_migration.py
        "The programs": 1,
        "Step 1: a new learner or actor at the old server": 2,
        "Step 2: the new server, with the old server's data": 1,
        # tests/behaviour/test_migrate_torchrl.py
        "With TorchRL's collectors and trainers": 1,
        "One process": 1,
        "Several processes": 1,
        "Slices of trajectories": 1,
        "Another sampler": 1,
        "The best episodes, and each item once": 1,
    }


def test_every_recipe_has_one_program_at_most():
    _, *parts = re.split(r"^## .*$", (DOCS / "recipes.md").read_text(), flags=re.MULTILINE)
    # tests/behaviour/test_recipes.py runs the first of each.
    assert {len(FENCE.findall(part)) for part in parts} <= {0, 1}
