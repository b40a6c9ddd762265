"""Which item a table draws, and which it removes when it is full."""

import collections

import numpy as np
import pytest
from behaviour_support import contents, draw, draw_values, insert_values, make_table, value_of

import reverb

PRIORITIES = [3.0, 1.0, 4.0, 1.0, 5.0, 4.0]


@pytest.mark.parametrize(
    ("sampler", "first"),
    [("fifo", 0), ("lifo", 5), ("min_heap", 1), ("max_heap", 4)],
)
def test_deterministic_sampler_draws_its_item_repeatedly(serve, sampler, first):
    client = serve(make_table(sampler=sampler))
    insert_values(client, range(6), priority=PRIORITIES)
    samples = draw(client, 3)
    assert [value_of(sample) for sample in samples] == [first] * 3
    assert [sample.info.probability for sample in samples] == [1.0] * 3


@pytest.mark.parametrize(
    ("sampler", "order"),
    [
        ("fifo", [0, 1, 2, 3, 4, 5]),
        ("lifo", [5, 4, 3, 2, 1, 0]),
        ("min_heap", [1, 3, 0, 2, 5, 4]),
        ("max_heap", [4, 2, 5, 0, 1, 3]),
    ],
)
def test_deterministic_sampler_draws_in_its_order_when_items_are_removed_after_one_draw(serve, sampler, order):
    client = serve(make_table(sampler=sampler, max_times_sampled=1))
    insert_values(client, range(6), priority=PRIORITIES)
    assert draw_values(client, 6) == order


@pytest.mark.parametrize(
    ("remover", "kept"),
    [
        ("fifo", [3, 4, 5]),
        ("lifo", [0, 1, 5]),
        ("min_heap", [2, 4, 5]),
        ("max_heap", [0, 1, 3]),
    ],
)
def test_remover_chooses_among_all_items_including_the_new_one(serve, remover, kept):
    # The new item is in the table when the remover chooses, so the newest item may be removed.
    if remover == "lifo":
        kept = [0, 1, 2]
    client = serve(make_table(sampler="uniform", remover=remover, max_size=3))
    insert_values(client, range(6), priority=PRIORITIES)
    assert sorted(contents(client)) == kept


@pytest.mark.parametrize("remover", ["uniform", "prioritized"])
def test_random_remover_keeps_the_table_at_its_size(serve, remover):
    client = serve(make_table(sampler="uniform", remover=remover, max_size=10))
    insert_values(client, range(50))
    found = contents(client)
    assert len(found) == 10
    assert set(found) <= set(range(50))


def test_prioritized_remover_removes_only_items_of_nonzero_priority(serve):
    client = serve(make_table(sampler="uniform", remover="prioritized", max_size=3))
    insert_values(client, [0, 1], priority=0.0)
    insert_values(client, range(2, 12), priority=1.0)
    assert {0, 1} < set(contents(client))


@pytest.mark.parametrize("sampler", ["min_heap", "max_heap"])
def test_heap_prefers_the_item_whose_priority_was_set_longest_ago_among_equals(serve, sampler):
    client = serve(make_table(sampler=sampler))
    insert_values(client, [0, 1, 2])
    [first] = draw(client)
    assert value_of(first) == 0
    client.mutate_priorities("table", updates={first.info.key: 1.0})
    assert draw_values(client) == [1]


def test_uniform_sampler_draws_all_items_equally_often(serve):
    client = serve(make_table(sampler="uniform", seed=1))
    insert_values(client, range(4))
    samples = draw(client, 4000)
    counts = collections.Counter(value_of(sample) for sample in samples)
    assert all(850 < counts[value] < 1150 for value in range(4)), counts
    assert {sample.info.probability for sample in samples} == {0.25}


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 2.0])
def test_prioritized_sampler_draws_by_priority_to_the_exponent(serve, exponent):
    priorities = np.array([1.0, 2.0, 4.0, 9.0])
    client = serve(make_table(sampler=reverb.selectors.Prioritized(exponent), seed=1))
    insert_values(client, range(4), priority=list(priorities))
    expected = priorities**exponent / np.sum(priorities**exponent)
    samples = draw(client, 4000)
    counts = collections.Counter(value_of(sample) for sample in samples)
    for sample in samples:
        assert sample.info.probability == pytest.approx(expected[value_of(sample)], rel=1e-12)
    for value in range(4):
        assert counts[value] / 4000 == pytest.approx(expected[value], abs=0.05)


def test_item_of_priority_zero_is_never_drawn_while_others_have_more(serve):
    client = serve(make_table(sampler="prioritized"))
    insert_values(client, range(10), priority=[0.0] * 9 + [1e-30])
    assert set(draw_values(client, 500)) == {9}


def test_items_are_equally_probable_if_all_have_priority_zero(serve):
    client = serve(make_table(sampler="prioritized", seed=1))
    insert_values(client, range(4), priority=1000.0)
    client.mutate_priorities("table", updates=dict.fromkeys(contents(client).values(), 0.0))
    samples = draw(client, 400)
    assert {value_of(sample) for sample in samples} == {0, 1, 2, 3}
    assert {sample.info.probability for sample in samples} == {0.25}


@pytest.mark.parametrize("scale", [1e-200, 1e-9, 1.0, 1e12, 1e200])
def test_probabilities_are_exact_at_any_scale_after_many_updates(serve, scale):
    client = serve(make_table(sampler="prioritized", seed=1))
    insert_values(client, range(8), priority=scale)
    keys = contents(client)
    random = np.random.default_rng(0)
    for _ in range(50):
        client.mutate_priorities("table", updates={keys[int(random.integers(8))]: scale * float(random.uniform(1, 5))})
    client.mutate_priorities("table", updates={keys[value]: scale * (value + 1) for value in range(8)})
    for sample in draw(client, 100):
        assert sample.info.probability == pytest.approx((value_of(sample) + 1) / 36, rel=1e-9)


def test_same_seed_gives_the_same_draws_and_another_seed_gives_others(serve):
    def draws(seed, sampler):
        client = serve(make_table(sampler=sampler, seed=seed))
        insert_values(client, range(50))
        return draw_values(client, 60)

    for sampler in ("uniform", "prioritized"):
        assert draws(7, sampler) == draws(7, sampler)
        assert draws(7, sampler) != draws(8, sampler)


def test_same_seed_removes_the_same_items(serve):
    def survivors(seed):
        client = serve(make_table(sampler="fifo", remover="uniform", max_size=20, seed=seed, max_times_sampled=1))
        insert_values(client, range(60))
        return draw_values(client, 20)

    assert survivors(3) == survivors(3)
    assert survivors(3) != survivors(4)
