//! A histogram in its simplest form.

use reverb_core::{LOG2_BUCKETS, Log2Histogram};

/// A histogram that searches its bounds.
#[derive(Debug, Clone, PartialEq)]
pub struct Plain {
    pub counts: [u64; LOG2_BUCKETS],
    pub sum: f64,
    first_bound: f64,
}

impl Plain {
    pub fn new(first_bound: f64) -> Self {
        Self { counts: [0; LOG2_BUCKETS], sum: 0.0, first_bound }
    }

    pub fn at(&mut self, value: f64) -> &mut u64 {
        let bounds = (0..LOG2_BUCKETS - 1).map(|bucket| self.first_bound * 2f64.powi(bucket as i32));
        let bucket = bounds.take_while(|bound| value > *bound).count();
        &mut self.counts[bucket]
    }

    pub fn add(&mut self, value: f64, weight: u64) {
        *self.at(value) += weight;
        self.sum += value * weight as f64;
    }

    pub fn check(&self, histogram: &Log2Histogram) {
        assert_eq!(histogram.counts, self.counts);
        assert!((histogram.sum - self.sum).abs() <= 1e-9 * self.sum, "{} is not {}", histogram.sum, self.sum);
        assert_eq!(histogram.bound(0), self.first_bound);
    }
}
