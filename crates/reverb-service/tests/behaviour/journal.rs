//! What turns tell a journal, and that no answer leaves before the journal has committed what it tells of.

use crate::common::{self, Recorder, Told, config, exactly, here, item, items, keys, queue, uniform};
use crate::done;
use crate::waits;
use proptest::prelude::*;
use reverb_core::Confirmation::{Synced, Written};
use reverb_core::{
    Effect, Error, ItemView, NewItem, RateLimiterConfig, Replay as Replayed, Table, TableChanges, TableConfig,
    TableSnapshot, Trajectory,
};
use reverb_service::lease::Lease;
use reverb_service::local::{BatchRequest, LocalDraw, begin_insert, sample_copied};
use reverb_service::write_ledger::{Ledger, Ledgers};
use reverb_service::write_queue::{Done, WriteQueue};
use reverb_service::{Arrival, Call, Replay, RowInsert, TableHandle, Waiting, begin_effects, snapshot_all};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

fn poll<T: std::fmt::Debug>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
    poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn each_call_has_committed_what_it_did_when_it_returns() {
    let table = uniform("table");
    let journal = Recorder::of(&table);
    // Rows of one chunk, so that batches of them are copied.
    let chunk = common::chunk(&[1, 2, 3]);
    let row = |row: u32| NewItem { trajectory: Trajectory::rows(chunk.clone(), row, 1).unwrap(), ..item(row.into()) };
    done!(table.insert((0..3).map(row).collect(), here()));
    assert_eq!(journal.confirmations(), [Synced]);
    assert_eq!(journal.take(), [0, 1, 2].map(Told::Put));
    let draws = done!(table.sample(exactly(4), here()));
    table.delivered(&draws).unwrap();
    table.give_back(draws);
    let (_, draws) = table.sample_copied(exactly(2), true, None, here(), Table::lease_copied).unwrap();
    drop(Lease::copied(table.clone(), draws, 2));
    assert_eq!(journal.confirmations(), [], "draws confirm nothing");
    assert_eq!(journal.take(), []);
    assert_eq!(table.mutate(&[(1, 5.0), (99, 2.0)], &[2]).unwrap(), 2);
    assert_eq!(journal.confirmations(), [Synced]);
    assert_eq!(journal.take(), [Told::deleted(2), Told::Priority(1, 5.0)]);
    table.mutate(&[(1, 4.0)], &[]).unwrap();
    assert_eq!(journal.confirmations(), [Written]);
    assert_eq!(journal.take(), [Told::Priority(1, 4.0)]);
    done!(table.insert(vec![item(1)], here()));
    assert_eq!(journal.confirmations(), [Synced], "it is sent again, and may not have been synced");
    assert_eq!(journal.take(), [Told::Priority(1, item(1).priority)]);
    table.mutate(&[(1, f64::NAN)], &[1]).unwrap_err();
    assert_eq!(journal.take(), []);
    table.mutate(&[], &[2]).unwrap();
    assert_eq!(journal.confirmations(), [Synced], "the delete before may not have been committed");
    table.configure(&TableChanges { max_size: Some(10), ..TableChanges::default() }).unwrap();
    table.configure(&TableChanges { max_size: Some(0), ..TableChanges::default() }).unwrap_err();
    assert_eq!(journal.take(), [Told::Options]);
    table.reset().unwrap();
    assert_eq!(journal.confirmations(), [Synced]);
    assert_eq!(journal.take(), [Told::Reset]);
}

#[test]
fn receipts_are_written_and_draws_that_come_back_are_not() {
    let table = queue("table", 10);
    let journal = Recorder::of(&table);
    done!(table.insert(items(1..5), here()));
    let draws = done!(table.sample(exactly(4), here()));
    assert_eq!(journal.take(), [1, 2, 3, 4].map(Told::Put));
    table.delivered(&draws[..1]).unwrap();
    assert_eq!(journal.confirmations(), [Written]);
    assert_eq!(journal.take(), [Told::received(1)]);
    assert_eq!(table.mutate(&[(2, 7.0)], &[3]).unwrap(), 0, "they are in flight");
    assert_eq!(journal.take(), [Told::deleted(3), Told::FlightPriority(2, 7.0)]);
    table.give_back(draws[1..].to_vec());
    assert_eq!(journal.confirmations(), []);
    assert_eq!(journal.take(), [4, 2].map(Told::Back));
}

#[test]
fn a_receipt_that_changes_only_counts_is_written_too() {
    let rate_limiter =
        RateLimiterConfig { samples_per_insert: 1.0, min_size_to_sample: 1, min_diff: 0.0, max_diff: 9.0 };
    let table = TableHandle::new(Table::new(TableConfig { rate_limiter, ..config("table") }).unwrap());
    let journal = Recorder::of(&table);
    done!(table.insert(items([1]), here()));
    let draws = done!(table.sample(exactly(1), here()));
    let samples = |effects: Vec<Effect>| match effects[..] {
        [.., Effect::Counters(counters)] => counters.samples,
        _ => panic!("counts come last"),
    };
    assert_eq!(samples(journal.take_effects()), 0);
    table.delivered(&draws).unwrap();
    assert_eq!(journal.confirmations(), [Written]);
    assert_eq!(samples(journal.take_effects()), 1);
}

#[tokio::test]
async fn calls_in_the_same_process_commit_before_they_return() {
    let (free, counted) = (uniform("free"), queue("counted", 10));
    let replay = Replay::new(vec![free.clone(), counted.clone()], 1 << 20).unwrap();
    let journals = [&free, &counted].map(Recorder::of);
    let tables = ["free", "counted"].map(|name| (name.to_owned(), vec![1.0].into())).into();
    begin_insert(
        &replay,
        &RowInsert { chunk: common::chunk(&[7, 8, 9]), more: Vec::new(), rows_per_item: 1, tables },
        1,
    )
    .unwrap();
    for journal in &journals {
        assert!(matches!(journal.take()[..], [Told::Put(_), Told::Put(_), Told::Put(_)]));
    }
    let request = |table: &str| BatchRequest { table: table.into(), draw: exactly(1), squeeze_time: true };
    sample_copied(&replay, &free, &request("free"), None).unwrap();
    assert_eq!(journals[0].take(), []);
    let mut draw = LocalDraw::begin(&replay, &request("counted"), None, true).unwrap();
    let batch = draw.result().await.unwrap();
    assert_eq!(journals[1].take(), []);
    draw.received().unwrap();
    assert_eq!(journals[1].take(), [Told::received(batch.info.keys()[0])]);
    drop(LocalDraw::begin(&replay, &request("counted"), None, true).unwrap());
    assert!(matches!(journals[1].take()[..], [Told::Back(_)]));
}

#[test]
fn a_receipt_of_many_draws_is_committed_whole() {
    const MANY: u64 = 20_000;
    let table = queue("table", MANY);
    let journal = Recorder::of(&table);
    done!(table.insert(items(0..MANY), here()));
    let draws = done!(table.sample(exactly(MANY as usize), here()));
    assert_eq!(journal.take().len(), MANY as usize);
    table.delivered(&draws).unwrap();
    assert!(journal.take().into_iter().eq((0..MANY).map(Told::received)));
}

#[tokio::test]
async fn what_cannot_be_kept_is_an_error_of_the_call_and_draws_go_on() {
    let table = queue("table", 2);
    let journal = Recorder::of(&table);
    let guard = Ledgers::default().take(None, 7).await;
    done!(table.insert(items([1]), here()));
    let lost = Error::Storage("it may or may not be there after a restart".into());
    journal.fail(&lost);
    assert_eq!(failed(table.insert(items([2]), here())), lost);
    let mut waiting = waits!(table.insert(items([3]), here()));
    let draws = done!(table.sample(exactly(1), here()));
    assert_eq!(keys(&draws), [1]);
    assert!(matches!(poll(|context| waiting.poll_result(context)), Poll::Ready(Err(error)) if error == lost));
    assert_eq!(table.delivered(&draws).unwrap_err(), lost);
    assert_eq!(table.mutate(&[(2, 1.0)], &[]).unwrap_err(), lost);
    assert_eq!(table.reset().unwrap_err(), lost);
    let (mut queue, mut done) = (WriteQueue::new(here(), Some(Arc::clone(&guard.ledger))), Done::new());
    queue.push_all(&table, vec![arrival(1), arrival(2)], &mut done);
    assert_eq!(done, [(1, Err(lost.clone())), (2, Err(lost.clone()))]);
    let smaller = TableChanges { max_size: Some(3), ..TableChanges::default() };
    assert_eq!(table.configure(&smaller).unwrap_err(), lost);
}

/// The error of a call that is done.
fn failed(call: Call<()>) -> Error {
    match call {
        Call::Done(result) => result.unwrap_err(),
        Call::Waiting(_) => panic!("it waits"),
    }
}

/// Asserts at each commit that nobody has heard of the result of a waiting call.
macro_rules! silent_until_committed {
    ($journal:expr, $waiting:expr) => {{
        let waiting = Arc::new(Mutex::new($waiting));
        let other = waiting.clone();
        $journal.at_commit(move || assert!(poll(|context| other.lock().unwrap().poll_result(context)).is_pending()));
        waiting
    }};
}

#[test]
fn a_call_that_waits_is_answered_after_the_commit() {
    let table = queue("table", 1);
    let journal = Recorder::of(&table);
    done!(table.insert(items([1]), here()));
    let insert = silent_until_committed!(journal, waits!(table.insert(items([2]), here())));
    journal.take();
    assert_eq!(keys(&done!(table.sample(exactly(1), here()))), [1]);
    assert!(poll(|context| insert.lock().unwrap().poll_result(context)).is_ready());
    assert_eq!(journal.take(), [Told::Put(2)]);
}

#[test]
fn a_draw_that_waits_is_answered_after_the_commit() {
    let table = queue("table", 2);
    let journal = Recorder::of(&table);
    let draw = silent_until_committed!(journal, waits!(table.sample(exactly(2), here())));
    done!(table.insert(items([1]), here()));
    assert!(poll(|context| draw.lock().unwrap().poll_result(context)).is_pending());
    done!(table.insert(items([2]), here()));
    let Poll::Ready(Ok(draws)) = poll(|context| draw.lock().unwrap().poll_result(context)) else { panic!("it waits") };
    assert_eq!(journal.take(), [1, 2].map(Told::Put));
    drop(draws);
}

#[tokio::test]
async fn a_call_that_expires_or_is_withdrawn_has_committed_the_part_that_was_done() {
    let table = queue("table", 2);
    let journal = Recorder::of(&table);
    let past = Some(std::time::Instant::now() - std::time::Duration::from_secs(1));
    let error = waits!(table.insert(items(1..5), here())).result(past, common::silent).await.unwrap_err();
    assert!(matches!(error, Error::DeadlineExceeded(text) if text.contains("2 of 4")));
    assert_eq!(journal.take(), [1, 2].map(Told::Put));
    drop(waits!(table.sample(exactly(3), here())));
    assert_eq!(journal.take(), [2, 1].map(Told::Back));
}

fn arrival(sequence: u64) -> Arrival {
    Arrival { sequence, item: item(100 + sequence), is_validated: true }
}

/// Whether the ledger has an item.
fn has(ledger: &Ledger, sequence: u64) -> bool {
    ledger.settle(0, sequence, 1).unwrap().0 == [sequence]
}

#[tokio::test]
async fn items_of_a_writer_are_noted_with_its_id_and_are_in_its_ledger_when_they_are_answered() {
    let table = queue("table", 2);
    let journal = Recorder::of(&table);
    let guard = Ledgers::default().take(None, 7).await;
    let (ledger, at_commit) = (Arc::clone(&guard.ledger), Arc::clone(&guard.ledger));
    let written = |sequence| [Told::Put(100 + sequence), Told::Wrote(7, sequence)];
    let (mut queue, mut done) = (WriteQueue::new(here(), Some(ledger.clone())), Done::new());
    journal.at_commit(move || assert!(has(&at_commit, 1), "in the same turn as the item"));
    queue.push_all(&table, vec![arrival(1), arrival(2), arrival(3)], &mut done);
    queue.push(&table, arrival(4), &mut done);
    queue.push(&table, Arrival { item: NewItem { priority: f64::NAN, ..item(5) }, ..arrival(5) }, &mut done);
    assert_eq!(
        done.iter().map(|(sequence, result)| (*sequence, result.is_ok())).collect::<Vec<_>>(),
        [(1, true), (2, true), (5, false)]
    );
    assert_eq!(journal.take(), [1, 2].map(written).concat());
    assert_eq!([1, 2, 3, 4, 5].map(|sequence| has(&ledger, sequence)), [true, true, false, false, false]);
    done!(table.sample(exactly(1), here()));
    assert_eq!(journal.take(), written(3));
    assert!(has(&ledger, 3), "before the stream has asked for the result");
    assert!(poll(|context| queue.poll(context, &mut done)).is_ready());
    drop(queue);
    done!(table.sample(exactly(2), here()));
    assert!(!has(&ledger, 4), "withdrawn");
    assert_eq!(journal.take(), []);
}

#[tokio::test]
async fn effects_go_on_from_the_state_that_was_taken_with_the_ones_before() {
    let tables = [queue("one", 5), queue("other", 5)];
    let journals = tables.each_ref().map(Recorder::of);
    let ledgers = Ledgers::default();
    let guard = ledgers.take(None, 7).await;
    let (mut queue, mut done) = (WriteQueue::new(here(), Some(Arc::clone(&guard.ledger))), Done::new());
    queue.push_all(&tables[0], vec![arrival(1), arrival(2)], &mut done);
    let draws = done!(tables[0].sample(exactly(1), here()));
    // Item 101 is in flight when another takes its key.
    done!(tables[0].insert(items([101, 103]), here()));
    done!(tables[1].insert(items([1]), here()));
    let waiting = done!(tables[1].sample(exactly(1), here()));
    journals.iter().for_each(|journal| drop(journal.take()));
    tables[1].give_back(waiting);
    let begin = begin_effects(&tables, &ledgers);
    assert!(matches!(begin.tables[0].before[..], []), "{begin:?}");
    assert!(matches!(begin.tables[1].before[..], [Effect::Back { .. }, Effect::Counters(_)]), "{begin:?}");
    let ledger = &begin.ledgers[0];
    assert_eq!((begin.ledgers.len(), ledger.writer.id, ledger.through), (1, 7, 2));
    // Without its namesake, the item in flight is there again.
    tables[0].mutate(&[], &[101]).unwrap();
    let effects = [&begin.tables[0].first[..], &journals[0].take_effects()].concat();
    let made = replayed_from(&begin.tables[0].snapshot, &effects);
    assert_eq!(made.snapshot().items().map(|item| item.key).collect::<Vec<_>>(), [101, 102, 103]);
    let now = snapshot_all(std::slice::from_ref(&tables[0])).remove(0);
    assert_eq!((made.limiter(), now.num_items()), (&now.limiter, 3));
    drop(draws);
}

#[derive(Debug, Clone)]
enum Op {
    Insert(usize),
    Write,
    Sample(usize),
    Copied(usize),
    GiveBack,
    Deliver,
    Delete(u64),
    Update(u64),
    Withdraw,
    Reset,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        6 => (1_usize..4).prop_map(Op::Insert),
        3 => Just(Op::Write),
        6 => (1_usize..4).prop_map(Op::Sample),
        3 => (1_usize..4).prop_map(Op::Copied),
        3 => Just(Op::GiveBack),
        3 => Just(Op::Deliver),
        2 => (1_u64..60).prop_map(Op::Delete),
        2 => (1_u64..60).prop_map(Op::Update),
        2 => Just(Op::Withdraw),
        1 => Just(Op::Reset),
    ];
    prop::collection::vec(op, 1..60)
}

/// Takes the results of the waiting calls that have been answered.
macro_rules! answered {
    ($waitings:expr) => {{
        let mut results = Vec::new();
        $waitings.lock().unwrap().retain_mut(|waiting| match poll(|context| waiting.poll_result(context)) {
            Poll::Ready(result) => {
                results.push(result.unwrap());
                false
            }
            Poll::Pending => true,
        });
        results
    }};
}

/// What the effects say is in a table from which draws take items, when draws that were not received are back.
fn replayed(effects: &[Effect]) -> Table {
    let empty = queue("table", 5).with_table(Table::snapshot);
    replayed_from(&empty, effects)
}

/// The table that effects make of a snapshot.
fn replayed_from(snapshot: &TableSnapshot, effects: &[Effect]) -> Table {
    let mut table = Table::new(snapshot.config.clone()).unwrap();
    for ItemView { key, priority, times_sampled, inserted_at, trajectory } in snapshot.items() {
        let item = NewItem { key, priority, takes_largest: false, others: None, times_sampled, trajectory };
        table.restore_item(item, inserted_at).unwrap();
    }
    let mut replay = Replayed::new(table);
    effects.iter().for_each(|effect| replay.apply(effect.clone()).unwrap());
    replay.finish().unwrap()
}

/// The numbers of the items of a writer that effects tell of.
fn numbers(effects: &[Effect]) -> Vec<u64> {
    let wrote = effects.iter().filter_map(|effect| match effect {
        Effect::Wrote { sequence, .. } => Some(*sequence),
        _ => None,
    });
    wrote.collect()
}

proptest! {
    #[test]
    fn the_effects_are_what_happened_and_are_committed_before_anybody_hears_of_them(ops in ops()) {
        let table = queue("table", 5);
        let journal = Recorder::of(&table);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let guard = runtime.block_on(Ledgers::default().take(None, 7));
        let (mut writer, mut done) = (WriteQueue::new(here(), Some(Arc::clone(&guard.ledger))), Done::new());
        let (inserts, samples) = (Arc::new(Mutex::new(Vec::<Waiting<()>>::new())), Arc::new(Mutex::new(Vec::<Waiting<Vec<_>>>::new())));
        let (mut effects, mut held, mut next_key, mut sequence) = (Vec::new(), Vec::new(), 1, 0);
        let waiting = (inserts.clone(), samples.clone());
        let is_first = Arc::new(AtomicBool::new(true));
        let first = is_first.clone();
        journal.at_commit(move || {
            // Later commits of the same call come after the answers of the first.
            if first.swap(false, Relaxed) {
                assert!(answered!(waiting.0).is_empty() && answered!(waiting.1).is_empty(), "answered before the commit");
            }
        });
        for op in ops {
            is_first.store(true, Relaxed);
            match op {
                Op::Insert(count) => {
                    let keys = next_key..next_key + count as u64;
                    next_key = keys.end;
                    if let Call::Waiting(waiting) = table.insert(items(keys), here()) {
                        inserts.lock().unwrap().push(waiting);
                    }
                }
                Op::Write => {
                    sequence += 1;
                    let item = item(next_key);
                    next_key += 1;
                    writer.push(&table, Arrival { sequence, item, is_validated: true }, &mut done);
                }
                Op::Sample(count) => match table.sample(exactly(count), here()) {
                    Call::Done(drawn) => held.push(drawn.unwrap()),
                    Call::Waiting(waiting) => samples.lock().unwrap().push(waiting),
                },
                Op::Copied(count) => drop(table.sample_copied(exactly(count), true, None, here(), |_, _| ())),
                Op::GiveBack => held.pop().into_iter().for_each(|drawn| table.give_back(drawn)),
                Op::Deliver => held.pop().into_iter().for_each(|drawn| table.delivered(&drawn).unwrap()),
                Op::Delete(key) => drop(table.mutate(&[], &[key]).unwrap()),
                Op::Update(key) => drop(table.mutate(&[(key, 2.0)], &[]).unwrap()),
                Op::Withdraw => {
                    let waiting = samples.lock().unwrap().pop();
                    drop(waiting);
                }
                Op::Reset => table.reset().unwrap(),
            }
            answered!(inserts);
            held.extend(answered!(samples));
            let _pending = poll(|context| writer.poll(context, &mut done));
            effects.extend(journal.take_effects());
            let (made, expected) = (replayed(&effects), snapshot_all(std::slice::from_ref(&table)).remove(0));
            let keys = expected.items().map(|item| item.key);
            prop_assert!(made.snapshot().items().map(|item| item.key).eq(keys));
            prop_assert_eq!(made.limiter(), &expected.limiter);
            let known: Vec<_> = (1..=sequence).filter(|&number| has(&guard.ledger, number)).collect();
            prop_assert_eq!(known, numbers(&effects));
        }
    }
}
