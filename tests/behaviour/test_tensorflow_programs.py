"""Whole programs with TensorFlow datasets and clients: how an error in a loop, and the interpreter, end."""

import signal
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.tensorflow

HEAD = """
import numpy as np
import tensorflow as tf
import reverb

server = reverb.Server(tables=[
    reverb.Table("table", reverb.selectors.Fifo(), reverb.selectors.Fifo(), 100, reverb.rate_limiters.MinSize(1))
])
client = reverb.Client(f"localhost:{server.port}")
client.insert_batch(np.zeros(50, np.float32), {"table": 1.0})
options = dict(server_address=client.server_address, table="table", max_in_flight_samples_per_worker=4)
"""
TRAJECTORIES = "reverb.TrajectoryDataset(dtypes=tf.float32, shapes=tf.TensorShape([1]), **options)"
TIMESTEPS = "reverb.TimestepDataset(dtypes=tf.float32, shapes=tf.TensorShape([]), **options)"
FORMS = {
    "trajectories": TRAJECTORIES,
    "timesteps": TIMESTEPS,
    "trajectories batched": f"{TRAJECTORIES}.batch(2).prefetch(2)",
    "timesteps batched": f"{TIMESTEPS}.batch(2).prefetch(2)",
    "trajectories as arrays": f"{TRAJECTORIES}.as_numpy_iterator()",
    "timesteps as arrays": f"{TIMESTEPS}.as_numpy_iterator()",
}
LOOP = """
for sample in {form}:
    {raises}
"""


def run(program):
    """Runs a program to its end; returns its exit status and its last line on stderr."""
    done = subprocess.run([sys.executable, "-c", HEAD + program], capture_output=True, text=True, timeout=50)
    return done.returncode, (done.stderr.splitlines() or [""])[-1]


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_an_error_in_the_body_of_a_loop_ends_the_program_as_itself(form):
    assert run(LOOP.format(form=form, raises="raise ValueError('mine')")) == (1, "ValueError: mine")


def test_errors_in_the_bodies_of_loops_in_functions_can_be_caught():
    program = ""
    for number, form in enumerate(FORMS.values()):
        loop = textwrap.indent(LOOP.format(form=form, raises="raise ValueError('mine')"), "    ")
        program += f"def train{number}():{loop}\nfor _ in range(3):\n    try:\n        train{number}()\n"
        program += "        raise SystemExit(1)\n    except ValueError as error:\n        assert str(error) == 'mine'\n"
    assert run(program + "raise SystemExit(7)")[0] == 7


@pytest.mark.parametrize("form", ["trajectories", "timesteps batched"])
def test_ctrl_c_in_the_body_of_a_loop_is_a_keyboard_interrupt(form):
    program = LOOP.format(form=FORMS[form], raises="signal.raise_signal(signal.SIGINT)")
    assert run(f"import signal{program}") == (-signal.SIGINT, "KeyboardInterrupt")


def test_a_client_in_a_function_that_lives_until_the_end_of_the_program_does_not_harm_the_end():
    program = """
tf_client = reverb.TFClient(client.server_address)

@tf.function
def sample():
    return tf_client.sample("table", [tf.float32]).data

@tf.function
def update(keys):
    tf_client.update_priorities("table", keys, tf.ones([1], tf.float64))

sample(), update(tf.constant([1], tf.uint64))
tf_client.sample("table", [tf.float32])
"""
    status, last = run(program)
    assert status == 0, last
