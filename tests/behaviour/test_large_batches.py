"""Batches of very many items over a network: they are complete, and other clients are served meanwhile."""

import numpy as np
import pytest
from behaviour_support import PATIENCE_S, Background, insert_values, make_table

ITEMS = 1_000_000
ROWS_A_CALL = 10_000


@pytest.fixture
def client(serve_far):
    """A client of a server with a million numbers, each with its text, and another small table."""
    client = serve_far(make_table(max_size=ITEMS, max_times_sampled=1), make_table("other"))
    for first in range(0, ITEMS, ROWS_A_CALL):
        numbers = np.arange(first, first + ROWS_A_CALL)
        client.insert_batch({"number": numbers, "text": numbers.astype("S").astype(object)}, {"table": 1.0})
    insert_values(client, [3], table="other")
    return client


def test_a_second_client_is_served_while_a_million_rows_are_on_their_way(client, serve_far):
    other = serve_far.connect()
    other.sample_batch("other", 1)
    large = Background(client.sample_batch, "table", ITEMS, squeeze_time=True)
    served, has_begun = 0, False
    while large.is_running:
        # Each item leaves with its draw.
        has_begun = has_begun or other.server_info()["table"].current_size < ITEMS
        other.sample_batch("other", 1)
        served += has_begun
    batch = large.result(3 * PATIENCE_S)
    assert served > 1
    np.testing.assert_array_equal(batch.data[0], np.arange(ITEMS))
    assert batch.data[1].tolist() == [b"%d" % number for number in range(ITEMS)]
