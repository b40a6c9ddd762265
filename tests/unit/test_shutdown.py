import itertools
import subprocess
import sys

import pytest

STAGES = ("TENSORFLOW", "WRITERS", "SERVERS")


def end_of(program):
    """Returns the lines that a program prints."""
    head = "import atexit, os\nfrom reverb._shutdown import Stage, at_exit\n"
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", head + program], check=True, capture_output=True, text=True
    )


def lines_of(program):
    return end_of(program).stdout.split()


@pytest.mark.parametrize("registered", list(itertools.permutations(STAGES)))
def test_stages_end_in_order_whichever_is_registered_first(registered):
    lines = lines_of("\n".join(f"at_exit(Stage.{name}, lambda: print('{name}'))" for name in registered))
    first_times = list(dict.fromkeys(lines))
    assert first_times == list(STAGES)


def test_hooks_of_a_stage_are_called_in_the_order_in_which_they_are_registered():
    assert lines_of("for i in range(3): at_exit(Stage.WRITERS, lambda i=i: print(i))") == ["0", "1", "2"]


def test_stage_with_nothing_to_do_does_not_end_earlier_ones():
    program = """
at_exit(Stage.WRITERS, lambda: print("writers"))
atexit.register(print, "program")
at_exit(Stage.SERVERS, lambda: print("servers"), is_due=lambda: {})
"""
    assert lines_of(program.format(False)) == ["program", "writers"]
    assert lines_of(program.format(True)) == ["writers", "servers", "program", "writers"]


def test_hook_that_raises_does_not_keep_others_from_being_called():
    program = """
def fail(): raise ValueError("it failed")
at_exit(Stage.WRITERS, fail)
at_exit(Stage.SERVERS, lambda: print("servers"))
"""
    ended = end_of(program)
    assert ended.stdout.split() == ["servers"]
    assert "ValueError: it failed" in ended.stderr


def test_forked_child_skips_hooks_that_are_not_due():
    program = """
pid = os.getpid()
at_exit(Stage.WRITERS, lambda: print("writers", flush=True))
at_exit(Stage.SERVERS, lambda: print("servers", flush=True), is_due=lambda: os.getpid() == pid)
if child := os.fork(): os.waitpid(child, 0)
"""
    assert lines_of(program) == ["writers", "writers", "servers", "writers"]


def test_only_the_first_sigterm_raises():
    program = """
import signal, sys
from reverb._shutdown import ExitOnSigterm
sigterm = ExitOnSigterm()
sigterm.begin()
for _ in range(3):
    try:
        signal.raise_signal(signal.SIGTERM)
        print("went on")
    except SystemExit as exit:
        print(exit.code)
sigterm.end()
print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
"""
    assert end_of(program).stdout.splitlines() == ["143", "went on", "went on", "True"]
