//! Effects from a file: those that are not of the table are errors.

use crate::common::{SELECTORS, config, item, queue};
use proptest::prelude::*;
use reverb_core::{
    Confirmation, Counters, Effect, Error, ItemView, NewItem, Race, RemovalReason, Replay, SelectorKind, Table,
    TableChanges, TableConfig,
};

const REASON: RemovalReason = RemovalReason::Delete;

fn view(key: u64, inserted_at: u64) -> ItemView {
    let NewItem { priority, times_sampled, trajectory, .. } = item(key, 1.0);
    ItemView { key, priority, times_sampled, inserted_at, trajectory }
}

fn put(key: u64, inserted_at: u64) -> Effect {
    Effect::Put(view(key, inserted_at))
}

fn fifo() -> Table {
    Table::new(config(SelectorKind::Fifo, SelectorKind::Fifo, 10)).unwrap()
}

/// A replay in which item 1 of time 5 hides that of time 3.
fn begun() -> Replay {
    let mut replay = Replay::new(fifo());
    for effect in [put(1, 3), put(1, 5), put(2, 6), Effect::Counters(Counters::default())] {
        replay.apply(effect).unwrap();
    }
    replay
}

#[test]
fn effects_that_cannot_be_of_the_table_are_errors() {
    let priority = |priority| Effect::Priorities(vec![(2, priority)]);
    let count = |inserted_at, times_sampled| Effect::Count { key: 1, inserted_at, times_sampled };
    let largest = |largest_priority| Effect::Counters(Counters { largest_priority, ..Counters::default() });
    let effects = [
        put(1, 5),
        put(1, 3),
        Effect::Put(ItemView { priority: f64::NAN, ..view(3, 7) }),
        Effect::Put(ItemView { times_sampled: -1, ..view(3, 7) }),
        Effect::Gone { key: 3, inserted_at: 7, reason: REASON },
        Effect::Gone { key: 1, inserted_at: 4, reason: REASON },
        Effect::Back { key: 1, inserted_at: 4 },
        Effect::Back { key: 3, inserted_at: 4 },
        Effect::Priorities(vec![(2, 1.0), (3, 1.0)]),
        priority(f64::NAN),
        Effect::FlightPriority { key: 1, inserted_at: 4, priority: 1.0 },
        Effect::FlightPriority { key: 1, inserted_at: 5, priority: f64::NAN },
        count(4, 1),
        count(5, -1),
        count(3, -1),
        Effect::Options(Box::new(TableChanges { max_size: Some(0), ..TableChanges::default() })),
        Effect::Counters(Counters { inserts: i64::MAX, ..Counters::default() }),
        Effect::Counters(Counters { deletes_and_items: i64::MIN, ..Counters::default() }),
        Effect::Counters(Counters { num_episodes: u64::MAX, ..Counters::default() }),
        largest(f64::INFINITY),
        largest(-1.0),
        largest(f64::NAN),
    ];
    for effect in effects {
        let result = begun().apply(effect.clone());
        let is_error =
            matches!(result, Err(Error::DataLoss(_) | Error::InvalidPriority(_) | Error::InvalidArgument(_)));
        assert!(is_error, "{effect:?} gave {result:?}");
    }
}

#[test]
fn a_replay_whose_counts_are_missing_or_too_small_is_an_error() {
    let mut replay = begun();
    replay.apply(put(4, 8)).unwrap();
    assert!(matches!(replay.finish(), Err(Error::DataLoss(text)) if text.contains("without counts")));
    // Its two items have two episodes.
    assert!(matches!(begun().finish(), Err(Error::DataLoss(text)) if text.contains("episodes")));
    assert!(Replay::new(fifo()).finish().is_ok());
}

#[test]
fn effects_over_a_state_that_has_them_are_an_error() {
    let mut table = fifo();
    table.begin_journal();
    table.insert(item(1, 1.0), 1, &mut Vec::new());
    table.insert(item(2, 1.0), 2, &mut Vec::new());
    table.mutate(&[], &[1], &mut Vec::new()).unwrap();
    let mut effects = Vec::new();
    table.drain_effects(&mut effects);
    let mut newer = fifo();
    newer.restore_item(item(2, 1.0), 2).unwrap();
    let mut replay = Replay::new(newer);
    let error = effects.into_iter().find_map(|effect| replay.apply(effect).err()).unwrap();
    assert!(matches!(&error, Error::DataLoss(text) if text.contains("table `table`: the item with key 2 comes twice")));
}

/// What the effects make of a table.
fn replayed(table: Table, effects: impl IntoIterator<Item = Effect>) -> Table {
    let mut replay = Replay::new(table);
    effects.into_iter().for_each(|effect| replay.apply(effect).unwrap());
    replay.finish().unwrap()
}

fn counters(num_episodes: u64) -> Effect {
    Effect::Counters(Counters { num_episodes, ..Counters::default() })
}

#[test]
fn items_that_a_reset_has_removed_do_not_come_back() {
    let gone = Effect::Gone { key: 1, inserted_at: 7, reason: REASON };
    let table = replayed(fifo(), [put(1, 3), put(1, 5), Effect::Reset, put(1, 7), gone, counters(1)]);
    assert_eq!(table.len(), 0);
}

#[test]
fn a_table_with_new_options_evicts_as_one_that_has_shrunk() {
    let puts = (0..100).map(|key| put(key, key + 1));
    let smaller = TableChanges { max_size: Some(10), ..TableChanges::default() };
    let mut table = replayed(fifo(), puts.chain([Effect::Options(Box::new(smaller)), counters(100)]));
    assert_eq!(table.len(), 100, "its items leave by effects of their own");
    table.insert(item(100, 1.0), 1, &mut Vec::new());
    assert_eq!(table.len(), 10);
}

#[test]
fn draws_that_effects_have_counted_are_not_left() {
    let config = TableConfig { max_times_sampled: 3, ..config(SelectorKind::Uniform, SelectorKind::Fifo, 10) };
    let count = Effect::Count { key: 1, inserted_at: 1, times_sampled: 2 };
    let mut table = replayed(Table::new(config).unwrap(), [put(1, 1), put(2, 2), count, counters(2)]);
    let report = table.race(Race { interval: 1e-300, limit: 1, by_size: false }, &mut Vec::new()).unwrap();
    assert_eq!(report.draws_left, Some(4));
}

#[test]
fn the_state_before_tells_an_item_that_came_back_from_a_newer_one_in_flight() {
    let config = TableConfig { max_times_sampled: 1, ..config(SelectorKind::Fifo, SelectorKind::Fifo, 10) };
    let mut table = Table::new(config.clone()).unwrap();
    table.begin_journal();
    let mut removed = Vec::new();
    let drawn = [1, 2].map(|now| {
        table.insert(item(1, 1.0), now, &mut removed);
        table.sample(0).unwrap()
    });
    let [older, _newer] = drawn;
    assert!(table.give_back(older, &mut removed));
    let (snapshot, first) = table.snapshot_for_effects();
    let mut again = Table::new(config).unwrap();
    again.restore_item(item(1, 1.0), snapshot.items().next().unwrap().inserted_at).unwrap();
    assert_eq!(replayed(again, first).get(1).unwrap().inserted_at, 1);
}

#[test]
fn items_of_the_first_state_keep_their_order_under_keys_that_others_have() {
    let mut state = Table::new(config(SelectorKind::MaxHeap, SelectorKind::Fifo, 10)).unwrap();
    state.restore_item(item(1, 1.0), 1).unwrap();
    state.restore_item(item(2, 1.0), 3).unwrap();
    let back = Effect::Back { key: 1, inserted_at: 1 };
    let gone = Effect::Gone { key: 1, inserted_at: 1, reason: REASON };
    let mut table = replayed(state, [put(1, 2), back, counters(3), gone, counters(3)]);
    let (len, first) = (table.len(), table.sample(0).unwrap());
    assert_eq!((len, first.key), (2, 1));
}

#[test]
fn a_table_that_is_not_journaled_notes_nothing() {
    let mut table = fifo();
    table.insert(item(1, 1.0), 1, &mut Vec::new());
    table.note(Effect::Reset);
    table.confirm(Confirmation::Synced);
    let mut effects = Vec::new();
    table.drain_effects(&mut effects);
    assert!(effects.is_empty() && !table.is_journaled());
    assert_eq!(table.take_confirmation(), Confirmation::Nothing);
}

#[test]
fn confirmations_are_those_of_the_effects_since_the_last() {
    let mut table = Table::new(TableConfig {
        max_times_sampled: 1,
        rate_limiter: queue(9),
        ..config(SelectorKind::Fifo, SelectorKind::Fifo, 2)
    })
    .unwrap();
    table.begin_journal();
    table.insert(item(1, 1.0), 1, &mut Vec::new());
    assert_eq!(table.take_confirmation(), Confirmation::Synced);
    table.insert(item(1, 2.0), 1, &mut Vec::new());
    assert_eq!(table.take_confirmation(), Confirmation::Synced, "it may be sent again, because it was not confirmed");
    table.mutate(&[(1, 3.0)], &[], &mut Vec::new()).unwrap();
    assert_eq!(table.take_confirmation(), Confirmation::Written, "a new priority");
    let drawn = table.sample(0).unwrap();
    assert_eq!(table.take_confirmation(), Confirmation::Nothing);
    table.delivered(&[drawn], &mut Vec::new());
    assert_eq!(table.take_confirmation(), Confirmation::Written);
    table.insert(item(2, 1.0), 1, &mut Vec::new());
    table.take_confirmation();
    table.mutate(&[], &[2], &mut Vec::new()).unwrap();
    assert_eq!(table.take_confirmation(), Confirmation::Synced);
    drop(table.reset());
    assert_eq!(table.take_confirmation(), Confirmation::Synced);
}

fn effects() -> impl Strategy<Value = Vec<Effect>> {
    let (key, time) = (0..4_u64, 0..6_u64);
    let priority = prop_oneof![8 => 0.0..3.0, 1 => Just(f64::NAN), 1 => Just(-1.0), 1 => Just(f64::MAX)];
    let times = prop_oneof![8 => 0..4_i32, 1 => any::<i32>()];
    let counters = (any::<i64>(), any::<i64>(), any::<u64>(), priority.clone()).prop_map(|(a, b, c, p)| {
        let shift = c % 64;
        let (inserts, samples, deletes_and_items) = (a >> shift, b >> shift, (a ^ b) >> shift);
        let (num_episodes, num_unique_samples) = (c >> shift, c >> shift);
        Effect::Counters(Counters {
            inserts,
            samples,
            deletes_and_items,
            num_episodes,
            num_unique_samples,
            largest_priority: p,
        })
    });
    let options = (0..4_u64, any::<i32>()).prop_map(|(size, times)| {
        let (max_size, max_times_sampled) = (Some(size), Some(times));
        Effect::Options(Box::new(TableChanges { max_size, max_times_sampled, ..TableChanges::default() }))
    });
    let effect = prop_oneof![
        8 => (key.clone(), time.clone(), priority.clone(), times.clone()).prop_map(|(key, time, priority, times_sampled)| {
            Effect::Put(ItemView { priority, times_sampled, ..view(key, time) })
        }),
        4 => (key.clone(), time.clone()).prop_map(|(key, inserted_at)| Effect::Gone { key, inserted_at, reason: REASON }),
        4 => (key.clone(), time.clone()).prop_map(|(key, inserted_at)| Effect::Back { key, inserted_at }),
        2 => prop::collection::vec((key.clone(), priority.clone()), 0..3).prop_map(Effect::Priorities),
        2 => (key.clone(), time.clone(), priority)
            .prop_map(|(key, inserted_at, priority)| Effect::FlightPriority { key, inserted_at, priority }),
        2 => (key, time, times).prop_map(|(key, inserted_at, times_sampled)| Effect::Count { key, inserted_at, times_sampled }),
        1 => Just(Effect::Reset),
        1 => options,
        2 => counters,
    ];
    prop::collection::vec(effect, 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// A table that comes out is one that can be used.
    #[test]
    fn no_effects_of_a_damaged_log_make_a_table_that_panics(kind in 0..SELECTORS.len(), effects in effects()) {
        let kind = SELECTORS[kind].clone();
        let mut replay = Replay::new(Table::new(config(kind.clone(), kind, 10)).unwrap());
        for effect in effects {
            // A caller stops at the first error.
            let _is_damaged = replay.apply(effect);
        }
        if let Ok(mut table) = replay.finish() {
            let mut removed = Vec::new();
            while table.sample(0).is_some() && !table.is_empty() {
                let key = table.keys().next().unwrap();
                table.mutate(&[(key, 1.0)], &[key], &mut removed).unwrap();
            }
            for key in 0..20 {
                table.insert(item(key, 1.0), 1, &mut removed);
            }
            drop(table.reset());
        }
    }
}
