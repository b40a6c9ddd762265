"""Calls of `reverb.aio` that are cancelled at random moments lose no item, and double none.

The script `cancelled_calls.py` does the same for longer.
"""

import os

import pytest
from cancelled_calls import READERS, ROADS, TABLES, run

# For each combination.
NUM_CANCELLATIONS = int(os.environ.get("REVERB_CANCELLATIONS", "300"))


@pytest.mark.timeout(60 + NUM_CANCELLATIONS // 10)
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("road", ROADS)
def test_cancelled_calls_lose_and_double_nothing(road, table, reader):
    found = run(road, table, reader, NUM_CANCELLATIONS, seed=None)
    assert found["cancellations"] >= NUM_CANCELLATIONS
    assert found["items"] > 0
    assert (found["lost"], found["doubled"], found["unknown"]) == (0, 0, 0)
