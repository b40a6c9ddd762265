"""What the tests of examples and recipes share: loading and running them, and the lines that touch the buffer."""

import importlib.util
import pathlib
import re
import subprocess
import sys

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
# Lines that touch the buffer end with this, except for imports.
MARK = "  # reverb"
# What such a line names or calls. The types in the head of a function touch nothing.
_TOUCHES = re.compile(
    r"\breverb\.|\b(adders?|buffer|client|loader|rate_limiters|selectors|server|writer)\.\w+\("
    r"|\b(NumpyLoader|ReverbReplayBuffer|Server|Table)\(|\bmake_adder\("
)
_IMPORT = re.compile(r"\s*(from|import) reverb\b")
_HEAD = re.compile(r"\s*def ")


def load(name):
    """The module of an example."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def num_buffer_lines(program):
    """The number of lines that touch the buffer: imports, and those with a mark. Fails if one has none."""
    lines = program.splitlines()
    imports = [line for line in lines if _IMPORT.match(line)]
    marked = [line for line in lines if line.endswith(MARK)]
    others = [line for line in lines if line not in imports + marked]
    assert not [line for line in others if _TOUCHES.search(line) and not _HEAD.match(line)]
    assert imports
    assert marked
    return len(imports) + len(marked)


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
