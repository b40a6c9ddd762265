"""Writers that an object flushes or closes in its `__del__`, after the interpreter has begun to end."""

import subprocess
import sys
import textwrap

import pytest
from behaviour_support import info_of, make_table

PROGRAM = """
import sys
import numpy as np
import reverb
from reverb import structured_writer

class Owner:
    def __init__(self, writer, flushes):
        self.writer, self.flushes = writer, flushes
    def __del__(self):
        if self.flushes:
            self.writer.flush()
        self.writer.close()
        print("ended", flush=True)

client = reverb.Client(sys.argv[1])
def make():{write}
    return writer
owner, other = Owner(make(), True), Owner(make(), False)
{held}
"""
WRITES = {
    "writer": """
writer = client.writer(max_sequence_length=2)
writer.append([np.zeros(2)])
writer.create_item("table", 1, 1.0)
""",
    "trajectory_writer": """
writer = client.trajectory_writer(2)
writer.append({"a": np.zeros(2)})
writer.create_item("table", 1.0, {"a": writer.history["a"][-1:]})
""",
    "structured_writer": """
pattern = structured_writer.pattern_from_transform({"a": None}, lambda step: {"a": step["a"][-1:]})
writer = client.structured_writer([structured_writer.create_config(pattern, "table")])
writer.append({"a": np.zeros(2)})
""",
    "batched_writer": """
writer = client.batched_writer(1, 2)
writer.append({"a": np.zeros([1, 2])})
writer.create_items("table", 1.0, {"a": writer.history["a"][-1:]})
""",
}
HELD = {"global": "", "cycle": "owner.myself, other.myself = owner, other"}


@pytest.mark.parametrize("held", HELD.values(), ids=HELD)
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_writers_can_be_flushed_and_closed_after_the_interpreter_has_begun_to_end(serve_far, write, held):
    client = serve_far(make_table())
    program = PROGRAM.format(write=textwrap.indent(write, "    "), held=held)
    done = subprocess.run(
        [sys.executable, "-c", program, serve_far.address], capture_output=True, text=True, timeout=50
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended\nended\n", "")
    assert info_of(client).current_size == 2
