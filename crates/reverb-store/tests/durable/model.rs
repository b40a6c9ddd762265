//! A plain model of a table: what calls have done to it.

use crate::world::{PRIORITIZED, SIZE, Server, THRICE};
use reverb_core::{ItemKey, Trajectory};
use reverb_service::snapshot_all;
use std::collections::BTreeSet;

/// What a restart must find of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Contents {
    /// Key, priority and number of receipts, in the order of the inserts. Only tables that limit draws must have the
    /// last.
    items: Vec<(ItemKey, f64, i32)>,
    max_size: u64,
    /// Numbers of inserts and of removals since the last reset.
    counts: (i64, i64),
    /// The ranges of the numbers that a writer has inserted.
    written: Vec<(u64, u64)>,
}

impl Contents {
    pub fn without_writers(self) -> Self {
        Self { written: Vec::new(), ..self }
    }
}

#[derive(Debug, Clone, PartialEq)]
struct Entry {
    /// No two items have the same.
    serial: u64,
    key: ItemKey,
    priority: f64,
    received: i32,
}

/// A table. Draws that were not received have not happened.
#[derive(Debug, Clone)]
pub struct Model {
    entries: Vec<Entry>,
    max_size: u64,
    max_times: i32,
    inserts: i64,
    removals: i64,
    numbers: BTreeSet<u64>,
    next_serial: u64,
}

impl Model {
    pub fn new(table: usize) -> Self {
        let max_size = if table <= PRIORITIZED { SIZE } else { 1_000_000 };
        let max_times = [0, 0, 1, 3][table];
        let numbers = BTreeSet::new();
        Self { entries: Vec::new(), max_size, max_times, inserts: 0, removals: 0, numbers, next_serial: 0 }
    }

    pub fn insert(&mut self, key: ItemKey, priority: f64) {
        assert!(!self.keys().contains(&key), "{key} is there");
        self.entries.push(Entry { serial: self.next_serial, key, priority, received: 0 });
        self.next_serial += 1;
        self.inserts += 1;
        self.evict();
    }

    pub fn write(&mut self, number: u64, key: ItemKey) {
        self.insert(key, 1.0);
        self.numbers.insert(number);
    }

    fn evict(&mut self) {
        while self.entries.len() as u64 > self.max_size {
            self.entries.remove(0);
            self.removals += 1;
        }
    }

    pub fn update(&mut self, key: ItemKey, priority: f64) {
        self.entries.iter_mut().filter(|entry| entry.key == key).for_each(|entry| entry.priority = priority);
    }

    pub fn delete(&mut self, key: ItemKey) {
        self.keep(|entry| entry.key != key);
    }

    fn keep(&mut self, keep: impl FnMut(&Entry) -> bool) {
        let before = self.entries.len();
        self.entries.retain(keep);
        self.removals += (before - self.entries.len()) as i64;
    }

    pub fn reset(&mut self) {
        self.entries.clear();
        (self.inserts, self.removals) = (0, 0);
    }

    pub fn set_size(&mut self, max_size: u64) {
        self.max_size = max_size;
        self.evict();
    }

    pub fn receive(&mut self, serial: u64) {
        let max_times = self.max_times;
        self.entries.iter_mut().filter(|entry| entry.serial == serial).for_each(|entry| entry.received += 1);
        self.keep(|entry| max_times == 0 || entry.received < max_times);
    }

    pub fn keys(&self) -> Vec<ItemKey> {
        self.entries.iter().map(|entry| entry.key).collect()
    }

    pub fn serial_of(&self, key: ItemKey) -> u64 {
        self.entries.iter().find(|entry| entry.key == key).unwrap_or_else(|| panic!("{key} is not there")).serial
    }

    /// The keys of the next `count` draws of a queue, while draws of items with these serials were not received.
    pub fn next_draws(&self, in_flight: &[u64], count: usize) -> Vec<ItemKey> {
        let left = self.entries.iter().flat_map(|entry| {
            let drawn = entry.received + in_flight.iter().filter(|serial| **serial == entry.serial).count() as i32;
            (drawn..self.max_times).map(|_| entry.key)
        });
        left.take(count).collect()
    }

    pub fn contents(&self) -> Contents {
        let limits = self.max_times > 0;
        let items = self.entries.iter();
        let items = items.map(|entry| (entry.key, entry.priority, if limits { entry.received } else { 0 })).collect();
        let mut written: Vec<(u64, u64)> = Vec::new();
        for &number in &self.numbers {
            match written.last_mut() {
                Some((_, last)) if *last + 1 == number => *last = number,
                _ => written.push((number, number)),
            }
        }
        Contents { items, max_size: self.max_size, counts: (self.inserts, self.removals), written }
    }
}

/// What a server has in a table.
pub fn contents_of(server: &Server, table: usize) -> Contents {
    let handle = &server.tables[table];
    let snapshot = snapshot_all(std::slice::from_ref(handle)).remove(0);
    let items = snapshot.items().map(|item| {
        let Trajectory::Rows { chunk, offset, length, .. } = &item.trajectory else { panic!("rows were inserted") };
        assert_eq!(chunk.rows_of(0, *offset, *length), (item.key as i64).to_le_bytes(), "the content is the key");
        (item.key, item.priority, if table >= THRICE - 1 { item.times_sampled } else { 0 })
    });
    Contents {
        items: items.collect(),
        max_size: snapshot.config.max_size,
        counts: (snapshot.limiter.inserts, snapshot.limiter.deletes),
        written: if table == PRIORITIZED { server.written() } else { Vec::new() },
    }
}
