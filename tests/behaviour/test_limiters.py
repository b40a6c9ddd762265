"""When a table allows inserts and samples."""

import sys

import numpy as np
import pytest
from behaviour_support import (
    Background,
    comes_true,
    draw,
    draw_values,
    eventually,
    info_of,
    insert_values,
    make_table,
    num_inserts,
    num_samples,
)

import reverb
from reverb import rate_limiters


def allowed(predicate, most=100):
    """The largest n for which the predicate holds."""
    return max((n for n in range(1, most + 1) if predicate(n)), default=0)


def test_min_size_allows_samples_from_that_many_items_on(serve):
    table = make_table(limiter=rate_limiters.MinSize(3))
    client = serve(table)
    insert_values(client, [0, 1])
    assert not table.can_sample(1)
    insert_values(client, [2])
    assert table.can_sample(1)
    assert table.can_sample(1_000_000)
    assert table.can_insert(1_000_000)
    assert draw_values(client, 2) == [0, 0]


def test_sample_waits_until_the_table_holds_min_size_to_sample(serve):
    client = serve(make_table(limiter=rate_limiters.MinSize(2)))
    waiting = Background(draw_values, serve.connect())
    insert_values(client, [0])
    assert not comes_true(lambda: not waiting.is_running, patience_s=0.2)
    insert_values(client, [1])
    assert waiting.result() == [0]


def test_samples_per_insert_bounds_both_sides(serve):
    # min_diff 2, max_diff 10: five inserts are allowed, and the next must wait for samples.
    table = make_table(limiter=rate_limiters.SampleToInsertRatio(2.0, 3, 4.0))
    client = serve(table)
    insert_values(client, range(5))
    assert not table.can_insert(1)
    waiting = Background(insert_values, serve.connect(), [5, 6])
    assert allowed(table.can_sample) == 8
    draw(client, 12)
    waiting.result()
    assert (num_inserts(client), num_samples(client)) == (7, 12)
    assert not table.can_sample(1)
    assert allowed(table.can_insert) == 4


def test_deleted_items_may_be_replaced_up_to_min_size_whatever_the_ratio(serve):
    table = make_table(sampler="lifo", limiter=rate_limiters.SampleToInsertRatio(1.0, 3, 1.0))
    client = serve(table)
    insert_values(client, range(4))
    assert not table.can_insert(1)
    [sample] = draw(client)
    client.mutate_priorities("table", deletes=[sample.info.key])
    [sample] = draw(client)
    client.mutate_priorities("table", deletes=[sample.info.key])
    assert info_of(client).current_size == 2
    assert not table.can_sample(1)
    assert allowed(table.can_insert) >= 1


def test_explicit_error_buffer_sets_the_differences_directly(serve):
    table = make_table(limiter=rate_limiters.SampleToInsertRatio(1.0, 1, (-2.0, 3.0)))
    client = serve(table)
    insert_values(client, range(3))
    assert allowed(table.can_insert) == 0
    assert allowed(table.can_sample) == 5


def test_general_limiter_counts_inserts_and_samples(serve):
    table = make_table(limiter=rate_limiters.RateLimiter(3.0, 1, 0.0, 6.0))
    client = serve(table)
    insert_values(client, [0, 1])
    assert allowed(table.can_sample) == 6
    assert allowed(table.can_insert) == 0
    draw(client, 6)
    assert allowed(table.can_sample) == 0
    assert allowed(table.can_insert) == 2


def test_insert_waits_while_a_queue_is_full(serve):
    client = serve(reverb.Table.queue("table", max_size=2))
    insert_values(client, [0, 1])
    waiting = Background(insert_values, serve.connect(), [2])
    assert not comes_true(lambda: not waiting.is_running, patience_s=0.2)
    assert draw_values(client) == [0]
    waiting.result()
    assert draw_values(client, 2) == [1, 2]


@pytest.mark.parametrize("buffer", [(-sys.float_info.max, sys.float_info.max)])
def test_limiter_can_be_rebuilt_from_a_tables_info(serve, buffer):
    client = serve(make_table(limiter=rate_limiters.MinSize(4)))
    info = info_of(client).rate_limiter_info
    assert (info.min_diff, info.max_diff) == buffer
    rebuilt = rate_limiters.SampleToInsertRatio(
        info.samples_per_insert, info.min_size_to_sample, (info.min_diff, info.max_diff)
    )
    table = make_table(limiter=rebuilt)
    insert_values(serve(table), range(4))
    assert table.can_sample(10**6)


def test_limiter_accepts_counts_of_samples_up_to_two_to_the_31(serve):
    table = make_table()
    insert_values(serve(table), [0])
    assert table.can_sample(2**31 - 1)


@pytest.mark.parametrize("predicate", ["can_sample", "can_insert"])
@pytest.mark.parametrize("count", [0, -1])
def test_predicates_refuse_counts_below_one(predicate, count):
    with pytest.raises(ValueError, match=str(count)):
        getattr(make_table(), predicate)(count)


def test_batch_of_inserts_larger_than_the_room_proceeds_as_samples_make_room(serve):
    client = serve(reverb.Table.queue("table", max_size=3))
    waiting = Background(serve.connect().insert_batch, np.arange(10), {"table": 1.0})
    eventually(lambda: info_of(client).current_size == 3)
    assert waiting.is_running
    assert draw_values(client, 10) == list(range(10))
    waiting.result()
