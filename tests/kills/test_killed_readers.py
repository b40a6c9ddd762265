"""Readers that are killed at random moments lose no sample, and get none twice that they have had for a second.

The script `killed_readers.py` does the same for longer.
"""

import itertools
import os

import pytest
from killed_readers import READERS, ROADS, TABLES, Forker, run_round

# For all readers together.
NUM_KILLS = int(os.environ.get("REVERB_READER_KILLS", "40"))
MARKS = {"data_loader": [pytest.mark.torch], "dataset": [pytest.mark.tensorflow]}


@pytest.mark.timeout(120 + 10 * NUM_KILLS)
@pytest.mark.parametrize("reader", [pytest.param(reader, marks=MARKS.get(reader, [])) for reader in READERS])
def test_killed_reader_loses_nothing_and_repeats_little(reader):
    forker = Forker(reader)
    try:
        combinations = itertools.cycle(itertools.product(ROADS, TABLES))
        for road, table in itertools.islice(combinations, -(-NUM_KILLS // len(READERS))):
            noted, lost, _, again_after_a_second = run_round(forker, road, table)
            assert noted > 0
            assert (lost, again_after_a_second) == (0, 0), f"{table} over {road}"
    finally:
        forker.close()
