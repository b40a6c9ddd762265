//! Random calls, saves and restarts: a server is what the plain model of each table is.

use crate::crash_disk::CrashDisk;
use crate::life::Life;
use crate::story::Op;
use crate::world::{BOOTS, ITEMS, PRIORITIZED, QUEUE, Server, THRICE};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use reverb_core::ItemKey;
use reverb_service::LogMode;

/// Number of calls of an ordinary run.
const CALLS: u64 = 10_000;
/// Number of items of a queue to which no more are added.
const FULL: usize = 12;

/// Chooses calls. Keys come again once their items are gone.
struct Chooser {
    random: SmallRng,
    next_number: u64,
    /// Numbers that the writer has left out so far.
    left_out: Vec<u64>,
}

impl Chooser {
    /// A key that no item of the table has.
    fn free_key(&mut self, life: &Life, table: usize) -> ItemKey {
        let there = life.story.model(table).keys();
        loop {
            let key = self.random.random_range(0..40);
            if !there.contains(&key) {
                return key;
            }
        }
    }

    /// A key that an item of the table has, mostly.
    fn any_key(&mut self, life: &Life, table: usize) -> ItemKey {
        let there = life.story.model(table).keys();
        there.choose(&mut self.random).copied().unwrap_or(99)
    }

    fn number(&mut self) -> u64 {
        if let Some(number) = self.left_out.pop().filter(|_| self.random.random_bool(0.5)) {
            return number;
        }
        if self.random.random_bool(0.1) {
            self.left_out.push(self.next_number);
            self.next_number += 1;
        }
        self.next_number += 1;
        self.next_number - 1
    }

    fn priority(&mut self) -> f64 {
        *[0.0, 1.0, 2.5, 1e9].choose(&mut self.random).unwrap()
    }

    fn op(&mut self, life: &Life) -> Op {
        let table = self.random.random_range(ITEMS..=THRICE);
        let is_full = life.story.model(table).keys().len() >= FULL;
        match self.random.random_range(0..100) {
            0..30 if !is_full => Op::Insert(table, self.free_key(life, table), self.priority()),
            30..40 => Op::Write(self.number(), self.free_key(life, PRIORITIZED)),
            40..50 => {
                let updates = (0..self.random.random_range(1..4)).map(|_| (self.any_key(life, table), self.priority()));
                Op::Update(table, updates.collect())
            }
            50..56 => Op::Delete(table, vec![self.any_key(life, table), self.any_key(life, table)]),
            56..57 => Op::Reset(table),
            57..60 => Op::SetSize(self.random.random_range(ITEMS..=PRIORITIZED), self.random.random_range(1..8)),
            60..78 => Op::Draw(table, self.random.random_range(1..4)),
            78..90 => Op::Receive(table, self.random.random_range(1..4)),
            90..97 => Op::GiveBack(table, self.random.random_range(1..4)),
            97..98 => Op::Save,
            _ => Op::Draw(QUEUE, 1),
        }
    }
}

/// Ends a server, by `kill -9` or as it should, and starts the next one.
fn restart(life: &mut Life, server: Server, is_killed: bool) -> Server {
    if is_killed {
        life.kill(server);
    } else {
        server.store.close().unwrap();
        drop(server);
    }
    // The disk forgets what is no longer there.
    life.disk = CrashDisk::of(&life.disk.files());
    let server = life.start(&life.disk, BOOTS[0]).unwrap();
    life.story = life.story.check_restarted(&server, None);
    server
}

fn run(mode: LogMode, calls: u64, seed: u64) {
    let random = SmallRng::seed_from_u64(seed);
    let mut chooser = Chooser { random, next_number: 1, left_out: Vec::new() };
    let mut life = Life::new(mode);
    let mut server = life.start(&life.disk, BOOTS[0]).unwrap();
    for _ in 0..calls {
        let op = chooser.op(&life);
        life.make(&server, &[op]);
        if chooser.random.random_bool(0.01) {
            server = restart(&mut life, server, chooser.random.random());
        }
    }
    assert_eq!(life.story.failures, 0);
    drop(restart(&mut life, server, true).store.close());
}

#[test]
fn a_server_that_restarts_now_and_then_is_that_of_the_model() {
    [LogMode::Process, LogMode::Power].into_iter().zip(0..).for_each(|(mode, seed)| run(mode, CALLS / 2, seed));
}

#[test]
#[ignore = "a million calls take minutes"]
fn a_server_that_restarts_often_is_that_of_the_model() {
    let seeds: u64 = SmallRng::from_os_rng().random();
    println!("seed {seeds}");
    [LogMode::Process, LogMode::Power].into_iter().zip(seeds..).for_each(|(mode, seed)| run(mode, 50 * CALLS, seed));
}
