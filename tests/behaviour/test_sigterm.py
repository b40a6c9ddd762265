"""SIGTERM, as `Process.terminate`, Slurm and Docker send it, to programs that wait for a server."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap

import pytest
from behaviour_support import PATIENCE_S, program

import reverb
from reverb import checkpointers

# The start of each program: `serve` makes a server with three items, which saves in `folder` when it stops. `announce`
# calls a function once SIGTERM no longer kills the process.
HEAD = """
import multiprocessing, os, signal, sys, threading, time
import numpy as np
import reverb

def serve(folder, **options):
    checkpointer = reverb.checkpointers.DefaultCheckpointer(folder, **{"save_on_stop": True, **options})
    server = reverb.Server([reverb.Table.queue("table", 100)], checkpointer=checkpointer)
    for value in range(3):
        server.localhost_client().insert([np.int64(value)], {"table": 1.0})
    print("ready", flush=True)
    return server

def announce(call=lambda: print("waiting", flush=True)):
    def watch():
        while signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            time.sleep(0.01)
        call()

    threading.Thread(target=watch, daemon=True).start()
"""


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "kept"


def started(source, folder):
    """Starts a program, and returns it once its server has three items."""
    running = program(HEAD + textwrap.dedent(source), folder)
    assert running.line() == "ready"
    return running


def end_of(running, number=signal.SIGTERM):
    """Sends the signal, and returns the exit status and what the program still prints on stdout and stderr."""
    running.process.send_signal(number)
    out, err = running.process.communicate(timeout=2 * PATIENCE_S)
    return running.process.returncode, out, err


def saved(folder):
    """Returns the values in the newest checkpoint, which a new server loads."""
    server = reverb.Server([reverb.Table.queue("table", 100)], checkpointer=checkpointers.DefaultCheckpointer(folder))
    assert server.restored_from
    batch = server.localhost_client().sample_batch("table", 3, timeout=PATIENCE_S)
    server.stop()
    return batch.data[0].ravel().tolist()


def test_sigterm_ends_a_wait_with_a_save(folder):
    source = """
        server = serve(sys.argv[1])
        announce()
        try:
            server.wait()
        finally:
            print("finally", flush=True)
    """
    with started(source, folder) as running:
        assert running.line() == "waiting"
        status, out, err = end_of(running)
    assert (status, out.split(), err) == (143, ["finally"], "")
    assert saved(folder) == [0, 1, 2]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_terminate_of_a_process_that_waits_saves(folder, tmp_path, method):
    script = tmp_path / "main.py"
    script.write_text(
        HEAD
        + textwrap.dedent("""
            def target(folder, ready):
                server = serve(folder)
                announce(ready.set)
                server.wait()

            if __name__ == "__main__":
                context = multiprocessing.get_context(sys.argv[2])
                ready = context.Event()
                process = context.Process(target=target, args=(sys.argv[1], ready))
                process.start()
                ready.wait()
                process.terminate()
                process.join()
                print(process.exitcode)
        """)
    )
    done = subprocess.run(
        [sys.executable, script, folder, method],
        check=True,
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE_S,
    )
    assert done.stdout.split() == ["ready", "143"]
    assert done.stderr == ""
    assert saved(folder) == [0, 1, 2]


def test_handler_of_the_program_is_kept(folder):
    source = """
        server = serve(sys.argv[1])

        def handle(number, frame):
            print("handled", flush=True)
            server.stop()

        signal.signal(signal.SIGTERM, handle)
        announce()
        print(server.wait(), signal.getsignal(signal.SIGTERM) is handle)
    """
    with started(source, folder) as running:
        assert running.line() == "waiting"
        status, out, _ = end_of(running)
    assert (status, out.split()) == (0, ["handled", "True", "True"])


def test_exit_by_a_handler_of_the_program_saves_before_it_leaves_the_wait(folder):
    # A signal may come while the program does not wait. Nothing runs at the end of the program.
    source = """
        server = serve(sys.argv[1])
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(7))
        stopped = False
        while not stopped:
            print("again", flush=True)
            try:
                stopped = server.wait()
            except SystemExit:
                pass
        os._exit(0)
    """
    with started(source, folder) as running:
        for _ in range(20):
            if not running.process.stdout.readline():
                break
            running.process.send_signal(signal.SIGTERM)
        else:
            pytest.fail("the server has not been stopped")
    assert saved(folder) == [0, 1, 2]


def test_ignored_sigterm_stays_ignored(folder):
    source = """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        server = serve(sys.argv[1])
        threading.Thread(target=lambda: (sys.stdin.readline(), server.stop())).start()
        print(server.wait())
    """
    with started(source, folder) as running:
        running.process.send_signal(signal.SIGTERM)
        assert running.process.communicate("\n", timeout=PATIENCE_S)[0] == "True\n"


def test_disposition_of_sigterm_is_restored_after_a_wait(folder):
    source = """
        server = serve(sys.argv[1])
        print(server.wait(0.01), signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
        server.stop()
        print(server.wait(), signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
    """
    with started(source, folder) as running:
        assert running.end()[0].split() == ["False", "True", "True", "True"]


def test_wait_of_another_thread_leaves_sigterm_alone(folder):
    source = """
        server = serve(sys.argv[1])
        waiting = threading.Thread(target=server.wait)
        waiting.start()
        print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
        server.stop()
        waiting.join()
    """
    with started(source, folder) as running:
        out, err = running.end()
    assert (out, err) == ("True\n", "")


def test_all_servers_of_the_program_save_whichever_is_waited_for(folder):
    source = """
        kept = serve(sys.argv[1])
        other = reverb.Server([reverb.Table.queue("other", 1)])
        announce()
        other.wait()
    """
    with started(source, folder) as running:
        assert running.line() == "waiting"
        assert end_of(running)[0] == 143
    assert saved(folder) == [0, 1, 2]


def test_sigterm_leaves_no_socket_behind(folder):
    source = """
        server = serve(sys.argv[1], save_on_stop=False)
        print(server.port, flush=True)
        announce()
        server.wait()
    """
    with started(source, folder) as running:
        socket = pathlib.Path(tempfile.gettempdir(), f"reverb-{os.getuid()}", f"{running.line()}.sock")
        assert running.line() == "waiting"
        assert socket.exists()
        assert end_of(running)[0] == 143
    assert not socket.exists()
