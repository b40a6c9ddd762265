//! What turns tell a journal, and that no answer leaves before the journal has committed what it tells of.

use crate::common::{self, Recorder, config, exactly, here, inserted, item, items, keys, queue, uniform};
use crate::done;
use crate::waits;
use proptest::prelude::*;
use reverb_core::published_room::Tally;
use reverb_core::{Error, NewItem, Table, TableChanges, Trajectory};
use reverb_service::lease::Lease;
use reverb_service::local::{BatchRequest, LocalDraw, begin_insert, sample_copied};
use reverb_service::write_ledger::{Ledger, Ledgers};
use reverb_service::write_queue::{Done, WriteQueue};
use reverb_service::{Arrival, Call, Change, Replay, RowInsert, TableHandle, Waiting};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

fn drawn(keys: &[u64]) -> Vec<Change> {
    keys.iter().copied().map(Change::Drawn).collect()
}

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
    assert_eq!(journal.take(), [0, 1, 2].map(inserted));
    let draws = done!(table.sample(exactly(4), here()));
    assert_eq!(journal.take(), drawn(&keys(&draws)));
    table.delivered(&draws).unwrap();
    assert_eq!(journal.take(), [], "the table does not wait for receipts");
    let back: Vec<_> = keys(&draws).into_iter().rev().map(Change::GivenBack).collect();
    table.give_back(draws);
    assert_eq!(journal.take(), back);
    let (copied, ()) = table.sample_copied(exactly(5), true, None, here(), |_, _| ()).unwrap();
    assert_eq!(journal.take(), drawn(copied.info.keys()));
    let (copied, draws) = table.sample_copied(exactly(2), true, None, here(), Table::lease_copied).unwrap();
    assert_eq!(journal.take(), drawn(copied.info.keys()));
    drop(Lease::copied(table.clone(), draws, 2));
    assert_eq!(journal.take(), copied.info.keys().iter().copied().map(Change::GivenBack).collect::<Vec<_>>());
    table.mutate(&[(1, 5.0), (99, 2.0)], &[2]).unwrap();
    assert_eq!(journal.take(), [Change::Deleted(2), Change::Updated(1, 5.0), Change::Updated(99, 2.0)]);
    table.mutate(&[(1, f64::NAN)], &[1]).unwrap_err();
    assert_eq!(journal.take(), []);
    table.configure(&TableChanges { max_size: Some(10), ..TableChanges::default() }).unwrap();
    table.configure(&TableChanges { max_size: Some(0), ..TableChanges::default() }).unwrap_err();
    assert_eq!(journal.take(), [Change::Configured]);
    let old = done!(table.sample(exactly(1), here()));
    let copied = table.sample_copied(exactly(1), true, None, here(), Table::lease_copied);
    table.reset();
    assert_eq!(journal.take().last(), Some(&Change::Reset));
    table.give_back(old);
    table.give_back_copied(&copied.unwrap().1);
    assert_eq!(journal.take(), [], "they are from before the reset");
    table.restore(Table::new(config("table")).unwrap(), &Tally::default());
    assert_eq!(journal.take(), [Change::Restored]);
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
        assert!(matches!(journal.take()[..], [Change::Inserted { written: None, .. }, _, _]));
    }
    let request = |table: &str| BatchRequest { table: table.into(), draw: exactly(1), squeeze_time: true };
    let batch = sample_copied(&replay, &free, &request("free"), None).unwrap();
    assert_eq!(journals[0].take(), drawn(batch.info.keys()));
    let mut draw = LocalDraw::begin(&replay, &request("counted"), None, true).unwrap();
    let batch = draw.result().await.unwrap();
    assert_eq!(journals[1].take(), drawn(batch.info.keys()));
    draw.received().unwrap();
    assert_eq!(journals[1].take(), [Change::Delivered(batch.info.keys()[0])]);
    let draw = LocalDraw::begin(&replay, &request("counted"), None, true).unwrap();
    let [Change::Drawn(key)] = journals[1].take()[..] else { panic!("one draw") };
    drop(draw);
    assert_eq!(journals[1].take(), [Change::GivenBack(key)]);
}

#[test]
fn a_receipt_of_many_draws_is_committed_whole() {
    const MANY: u64 = 20_000;
    let table = queue("table", MANY);
    let journal = Recorder::of(&table);
    done!(table.insert(items(0..MANY), here()));
    let draws = done!(table.sample(exactly(MANY as usize), here()));
    assert_eq!(journal.take().len(), 2 * MANY as usize);
    table.delivered(&draws).unwrap();
    assert!(journal.take().into_iter().eq((0..MANY).map(Change::Delivered)));
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
    assert_eq!(journal.take(), [Change::Drawn(1), inserted(2)]);
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
    assert_eq!(journal.take(), [inserted(1), Change::Drawn(1), inserted(2), Change::Drawn(2)]);
    drop(draws);
}

#[tokio::test]
async fn a_call_that_expires_or_is_withdrawn_has_committed_the_part_that_was_done() {
    let table = queue("table", 2);
    let journal = Recorder::of(&table);
    let past = Some(std::time::Instant::now() - std::time::Duration::from_secs(1));
    let error = waits!(table.insert(items(1..5), here())).result(past, common::silent).await.unwrap_err();
    assert!(matches!(error, Error::DeadlineExceeded(text) if text.contains("2 of 4")));
    assert_eq!(journal.take(), [1, 2].map(inserted));
    drop(waits!(table.sample(exactly(3), here())));
    assert_eq!(journal.take(), [Change::Drawn(1), Change::Drawn(2), Change::GivenBack(2), Change::GivenBack(1)]);
}

fn arrival(sequence: u64) -> Arrival {
    Arrival { sequence, item: item(100 + sequence), is_validated: true }
}

/// Whether the ledger has an item.
fn has(ledger: &Ledger, sequence: u64) -> bool {
    ledger.settle(0, sequence, 1).0 == [sequence]
}

#[tokio::test]
async fn items_of_a_writer_are_noted_with_its_id_and_are_in_its_ledger_when_they_are_answered() {
    let table = queue("table", 2);
    let journal = Recorder::of(&table);
    let guard = Ledgers::default().take(None, 7).await;
    let (ledger, at_commit) = (Arc::clone(&guard.ledger), Arc::clone(&guard.ledger));
    let written = |sequence| Change::Inserted { key: 100 + sequence, written: Some((7, sequence)) };
    let (mut queue, mut done) = (WriteQueue::new(here(), Some(ledger.clone())), Done::new());
    journal.at_commit(move || assert!(has(&at_commit, 1), "in the same turn as the item"));
    queue.push_all(&table, vec![arrival(1), arrival(2), arrival(3)], &mut done);
    queue.push(&table, arrival(4), &mut done);
    queue.push(&table, Arrival { item: NewItem { priority: f64::NAN, ..item(5) }, ..arrival(5) }, &mut done);
    assert_eq!(
        done.iter().map(|(sequence, result)| (*sequence, result.is_ok())).collect::<Vec<_>>(),
        [(1, true), (2, true), (5, false)]
    );
    assert_eq!(journal.take(), [1, 2].map(written));
    assert_eq!([1, 2, 3, 4, 5].map(|sequence| has(&ledger, sequence)), [true, true, false, false, false]);
    done!(table.sample(exactly(1), here()));
    assert_eq!(journal.take(), [Change::Drawn(101), written(3)]);
    assert!(has(&ledger, 3), "before the stream has asked for the result");
    assert!(poll(|context| queue.poll(context, &mut done)).is_ready());
    drop(queue);
    done!(table.sample(exactly(2), here()));
    assert!(!has(&ledger, 4), "withdrawn");
    assert_eq!(journal.take(), drawn(&[102, 103]));
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

/// What the changes say is in a table from which draws take items, and how often it was changed.
#[derive(Debug, Default, PartialEq)]
struct Books {
    keys: BTreeSet<u64>,
    /// Keys that were deleted while they were not there.
    deleted: BTreeSet<u64>,
    inserts: i64,
    samples: i64,
    numbers: Vec<u64>,
}

impl Books {
    fn enter(&mut self, change: &Change) {
        match change {
            Change::Inserted { key, written } => {
                assert!(self.keys.insert(*key), "{key} was there");
                self.deleted.remove(key);
                self.inserts += 1;
                self.numbers.extend(written.map(|(_, number)| number));
            }
            Change::Drawn(key) => {
                assert!(self.keys.remove(key), "{key} was not there");
                self.samples += 1;
            }
            Change::GivenBack(key) => {
                assert!(self.deleted.contains(key) || self.keys.insert(*key), "{key} was there");
                self.samples -= 1;
            }
            Change::Deleted(key) => {
                self.keys.remove(key);
                self.deleted.insert(*key);
            }
            Change::Reset => *self = Self { numbers: std::mem::take(&mut self.numbers), ..Self::default() },
            Change::Updated(..) | Change::Delivered(_) => {}
            Change::Configured | Change::Restored => panic!("nobody asked for it"),
        }
    }

    fn of(table: &TableHandle, ledger: &Ledger, last: u64) -> Self {
        table.with_table(|table| Self {
            keys: (1..1000).filter(|&key| table.contains(key)).collect(),
            deleted: BTreeSet::new(),
            inserts: table.limiter().inserts,
            samples: table.limiter().samples,
            numbers: (1..=last).filter(|&number| has(ledger, number)).collect(),
        })
    }
}

proptest! {
    #[test]
    fn the_changes_are_what_happened_and_are_committed_before_anybody_hears_of_them(ops in ops()) {
        let table = queue("table", 5);
        let journal = Recorder::of(&table);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let guard = runtime.block_on(Ledgers::default().take(None, 7));
        let (mut writer, mut done) = (WriteQueue::new(here(), Some(Arc::clone(&guard.ledger))), Done::new());
        let (inserts, samples) = (Arc::new(Mutex::new(Vec::<Waiting<()>>::new())), Arc::new(Mutex::new(Vec::<Waiting<Vec<_>>>::new())));
        let (mut books, mut held, mut next_key, mut sequence) = (Books::default(), Vec::new(), 1, 0);
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
                Op::Reset => table.reset(),
            }
            answered!(inserts);
            held.extend(answered!(samples));
            let _pending = poll(|context| writer.poll(context, &mut done));
            journal.take().iter().for_each(|change| books.enter(change));
            let found = Books { deleted: books.deleted.clone(), ..Books::of(&table, &guard.ledger, sequence) };
            prop_assert_eq!(&found, &books);
        }
    }
}
