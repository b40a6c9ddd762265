//! The last minutes of a server, for the lines of its page.

use crate::documents::{self, HistoryDocument, TableHistoryDocument};
use parking_lot::Mutex;
use reverb_service::{Replay, TablePulse};
use std::collections::VecDeque;
use std::sync::Weak;
use std::time::{Duration, SystemTime};
use tokio::time::MissedTickBehavior;

/// Time between two points.
const PERIOD: Duration = Duration::from_secs(1);
// limit (HTTP, metrics and logs): points of a server's history | {}, {PERIOD} apart, of its first {MAX_TABLES}
// tables | the oldest are dropped
/// Maximum number of points that are kept.
const MAX_POINTS: usize = 300;
/// Maximum number of tables that are recorded.
const MAX_TABLES: usize = 64;

/// The last points, each with the number that follows the one before.
#[derive(Debug, Default)]
pub struct History(Mutex<Points>);

#[derive(Debug, Default)]
struct Points {
    /// Number of the last point. The first one has number 1.
    last: u64,
    kept: VecDeque<Point>,
}

/// What is recorded of a server each second.
#[derive(Debug)]
struct Point {
    at: f64,
    resident_bytes: Option<u64>,
    receive_bytes: u64,
    transmit_bytes: u64,
    tables: Vec<TablePulse>,
}

impl Point {
    fn new(replay: &Replay) -> Self {
        let (receive_bytes, transmit_bytes) = documents::traffic(replay);
        Self {
            at: documents::seconds(SystemTime::now()),
            resident_bytes: documents::resident_bytes(),
            receive_bytes,
            transmit_bytes,
            tables: replay.tables().iter().take(MAX_TABLES).map(|table| table.pulse()).collect(),
        }
    }
}

impl History {
    fn add(&self, point: Point) {
        let mut points = self.0.lock();
        points.last += 1;
        if points.kept.len() == MAX_POINTS {
            points.kept.pop_front();
        }
        points.kept.push_back(point);
    }

    /// Returns the points with numbers above `since`. A reader that is ahead has watched another server, and gets all.
    pub fn since(&self, since: u64) -> HistoryDocument {
        let points = self.0.lock();
        let known = if since > points.last { 0 } else { since };
        let new = (points.last - known).min(points.kept.len() as u64) as usize;
        let shown = || points.kept.iter().skip(points.kept.len() - new);
        let num_tables = points.kept.back().map_or(0, |point| point.tables.len());
        let table = |number: usize| {
            let pulses = || shown().filter_map(move |point| point.tables.get(number));
            TableHistoryDocument {
                number,
                items: pulses().map(|pulse| pulse.items).collect(),
                bytes: pulses().map(|pulse| pulse.bytes).collect(),
                inserts: pulses().map(|pulse| pulse.inserts).collect(),
                samples: pulses().map(|pulse| pulse.samples).collect(),
                diff: pulses().map(|pulse| documents::diff(&pulse.limiter)).collect(),
                waiting_inserts: pulses().map(|pulse| pulse.waiting_inserts as u64).collect(),
                waiting_samples: pulses().map(|pulse| pulse.waiting_samples as u64).collect(),
            }
        };
        HistoryDocument {
            next: points.last,
            times: shown().map(|point| point.at).collect(),
            resident_bytes: shown().map(|point| point.resident_bytes).collect(),
            receive_bytes: shown().map(|point| point.receive_bytes).collect(),
            transmit_bytes: shown().map(|point| point.transmit_bytes).collect(),
            tables: (0..num_tables).map(table).collect(),
        }
    }
}

/// Records a point each second until the service is closed, or nobody can read the history any more.
pub async fn record(history: Weak<History>, replay: Weak<Replay>) {
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let (Some(history), Some(replay)) = (history.upgrade(), replay.upgrade()) else { return };
        if replay.is_closed() {
            return;
        }
        // Not here, because tables may be locked for a while.
        let _panicked = tokio::task::spawn_blocking(move || history.add(Point::new(&replay))).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(number: u64) -> Point {
        let (at, bytes) = (number as f64, number);
        Point { at, resident_bytes: None, receive_bytes: bytes, transmit_bytes: bytes, tables: Vec::new() }
    }

    #[test]
    fn a_reader_gets_each_point_once_and_the_oldest_are_dropped() {
        let history = History::default();
        assert_eq!((history.since(0).next, history.since(7).times.len()), (0, 0));
        (1..=5).for_each(|number| history.add(point(number)));
        assert_eq!(history.since(0).times, [1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!((history.since(3).times, history.since(3).next), (vec![4.0, 5.0], 5));
        assert_eq!(history.since(5).times.len(), 0);
        assert_eq!(history.since(900).times.len(), 5, "of another server");
        (6..=1000).for_each(|number| history.add(point(number)));
        let all = history.since(0);
        assert_eq!((all.times.len(), all.times[0], all.next), (MAX_POINTS, 701.0, 1000));
        assert_eq!(history.since(690).receive_bytes.len(), MAX_POINTS);
        assert_eq!(history.since(990).transmit_bytes, (991..=1000).collect::<Vec<_>>());
    }
}
