"""Threads that are in a call of the package when the interpreter ends.

Where they came back from their calls, every one of these programs crashed on CPython 3.13, and none on 3.11.
"""

import subprocess
import sys
import textwrap

import pytest

# Threads that wait for items that never come, and some that draw without a pause; all end with the program.
PROGRAM = """
    import sys, threading, time
    import numpy as np
    import reverb
    selectors = reverb.selectors
    tables = [
        reverb.Table(name, selectors.Uniform(), selectors.Fifo(), 1000, reverb.rate_limiters.MinSize(1))
        for name in ("full", "empty")
    ]
    server = reverb.Server(tables)
    address = {"same_process": f"localhost:{server.port}", "unix": f"unix:{server.unix_path}"}[sys.argv[1]]
    reverb.Client(address).insert_batch(np.arange(1000.0), {"full": 1.0})
    begun = threading.Semaphore(0)

    def draw(table):
        client = reverb.Client(address)
        begun.release()
        while True:
            try:
                client.sample_batch(table, 1)
            except Exception:
                pass

    for table in ("full", "empty") * 4:
        threading.Thread(target=draw, args=(table,), daemon=True).start()
    for _ in range(8):
        begun.acquire()
    time.sleep(0.05)
    print("ends")
"""


@pytest.mark.parametrize("road", ["same_process", "unix"])
@pytest.mark.parametrize("round", range(3))
def test_a_program_with_threads_in_calls_ends_well(road, round):
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(PROGRAM), road]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "ends\n"), done.stderr
