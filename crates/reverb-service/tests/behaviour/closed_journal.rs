//! While its journal is closed, a table refuses what has to be confirmed, before it changes. All else goes on.

use crate::common::{self, Recorder, Told, exactly, here, item, items, keys, queue, uniform};
use crate::{done, waits};
use reverb_core::{Error, NewItem, Result, TableChanges};
use reverb_service::local::begin_insert;
use reverb_service::write_ledger::Ledgers;
use reverb_service::write_queue::{Done, WriteQueue};
use reverb_service::{Arrival, Call, InsertGroup, Replay, RowInsert, TableHandle, Waiting};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// A queue of more items is inserted, or a table of more shrinks, in several parts.
const MANY: u64 = 40_000;

fn refusal() -> Error {
    Error::Storage("the log is closed".into())
}

fn arrival(sequence: u64) -> Arrival {
    Arrival { sequence, item: item(100 + sequence), is_validated: true }
}

fn keys_in(table: &TableHandle) -> Vec<u64> {
    let mut keys: Vec<_> = table.with_table(|table| table.keys().collect());
    keys.sort_unstable();
    keys
}

fn failed(call: Call<()>) -> Error {
    match call {
        Call::Done(result) => result.unwrap_err(),
        Call::Waiting(_) => panic!("it waits"),
    }
}

fn poll(waiting: &mut Waiting<()>) -> Poll<Result<()>> {
    waiting.poll_result(&mut Context::from_waker(Waker::noop()))
}

fn smaller() -> TableChanges {
    TableChanges { max_size: Some(2), ..TableChanges::default() }
}

#[test]
fn calls_are_refused_before_the_table_changes_and_go_on_rightly_later() {
    let table = uniform("table");
    let journal = Recorder::of(&table);
    done!(table.insert(items(1..5), here()));
    journal.take();
    journal.refuse(Some(&refusal()));
    assert_eq!(failed(table.insert(items([5]), here())), refusal());
    assert_eq!(table.mutate(&[], &[1]).unwrap_err(), refusal());
    assert_eq!(table.mutate(&[(2, 9.0)], &[1]).unwrap_err(), refusal());
    let (updates, deletes): (Vec<_>, Vec<_>) = ((0..MANY).map(|key| (key, 9.0)).collect(), (0..MANY).collect());
    assert_eq!(table.mutate(&updates, &deletes).unwrap_err(), refusal());
    assert_eq!(table.configure(&smaller()).unwrap_err(), refusal());
    assert_eq!(table.reset().unwrap_err(), refusal());
    assert_eq!(journal.confirmations(), [], "there is nothing to commit");
    assert_eq!(journal.take(), []);
    assert_eq!(keys_in(&table), [1, 2, 3, 4]);
    assert_eq!(table.with_table(|table| table.config().max_size), 1_000_000);
    journal.refuse(None);
    done!(table.insert(items([5]), here()));
    assert_eq!(table.mutate(&[(2, 9.0)], &[1]).unwrap(), 2);
    assert_eq!(journal.take(), [Told::Put(5), Told::deleted(1), Told::Priority(2, 9.0)]);
    table.configure(&smaller()).unwrap();
    assert_eq!(keys_in(&table), [4, 5]);
    table.reset().unwrap();
    assert_eq!(keys_in(&table), []);
}

#[test]
fn draws_receipts_draws_that_come_back_and_updates_go_on() {
    let table = queue("table", 10);
    let journal = Recorder::of(&table);
    done!(table.insert(items(1..5), here()));
    journal.take();
    journal.refuse(Some(&refusal()));
    let draws = done!(table.sample(exactly(3), here()));
    table.delivered(&draws[..1]).unwrap();
    assert_eq!(table.mutate(&[(2, 7.0), (4, 8.0)], &[]).unwrap(), 1);
    table.give_back(draws[1..].to_vec());
    assert_eq!(
        journal.take(),
        [Told::received(1), Told::FlightPriority(2, 7.0), Told::Priority(4, 8.0), Told::Back(3), Told::Back(2)]
    );
    assert_eq!(keys_in(&table), [2, 3, 4]);
}

#[test]
fn an_insert_into_several_tables_is_refused_whole() {
    let tables = [uniform("one"), uniform("other")];
    let journals = tables.each_ref().map(Recorder::of);
    let replay = Replay::new(tables.to_vec(), 1 << 20).unwrap();
    let insert = || {
        let groups = tables.iter().map(|table| InsertGroup { table: table.clone(), items: items([1, 2]) });
        replay.insert(groups.collect(), here())
    };
    let rows = RowInsert {
        chunk: common::chunk(&[7, 8]),
        more: Vec::new(),
        rows_per_item: 1,
        tables: ["one", "other"].map(|name| (name.to_owned(), vec![1.0].into())).into(),
    };
    journals[1].refuse(Some(&refusal()));
    assert_eq!(insert().unwrap_err(), refusal());
    assert_eq!(begin_insert(&replay, &rows, 1).unwrap_err(), refusal());
    assert_eq!(tables.each_ref().map(keys_in), [vec![], vec![]]);
    journals[1].refuse(None);
    insert().unwrap().into_iter().for_each(|call| done!(call));
    begin_insert(&replay, &rows, 1).unwrap().0.into_iter().for_each(|call| done!(call));
    assert_eq!(tables.each_ref().map(|table| keys_in(table).len()), [4, 4]);
}

#[test]
fn an_insert_that_waits_ends_with_the_refusal_when_its_turn_comes() {
    let table = queue("table", 1);
    let journal = Recorder::of(&table);
    done!(table.insert(items([1]), here()));
    let mut first = waits!(table.insert(items([2]), here()));
    let mut second = waits!(table.insert(items([3]), here()));
    let mut last = waits!(table.insert(items([4, 5]), here()));
    journal.refuse(Some(&refusal()));
    assert_eq!(failed(table.insert(items([6]), here())), refusal(), "it does not begin to wait");
    assert!(poll(&mut first).is_pending(), "there is no room");
    // While nobody makes room, those that wait do not notice.
    journal.refuse(None);
    assert_eq!(keys(&done!(table.sample(exactly(1), here()))), [1]);
    assert_eq!(poll(&mut first), Poll::Ready(Ok(())));
    journal.refuse(Some(&refusal()));
    assert_eq!(keys(&done!(table.sample(exactly(1), here()))), [2]);
    assert_eq!(poll(&mut second), Poll::Ready(Err(refusal())));
    assert_eq!(poll(&mut last), Poll::Ready(Err(refusal())));
    assert_eq!((keys_in(&table), table.pulse().waiting_inserts), (vec![], 0));
    journal.refuse(None);
    done!(table.insert(items([3]), here()));
    assert_eq!(keys(&done!(table.sample(exactly(1), here()))), [3]);
}

#[test]
fn an_insert_of_many_items_ends_where_the_journal_was_closed() {
    let table = uniform("table");
    let journal = Recorder::of(&table);
    let closing = journal.clone();
    journal.at_commit(move || closing.refuse(Some(&refusal())));
    assert_eq!(failed(table.insert(items(0..MANY), here())), refusal());
    let inserted = keys_in(&table).len() as u64;
    assert!(0 < inserted && inserted < MANY, "{inserted} items");
    assert_eq!(journal.take().len() as u64, inserted, "all of them were committed");
    journal.at_commit(|| ());
    journal.refuse(None);
    done!(table.insert(items(inserted..MANY), here()));
    assert_eq!(keys_in(&table).len() as u64, MANY);
}

#[test]
fn a_table_with_smaller_options_shrinks_to_its_end_if_they_cannot_be_kept() {
    let table = uniform("table");
    let journal = Recorder::of(&table);
    done!(table.insert(items(0..MANY), here()));
    let closing = journal.clone();
    journal.at_commit(move || closing.refuse(Some(&refusal())));
    journal.fail(&refusal());
    assert_eq!(table.configure(&smaller()).unwrap_err(), refusal());
    assert_eq!(keys_in(&table), [MANY - 2, MANY - 1]);
}

#[test]
fn items_of_a_writer_without_a_ledger_are_refused_too() {
    let table = uniform("table");
    let journal = Recorder::of(&table);
    let (mut writer, mut done) = (WriteQueue::new(here(), None), Done::new());
    journal.refuse(Some(&refusal()));
    writer.push_all(&table, vec![arrival(1), arrival(2)], &mut done);
    writer.push(&table, arrival(3), &mut done);
    assert_eq!(done, [1, 2, 3].map(|sequence| (sequence, Err(refusal()))));
    assert_eq!((keys_in(&table), journal.confirmations()), (vec![], vec![]));
}

#[tokio::test]
async fn a_writer_may_send_the_items_again_that_were_refused() {
    const ITEMS: u64 = 1_100;
    let table = queue("table", 1);
    let journal = Recorder::of(&table);
    let guard = Ledgers::default().take(None, 7).await;
    let (mut writer, mut done) = (WriteQueue::new(here(), Some(Arc::clone(&guard.ledger))), Done::new());
    writer.push_all(&table, (1..=ITEMS).map(arrival).collect(), &mut done);
    assert_eq!((done.len(), writer.num_waiting() as u64), (1, ITEMS - 1));
    journal.refuse(Some(&refusal()));
    // Also one behind those that wait at the table.
    writer.push(&table, arrival(ITEMS + 1), &mut done);
    assert_eq!(done.pop(), Some((ITEMS + 1, Err(refusal()))));
    done!(table.sample(exactly(1), here()));
    while writer.num_waiting() > 0 {
        std::future::poll_fn(|context| writer.poll(context, &mut done)).await;
    }
    done.sort_by_key(|(sequence, _)| *sequence);
    let refused = (2..=ITEMS).map(|sequence| (sequence, Err(refusal())));
    assert!(done[1..].iter().cloned().eq(refused), "{done:?}");
    assert_eq!((keys_in(&table), writer.num_waiting()), (vec![], 0));
    assert_eq!(guard.ledger.settle(1, 2, ITEMS - 1).unwrap().0, [], "none of them counts as inserted");
    journal.refuse(None);
    done.clear();
    journal.take();
    writer.push(&table, arrival(2), &mut done);
    assert_eq!(done, [(2, Ok(()))]);
    assert_eq!(journal.take(), [Told::Put(102), Told::Wrote(7, 2)]);
}

#[test]
fn a_checkpoint_is_restored_all_the_same() {
    let (table, other) = (uniform("table"), uniform("table"));
    let journal = Recorder::of(&table);
    done!(other.insert(vec![NewItem { priority: 3.0, ..item(7) }], here()));
    journal.refuse(Some(&refusal()));
    let snapshot = other.with_table(reverb_core::Table::snapshot);
    let mut restored = reverb_core::Table::new(snapshot.config.clone()).unwrap();
    restored.restore_item(item(7), 1).unwrap();
    table.restore(restored, &snapshot.tally);
    assert_eq!(keys_in(&table), [7]);
}
