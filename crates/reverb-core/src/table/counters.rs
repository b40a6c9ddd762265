//! Counts of what happens in a table.
//!
//! A checkpoint does not contain them, so those of a restored table start at 0. A reset does not clear them, and nothing
//! takes from them: what is undone is counted apart.

use super::figures::TableInfo;
use super::histograms::{LOG2_BUCKETS, Log2Histogram};
use crate::slab::Item;

/// Exponent of the first bound of ages: about a millisecond. The last bound is eight years.
const AGE_EXPONENT: i32 = -10;
/// Exponent of the first bound of numbers of draws. The bound is below 1, so that 0 has a bucket of its own.
const TIMES_EXPONENT: i32 = -1;

/// Number of draws whose ages are all counted.
const ALL_AGED: u64 = 256;
/// Of later draws, one of so many is counted.
const AGED_STEP: u64 = 16;

/// The counts of a table in the form in which they are cheap to add to.
#[derive(Debug, Default)]
pub(super) struct Counting {
    /// Number of times that the priority of an item was set after its insert, also by an insert under a key that the
    /// table has.
    pub(super) priority_updates: u64,
    /// Size in bytes of the rows of items that were inserted under a new key. Compressed rows count as stored.
    pub(super) insert_bytes: u64,
    /// Number of items inserted under a new key.
    pub(super) inserts: u64,
    /// Size in bytes of the rows of drawn items.
    pub(super) sample_bytes: u64,
    /// Number of draws that were undone.
    pub(super) returned_samples: u64,
    /// Number of items that came back because the draw that had removed them was undone.
    pub(super) returned_items: u64,
    /// Time stamp of the latest draw. 0 before the first. A draw that is given back keeps it.
    last_sample_nanos: u64,
    /// Number of draws.
    draws: u64,
    age_seconds: f64,
    /// Seconds between the insert of an item and a draw of it. Bucket 0 ends at 2^-10 s.
    ///
    /// All of the first 256 draws are in it, and then each 16th with a weight of 16: counts and sum are estimates for
    /// all draws. A draw that is given back stays in it. The clock of small batches advances in steps of some
    /// milliseconds.
    ages: Buckets,
    /// Number of draws that items had when they left the table. Bucket 0 has those without a draw, bucket 1 those with
    /// one.
    ///
    /// An item that comes back and leaves again is in it twice. Items of a reset are in it as soon as
    /// [`Table::count_old`](crate::Table::count_old) was called.
    removed: TimesSampled,
}

#[derive(Debug, Clone)]
struct Buckets([u64; LOG2_BUCKETS]);

impl Default for Buckets {
    fn default() -> Self {
        Self([0; LOG2_BUCKETS])
    }
}

/// Numbers of draws below this are counted one by one: this takes three instructions.
const FEW: usize = 64;

/// How often items were drawn before they left a table.
#[derive(Debug, Clone)]
pub(super) struct TimesSampled {
    /// Items by number of draws.
    few: [u64; FEW],
    /// Items with [`FEW`] draws or more.
    many: Buckets,
    many_sum: u64,
}

impl Default for TimesSampled {
    fn default() -> Self {
        Self { few: [0; FEW], many: Buckets::default(), many_sum: 0 }
    }
}

impl TimesSampled {
    #[inline]
    pub(super) fn add(&mut self, times_sampled: i32) {
        match self.few.get_mut(times_sampled as usize) {
            Some(count) => *count += 1,
            None => self.add_many(times_sampled),
        }
    }

    #[inline(never)]
    fn add_many(&mut self, times_sampled: i32) {
        self.many_sum += times_sampled as u64;
        self.many.0[times_bucket(times_sampled)] += 1;
    }

    fn add_all(&mut self, other: &Self) {
        self.few.iter_mut().zip(other.few).for_each(|(count, more)| *count += more);
        self.many.0.iter_mut().zip(other.many.0).for_each(|(count, more)| *count += more);
        self.many_sum += other.many_sum;
    }

    fn show(&self) -> Log2Histogram {
        let mut counts = self.many.0;
        let mut sum = self.many_sum;
        for (times, count) in (0_u64..).zip(self.few) {
            counts[times_bucket(times as i32)] += count;
            sum += times * count;
        }
        Log2Histogram { counts, sum: sum as f64, first_exponent: TIMES_EXPONENT }
    }

    pub(super) fn of<'a>(items: impl Iterator<Item = &'a Item>) -> Self {
        let mut all = Self::default();
        items.for_each(|item| all.add(item.times_sampled));
        all
    }
}

/// The bucket of a number of draws, which is not negative: 0 for 0, 1 for 1, 2 for 2, 3 for 3 and 4, 4 for 5 to 8, and so
/// on.
fn times_bucket(times_sampled: i32) -> usize {
    (4 * i64::from(times_sampled) - 1).max(1).ilog2() as usize
}

/// The bucket of an age.
#[inline]
fn age_bucket(seconds: f64) -> usize {
    // The exponent of the next power of two, which is the value itself if that is one: from the bits of the number just
    // below. Of 0, this is a very low exponent.
    let exponent = (seconds.to_bits().saturating_sub(1) >> (f64::MANTISSA_DIGITS - 1)) as i32 - f64::MAX_EXP + 2;
    (exponent - AGE_EXPONENT).clamp(0, LOG2_BUCKETS as i32 - 1) as usize
}

impl Counting {
    /// Number of draws.
    pub(super) fn draws(&self) -> u64 {
        self.draws
    }

    /// Counts draws that were just made, except for their bytes.
    #[inline]
    pub(super) fn count_draws(&mut self, count: usize, now_nanos: u64, inserted_at: impl Fn(usize) -> u64) {
        self.last_sample_nanos = now_nanos;
        let before = self.draws;
        self.draws += count as u64;
        let mut index = 0;
        if before < ALL_AGED {
            let all = count.min((ALL_AGED - before) as usize);
            (0..all).for_each(|index| self.count_age(now_nanos, inserted_at(index), 1));
            index = all;
        } else {
            index += (before.wrapping_neg() % AGED_STEP) as usize;
        }
        while index < count {
            self.count_age(now_nanos, inserted_at(index), AGED_STEP);
            index += AGED_STEP as usize;
        }
    }

    #[inline]
    fn count_age(&mut self, now_nanos: u64, inserted_at: u64, weight: u64) {
        // Stamps may be ahead of a clock that was set back, or that is read less often.
        let seconds = now_nanos.saturating_sub(inserted_at) as i64 as f64 / 1e9;
        self.age_seconds += seconds * weight as f64;
        self.ages.0[age_bucket(seconds)] += weight;
    }

    /// Counts an item that leaves the table.
    #[inline]
    pub(super) fn count_removed(&mut self, times_sampled: i32) {
        self.removed.add(times_sampled);
    }

    /// Counts the items of a reset.
    pub(super) fn count_all_removed(&mut self, items: &TimesSampled) {
        self.removed.add_all(items);
    }

    /// Sets the figures of what was counted.
    pub(super) fn tell(&self, info: &mut TableInfo) {
        info.unsampled_removals = Some(self.removed.few[0]);
        info.priority_updates = Some(self.priority_updates);
        info.insert_bytes = Some(self.insert_bytes);
        info.sample_bytes = Some(self.sample_bytes);
        info.process_inserts = Some(self.inserts);
        info.process_samples = Some(self.draws);
        info.returned_samples = Some(self.returned_samples);
        info.returned_items = Some(self.returned_items);
        info.last_sample_at = unix_seconds(self.last_sample_nanos);
        info.sample_age_seconds =
            Some(Log2Histogram { counts: self.ages.0, sum: self.age_seconds, first_exponent: AGE_EXPONENT });
        info.removed_times_sampled = Some(self.removed.show());
    }
}

/// Returns a time stamp in seconds. `None` for 0, which stands for none.
pub(super) fn unix_seconds(nanos: u64) -> Option<f64> {
    (nanos > 0).then_some(nanos as f64 / 1e9)
}
