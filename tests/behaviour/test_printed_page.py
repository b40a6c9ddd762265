"""Where a server prints the address of its live page, and where it does not."""

import os
import pty
import subprocess
import sys
import textwrap

import pytest
from behaviour_support import run_program

pytestmark = pytest.mark.ports

SERVE = """
    import reverb
    make = lambda: reverb.Table.queue("t", 9)
"""


def test_address_of_the_page_is_not_printed_into_a_pipe():
    out, err = run_program(SERVE + "    with reverb.Server([make()]):\n        pass\n")
    assert (out, err) == ("", "")


def test_address_of_the_page_is_logged():
    out, err = run_program(
        SERVE
        + """
    import logging
    logging.basicConfig(level=logging.INFO, format="%(name)s %(levelname)s %(message)s")
    with reverb.Server([make()]) as server:
        print(server.dashboard_url)
    """
    )
    assert f"reverb INFO Live dashboard: {out.strip()}" in err.splitlines()


@pytest.mark.parametrize("state", ["None", "closed"])
def test_server_starts_without_an_output(state):
    close = "sys.stdout = None" if state == "None" else "sys.stdout.close()"
    run_program(
        SERVE
        + f"""
    import os, sys
    {close}
    with reverb.Server([make()]) as server:
        assert server.http_port
    os._exit(0)
    """
    )


def test_console_that_is_no_file_is_told_the_address_of_the_page():
    run_program(
        SERVE
        + """
    import io, sys
    sys.ps1, real, sys.stdout = ">>> ", sys.stdout, io.StringIO()
    with reverb.Server([make()]) as server:
        assert sys.stdout.getvalue() == f"[Reverb] Live dashboard: {server.dashboard_url}\\n"
    sys.stdout = real
    """
    )


@pytest.mark.parametrize("options", [[], ["-i"]])
def test_address_of_the_page_is_printed_to_a_terminal(options):
    script = textwrap.dedent(SERVE) + "with reverb.Server([make()]) as s:\n    print('at', s.dashboard_url)\n"
    leader, terminal = pty.openpty()
    try:
        command = [sys.executable, *options, "-c", script]
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=terminal, stderr=subprocess.PIPE, timeout=60)
        assert ended.returncode == 0, ended.stderr
        lines = os.read(leader, 1 << 16).decode().splitlines()
    finally:
        os.close(leader)
        os.close(terminal)
    (url,) = [line.removeprefix("at ") for line in lines if line.startswith("at ")]
    assert lines.count(f"[Reverb] Live dashboard: {url}") == 1


def test_interactive_program_prints_nothing_into_a_pipe():
    script = textwrap.dedent(SERVE) + "server = reverb.Server([make()])\n"
    command = [sys.executable, "-i", "-c", script]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (0, "")
