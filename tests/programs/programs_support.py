"""Runs a program of others in a process of its own, as its users would."""

import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
# Far above what any of them takes: what hangs is ended.
LIMIT_S = 280


def run(folder, *arguments):
    """Runs `python *arguments` and returns what it wrote; fails, with all of that, if the program fails.

    Args:
      folder: Where it runs, and its home: some programs write files.
      *arguments: Of the interpreter.
    """
    outcome = attempt(folder, *arguments)
    assert outcome.returncode == 0, f"exit status {outcome.returncode}\n{outcome.stdout}"
    return outcome.stdout


def attempt(folder, *arguments):
    """As `run`, for programs that may fail: the finished process, its output and errors in `stdout`."""
    path = os.pathsep.join(filter(None, [str(HERE / "stand_ins"), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "HOME": str(folder), "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "2"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=LIMIT_S,
    )
