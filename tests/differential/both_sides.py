"""The two sides of a comparison: the package under test, and the reference in an interpreter of its own.

The reference is that of the interpreter in `REVERB_REFERENCE_PYTHON`, or in `.venv-reference/bin/python`.
"""

import json
import os
import pathlib
import subprocess
import sys

import pytest

SIDES = ("reference", "ours")


def python_of(side):
    """Returns the interpreter of a side. Skips the test if the reference has none."""
    if side == "ours":
        return sys.executable
    root = pathlib.Path(__file__).parents[2]
    found = os.environ.get("REVERB_REFERENCE_PYTHON") or root / ".venv-reference" / "bin" / "python"
    if not pathlib.Path(found).exists():
        pytest.skip("no interpreter with dm-reverb 0.14: set REVERB_REFERENCE_PYTHON, or make .venv-reference")
    return str(found)


def environment_of(side):
    """Returns the environment variables for a process of a side: a path to our package could hide the reference."""
    return {name: value for name, value in os.environ.items() if side == "ours" or name != "PYTHONPATH"}


def answer_of(side, driver, wanted):
    """Returns a side's answer to `wanted`, from a driver: a program of this folder that reads and writes JSON."""
    done = subprocess.run(
        [python_of(side), str(pathlib.Path(__file__).with_name(driver))],
        input=json.dumps(wanted),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=environment_of(side),
    )
    assert done.returncode == 0, f"{side}: {done.stderr[-5000:]}"
    return json.loads(done.stdout)
