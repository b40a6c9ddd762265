"""Writers and adders that an object writes with in its `__del__`, after the interpreter has begun to end."""

import subprocess
import sys

import pytest
from behaviour_support import info_of, make_table

# `Owner` is deleted in the last moments of the program, when nothing can be imported.
PROGRAM = """
import sys
import numpy as np
import reverb
from reverb import structured_writer

class Owner:
    def __init__(self, held, ends):
        self.held, self.ends = held, ends
    def __del__(self):
        try:
            import json
        except ImportError:
            print("no imports", flush=True)
        self.ends(self.held)
        print("ended", flush=True)

def error_of(call, *arguments):
    try:
        call(*arguments)
    except reverb_error as error:
        print(type(error).__module__, type(error).__name__, flush=True)

reverb_error = reverb.ReverbError
step = {"a": np.zeros(2)}
client = reverb.Client(sys.argv[1])
"""
WRITES = {
    "writer": """
writer = client.writer(max_sequence_length=2)
writer.append([np.zeros(2)])
def ends(writer):
    writer.append([np.zeros(2)])
    writer.create_item("table", 1, 1.0)
    writer.append_sequence([np.zeros([2, 2])])
    writer.flush()
    writer.create_item("table", 2, 1.0)
    writer.close()
""",
    "writer without flush": """
writer = client.writer(max_sequence_length=2)
def ends(writer):
    writer.append([1.0, [2, 3], np.float32(4)])
    writer.create_item("table", 1, 1.0)
    writer.create_item("table", 1, 1.0)
    writer.close()
""",
    "trajectory_writer": """
writer = client.trajectory_writer(2)
writer.append(step)
def ends(writer):
    writer.append({"a": np.ones(2), "new": np.float32(1)})
    writer.create_item("table", 1.0, {"a": writer.history["a"][-2:], "new": writer.history["new"][-1]})
    writer.end_episode()
    writer.append(step)
    writer.create_item("table", 1.0, writer.history["a"][-1:])
    writer.flush()
    writer.close()
""",
    "structured_writer": """
pattern = structured_writer.pattern_from_transform({"a": None}, lambda step: {"a": step["a"][-1:]})
writer = client.structured_writer([structured_writer.create_config(pattern, "table")])
def ends(writer):
    writer.append(step)
    writer.end_episode()
    writer.append(step)
    writer.flush()
    writer.close()
""",
    "batched_writer": """
writer = client.batched_writer(1, 2)
def ends(writer):
    writer.append({"a": np.zeros([1, 2])})
    writer.create_items("table", 1.0, {"a": writer.history["a"][-1:]})
    writer.append({"a": np.zeros([1, 2])}, episode_end=[True])
    writer.append({"a": np.zeros([1, 2])})
    writer.create_items("table", [1.0], {"a": writer.history["a"][-1:]}, mask=[True])
    writer.flush()
    writer.close()
""",
    "n-step adder": """
writer = reverb.adders.NStepTransitionAdder(client, "table", n=1, discount=0.9)
writer.add(np.zeros(2), 0, 1.0, np.zeros(2))
writer.flush()
def ends(adder):
    adder.add(np.zeros(2), 0, 1.0, np.zeros(2), terminated=True)
    adder.flush()
    adder.close()
""",
    "sequence adder": """
writer = reverb.adders.SequenceAdder(client, "table", length=2, period=2, num_envs=2)
writer.add({"a": np.zeros([2, 2])})
def ends(adder):
    adder.add({"a": np.zeros([2, 2])}, last=True)
    adder.flush()
    adder.close()
""",
    "episode adder": """
writer = reverb.adders.EpisodeAdder(client, "table", max_length=3)
def ends(adder):
    for _ in range(2):
        adder.add({"a": 1.0})
        adder.add({"a": 2.0}, last=True)
    adder.flush()
    adder.close()
""",
}
HELD = {"global": "owner = Owner(writer, ends)", "cycle": "owner = Owner(writer, ends); owner.myself = owner"}


def run(program, *arguments):
    return subprocess.run(
        [sys.executable, "-c", PROGRAM + program, *arguments], capture_output=True, text=True, timeout=50
    )


@pytest.mark.parametrize("held", HELD.values(), ids=HELD)
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_items_can_be_written_after_the_interpreter_has_begun_to_end(serve_far, write, held):
    client = serve_far(make_table())
    done = run(f"{write}\n{held}\ndel writer", serve_far.address)
    assert (done.returncode, done.stdout, done.stderr) == (0, "no imports\nended\n", "")
    assert info_of(client).current_size == 2


ERRORS = """
writer, other = client.trajectory_writer(2), client.writer(2)
def ends(writers):
    trajectory_writer, writer = writers
    trajectory_writer.append(step)
    error_of(trajectory_writer.append, {"a": np.zeros(3)})
    error_of(trajectory_writer.create_item, "table", float("nan"), trajectory_writer.history["a"][-1:])
    trajectory_writer.close()
    error_of(trajectory_writer.append, step)
    error_of(trajectory_writer.end_episode)
    error_of(trajectory_writer.flush)
    writer.append([np.zeros(2)])
    error_of(writer.append, [np.zeros(3)])
    writer.close()
    error_of(writer.append, [np.zeros(2)])
"""


def test_errors_keep_their_classes_after_the_interpreter_has_begun_to_end(serve_far):
    serve_far(make_table())
    done = run(f"{ERRORS}\nowner = Owner((writer, other), ends)\ndel writer, other", serve_far.address)
    names = ["InvalidArgument", "InvalidPriority", *["Cancelled"] * 3, "InvalidArgument", "Cancelled"]
    lines = ["no imports", *(f"reverb.errors {name}Error" for name in names), "ended"]
    assert (done.returncode, done.stdout.splitlines(), done.stderr) == (0, lines, "")


IN_ITS_OWN_PROCESS = """
server = reverb.Server([reverb.Table.queue("queue", 9)])
client = reverb.Client(f"localhost:{server.port}")
writer = client.trajectory_writer(2)
writer.append(step)
def ends(writer):
    writer.flush()
    writer.append(step)
    writer.create_item("queue", 1.0, writer.history["a"][-1:])
    error_of(writer.flush)
    writer.close()
owner = Owner(writer, ends)
del writer
"""


def test_a_late_flush_does_not_wait_for_a_stopped_server_of_its_own_process():
    done = run(IN_ITS_OWN_PROCESS, "localhost:1")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "ended")
    assert "ImportError" not in done.stderr
