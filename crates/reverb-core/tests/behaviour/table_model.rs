//! A table under random calls, against a plain model.

mod crash;
mod model;
mod peeks;

use crate::common::{config, min_size, prioritized, queue};
use model::{ITEM_BYTES, Model};
use proptest::prelude::*;
use reverb_core::{RateLimiterConfig, SelectorKind, Table, TableChanges, TableConfig};

#[derive(Debug, Clone)]
enum Op {
    Insert(u64, f64, i32),
    /// Inserts an item that takes the largest priority so far, at least this one.
    InsertLargest(u64, f64),
    Sample,
    /// Makes the table's part in a race of at most so many arrivals.
    Race(usize),
    /// Draws and copies so many items.
    Copied(usize),
    /// Gives back one of the draws that are held; the number is taken modulo their count.
    GiveBack(usize),
    /// Delivers one of the draws that are held.
    Deliver(usize),
    ContinueDeliveries(usize),
    Mutate(Vec<(u64, f64)>, Vec<u64>),
    /// Sets `max_times_sampled`.
    Configure(i32),
    /// Sets `max_size` and `max_bytes`, or the rate limiter.
    Limit(TableChanges),
    Reset,
    /// Takes the state from which a table is made again after a crash.
    Save,
    /// Goes on with a table that is made again.
    Crash,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let key = 0..16_u64;
    let priority = prop_oneof![Just(0.0), Just(1.0), Just(3.0), 0.0..9.0];
    let times_sampled = prop_oneof![9 => Just(0), 1 => 1..4_i32];
    let updates = prop::collection::vec((key.clone(), priority.clone()), 0..4);
    let deletes = prop::collection::vec(key.clone(), 0..3);
    let op = prop_oneof![
        3 => (key.clone(), prop_oneof![Just(0.0), priority.clone()]).prop_map(|(key, p)| Op::InsertLargest(key, p)),
        12 => (key, priority, times_sampled).prop_map(|(key, p, times)| Op::Insert(key, p, times)),
        12 => Just(Op::Sample),
        2 => (1..4_usize).prop_map(Op::Race),
        2 => (1..4_usize).prop_map(Op::Copied),
        5 => (0..100_usize).prop_map(Op::GiveBack),
        3 => (0..100_usize).prop_map(Op::Deliver),
        1 => (1..3_usize).prop_map(Op::ContinueDeliveries),
        5 => (updates, deletes).prop_map(|(updates, deletes)| Op::Mutate(updates, deletes)),
        1 => (-1..4_i32).prop_map(Op::Configure),
        1 => limits().prop_map(Op::Limit),
        1 => Just(Op::Reset),
        4 => prop_oneof![1 => Just(Op::Save), 4 => Just(Op::Crash)],
    ];
    prop::collection::vec(op, 0..150)
}

fn selectors() -> impl Strategy<Value = SelectorKind> {
    prop_oneof![
        Just(SelectorKind::Fifo),
        Just(SelectorKind::Lifo),
        Just(SelectorKind::Uniform),
        Just(SelectorKind::MinHeap),
        Just(SelectorKind::MaxHeap),
        Just(prioritized(1.0)),
        Just(prioritized(0.5)),
    ]
}

fn limiters() -> impl Strategy<Value = RateLimiterConfig> {
    let ratio = RateLimiterConfig { samples_per_insert: 1.5, min_size_to_sample: 3, min_diff: 1.0, max_diff: 8.0 };
    prop_oneof![Just(min_size(1)), Just(min_size(4)), Just(queue(5)), Just(ratio)]
}

fn limits() -> impl Strategy<Value = TableChanges> {
    let max_bytes = prop_oneof![Just(None), (1..8_u64).prop_map(|items| Some(items * ITEM_BYTES))];
    let sizes = (1..8_u64, max_bytes).prop_map(|(max_size, max_bytes)| TableChanges {
        max_size: Some(max_size),
        max_bytes: Some(max_bytes),
        ..TableChanges::default()
    });
    let limiter =
        limiters().prop_map(|limiter| TableChanges { rate_limiter: Some(limiter), ..TableChanges::default() });
    prop_oneof![2 => sizes, 1 => limiter]
}

fn configs() -> impl Strategy<Value = TableConfig> {
    let max_bytes = prop_oneof![3 => Just(None), 1 => (1..8_u64).prop_map(|items| Some(items * ITEM_BYTES))];
    (selectors(), selectors(), 1..8_u64, max_bytes, -1..4_i32, limiters()).prop_map(
        |(sampler, remover, max_size, max_bytes, max_times_sampled, rate_limiter)| TableConfig {
            max_bytes,
            max_times_sampled,
            rate_limiter,
            ..config(sampler, remover, max_size)
        },
    )
}

fn table_does_what_the_model_does(config: TableConfig, ops: &[Op], is_journaled: bool) {
    let mut table = Table::new(config.clone()).unwrap();
    let mut model = Model::new(config);
    if is_journaled {
        model.begin_journal(&mut table);
    }
    for op in ops {
        model.apply(&mut table, op);
        model.check(&mut table);
        model.check_snapshot(&table);
    }
    if is_journaled {
        model.apply(&mut table, &Op::Crash);
        model.check(&mut table);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn a_table_does_what_the_model_does(config in configs(), ops in ops()) {
        table_does_what_the_model_does(config, &ops, false);
    }

    #[test]
    fn a_table_that_is_made_again_from_its_effects_is_that_of_the_model(config in configs(), ops in ops()) {
        table_does_what_the_model_does(config, &ops, true);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(15_000))]

    #[test]
    #[ignore = "a million operations take a minute"]
    fn a_table_that_is_made_again_often_is_that_of_the_model(config in configs(), ops in ops()) {
        table_does_what_the_model_does(config, &ops, true);
    }
}

#[test]
fn items_that_come_back_at_once_evict_each_other() {
    let config = config(SelectorKind::Uniform, SelectorKind::Lifo, 5);
    let smaller = TableChanges { max_bytes: Some(Some(ITEM_BYTES)), ..TableChanges::default() };
    let mut ops: Vec<Op> = (0..4).map(|key| Op::Insert(key, 1.0, 0)).collect();
    let calls = [Op::Copied(3), Op::Mutate(vec![], vec![1]), Op::Configure(1), Op::Limit(smaller), Op::GiveBack(0)];
    ops.extend(calls);
    table_does_what_the_model_does(config, &ops, false);
}

#[test]
fn a_deleted_item_whose_last_draw_is_in_flight_was_not_sampled() {
    let config = config(SelectorKind::Fifo, SelectorKind::Fifo, 5);
    let ops = [
        Op::Insert(1, 1.0, 0),
        Op::Race(1),
        Op::Configure(2),
        Op::Sample,
        Op::Configure(1),
        Op::Mutate(vec![], vec![1]),
        Op::GiveBack(0),
    ];
    table_does_what_the_model_does(config, &ops, true);
}
