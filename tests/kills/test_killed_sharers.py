"""Clients and servers that are killed while they share memory leave nothing of it, and lose and tear no row.

The script `killed_sharers.py` does the same for longer.
"""

import os
import sys

import pytest
from killed_sharers import VICTIMS, run

# For both victims together.
NUM_KILLS = int(os.environ.get("REVERB_SHARER_KILLS", "4"))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has memory without a name")
@pytest.mark.ports
@pytest.mark.timeout(120 + 10 * NUM_KILLS)
@pytest.mark.parametrize("victim", VICTIMS)
def test_who_is_killed_with_shared_memory_leaves_nothing_and_loses_nothing(victim):
    kills = -(-NUM_KILLS // len(VICTIMS))
    counts = run(victim, kills)
    assert counts["kills"] == kills
    assert counts["rows of the writer"] > 0
