"""The unmodified tests for Reverb that TF-Agents, RLDS and Acme ship in their wheels."""

import re

import pytest
from programs_support import attempt, run

pytestmark = [pytest.mark.programs, pytest.mark.timeout(300)]

# The number of tests in each module, so that none gets lost.
MODULES = {
    "rlds.transformations.pattern_test": 4,
    "tf_agents.replay_buffers.reverb_replay_buffer_test": 31,
    "tf_agents.replay_buffers.reverb_utils_test": 24,
    "tf_agents.replay_buffers.rlds_to_reverb_test": 41,
    "tf_agents.experimental.distributed.reverb_variable_container_test": 18,
    "tf_agents.train.utils.replay_buffer_utils_test": 3,
    "tf_agents.train.utils.train_utils_test": 10,
    "acme.adders.reverb.transition_test": 17,
    "acme.adders.reverb.sequence_test": 16,
    "acme.adders.reverb.episode_test": 12,
    "acme.datasets.numpy_iterator_test": 2,
    "acme.agents.tf.dqn.agent_test": 1,
    "acme.agents.tf.r2d2.agent_test": 2,
    "acme.agents.tf.bcq.discrete_learning_test": 1,
}
# TF-Agents runs this one with a runner that prepares processes and is not in its wheel. It refuses to start without it.
BATCHED = """
import tensorflow as tf
from tf_agents.system import system_multiprocessing
from tf_agents.utils.batched_observer_unbatching_test import *
system_multiprocessing.handle_test_main(tf.test.main)
"""


def ran(written):
    """Returns how many tests passed, or were skipped by their authors."""
    assert re.search(r"^OK( \(skipped=\d+\))?$", written, re.MULTILINE), written
    return int(re.search(r"^Ran (\d+) tests? in", written, re.MULTILINE)[1])


@pytest.mark.parametrize(("module", "count"), MODULES.items())
def test_all_tests_of_a_module_pass(tmp_path, module, count):
    assert ran(run(tmp_path, "-m", module)) == count


def test_environments_in_processes_write_through_an_observer_each(tmp_path):
    program = tmp_path / "batched.py"
    program.write_text(BATCHED)
    assert ran(run(tmp_path, program)) == 3


def test_acme_copies_a_table_from_its_description(tmp_path):
    # The test reads the age of a table twice, in milliseconds. The values may differ, also with dm-reverb.
    for _ in range(3):
        outcome = attempt(tmp_path, "-m", "acme.utils.reverb_utils_test")
        if outcome.returncode == 0:
            break
    assert ran(outcome.stdout) == 2
