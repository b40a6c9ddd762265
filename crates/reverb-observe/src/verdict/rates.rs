//! How fast tables and clients are, and how long the pauses of a table are.

use reverb_service::{Peer, PeerRates, Progress, TableRates, TableVerdict};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime};

/// Time over which rates are smoothed.
const RATE_TIME: f64 = 5.0;
/// Time over which the ratio of samples to inserts is smoothed.
const RATIO_TIME: f64 = 60.0;
/// The longest ordinary pause of a table that has had none. An evaluation or a long rollout has no other before it.
const ORDINARY: Duration = Duration::from_secs(60);
/// The number of ordinary pauses that a pause may last.
const PATIENCE: u32 = 10;

/// A rate of events. Each second weighs less than the one after it.
#[derive(Debug, Clone, Copy, Default)]
struct Smooth {
    sum: f64,
    weight: f64,
}

impl Smooth {
    fn add(&mut self, count: u64, elapsed: f64, time: f64) {
        let kept = (-elapsed / time).exp();
        self.sum = self.sum * kept + count as f64;
        self.weight = self.weight * kept + elapsed;
    }

    fn rate(&self) -> f64 {
        let rate = if self.weight > 0.0 { self.sum / self.weight } else { 0.0 };
        // What is left of events long past.
        if rate < 0.01 { 0.0 } else { rate }
    }
}

/// What a table has done so far.
#[derive(Debug)]
pub struct TableRecord {
    totals: (u64, u64),
    /// Time of the latest look, and of the latest that found progress.
    looked: Instant,
    moved: Instant,
    inserts: Smooth,
    samples: Smooth,
    of_ratio: (Smooth, Smooth),
    /// The longest pause that is not a stall, if the table was told.
    stall_after: Option<Duration>,
    /// The longest pause that has ended by itself, and the one that lasts.
    longest: Duration,
    pause: Duration,
}

impl TableRecord {
    pub fn new(started: Instant) -> Self {
        Self {
            totals: (0, 0),
            looked: started,
            moved: started,
            inserts: Smooth::default(),
            samples: Smooth::default(),
            of_ratio: Default::default(),
            stall_after: None,
            longest: Duration::ZERO,
            pause: Duration::ZERO,
        }
    }

    /// Adds what the table has counted by now.
    pub fn add(&mut self, inserts: u64, samples: u64, now: Instant) {
        let (before, elapsed) = (self.totals, now.duration_since(self.looked).as_secs_f64());
        let (more_inserts, more_samples) = (inserts.saturating_sub(before.0), samples.saturating_sub(before.1));
        self.inserts.add(more_inserts, elapsed, RATE_TIME);
        self.samples.add(more_samples, elapsed, RATE_TIME);
        self.of_ratio.0.add(more_inserts, elapsed, RATIO_TIME);
        self.of_ratio.1.add(more_samples, elapsed, RATIO_TIME);
        if more_inserts + more_samples > 0 {
            self.moved = now;
        }
        (self.totals, self.looked) = ((inserts, samples), now);
    }

    /// Learns from the pauses of the table which are ordinary: those that end before they are stalls.
    pub fn note(&mut self, verdict: &TableVerdict) {
        match (verdict.progress, verdict.paused) {
            (Progress::Stalled, _) => self.pause = Duration::ZERO,
            (_, Some(paused)) if paused >= self.pause => self.pause = paused,
            _ => {
                self.longest = self.longest.max(self.pause);
                self.pause = verdict.paused.unwrap_or_default();
            }
        }
    }

    /// Sets the longest pause that is not a stall. `None` learns it.
    pub fn set_stall_after(&mut self, pause: Option<Duration>) {
        self.stall_after = pause;
    }

    /// Time without progress.
    pub fn still(&self, now: Instant) -> Duration {
        now.duration_since(self.moved)
    }

    pub fn rates(&self) -> TableRates {
        let (inserts, samples) = (self.of_ratio.0.rate(), self.of_ratio.1.rate());
        TableRates {
            inserts_per_second: self.inserts.rate(),
            samples_per_second: self.samples.rate(),
            ratio: (inserts > 0.0).then(|| samples / inserts),
            stall_after: self.stall_after.unwrap_or(PATIENCE * self.longest.max(ORDINARY)),
        }
    }
}

/// What a peer has done so far.
#[derive(Debug)]
pub struct PeerRecord {
    counts: [u64; 3],
    looked: Instant,
    heard: Instant,
    moved: Instant,
    inserts: Smooth,
    samples: Smooth,
}

impl PeerRecord {
    pub fn new(now: Instant) -> Self {
        Self {
            counts: [0; 3],
            looked: now,
            heard: now,
            moved: now,
            inserts: Smooth::default(),
            samples: Smooth::default(),
        }
    }

    /// Adds what the peer has done by now.
    pub fn add(&mut self, peer: &Peer, now: Instant) {
        let elapsed = now.duration_since(self.looked).as_secs_f64();
        let traffic = &peer.traffic;
        let counts = [&traffic.inserts, &traffic.samples, &traffic.receive_bytes].map(|count| count.load(Relaxed));
        let [inserts, samples, bytes] = [0, 1, 2].map(|index| counts[index].saturating_sub(self.counts[index]));
        self.inserts.add(inserts, elapsed, RATE_TIME);
        self.samples.add(samples, elapsed, RATE_TIME);
        // In the process of the server there are no bytes.
        if inserts + samples + bytes > 0 {
            self.heard = now;
        }
        if inserts + samples > 0 {
            self.moved = now;
        }
        (self.counts, self.looked) = (counts, now);
    }

    /// Time since it inserted or drew anything.
    pub fn still(&self, now: Instant) -> Duration {
        now.duration_since(self.moved)
    }

    pub fn rates(&self, now: Instant, clock: SystemTime) -> PeerRates {
        PeerRates {
            inserts_per_second: self.inserts.rate(),
            samples_per_second: self.samples.rate(),
            last_seen: clock.checked_sub(now.duration_since(self.heard)).unwrap_or(clock),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reverb_service::Level;

    fn second(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn rates_follow_what_is_counted_and_fall_to_zero() {
        let start = Instant::now();
        let mut record = TableRecord::new(start);
        for tick in 1..=60 {
            record.add(tick * 100, tick * 800, start + second(tick));
        }
        let rates = record.rates();
        assert!((rates.inserts_per_second - 100.0).abs() < 1.0, "{rates:?}");
        assert!((rates.samples_per_second - 800.0).abs() < 8.0, "{rates:?}");
        assert!((rates.ratio.unwrap() - 8.0).abs() < 0.01, "{rates:?}");
        for tick in 61..=180 {
            record.add(6000, 48_000, start + second(tick));
        }
        assert_eq!((record.rates().inserts_per_second, record.rates().samples_per_second), (0.0, 0.0));
        assert_eq!(record.still(start + second(180)), second(120));
    }

    #[test]
    fn pauses_that_end_by_themselves_are_ordinary_and_stalls_are_not() {
        let mut record = TableRecord::new(Instant::now());
        let verdict = |progress, paused: Option<u64>| TableVerdict {
            progress,
            level: Level::Quiet,
            paused: paused.map(second),
            cause: String::new(),
        };
        assert_eq!(record.rates().stall_after, second(600), "at first");
        (0..=40).for_each(|paused| record.note(&verdict(Progress::Waiting, Some(paused))));
        record.note(&verdict(Progress::Flowing, None));
        assert_eq!(record.rates().stall_after, second(600), "40 s are short");
        (0..=90).for_each(|paused| record.note(&verdict(Progress::Waiting, Some(paused))));
        assert_eq!(record.rates().stall_after, second(600), "the pause lasts");
        record.note(&verdict(Progress::Flowing, None));
        assert_eq!(record.rates().stall_after, second(900));
        (0..=900).for_each(|paused| record.note(&verdict(Progress::Waiting, Some(paused))));
        record.note(&verdict(Progress::Stalled, Some(901)));
        record.note(&verdict(Progress::Flowing, None));
        assert_eq!(record.rates().stall_after, second(900), "a stall is not ordinary");
        record.set_stall_after(Some(second(30)));
        assert_eq!(record.rates().stall_after, second(30), "the table was told");
    }
}
