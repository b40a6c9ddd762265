//! Clients whose inserts wait take turns, one item each. The key of an item is a thousand times its client, and its
//! number there.

use crate::common::{config, exactly, here, items, keys, queue, set_journal, silent};
use crate::{done, waits};
use reverb_core::{Confirmation, RateLimiterConfig, SelectorKind, Table, TableConfig};
use reverb_service::write_queue::{Done, WriteQueue};
use reverb_service::{Arrival, Call, Inserter, Journal, TableHandle, Waiting};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Waker};

/// A writer of a client, and what it does not know to be inserted.
struct Actor {
    client: u64,
    queue: WriteQueue,
    next: u64,
    done: Done,
}

fn by(client: u64) -> Inserter<'static> {
    Inserter { peer: here(), client }
}

fn keys_of(client: u64, numbers: std::ops::Range<u64>) -> impl Iterator<Item = u64> {
    numbers.map(move |number| client * 1000 + number)
}

impl Actor {
    fn new(client: u64) -> Self {
        Self { client, queue: WriteQueue::new(by(client), None), next: 0, done: Done::new() }
    }

    /// Writes items until so many of them wait.
    fn fill_up(&mut self, table: &TableHandle, in_flight: usize) {
        while self.queue.num_waiting() < in_flight {
            let sequence = self.next;
            self.next += 1;
            for item in items(keys_of(self.client, sequence..sequence + 1)) {
                self.queue.push(table, Arrival { sequence, item, is_validated: true }, &mut self.done);
            }
        }
    }

    fn poll(&mut self) {
        let _pending = self.queue.poll(&mut Context::from_waker(Waker::noop()), &mut self.done);
    }
}

/// A queue whose room is taken by client 0.
fn full_queue(size: u64) -> TableHandle {
    let table = queue("queue", size);
    done!(table.insert(items(keys_of(0, 0..size)), here()));
    table
}

fn draw(table: &TableHandle, count: usize) -> Vec<u64> {
    let drawn = done!(table.sample(exactly(count), here()));
    table.delivered(&drawn).unwrap();
    keys(&drawn)
}

fn clients(keys: &[u64]) -> Vec<u64> {
    keys.iter().map(|key| key / 1000).collect()
}

fn share(keys: &[u64], client: u64) -> usize {
    keys.iter().filter(|key| **key / 1000 == client).count()
}

#[test]
fn each_of_four_writers_gets_its_share_of_a_full_queue() {
    let table = full_queue(64);
    let mut actors: Vec<_> = (1..5).map(Actor::new).collect();
    let mut drawn = Vec::new();
    for _ in 0..100 {
        // Always in the same order: the first one would take all room that the waiting items leave.
        actors.iter_mut().for_each(|actor| actor.fill_up(&table, 64));
        drawn.extend(draw(&table, 16));
        actors.iter_mut().for_each(Actor::poll);
    }
    let written: Vec<_> = drawn.into_iter().filter(|key| *key >= 1000).collect();
    for client in 1..5 {
        assert!(share(&written, client).abs_diff(written.len() / 4) <= 1, "{client}");
        let of_client = written.iter().copied().filter(|key| key / 1000 == client);
        assert!(of_client.eq(keys_of(client, 0..share(&written, client) as u64)), "in order");
    }
}

#[test]
fn a_limiter_that_lets_eight_in_lets_two_of_each_in() {
    let limiter =
        RateLimiterConfig { samples_per_insert: 2.0, min_size_to_sample: 1, min_diff: -1000.0, max_diff: 20.0 };
    let table = TableConfig { sampler: SelectorKind::Fifo, rate_limiter: limiter, ..config("table") };
    let table = TableHandle::new(Table::new(table).unwrap());
    done!(table.insert(items(keys_of(0, 0..10)), here()));
    let mut actors: Vec<_> = (1..5).map(Actor::new).collect();
    actors.iter_mut().for_each(|actor| actor.fill_up(&table, 64));
    draw(&table, 16);
    actors.iter_mut().for_each(Actor::poll);
    assert!(actors.iter().all(|actor| actor.done.len() == 2));
}

#[test]
fn a_large_insert_that_waits_takes_turns_with_writers_and_calls() {
    let table = full_queue(8);
    let _large = waits!(table.insert(items(keys_of(1, 0..100)), by(1)));
    let mut writer = Actor::new(2);
    writer.fill_up(&table, 64);
    let _calls: Vec<Waiting<()>> =
        (0..4).map(|number| waits!(table.insert(items(keys_of(3, number..number + 1)), by(3)))).collect();
    draw(&table, 8);
    assert_eq!(clients(&draw(&table, 8)), [1, 2, 3, 1, 2, 3, 1, 2]);
}

#[test]
fn the_streams_and_calls_of_one_client_share_its_turn() {
    let table = full_queue(8);
    let (mut one, mut other, mut alone) = (Actor::new(1), Actor::new(1), Actor::new(2));
    other.next = 500;
    one.fill_up(&table, 8);
    other.fill_up(&table, 8);
    let _call = waits!(table.insert(items([1900, 1901]), by(1)));
    alone.fill_up(&table, 8);
    draw(&table, 8);
    assert_eq!(clients(&draw(&table, 8)), [1, 2, 1, 2, 1, 2, 1, 2]);
}

/// Inserts an item of client 2 when the table lets go of its lock for the first time, and notes how many items there are
/// then.
#[derive(Debug)]
struct InsertBetween {
    table: TableHandle,
    seen: AtomicU64,
}

impl Journal for InsertBetween {
    fn check(&self) -> reverb_core::Result<()> {
        Ok(())
    }

    fn commit(&self, _: Confirmation) -> reverb_core::Result<()> {
        if self.seen.compare_exchange(0, 1, Relaxed, Relaxed).is_ok() {
            done!(self.table.insert(items([0]), by(2)));
            self.seen.store(self.table.with_table(Table::len) as u64, Relaxed);
        }
        Ok(())
    }
}

#[tokio::test]
async fn an_insert_of_another_client_enters_between_the_parts_of_a_large_one_only() {
    for (count, between) in [(100_000, true), (16_384, false)] {
        let table = queue("table", 200_000);
        let journal = Arc::new(InsertBetween { table: table.clone(), seen: AtomicU64::new(0) });
        set_journal(&table, journal.clone());
        // The call of client 2 may make the rest of it.
        if let Call::Waiting(waiting) = table.insert(items(1..count + 1), by(1)) {
            waiting.result(None, silent).await.unwrap();
        }
        assert_eq!(table.with_table(Table::len) as u64, count + 1);
        let seen = journal.seen.load(Relaxed);
        assert_eq!(seen <= 40_000.min(count), between, "it saw {seen} of {count} items");
        let drawn = keys(&done!(table.sample(exactly(count as usize + 1), here())));
        assert!(drawn.iter().filter(|key| **key > 0).is_sorted(), "the large insert keeps its order");
    }
}

#[test]
fn an_insert_that_fits_enters_whole_and_one_that_waits_goes_on_alone() {
    let table = full_queue(8);
    draw(&table, 8);
    let _first = waits!(table.insert(items(keys_of(1, 0..12)), by(1)));
    // It took the room that was there while nobody waited.
    assert_eq!(draw(&table, 8), keys_of(1, 0..8).collect::<Vec<_>>());
    done!(table.insert(items(keys_of(2, 0..4)), by(2)));
    assert_eq!(clients(&draw(&table, 8)), [1, 1, 1, 1, 2, 2, 2, 2]);
}

#[test]
fn a_client_that_leaves_gives_its_turns_up() {
    let table = full_queue(4);
    let mut actors: Vec<_> = (1..4).map(Actor::new).collect();
    actors.iter_mut().for_each(|actor| actor.fill_up(&table, 9));
    assert_eq!(table.status().info.waiting_inserts, Some(3), "the items of a writer are one wait");
    assert_eq!(table.waits(9).len(), 3);
    drop(actors.remove(1));
    draw(&table, 4);
    assert_eq!(draw(&table, 4), [1000, 3000, 1001, 3001]);
    actors.remove(0);
    assert_eq!(draw(&table, 4), [1002, 3002, 1003, 3003], "these had entered before");
    assert_eq!(draw(&table, 4), keys_of(3, 4..8).collect::<Vec<_>>());
    drop(actors);
    assert_eq!((table.status().info.waiting_inserts, table.with_table(|table| table.len())), (Some(0), 1));
    done!(table.insert(items([7]), by(1)));
}

#[test]
fn a_writer_that_leaves_withdraws_its_last_items_first() {
    for _ in 0..200 {
        let table = full_queue(2);
        let mut actor = Actor::new(1);
        actor.fill_up(&table, 9);
        std::thread::scope(|scope| {
            scope.spawn(move || drop(actor));
            scope.spawn(|| draw(&table, 2));
        });
        // What has entered of the writer is its first items.
        let left = table.with_table(|table| table.len());
        if left > 0 {
            assert_eq!(draw(&table, left), keys_of(1, 0..left as u64).collect::<Vec<_>>());
        }
    }
}

/// Of these, not all wait in the queue of the table.
#[test]
fn very_many_waiting_items_of_a_writer_keep_their_order() {
    let table = full_queue(8);
    let mut actor = Actor::new(1);
    actor.fill_up(&table, 3000);
    draw(&table, 8);
    let mut drawn = Vec::new();
    while drawn.len() < 3000 {
        drawn.extend(draw(&table, 8));
        actor.poll();
    }
    assert_eq!(drawn, keys_of(1, 0..3000).collect::<Vec<_>>());
    let mut done: Vec<u64> = actor.done.iter().map(|(sequence, _)| *sequence).collect();
    done.sort_unstable();
    assert!(done.into_iter().eq(0..3000));
}

#[test]
fn table_counts_inserts_by_client() {
    let table = queue("queue", 100);
    done!(table.insert(items(keys_of(0, 0..3)), here()));
    let mut writer = Actor::new(1);
    let arrivals = |numbers: std::ops::Range<u64>| {
        let arrival = |(sequence, item)| Arrival { sequence, item, is_validated: true };
        (0..).zip(items(keys_of(1, numbers))).map(arrival).collect::<Vec<_>>()
    };
    writer.queue.push_all(&table, arrivals(0..98), &mut writer.done);
    assert_eq!(writer.queue.num_waiting(), 1);
    let counts = |table: &TableHandle| table.status().info.inserts_by_client.unwrap().0;
    assert_eq!(counts(&table), [(here().name().to_owned(), 100)].into());
    for number in 0..2000 {
        let peer = std::sync::Arc::new(reverb_service::Peer::new(reverb_service::Transport::Tcp, String::new()));
        peer.introduce(&format!("actor {number}"));
        let call = table.insert(items([10_000 + number]), &peer);
        drop(draw(&table, 1));
        drop(call);
    }
    writer.poll();
    let counts = counts(&table);
    assert_eq!((counts.len(), counts["actor 7"], counts[here().name()]), (1025, 1, 101));
    assert_eq!(counts.values().sum::<u64>(), 2100);
    assert!(matches!(table.insert(items([1]), here()), Call::Waiting(_)));
}
