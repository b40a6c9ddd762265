"""A durable server that is killed at random moments has all that it confirmed, and nothing else.

The script `killed_servers.py` does the same for longer.
"""

import os
import sys

import pytest
from killed_servers import MODES, run

# For both modes together.
NUM_KILLS = int(os.environ.get("REVERB_SERVER_KILLS", "50"))


@pytest.mark.skipif(sys.platform != "linux", reason="copies sparse files with GNU cp")
@pytest.mark.ports
@pytest.mark.timeout(120 + 20 * NUM_KILLS)
@pytest.mark.parametrize("mode", MODES)
def test_a_killed_server_has_what_it_confirmed_and_nothing_else(mode):
    kills = -(-NUM_KILLS // len(MODES))
    counts = run(mode, kills)
    assert counts["kills"] == kills
    for settled in ("settled samples of queue", "settled samples of few"):
        assert counts[settled] > 0
