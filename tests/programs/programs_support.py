"""Runs a third-party program in a separate process, as its users would."""

import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
# Far longer than any of them takes: a program that hangs is killed.
LIMIT_S = 280


def run(folder, *arguments):
    """Runs `python *arguments` and returns its output. Fails with this output if the program fails.

    Args:
      folder: Working directory and home of the program, since some programs write files.
      *arguments: Arguments of the interpreter.
    """
    outcome = attempt(folder, *arguments)
    assert outcome.returncode == 0, f"exit status {outcome.returncode}\n{outcome.stdout}"
    return outcome.stdout


def attempt(folder, *arguments):
    """Does the same for programs that may fail. Returns the finished process, with stdout and stderr in `stdout`."""
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
