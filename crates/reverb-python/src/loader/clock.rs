//! `reverb._rust.StatsClock`.

use parking_lot::Mutex;
use pyo3::prelude::*;
use std::time::Instant;

/// Adds up the times of a `reverb.loaders.LoaderStats`.
#[pyclass(frozen, module = "reverb._rust")]
#[derive(Default)]
pub struct StatsClock(Mutex<Stats>);

/// Times in seconds.
#[derive(Default)]
struct Stats {
    batches: u64,
    samples: u64,
    limiter: f64,
    network: f64,
    convert: f64,
    learner: f64,
    /// The time up to which all time is accounted for; `None` until the first batch is requested.
    mark: Option<Instant>,
}

impl Stats {
    fn lap(&mut self, now: Instant) -> f64 {
        self.mark.replace(now).map_or(0.0, |mark| (now - mark).as_secs_f64())
    }
}

impl StatsClock {
    /// Counts a batch that was drawn without waiting and now goes to the learner, which asked for it at `asked`.
    pub fn at_once(&self, asked: Instant, arrived: Instant, samples: usize) {
        let mut stats = self.0.lock();
        stats.learner += stats.lap(asked);
        stats.network += stats.lap(arrived);
        stats.convert += stats.lap(Instant::now());
        stats.batches += 1;
        stats.samples += samples as u64;
    }
}

#[pymethods]
impl StatsClock {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    #[getter]
    pub fn batches(&self) -> u64 {
        self.0.lock().batches
    }

    fn asked(&self) {
        let mut stats = self.0.lock();
        stats.learner += stats.lap(Instant::now());
    }

    fn arrived(&self, limiter_s: f64, total_s: f64) {
        let mut stats = self.0.lock();
        let waited = stats.lap(Instant::now());
        // The draw waits for its table first. The part of that before the learner asked has cost the learner nothing.
        let before = (total_s - waited).max(0.0);
        let limiter = (limiter_s - before).clamp(0.0, waited);
        stats.limiter += limiter;
        stats.network += waited - limiter;
    }

    fn converted(&self) {
        let mut stats = self.0.lock();
        stats.convert += stats.lap(Instant::now());
    }

    fn given(&self, samples: u64) {
        let mut stats = self.0.lock();
        stats.batches += 1;
        stats.samples += samples;
    }

    /// In the order of the fields of `LoaderStats`.
    fn stats(&self) -> (u64, u64, f64, f64, f64, f64) {
        let stats = self.0.lock();
        (stats.batches, stats.samples, stats.limiter, stats.network, stats.convert, stats.learner)
    }
}
