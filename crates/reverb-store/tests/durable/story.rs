//! What was asked of a server, what it has confirmed, and what a restart must find of it.
//!
//! The story counts what happens by a plain model of each table. After the end of the server, each table must be as the
//! model was after some call, and not before the last one that was confirmed, as far as its confirmation goes.

use crate::crash_disk::CrashDisk;
use crate::model::{Contents, Model, contents_of};
use crate::service::{exactly, here};
use crate::world::{PRIORITIZED, QUEUE, Server, insert_with};
use reverb_core::{Drawn, Error, ItemKey, Result, TableChanges};
use reverb_service::Call;
use reverb_service::LogMode;

/// A call.
#[derive(Debug, Clone)]
pub enum Op {
    Insert(usize, ItemKey, f64),
    /// Inserts an item of a writer: its number and its key.
    Write(u64, ItemKey),
    Update(usize, Vec<(ItemKey, f64)>),
    Delete(usize, Vec<ItemKey>),
    Reset(usize),
    SetSize(usize, u64),
    Draw(usize, usize),
    /// Receives so many draws of those of the table that were not received, the first ones.
    Receive(usize, usize),
    GiveBack(usize, usize),
    Save,
}

/// How a table was after a call.
#[derive(Debug, Clone)]
struct Moment {
    model: Model,
    /// How far the disk was when the call was confirmed; `None` if it was not.
    confirmed_at: Option<u64>,
    /// Whether the confirmation covers a loss of power.
    is_on_disk: bool,
}

/// A draw that was not received: the serial of its item.
#[derive(Debug, Clone)]
struct Flight(usize, u64, Drawn);

#[derive(Debug, Clone)]
pub struct Story {
    mode: LogMode,
    past: Vec<Vec<Moment>>,
    flights: Vec<Flight>,
    /// Number of calls that failed.
    pub failures: u32,
}

impl Story {
    pub fn new(mode: LogMode) -> Self {
        let moment = |table| Moment { model: Model::new(table), confirmed_at: Some(0), is_on_disk: true };
        Self { mode, past: (0..4).map(|table| vec![moment(table)]).collect(), flights: Vec::new(), failures: 0 }
    }

    pub fn model(&self, table: usize) -> &Model {
        &self.past[table].last().unwrap().model
    }

    /// The same story, in which the calls after those of an earlier story were not confirmed.
    pub fn confirmed_as(&self, earlier: &Self) -> Self {
        let mut story = self.clone();
        for (past, earlier) in story.past.iter_mut().zip(&earlier.past) {
            past[earlier.len()..].iter_mut().for_each(|moment| moment.confirmed_at = None);
        }
        story
    }

    /// The serials of the items of a table whose draws were not received, one for each draw.
    pub fn in_flight(&self, table: usize) -> Vec<u64> {
        self.flights.iter().filter(|flight| flight.0 == table).map(|flight| flight.1).collect()
    }

    /// Makes a call, and checks what it did and what it said.
    pub fn make(&mut self, server: &Server, disk: &CrashDisk, op: &Op) {
        let was_closed = server.is_closed();
        match op {
            Op::Save => return self.save(server, disk),
            Op::Draw(table, count) => return self.draw(server, *table, *count),
            Op::GiveBack(table, count) => {
                let back = self.take_flights(*table, *count);
                server.tables[*table].give_back(back.into_iter().map(|flight| flight.2).collect());
                return self.check_live(server, &self.model(*table).contents(), *table);
            }
            _ => {}
        }
        let (table, after, result, waits_for_disk) = self.change(server, op);
        let before = self.model(table).contents();
        // A lone update or receipt is not refused.
        assert!(waits_for_disk || result.is_ok(), "{op:?}: {result:?}");
        if was_closed && waits_for_disk {
            assert!(matches!(result, Err(Error::Storage(_))), "{op:?}: {result:?}");
            self.failures += 1;
            return self.check_live(server, &before, table);
        }
        let is_refused = result.is_err() && contents_of(server, table) == before;
        let model = if is_refused { self.model(table).clone() } else { after };
        self.check_live(server, &model.contents(), table);
        self.failures += u32::from(result.is_err());
        // Updates and receipts go on without a log, and are not in it then.
        let is_confirmed = result.is_ok() && (waits_for_disk || !server.is_closed());
        assert!(result.is_ok() || server.is_closed(), "{op:?}: {result:?}");
        self.past[table].push(Moment {
            model,
            confirmed_at: is_confirmed.then(|| disk.changes()),
            is_on_disk: waits_for_disk && self.mode == LogMode::Power,
        });
    }

    /// Makes a call that changes a table. Returns the table, what must become of it, the result, and whether the call
    /// waits for the disk where the mode asks for that.
    fn change(&mut self, server: &Server, op: &Op) -> (usize, Model, Result<()>, bool) {
        let (Op::Insert(table, ..)
        | Op::Update(table, _)
        | Op::Delete(table, _)
        | Op::Reset(table)
        | Op::SetSize(table, _)
        | Op::Receive(table, _)) = op
        else {
            let Op::Write(number, key) = op else { panic!("{op:?} changes nothing") };
            let mut model = self.model(PRIORITIZED).clone();
            model.write(*number, *key);
            return (PRIORITIZED, model, server.write(&[(*number, *key)]).remove(0), true);
        };
        let (table, mut model) = (*table, self.model(*table).clone());
        let handle = &server.tables[table];
        let mut waits_for_disk = true;
        let result = match op {
            Op::Insert(_, key, priority) => {
                model.insert(*key, *priority);
                insert_with(handle, *key, *priority)
            }
            Op::Update(_, updates) => {
                updates.iter().for_each(|(key, priority)| model.update(*key, *priority));
                waits_for_disk = false;
                handle.mutate(updates, &[]).map(drop)
            }
            Op::Delete(_, keys) => {
                keys.iter().for_each(|key| model.delete(*key));
                handle.mutate(&[], keys).map(drop)
            }
            Op::Reset(_) => {
                model.reset();
                handle.reset()
            }
            Op::SetSize(_, size) => {
                model.set_size(*size);
                handle.configure(&TableChanges { max_size: Some(*size), ..TableChanges::default() })
            }
            Op::Receive(_, count) => {
                let received = self.take_flights(table, *count);
                received.iter().for_each(|flight| model.receive(flight.1));
                waits_for_disk = false;
                handle.delivered(&received.into_iter().map(|flight| flight.2).collect::<Vec<_>>())
            }
            op => panic!("{op:?} names no table"),
        };
        (table, model, result, waits_for_disk)
    }

    /// Draws as many items as there are. That never waits for the log.
    fn draw(&mut self, server: &Server, table: usize, count: usize) {
        let count =
            if table < QUEUE { count } else { self.model(table).next_draws(&self.in_flight(table), count).len() };
        if count == 0 || self.model(table).keys().is_empty() {
            return;
        }
        let Call::Done(drawn) = server.tables[table].sample(exactly(count), here()) else { panic!("the draw waits") };
        let drawn = drawn.unwrap();
        let keys: Vec<_> = drawn.iter().map(|draw| draw.key).collect();
        if table >= QUEUE {
            assert_eq!(keys, self.model(table).next_draws(&self.in_flight(table), count));
        }
        let serials: Vec<_> = keys.iter().map(|key| self.model(table).serial_of(*key)).collect();
        self.flights.extend(serials.into_iter().zip(drawn).map(|(serial, drawn)| Flight(table, serial, drawn)));
        self.check_live(server, &self.model(table).contents(), table);
    }

    fn take_flights(&mut self, table: usize, count: usize) -> Vec<Flight> {
        let mut left = count;
        let is_taken = |flight: &mut Flight| {
            let is_taken = flight.0 == table && left > 0;
            left -= usize::from(is_taken);
            is_taken
        };
        self.flights.extract_if(.., is_taken).collect()
    }

    /// Saves. What it confirms is on disk, also what was not confirmed before. The log may fail while it is saved.
    fn save(&mut self, server: &Server, disk: &CrashDisk) {
        let result = server.store.save(&server.tables);
        (0..4).for_each(|table| self.check_live(server, &self.model(table).contents(), table));
        if result.is_err() {
            self.failures += 1;
            return;
        }
        for past in &mut self.past {
            let model = past.last().unwrap().model.clone();
            past.push(Moment { model, confirmed_at: Some(disk.changes()), is_on_disk: true });
        }
    }

    fn check_live(&self, server: &Server, expected: &Contents, table: usize) {
        assert_eq!(&contents_of(server, table), expected, "table {table} of the running server");
    }

    /// Checks what a restarted server has, and goes on from there. `synced` is how far the disk was synced when the power
    /// was lost; `None` if the process was killed.
    pub fn check_restarted(&self, server: &Server, synced: Option<u64>) -> Self {
        let past = (0..4).map(|table| {
            let found = contents_of(server, table);
            let past = &self.past[table];
            let survives = |moment: &Moment| {
                let covers = |at| synced.is_none_or(|synced| moment.is_on_disk || at <= synced);
                moment.confirmed_at.is_some_and(covers)
            };
            let least = past.iter().rposition(survives).unwrap();
            let mut there = past[least..].iter().filter(|moment| moment.model.contents() == found);
            let Some(moment) = there.next_back() else {
                let was = |moment: &Moment| format!("\n  {:?} {:?}", moment.confirmed_at, moment.model.contents());
                let all: String = past.iter().map(was).collect();
                panic!("table {table}, at least moment {least} of{all}\nis\n  {found:?}")
            };
            vec![Moment { confirmed_at: Some(0), is_on_disk: true, ..moment.clone() }]
        });
        Self { mode: self.mode, past: past.collect(), flights: Vec::new(), failures: 0 }
    }

    /// Checks what a server has whose log was set aside: nothing invented. The ledgers may have gone with the log.
    pub fn check_without_log(&self, server: &Server) {
        for (table, past) in self.past.iter().enumerate() {
            let found = contents_of(server, table).without_writers();
            let is_it = |moment: &Moment| moment.model.contents().without_writers() == found;
            assert!(past.iter().any(is_it), "table {table} never was {found:?}");
        }
    }
}
