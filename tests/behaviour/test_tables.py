"""What a table holds, counts and reports."""

import numpy as np
import pytest
from behaviour_support import (
    contents,
    draw,
    draw_values,
    info_of,
    insert_values,
    make_table,
    num_inserts,
    num_samples,
)

import reverb
from reverb import errors, rate_limiters, selectors


def test_table_never_holds_more_than_max_size(serve):
    client = serve(make_table(max_size=5))
    for value in range(12):
        insert_values(client, [value])
        assert info_of(client).current_size == min(value + 1, 5)
    assert num_inserts(client) == 12
    assert draw_values(client) == [7]


def test_item_is_removed_after_max_times_sampled(serve):
    client = serve(make_table(max_times_sampled=2))
    insert_values(client, [0, 1, 2])
    samples = draw(client, 5)
    assert [int(sample.data[0][0]) for sample in samples] == [0, 0, 1, 1, 2]
    assert [sample.info.times_sampled for sample in samples] == [1, 2, 1, 2, 1]
    # The size is the one before the item is removed.
    assert [sample.info.table_size for sample in samples] == [3, 3, 2, 2, 1]
    assert info_of(client).current_size == 1


@pytest.mark.parametrize("limit", [0, -1])
def test_max_times_sampled_below_one_sets_no_limit_and_is_reported_unchanged(serve, limit):
    client = serve(make_table(max_times_sampled=limit))
    insert_values(client, [0])
    assert draw(client, 10)[-1].info.times_sampled == 10
    assert info_of(client).max_times_sampled == limit


def test_queue_yields_each_item_once_in_order(serve):
    client = serve(reverb.Table.queue("table", max_size=10))
    insert_values(client, range(10))
    assert draw_values(client, 10) == list(range(10))
    assert info_of(client).current_size == 0


def test_stack_yields_each_item_once_newest_first(serve):
    client = serve(reverb.Table.stack("table", max_size=10))
    insert_values(client, range(10))
    assert draw_values(client, 10) == list(reversed(range(10)))


def test_queue_and_stack_report_their_options(serve):
    client = serve(reverb.Table.queue("queue", max_size=4), reverb.Table.stack("stack", max_size=6))
    queue, stack = info_of(client, "queue"), info_of(client, "stack")
    assert queue.sampler_options.fifo
    assert queue.remover_options.fifo
    assert stack.sampler_options.lifo
    assert stack.remover_options.lifo
    for info, size in ((queue, 4), (stack, 6)):
        assert (info.max_size, info.max_times_sampled) == (size, 1)
        limiter = info.rate_limiter_info
        assert (limiter.samples_per_insert, limiter.min_size_to_sample) == (1.0, 1)
        assert (limiter.min_diff, limiter.max_diff) == (0.0, size)


def test_sample_info_has_key_probability_size_priority_and_times_sampled(serve):
    client = serve(make_table(sampler="prioritized"))
    insert_values(client, [0, 1], priority=[1.0, 3.0])
    for sample in draw(client, 20):
        info = sample.info
        assert isinstance(info, reverb.SampleInfo)
        assert [type(field) for field in info] == [int, float, int, float, int]
        assert 0 <= info.key < 2**64
        assert info.table_size == 2
        assert info.priority == (1.0, 3.0)[int(sample.data[0][0])]
        assert info.probability == info.priority / 4


def test_keys_are_unique_and_do_not_change(serve):
    client = serve(make_table(sampler="uniform"))
    insert_values(client, range(30))
    before = contents(client)
    assert len(set(before.values())) == 30
    client.mutate_priorities("table", updates=dict.fromkeys(before.values(), 2.0))
    assert contents(client) == before


def test_server_info_reports_each_tables_options(serve):
    client = serve(
        make_table("a", sampler=selectors.Prioritized(0.5), remover="min_heap", max_size=7, max_times_sampled=3),
        make_table("b", sampler="uniform", remover="lifo", limiter=rate_limiters.SampleToInsertRatio(2.0, 4, 8.0)),
    )
    infos = client.server_info()
    assert set(infos) == {"a", "b"}
    a, b = infos["a"], infos["b"]
    assert (a.name, a.max_size, a.max_times_sampled, a.current_size, a.signature) == ("a", 7, 3, 0, None)
    assert a.sampler_options.WhichOneof("distribution") == "prioritized"
    assert a.sampler_options.prioritized.priority_exponent == 0.5
    assert not a.sampler_options.is_deterministic
    assert a.remover_options.heap.min_heap
    assert a.remover_options.is_deterministic
    assert b.sampler_options.uniform
    assert b.remover_options.lifo
    limiter = b.rate_limiter_info
    assert (limiter.samples_per_insert, limiter.min_size_to_sample) == (2.0, 4)
    assert (limiter.min_diff, limiter.max_diff) == (0.0, 16.0)
    assert limiter.HasField("insert_stats")
    assert limiter.HasField("sample_stats")


def test_table_object_reports_the_same_info_as_the_server(serve):
    table = make_table()
    client = serve(table)
    insert_values(client, [0, 1])
    draw(client, 3)
    of_handle, of_server = table.info, info_of(client)
    # The times that the table reports grow between the two calls.
    of_handle.table_worker_time.Clear()
    of_server.table_worker_time.Clear()
    assert of_handle == of_server
    assert table.name == "table"


def test_unique_samples_and_episodes_are_counted(serve):
    client = serve(make_table(sampler="fifo", max_times_sampled=2, max_size=10))
    insert_values(client, range(4))
    assert info_of(client).num_episodes == 4
    draw(client, 5)
    info = info_of(client)
    assert (info.current_size, info.num_unique_samples) == (2, 3)
    assert (info.num_episodes, info.num_deleted_episodes) == (2, 2)
    assert (num_inserts(client), num_samples(client)) == (4, 5)


def test_eviction_ends_the_episode_of_the_evicted_item(serve):
    client = serve(make_table(max_size=2))
    insert_values(client, range(5))
    info = info_of(client)
    assert (info.num_episodes, info.num_deleted_episodes) == (2, 3)


def test_delete_removes_items_and_ignores_unknown_keys(serve):
    client = serve(make_table(sampler="uniform"))
    insert_values(client, range(5))
    keys = contents(client)
    unknown = next(key for key in range(10) if key not in keys.values())
    client.mutate_priorities("table", deletes=[keys[1], unknown, keys[3], keys[3]])
    assert sorted(contents(client)) == [0, 2, 4]
    client.mutate_priorities("table", updates={unknown: 1.0, keys[1]: 2.0}, deletes=[unknown])
    assert sorted(contents(client)) == [0, 2, 4]


def test_deletes_are_applied_before_updates(serve):
    client = serve(make_table(sampler="uniform"))
    insert_values(client, [0, 1])
    keys = contents(client)
    client.mutate_priorities("table", updates={keys[0]: 5.0}, deletes=[keys[0]])
    assert sorted(contents(client)) == [1]


def test_mutated_priority_is_reported_and_used_for_draws(serve):
    client = serve(make_table(sampler="max_heap"))
    insert_values(client, [0, 1, 2])
    [sample] = draw(client)
    client.mutate_priorities("table", updates={sample.info.key: 0.5})
    assert draw_values(client) == [1]
    client.mutate_priorities("table", updates={sample.info.key: 9})
    [again] = draw(client)
    assert (again.info.key, again.info.priority, again.info.times_sampled) == (sample.info.key, 9.0, 2)


def test_mutate_without_changes_does_nothing(client):
    client.mutate_priorities("table")
    client.mutate_priorities("table", updates={}, deletes=[])


@pytest.mark.parametrize("key", [-1, 2**64, "a", 1.5])
def test_invalid_keys_are_type_errors(client, key):
    with pytest.raises(TypeError):
        client.mutate_priorities("table", updates={key: 1.0})
    with pytest.raises(TypeError):
        client.mutate_priorities("table", deletes=[key])


def test_numpy_integers_can_be_keys(serve):
    client = serve(make_table(sampler="uniform"))
    insert_values(client, [0, 1])
    keys = contents(client)
    client.mutate_priorities("table", updates={np.uint64(keys[0]): np.float32(2.0)}, deletes=[np.uint64(keys[1])])
    [sample] = draw(client)
    assert sample.info.priority == 2.0


def test_update_priorities_takes_arrays(serve):
    client = serve(make_table(sampler="prioritized"))
    insert_values(client, range(5))
    keys = contents(client)
    array = np.array([keys[value] for value in range(5)], np.uint64)
    client.update_priorities("table", array, np.arange(5.0))
    for sample in draw(client, 50):
        assert sample.info.priority == int(sample.data[0][0])


def test_update_priorities_takes_the_info_of_a_batch(serve):
    client = serve(make_table(sampler="prioritized"))
    insert_values(client, range(5))
    batch = client.sample_batch("table", 32)
    client.update_priorities("table", batch.info.key, np.full(32, 7.0, np.float32))
    drawn = {int(value) for value in batch.data[0].ravel()}
    for sample in draw(client, 50):
        assert sample.info.priority == (7.0 if int(sample.data[0][0]) in drawn else 1.0)


def test_update_priorities_refuses_arrays_of_different_lengths(client):
    with pytest.raises(ValueError, match="(?s)3.*2|2.*3"):
        client.update_priorities("table", np.zeros(3, np.uint64), np.zeros(2))


def test_reset_empties_the_table_and_zeroes_its_counters(serve):
    client = serve(make_table())
    insert_values(client, range(5))
    draw(client, 3)
    client.reset("table")
    info = info_of(client)
    assert (info.current_size, info.num_episodes, info.num_deleted_episodes, info.num_unique_samples) == (0, 0, 0, 0)
    assert (num_inserts(client), num_samples(client)) == (0, 0)
    insert_values(client, [9])
    assert draw_values(client) == [9]


def test_reset_of_one_table_leaves_the_others(serve):
    client = serve(make_table("a"), make_table("b"))
    client.insert(np.int64(1), {"a": 1.0, "b": 1.0})
    client.reset("a")
    assert info_of(client, "a").current_size == 0
    assert draw_values(client, 1, "b") == [1]


def test_one_insert_goes_to_several_tables_with_a_key_in_each(serve):
    client = serve(make_table("a", sampler="max_heap"), make_table("b", sampler="prioritized"))
    client.insert(np.int64(7), {"a": 1.0, "b": 2.0})
    [a], [b] = draw(client, 1, "a"), draw(client, 1, "b")
    assert (a.info.priority, b.info.priority) == (1.0, 2.0)
    client.mutate_priorities("a", deletes=[a.info.key])
    assert info_of(client, "a").current_size == 0
    assert info_of(client, "b").current_size == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.insert(1, {"nowhere": 1.0}),
        lambda client: client.insert_batch(np.zeros(2), {"nowhere": 1.0}),
        lambda client: next(client.sample("nowhere")),
        lambda client: client.sample_batch("nowhere", 2),
        lambda client: client.mutate_priorities("nowhere", updates={1: 1.0}),
        lambda client: client.update_priorities("nowhere", np.ones(1, np.uint64), np.ones(1)),
        lambda client: client.reset("nowhere"),
    ],
    ids=["insert", "insert_batch", "sample", "sample_batch", "mutate", "update", "reset"],
)
def test_unknown_table_is_named_in_the_error(client, call):
    with pytest.raises(errors.TableNotFoundError, match="nowhere") as caught:
        call(client)
    assert isinstance(caught.value, RuntimeError)
    assert isinstance(caught.value, ValueError)


def test_insert_into_a_known_and_an_unknown_table_changes_neither(client):
    with pytest.raises(errors.TableNotFoundError):
        client.insert(1, {"table": 1.0, "nowhere": 1.0})
    assert info_of(client).current_size == 0


def test_insert_without_priorities_is_refused(client):
    with pytest.raises(ValueError, match="^priorities must contain at least one item$") as caught:
        client.insert(1, {})
    assert caught.type is ValueError


def test_replace_makes_an_empty_table_with_the_options_of_the_old_one(serve):
    old = make_table(sampler=selectors.Prioritized(0.7), remover="min_heap", max_size=5, max_times_sampled=2)
    client = serve(old)
    insert_values(client, [0, 1])
    new = old.replace(name="new", max_size=9)
    client = serve(new)
    info = info_of(client, "new")
    assert (info.max_size, info.max_times_sampled, info.current_size) == (9, 2, 0)
    assert info.sampler_options == old.info.sampler_options
    assert info.remover_options == old.info.remover_options
    assert info.rate_limiter_info.insert_stats.completed == 0
    assert old.info.current_size == 2


def test_replace_accepts_another_limiter(serve):
    new = make_table().replace(rate_limiter=rate_limiters.MinSize(3))
    insert_values(serve(new), [0, 1])
    assert not new.can_sample(1)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"name": ""}, "name must be nonempty"),
        ({"max_size": 0}, r"max_size \(0\) must be a positive integer"),
        ({"max_size": -3}, r"max_size \(-3\) must be a positive integer"),
    ],
)
def test_table_names_the_option_it_refuses(options, text):
    with pytest.raises(ValueError, match=text):
        make_table(**options)


@pytest.mark.parametrize(
    "options",
    [{"max_size": 1.0}, {"max_times_sampled": 0.5}, {"sampler": object()}, {"remover": object()}, {"max_size": 2**31}],
)
def test_options_of_the_wrong_type_are_type_errors(options):
    with pytest.raises(TypeError):
        make_table(**options)


def test_missing_selector_is_an_error_and_not_a_crash():
    with pytest.raises((TypeError, ValueError, AttributeError)):
        reverb.Table("table", None, None, 10, rate_limiters.MinSize(1))


def test_repr_of_a_table_is_that_of_the_reference():
    table = make_table(sampler=selectors.Prioritized(0.8), remover="max_heap", max_size=10)
    assert repr(table) == (
        "Table(sampler=PrioritizedSelector(priority_exponent=0.8), remover=HeapSelector(sign=-1), max_size=10, "
        "max_times_sampled=0, name=table, rate_limiter=RateLimiter(samples_per_insert=1, min_diff_=-1.79769e+308, "
        "max_diff=1.79769e+308, min_size_to_sample=1), signature=nullptr)"
    )


def test_server_refuses_an_empty_list_and_repeated_names_of_tables():
    with pytest.raises(ValueError, match="At least one table must be provided"):
        reverb.Server(tables=[])
    with pytest.raises(ValueError, match="Multiple items in tables have the same name: a"):
        reverb.Server(tables=[make_table("a"), make_table("b"), make_table("a")])
