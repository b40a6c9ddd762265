//! The guarantees of a table, one at a time.

use crate::common::{chi_square, chi_square_bound, chunk, config, item, keys, min_size, prioritized, queue, row_item};
use reverb_core::SelectorKind::{Fifo, Lifo, MinHeap, Uniform};
use reverb_core::{
    DType, Error, NewItem, RemovalCounts, Signature, Table, TableChanges, TableConfig, TableInfo, TensorSpec,
};
use std::sync::Arc;

fn table(config: TableConfig) -> Table {
    Table::new(config).unwrap()
}

fn fill(table: &mut Table, keys: impl IntoIterator<Item = u64>) {
    for key in keys {
        table.insert(item(key, 1.0), 0, &mut Vec::new());
    }
}

fn draw(table: &mut Table) -> u64 {
    table.sample(0).expect("the table is not empty").key
}

/// A queue: each item is drawn once, oldest first.
fn queue_table(size: u64) -> Table {
    let rate_limiter = queue(size as i64);
    table(TableConfig { max_times_sampled: 1, rate_limiter, ..config(Fifo, Fifo, size) })
}

#[test]
fn new_item_may_be_the_one_that_is_removed() {
    let mut lifo = table(config(Fifo, Lifo, 2));
    fill(&mut lifo, [1, 2, 3]);
    assert_eq!(keys(&lifo), [1, 2]);
    assert_eq!((lifo.limiter().inserts, lifo.limiter().deletes), (3, 1));
}

#[test]
fn inserting_a_key_again_assigns_its_priority_and_drops_the_new_data() {
    let mut table = table(config(Fifo, Fifo, 5));
    fill(&mut table, [1, 2]);
    let before = table.get(1).unwrap();
    let mut removed = Vec::new();
    table.insert(item(1, 9.0), 77, &mut removed);
    let after = table.get(1).unwrap();
    assert_eq!((after.priority, after.inserted_at), (9.0, before.inserted_at));
    assert_eq!((removed.len(), table.info().inserts, draw(&mut table)), (1, 2, 1));
}

#[test]
fn item_with_more_draws_behind_it_than_the_limit_goes_with_the_next() {
    let mut table = table(TableConfig { max_times_sampled: 1, ..config(Fifo, Fifo, 5) });
    table.insert(NewItem { times_sampled: 5, ..item(1, 1.0) }, 0, &mut Vec::new());
    assert_eq!(draw(&mut table), 1);
    assert!(table.is_empty());
    assert_eq!(table.info().num_unique_samples, 0);
}

#[test]
fn draw_of_an_empty_table_is_none_even_if_the_limiter_would_allow_it() {
    let mut table = table(config(Uniform, Fifo, 5));
    table.restore_counters(9, 0, 0, 0, 0);
    assert!(table.can_sample(1));
    assert_eq!(table.limiter_view().sample_waits_for(1), "the table is empty; 1 more insert until a sample may go");
    assert!(table.sample(0).is_none());
    assert_eq!(table.info().samples, 0);
}

#[test]
fn items_given_back_are_drawn_again_in_their_old_order() {
    let mut table = queue_table(4);
    fill(&mut table, 0..4);
    let drawn: Vec<_> = (0..3).map(|_| table.sample(0).unwrap()).collect();
    assert_eq!((table.len(), table.can_insert(1)), (1, true));
    for drawn in drawn {
        table.give_back(drawn, &mut Vec::new());
    }
    let info = table.info();
    assert_eq!((info.samples, table.limiter().deletes, info.num_unique_samples), (0, 0, 0));
    assert!(!table.can_insert(1), "the queue is full again");
    assert_eq!([0; 4].map(|_| draw(&mut table)), [0, 1, 2, 3]);
}

#[test]
fn item_goes_back_to_a_table_that_others_have_filled() {
    let mut table = queue_table(2);
    fill(&mut table, [1, 2]);
    let drawn = table.sample(0).unwrap();
    fill(&mut table, [3]);
    table.give_back(drawn, &mut Vec::new());
    assert_eq!(keys(&table), [1, 2, 3]);
    assert!(!table.can_insert(1), "the queue is over its size");
    assert_eq!([0; 3].map(|_| draw(&mut table)), [1, 2, 3]);
    assert!(table.can_insert(2), "the queue has all its room");
}

#[test]
fn table_over_its_size_returns_to_it_with_the_next_insert() {
    let mut table = table(TableConfig { max_times_sampled: 1, ..config(Fifo, Fifo, 2) });
    fill(&mut table, [1, 2]);
    let drawn = [table.sample(0).unwrap(), table.sample(0).unwrap()];
    fill(&mut table, [3, 4]);
    for draw in drawn {
        table.give_back(draw, &mut Vec::new());
    }
    assert_eq!(keys(&table), [1, 2, 3, 4]);
    fill(&mut table, [5]);
    assert_eq!(keys(&table), [4, 5]);
}

#[test]
fn draw_stands_if_its_key_is_in_the_table_again() {
    let mut table = queue_table(2);
    fill(&mut table, [1]);
    let drawn = table.sample(0).unwrap();
    fill(&mut table, [1]);
    let mut removed = Vec::new();
    table.give_back(drawn, &mut removed);
    assert_eq!((keys(&table), removed.len()), (vec![1], 1));
}

#[test]
fn draw_from_before_a_reset_is_not_taken_back() {
    let mut table = queue_table(2);
    fill(&mut table, [1]);
    let drawn = table.sample(0).unwrap();
    drop(table.reset());
    table.give_back(drawn, &mut Vec::new());
    let info = table.info();
    assert_eq!((info.current_size, info.samples, table.limiter().deletes), (0, 0, 0));
}

#[test]
fn removals_are_counted_by_their_reason() {
    let limits = TableConfig { max_times_sampled: 1, max_bytes: Some(16), ..config(Fifo, Fifo, 3) };
    let mut table = table(limits);
    fill(&mut table, 0..5);
    draw(&mut table);
    table.mutate(&[(4, 2.0)], &[3, 77], &mut Vec::new()).unwrap();
    table.insert(row_item(5, 1.0, &chunk(4, 5), 0), 0, &mut Vec::new());
    let drawn = table.sample(0).unwrap();
    table.give_back(drawn, &mut Vec::new());
    drop(table.reset());
    // One item came back, and left again with the reset.
    let want = RemovalCounts { max_size: 2, max_bytes: 1, max_times_sampled: 2, deleted: 1, reset: 1 };
    assert_eq!((table.info().removed, want.total(), table.info().returned_items), (Some(want), 7, Some(1)));
}

#[test]
fn weight_of_a_table_is_what_its_sampler_sums() {
    for (sampler, want) in [(prioritized(2.0), [0.0, 14.0, 13.0, 29.0]), (Uniform, [0.0, 4.0, 3.0, 3.0])] {
        let mut table = table(config(sampler, Fifo, 5));
        let empty = table.weight();
        for key in 0..4 {
            table.insert(item(key, key as f64), 0, &mut Vec::new());
        }
        let full = table.weight();
        table.mutate(&[], &[1], &mut Vec::new()).unwrap();
        let deleted = table.weight();
        table.mutate(&[(0, 4.0)], &[], &mut Vec::new()).unwrap();
        assert_eq!([empty, full, deleted, table.info().weight.unwrap()], want);
        drop(table.reset());
        assert_eq!(table.weight(), 0.0);
    }
}

#[test]
fn snapshot_keeps_what_was_there() {
    let mut table = table(config(Fifo, Fifo, 1000));
    fill(&mut table, 0..700);
    draw(&mut table);
    let snapshot = table.snapshot();
    table.mutate(&[(5, 42.0)], &[1, 2, 3], &mut Vec::new()).unwrap();
    fill(&mut table, 700..1500);
    draw(&mut table);
    let old = table.reset();
    drop((table, old));
    let items: Vec<_> = snapshot.items().collect();
    assert_eq!(items.iter().map(|item| item.key).collect::<Vec<_>>(), (0..700).collect::<Vec<_>>());
    assert!(items.iter().all(|item| item.priority == 1.0));
    assert!(items.iter().all(|item| item.times_sampled == i32::from(item.key == 0)));
    assert_eq!((snapshot.limiter.inserts, snapshot.limiter.samples), (700, 1));
}

#[test]
fn table_restored_from_a_snapshot_continues_it() {
    let mut original = table(TableConfig { max_times_sampled: 3, ..config(Fifo, Fifo, 4) });
    fill(&mut original, 0..7);
    draw(&mut original);
    let snapshot = original.snapshot();
    let mut restored = table(snapshot.config.clone());
    for view in snapshot.items() {
        let item = NewItem {
            key: view.key,
            priority: view.priority,
            takes_largest: false,
            others: None,
            times_sampled: view.times_sampled,
            trajectory: view.trajectory,
        };
        restored.restore_item(item, view.inserted_at).unwrap();
    }
    let counts = &snapshot.limiter;
    restored.restore_counters(
        counts.inserts,
        counts.samples,
        counts.deletes,
        snapshot.num_deleted_episodes,
        snapshot.num_unique_samples,
    );
    let removed = |table: &mut Table| table.info().removed.unwrap();
    assert_eq!((removed(&mut original).max_size, removed(&mut restored).total()), (3, 0));
    // Removals and counters are counted from the restore on; everything else is as before.
    let view = |table: &mut Table| {
        let new = TableInfo {
            removed: None,
            index_bytes: None,
            unsampled_removals: None,
            priority_updates: None,
            insert_bytes: None,
            sample_bytes: None,
            last_insert_at: None,
            last_sample_at: None,
            sample_age_seconds: None,
            removed_times_sampled: None,
            process_inserts: None,
            process_samples: None,
            returned_samples: None,
            returned_items: None,
            ..table.info()
        };
        format!("{new:?}")
    };
    assert_eq!(view(&mut restored), view(&mut original));
    assert_eq!(keys(&restored), keys(&original));
    let present = restored.restore_item(item(4, 1.0), 0).unwrap_err().to_string();
    assert!(present.ends_with("already present key: 4"), "{present}");
    let negative = NewItem { times_sampled: -1, ..item(98, 1.0) };
    let negative = restored.restore_item(negative, 0).unwrap_err().to_string();
    assert!(negative.contains("must not be negative, got -1"), "{negative}");
}

#[test]
fn table_restored_over_its_size_keeps_all_until_it_is_told_to_shrink() {
    let mut restored = table(config(Fifo, Fifo, 3));
    for key in 1..=5 {
        restored.restore_item(item(key, 1.0), key).unwrap();
    }
    assert_eq!(restored.len(), 5);
    assert_eq!(restored.evict_to_limits(&mut Vec::new()), 2);
    assert_eq!((1..=5).filter(|&key| restored.contains(key)).collect::<Vec<_>>(), [3, 4, 5]);
    assert_eq!(restored.evict_to_limits(&mut Vec::new()), 0);
}

#[test]
fn items_go_until_the_bytes_are_within_the_limit() {
    let mut table = table(TableConfig { max_bytes: Some(100), ..config(Fifo, Fifo, 1000) });
    let shared = chunk(10, 1);
    for key in 0..10 {
        table.insert(row_item(key, 1.0, &shared, key as u32), 0, &mut Vec::new());
    }
    assert_eq!((table.len(), table.bytes()), (10, 40));
    let mut removed = Vec::new();
    for key in 10..25 {
        table.insert(item(key, 1.0), 0, &mut removed);
    }
    assert_eq!((table.len(), table.bytes(), removed.len()), (25, 100, 0));
    // The bytes of a chunk are freed only with the last of its items.
    table.insert(item(25, 1.0), 0, &mut removed);
    assert_eq!((table.len(), table.bytes(), removed.len()), (16, 64, 10));
}

#[test]
fn item_larger_than_the_table_is_refused() {
    let table = table(TableConfig { max_bytes: Some(100), ..config(Fifo, Fifo, 10) });
    table.check_item(&row_item(1, 1.0, &chunk(25, 1), 0)).unwrap();
    let error = table.check_item(&row_item(1, 1.0, &chunk(26, 1), 0)).unwrap_err();
    assert_eq!(error, Error::ItemTooLarge { table: "table".into(), size_bytes: 104, max_bytes: 100 });
}

#[test]
fn same_seed_gives_the_same_draws_and_another_seed_others() {
    let draws = |seed| {
        let mut table = table(TableConfig { seed, ..config(prioritized(0.6), Uniform, 100) });
        for key in 0..300 {
            table.insert(item(key, key as f64), 0, &mut Vec::new());
        }
        (0..50).map(|_| draw(&mut table)).collect::<Vec<_>>()
    };
    assert_eq!(draws(Some(1)), draws(Some(1)));
    assert_ne!(draws(Some(1)), draws(Some(2)));
    assert_ne!(draws(None), draws(None));
}

#[test]
fn uniform_draws_are_uniform_when_items_come_and_go() {
    let mut table = table(config(Uniform, Fifo, 100));
    fill(&mut table, 0..250);
    let mut counts = vec![0; 100];
    for _ in 0..200_000 {
        counts[draw(&mut table) as usize - 150] += 1;
    }
    assert!(chi_square(&counts, &[0.01; 100]) < chi_square_bound(99));
}

#[test]
fn mutate_changes_nothing_if_one_priority_is_refused() {
    for sampler in [Fifo, prioritized(1.0)] {
        let mut table = table(config(sampler, MinHeap, 5));
        fill(&mut table, [1, 2]);
        for unknown_or_not in [2, 99] {
            let updates = [(1, 5.0), (unknown_or_not, f64::NAN)];
            let error = table.mutate(&updates, &[2], &mut Vec::new()).unwrap_err();
            let want = format!("Priority must not be NaN. Its key is {unknown_or_not}. Nothing was changed.");
            assert_eq!(error, Error::InvalidPriority(want));
        }
        assert_eq!((keys(&table), table.get(1).unwrap().priority), (vec![1, 2], 1.0));
    }
}

#[test]
fn mutate_deletes_before_it_updates() {
    let mut table = table(config(Fifo, Fifo, 5));
    fill(&mut table, [1, 2]);
    let mut removed = Vec::new();
    table.mutate(&[(1, 5.0), (2, 3.0), (2, 4.0), (77, 1.0)], &[1, 1, 78], &mut removed).unwrap();
    assert_eq!((keys(&table), removed.len()), (vec![2], 1));
    assert_eq!(table.get(2).unwrap().priority, 4.0);
    assert_eq!(table.limiter().deletes, 1);
}

#[test]
fn priorities_are_checked_against_the_remover_too() {
    let table = table(config(Fifo, prioritized(1.0), 5));
    for priority in [-1.0, f64::NAN, f64::INFINITY] {
        assert!(matches!(table.check_item(&item(1, priority)), Err(Error::InvalidPriority(_))));
    }
}

#[test]
fn items_that_do_not_fit_the_signature_are_refused() {
    let spec = |dtype| TensorSpec { name: "a".into(), dtype, shape: Some(vec![]) };
    let signature = |dtype| Some(Arc::new(Signature { structure: Default::default(), specs: vec![spec(dtype)] }));
    let fits = table(TableConfig { signature: signature(DType::Float32), ..config(Fifo, Fifo, 5) });
    fits.check_item(&item(1, 1.0)).unwrap();
    let differs = table(TableConfig { signature: signature(DType::Int64), ..config(Fifo, Fifo, 5) });
    assert!(matches!(differs.check_item(&item(1, 1.0)), Err(Error::SignatureMismatch(_))));
    assert!(fits.check_item(&NewItem { times_sampled: -1, ..item(1, 1.0) }).is_err());
}

#[test]
fn impossible_tables_are_refused() {
    let good = || config(Fifo, Fifo, 5);
    let cases = [
        (TableConfig { name: String::new(), ..good() }, "name must be nonempty"),
        (TableConfig { max_size: 0, ..good() }, "max_size (0) must be a positive integer"),
        (TableConfig { max_bytes: Some(0), ..good() }, "max_bytes (0) must be a positive integer"),
        (TableConfig { rate_limiter: min_size(0), ..good() }, "min_size_to_sample must be at least 1, got 0"),
        (config(prioritized(f64::NAN), Fifo, 5), "priority_exponent must be finite, got NaN"),
        (config(Fifo, prioritized(f64::INFINITY), 5), "priority_exponent must be finite, got inf"),
    ];
    for (config, want) in cases {
        assert_eq!(Table::new(config).unwrap_err(), Error::invalid(want));
    }
}

#[test]
fn reading_ahead_changes_nothing_in_a_large_full_table() {
    const SIZE: u64 = 1 << 18;
    let chunk = chunk(1, 1);
    let items = |keys: std::ops::Range<u64>| keys.map(|key| row_item(key, 1.0, &chunk, 0)).collect::<Vec<_>>();
    for remover in [Fifo, Lifo] {
        let mut tables = [(); 2].map(|()| table(config(Fifo, remover.clone(), SIZE)));
        for first in (0..SIZE + 1024).step_by(64) {
            // Some keys are in the table already.
            let keys = first.saturating_sub(8)..first + 64;
            tables[1].read_ahead(&items(keys.clone()));
            for table in &mut tables {
                items(keys.clone()).into_iter().for_each(|item| table.insert(item, 0, &mut Vec::new()));
            }
        }
        let [without, with] = tables;
        assert_eq!(with.len() as u64, SIZE);
        assert_eq!(keys(&with), keys(&without));
    }
}

#[test]
fn an_item_restored_at_the_end_of_time_does_not_end_inserts() {
    let mut table = table(config(Fifo, Fifo, 2));
    table.restore_item(item(1, 1.0), u64::MAX).unwrap();
    fill(&mut table, [2, 3]);
    assert_eq!((table.len(), table.get(3).unwrap().inserted_at), (2, u64::MAX));
}

/// Draws an item four times and delivers one of the draws; the others come back in each order.
#[test]
fn draws_of_one_item_come_back_in_any_order() {
    for delivered in 0..4 {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut table = table(TableConfig { max_times_sampled: 4, ..config(Fifo, Fifo, 2) });
            fill(&mut table, [1]);
            let mut drawn: Vec<_> = (0..4).map(|_| table.sample(0).unwrap()).collect();
            assert!(table.is_empty());
            table.delivered(&[drawn.remove(delivered)], &mut Vec::new());
            assert_eq!(
                table.snapshot_without_flights().items().map(|item| item.times_sampled).collect::<Vec<_>>(),
                [1]
            );
            let mut drawn: Vec<_> = drawn.into_iter().map(Some).collect();
            for (times, index) in [3, 2, 1].into_iter().zip(order) {
                assert!(table.give_back(drawn[index].take().unwrap(), &mut Vec::new()));
                assert_eq!(table.get(1).unwrap().times_sampled, times);
            }
            assert_eq!([0; 3].map(|_| draw(&mut table)), [1; 3], "{delivered} delivered, {order:?}");
            assert!(table.is_empty());
            assert_eq!((table.info().samples, table.limiter().deletes), (4, 1));
        }
    }
}

#[test]
fn an_insert_evicts_few_items_while_several_changes_shrink_the_table() {
    let mut table = table(config(Fifo, Fifo, 4000));
    fill(&mut table, 0..4000);
    let mut key = 4000;
    let mut evicted_by_insert = |table: &mut Table| {
        let before = table.len();
        key += 1;
        fill(table, [key]);
        before + 1 - table.len()
    };
    let sized = |max_size| TableChanges { max_size: Some(max_size), ..TableChanges::default() };
    let mut first = table.configure(&TableChanges { max_times_sampled: Some(5), ..sized(3900) }).unwrap();
    while table.len() > 3900 {
        assert!(evicted_by_insert(&mut table) <= 16);
        table.shrink(&mut first, 10, &mut Vec::new());
    }
    // The first one still looks for items that were drawn often enough when the second one begins.
    let mut second = table.configure(&sized(100)).unwrap();
    let mut is_over = [false; 2];
    while is_over != [true; 2] {
        assert!(evicted_by_insert(&mut table) <= 16);
        for (is_over, shrinking) in is_over.iter_mut().zip([&mut first, &mut second]) {
            *is_over = *is_over || !table.shrink(shrinking, 10, &mut Vec::new());
            assert!(evicted_by_insert(&mut table) <= 16);
        }
    }
    assert_eq!(table.len(), 100);
}

fn limit_draws(table: &mut Table, max_times_sampled: i32, untracked: u64) {
    let changes = TableChanges { max_times_sampled: Some(max_times_sampled), ..TableChanges::default() };
    let mut shrinking = table.configure(&changes).unwrap();
    table.expect_untracked(untracked);
    while table.shrink(&mut shrinking, 100, &mut Vec::new()) {}
}

#[test]
fn a_lower_limit_of_draws_leaves_items_whose_draws_come_back() {
    // With 3 the table tracks its draws from the beginning, with 0 it does not.
    for max_times_sampled in [3, 0] {
        let mut table = table(TableConfig { max_times_sampled, ..config(Fifo, Fifo, 9) });
        fill(&mut table, [1]);
        let drawn = [0; 2].map(|_| table.sample(0).unwrap());
        limit_draws(&mut table, 1, if max_times_sampled == 0 { 2 } else { 0 });
        assert!(table.is_empty(), "it is not drawn again");
        for (drawn, returned) in drawn.into_iter().zip([false, true]) {
            table.give_back(drawn, &mut Vec::new());
            assert_eq!(table.contains(1), returned, "from {max_times_sampled}");
        }
        assert_eq!((draw(&mut table), table.len(), table.info().samples), (1, 0, 1));
        table.end_untracked(2);
    }
}

#[test]
fn a_draw_delivered_under_a_lower_limit_takes_its_item_away() {
    for max_times_sampled in [3, 0] {
        let mut table = table(TableConfig { max_times_sampled, ..config(Fifo, Fifo, 9) });
        fill(&mut table, [1]);
        let drawn = [table.sample(0).unwrap()];
        limit_draws(&mut table, 1, if max_times_sampled == 0 { 1 } else { 0 });
        table.delivered(&drawn, &mut Vec::new());
        table.end_untracked(1);
        assert_eq!((table.len(), table.num_tracked_draws()), (0, 0));
        assert_eq!(table.snapshot_without_flights().num_items(), 0);
    }
}

#[test]
fn items_kept_for_draws_of_before_a_limit_are_released_in_steps_once_these_have_ended() {
    let mut table = table(config(Fifo, Fifo, 100));
    for key in 0..100 {
        table.insert(NewItem { times_sampled: 1, ..item(key, 1.0) }, 0, &mut Vec::new());
    }
    let drawn = [0; 2].map(|_| table.sample(0).unwrap());
    limit_draws(&mut table, 1, 2);
    assert!(table.is_empty());
    let step = |table: &mut Table| {
        let mut removed = Vec::new();
        (table.continue_untracked(40, &mut removed), removed.len())
    };
    let [first, second] = drawn;
    // Two of its three draws stand.
    table.give_back(first, &mut Vec::new());
    table.end_untracked(1);
    assert_eq!(step(&mut table), (false, 0), "one draw may still come back");
    table.delivered(&[second], &mut Vec::new());
    table.end_untracked(1);
    assert_eq!([0; 4].map(|_| step(&mut table)), [(true, 40), (true, 40), (false, 20), (false, 0)]);
    // An item that is drawn now is no longer kept for them.
    fill(&mut table, [200]);
    let drawn = table.sample(0).unwrap();
    table.delivered(&[drawn], &mut Vec::new());
    assert_eq!((step(&mut table), table.len(), table.num_tracked_draws()), ((false, 0), 0, 0));
}

#[test]
fn episodes_of_draws_that_came_back_are_not_deleted() {
    let mut table = queue_table(3);
    fill(&mut table, [1, 2]);
    let drawn = [0; 2].map(|_| table.sample(0).unwrap());
    assert_eq!(table.info().num_deleted_episodes, 2);
    assert_eq!(table.snapshot_without_flights().num_deleted_episodes, 0);
    for drawn in drawn {
        table.give_back(drawn, &mut Vec::new());
    }
    let info = table.info();
    assert_eq!((info.num_episodes, info.num_deleted_episodes), (2, 0));
}

#[test]
fn an_item_in_flight_comes_back_with_its_new_priority_and_not_at_all_if_it_was_deleted() {
    let mut table = queue_table(3);
    fill(&mut table, [1, 2]);
    let drawn = [0; 2].map(|_| table.sample(0).unwrap());
    assert_eq!(table.mutate(&[(1, 7.0)], &[2], &mut Vec::new()).unwrap(), 0);
    let saved: Vec<_> = table.snapshot_without_flights().items().map(|item| (item.key, item.priority)).collect();
    assert_eq!(saved, [(1, 7.0)]);
    for drawn in drawn {
        table.give_back(drawn, &mut Vec::new());
    }
    assert_eq!((keys(&table), table.get(1).unwrap().priority), (vec![1], 7.0));
    let info = table.info();
    let removed = info.removed.unwrap();
    assert_eq!((removed.deleted, removed.max_times_sampled, table.limiter().deletes), (1, 2, 1));
    assert_eq!((info.returned_items, info.returned_samples, info.process_samples), (Some(2), Some(2), Some(2)));
}
