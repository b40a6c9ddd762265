"""What the tests of examples and recipes share: loading and running them, and the lines that touch the buffer."""

import importlib.util
import pathlib
import re
import subprocess
import sys

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
# Lines that touch the buffer end with this.
MARK = "  # reverb"
# What such a line names or calls. Imports, and the types in the head of a function, touch nothing.
_TOUCHES = re.compile(
    r"\breverb\.|\b(adders?|buffer|client|loader|rate_limiters|selectors|server|writer)\.\w+\("
    r"|\b(NumpyLoader|ReverbReplayBuffer|Server|Table)\(|\bmake_adder\("
)
_NEITHER = re.compile(r"\s*(def|from|import) ")


def load(name):
    """The module of an example."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def num_marked_lines(program):
    """The number of lines that are marked. Fails if a line touches the buffer and is not."""
    lines = program.splitlines()
    marked = [line for line in lines if line.endswith(MARK)]
    assert not [line for line in lines if _TOUCHES.search(line) and line not in marked and not _NEITHER.match(line)]
    assert marked
    return len(marked)


def run(program, *arguments, folder, patience_s, status=0):
    """Runs a program in a folder to its end, and returns what it printed and its errors."""
    ended = subprocess.run(
        [sys.executable, str(program), *map(str, arguments)],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=patience_s,
        check=False,
    )
    assert ended.returncode == status, ended.stdout + ended.stderr
    return ended.stdout, ended.stderr
