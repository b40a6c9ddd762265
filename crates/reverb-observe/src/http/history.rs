//! The last hour of a server, for the charts of its page.

use super::events::{MAX_CHARACTERS, OF_CLIENTS, Watcher};
use crate::documents::{self, EventDocument, HistoryDocument, TableHistoryDocument};
use parking_lot::Mutex;
use reverb_service::{Replay, TablePulse};
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};
use tokio::time::MissedTickBehavior;

/// Time between two points.
const PERIOD: Duration = Duration::from_secs(1);
// limit (HTTP, metrics and logs): points of a server's history | {}, {PERIOD} apart, and before them {MAX_OLD},
// {STEP} times as far apart, of its first {MAX_TABLES} tables | the oldest are dropped
/// Maximum number of points that are kept as they are recorded.
const MAX_NEW: usize = 300;
/// Of older points, those whose number is a multiple of this are kept.
const STEP: u64 = 10;
/// Maximum number of older points: with the others, those of an hour.
const MAX_OLD: usize = 330;
/// Maximum number of tables that are recorded.
const MAX_TABLES: usize = 64;
// limit (HTTP, metrics and logs): events of a server's history | {} of at most {events.rs:MAX_CHARACTERS} characters |
// the oldest are dropped, those of clients first
/// Maximum number of events that are kept.
const MAX_EVENTS: usize = 512;
// limit (HTTP, metrics and logs): bytes of a server's history | {:bytes} | its other limits keep it below
/// Maximum size in bytes of a history.
const MAX_BYTES: usize = 4 << 20;

/// The size of a full history: queues grow to powers of two, and a character has up to four bytes.
const FULL_BYTES: usize = (MAX_NEW.next_power_of_two() + MAX_OLD.next_power_of_two()) * size_of::<Point>()
    + (MAX_NEW + MAX_OLD) * MAX_TABLES * size_of::<TablePoint>()
    + MAX_EVENTS.next_power_of_two() * (size_of::<(u64, EventDocument)>() + 4 * MAX_CHARACTERS);
const _: () = assert!(FULL_BYTES <= MAX_BYTES);

/// The last points and events.
#[derive(Debug, Default)]
pub struct History(Mutex<Points>);

#[derive(Debug, Default)]
struct Points {
    /// Number of the last point. The first one has number 1.
    last: u64,
    /// The points before `new`, thinned out.
    old: VecDeque<Point>,
    new: VecDeque<Point>,
    /// Events, each with the number of the first point that is not before it.
    events: VecDeque<(u64, EventDocument)>,
}

/// What is recorded of a server each second.
#[derive(Debug)]
struct Point {
    number: u64,
    at: f64,
    resident_bytes: Option<u64>,
    receive_bytes: u64,
    transmit_bytes: u64,
    tables: Box<[TablePoint]>,
}

/// What is recorded of a table.
#[derive(Debug)]
struct TablePoint {
    items: u64,
    bytes: u64,
    inserts: u64,
    samples: u64,
    diff: f64,
    waiting_inserts: u32,
    waiting_samples: u32,
}

impl From<TablePulse> for TablePoint {
    fn from(pulse: TablePulse) -> Self {
        Self {
            items: pulse.items,
            bytes: pulse.bytes,
            inserts: pulse.inserts,
            samples: pulse.samples,
            diff: pulse.limiter.balance(),
            waiting_inserts: pulse.waiting_inserts as u32,
            waiting_samples: pulse.waiting_samples as u32,
        }
    }
}

impl Point {
    fn new(replay: &Replay) -> Self {
        let (receive_bytes, transmit_bytes) = documents::traffic(replay);
        Self {
            number: 0,
            at: documents::seconds(SystemTime::now()),
            resident_bytes: documents::resident_bytes(),
            receive_bytes,
            transmit_bytes,
            tables: replay.tables().iter().take(MAX_TABLES).map(|table| table.pulse().into()).collect(),
        }
    }
}

impl Points {
    fn add(&mut self, point: Point) {
        self.last += 1;
        if self.new.len() == MAX_NEW
            && let Some(point) = self.new.pop_front()
            && point.number.is_multiple_of(STEP)
        {
            if self.old.len() == MAX_OLD {
                self.old.pop_front();
            }
            self.old.push_back(point);
        }
        self.new.push_back(Point { number: self.last, ..point });
    }

    fn add_event(&mut self, event: EventDocument) {
        if self.events.len() == MAX_EVENTS {
            let of_clients = self.events.iter().position(|(_, event)| OF_CLIENTS.contains(&event.kind));
            self.events.remove(of_clients.unwrap_or(0));
        }
        self.events.push_back((self.last, event));
    }
}

impl History {
    /// Adds a point, and the events since the one before.
    fn add(&self, point: Point, events: Vec<EventDocument>) {
        let mut points = self.0.lock();
        points.add(point);
        events.into_iter().for_each(|event| points.add_event(event));
    }

    /// Returns the points and events with numbers above `since`. A reader that is ahead has watched another server, and
    /// gets all.
    pub fn since(&self, since: u64) -> HistoryDocument {
        let points = self.0.lock();
        let known = if since > points.last { 0 } else { since };
        let shown: Vec<_> = points.old.iter().chain(&points.new).filter(|point| point.number > known).collect();
        let num_tables = points.new.back().map_or(0, |point| point.tables.len());
        let table = |number: usize| {
            let tables = || shown.iter().filter_map(move |point| point.tables.get(number));
            TableHistoryDocument {
                number,
                items: tables().map(|table| table.items).collect(),
                bytes: tables().map(|table| table.bytes).collect(),
                inserts: tables().map(|table| table.inserts).collect(),
                samples: tables().map(|table| table.samples).collect(),
                diff: tables().map(|table| table.diff).collect(),
                waiting_inserts: tables().map(|table| table.waiting_inserts.into()).collect(),
                waiting_samples: tables().map(|table| table.waiting_samples.into()).collect(),
            }
        };
        let events = points.events.iter().filter(|(number, _)| *number > known);
        HistoryDocument {
            next: points.last,
            times: shown.iter().map(|point| point.at).collect(),
            resident_bytes: shown.iter().map(|point| point.resident_bytes).collect(),
            receive_bytes: shown.iter().map(|point| point.receive_bytes).collect(),
            transmit_bytes: shown.iter().map(|point| point.transmit_bytes).collect(),
            tables: (0..num_tables).map(table).collect(),
            events: events.map(|(_, event)| event.clone()).collect(),
        }
    }
}

/// Records a point each second until the service is closed, or nobody can read the history any more.
pub async fn record(history: Weak<History>, replay: Weak<Replay>) {
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let watcher = Arc::new(Mutex::new(Watcher::default()));
    loop {
        ticks.tick().await;
        let (Some(history), Some(replay)) = (history.upgrade(), replay.upgrade()) else { return };
        if replay.is_closed() {
            return;
        }
        // Not here, because tables may be locked for a while.
        let watcher = watcher.clone();
        let look = move || {
            let events = watcher.lock().look(&replay);
            history.add(Point::new(&replay), events);
        };
        let _panicked = tokio::task::spawn_blocking(look).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(number: u64) -> Point {
        let (at, bytes) = (number as f64, number);
        Point {
            number: 0,
            at,
            resident_bytes: None,
            receive_bytes: bytes,
            transmit_bytes: bytes,
            tables: Box::default(),
        }
    }

    fn event(kind: &'static str, number: usize) -> EventDocument {
        EventDocument { at: number as f64, kind, table: None, text: String::new() }
    }

    fn recorded(numbers: std::ops::RangeInclusive<u64>) -> History {
        let history = History::default();
        numbers.for_each(|number| history.add(point(number), Vec::new()));
        history
    }

    #[test]
    fn a_reader_gets_each_point_once_and_the_oldest_are_dropped() {
        let history = History::default();
        assert_eq!((history.since(0).next, history.since(7).times.len()), (0, 0));
        let history = recorded(1..=5);
        assert_eq!(history.since(0).times, [1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!((history.since(3).times, history.since(3).next), (vec![4.0, 5.0], 5));
        assert_eq!(history.since(5).times.len(), 0);
        assert_eq!(history.since(900).times.len(), 5, "of another server");
        assert_eq!(recorded(1..=1000).since(990).transmit_bytes, (991..=1000).collect::<Vec<_>>());
    }

    #[test]
    fn the_last_minutes_are_whole_and_the_hour_before_is_thinned_out() {
        let times = recorded(1..=5000).since(0).times;
        assert_eq!((times.len(), times[0], times[1]), (MAX_NEW + MAX_OLD, 1410.0, 1420.0));
        assert_eq!(times[MAX_OLD - 1..MAX_OLD + 2], [4700.0, 4701.0, 4702.0]);
        assert!(5000.0 - times[0] >= 3585.0, "about an hour");
        let late = recorded(1..=5000).since(4655).times;
        assert_eq!((late.len(), late[0], late[5]), (MAX_NEW + 5, 4660.0, 4701.0), "of a reader that was away");
    }

    #[test]
    fn events_are_read_once_and_those_of_clients_give_way() {
        let history = History::default();
        history.add(point(1), vec![event("start", 0), event("client_came", 1)]);
        history.add(point(2), vec![event("save", 2)]);
        let kinds = |since| history.since(since).events.iter().map(|event| event.kind).collect::<Vec<_>>();
        assert_eq!(kinds(0), ["start", "client_came", "save"]);
        assert_eq!(kinds(1), ["save"]);
        assert!(kinds(2).is_empty());
        history.add(point(3), (0..MAX_EVENTS).map(|number| event("client_left", number)).collect());
        let kept = history.since(0).events;
        assert_eq!(kept.len(), MAX_EVENTS);
        assert_eq!((kept[0].kind, kept[1].kind, kept[2].at), ("start", "save", 2.0));
    }
}
