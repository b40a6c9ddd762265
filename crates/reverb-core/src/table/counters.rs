//! Counts of what happened in a table.

use crate::slab::Item;

/// Counts of a table since it was created, beside those of its rate limiter and of its removals.
///
/// A checkpoint does not contain them, so those of a restored table start at 0. A reset does not clear them.
#[derive(Debug, Clone)]
pub struct TableCounters {
    /// Number of times that the priority of an item was set after its insert, also by an insert under a key that the
    /// table has.
    pub priority_updates: u64,
    /// Size in bytes of the rows of items that were inserted under a new key. Compressed rows count as stored.
    pub insert_bytes: u64,
    /// Size in bytes of the rows of drawn items. Draws that were given back do not count, as in the rate limiter.
    pub sample_bytes: u64,
    /// Number of items that left the table without a draw.
    pub unsampled_removals: u64,
    /// Time stamp of the latest insert in nanoseconds since the Unix epoch; see [`Table::insert`](crate::Table::insert).
    /// 0 before the first.
    pub last_insert_nanos: u64,
    /// Time of the latest draw in nanoseconds since the Unix epoch. 0 before the first. A draw that is given back keeps
    /// it.
    pub last_sample_nanos: u64,
    /// Seconds between the insert of an item and a draw of it. Bucket 0 ends at 2^-10 s.
    ///
    /// All of the first 256 draws are in it, and then each 16th with a weight of 16: counts and sum are estimates for
    /// all draws. A draw that is given back stays in it. The clock of small batches advances in steps of some
    /// milliseconds.
    pub sample_age_seconds: Log2Histogram,
    /// Number of draws that items had when they left the table. Bucket 0 has those without a draw, bucket 1 those with
    /// one.
    ///
    /// A draw that removed its item and is given back takes it out again. Items of a reset are in it as soon as
    /// [`Table::count_old`](crate::Table::count_old) was called.
    pub removed_times_sampled: Log2Histogram,
}

impl Default for TableCounters {
    fn default() -> Self {
        Self {
            priority_updates: 0,
            insert_bytes: 0,
            sample_bytes: 0,
            unsampled_removals: 0,
            last_insert_nanos: 0,
            last_sample_nanos: 0,
            sample_age_seconds: Log2Histogram { first_exponent: AGE_EXPONENT, ..Log2Histogram::default() },
            removed_times_sampled: Log2Histogram { first_exponent: TIMES_EXPONENT, ..Log2Histogram::default() },
        }
    }
}

/// Number of buckets of a [`Log2Histogram`].
pub const LOG2_BUCKETS: usize = 40;

/// Exponent of the first bound of ages: about a millisecond. The last bound is eight years.
const AGE_EXPONENT: i32 = -10;
/// Exponent of the first bound of numbers of draws. The bound is below 1, so that 0 has a bucket of its own.
const TIMES_EXPONENT: i32 = -1;

/// A histogram whose bucket bounds are powers of two.
#[derive(Debug, Clone, PartialEq)]
pub struct Log2Histogram {
    /// Numbers of values by bucket. Bucket 0 counts values up to [`Log2Histogram::bound`] of 0. Bucket `i` counts values
    /// above the bound of `i - 1`, up to the bound of `i`. The last bucket has no upper bound.
    pub counts: [u64; LOG2_BUCKETS],
    /// Sum of the values.
    pub sum: f64,
    /// Binary exponent of the bound of bucket 0.
    pub first_exponent: i32,
}

impl Default for Log2Histogram {
    fn default() -> Self {
        Self { counts: [0; LOG2_BUCKETS], sum: 0.0, first_exponent: 0 }
    }
}

impl Log2Histogram {
    /// Returns the upper bound of a bucket; infinity for the last one.
    pub fn bound(&self, bucket: usize) -> f64 {
        if bucket + 1 >= LOG2_BUCKETS { f64::INFINITY } else { 2f64.powi(self.first_exponent + bucket as i32) }
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// Number of draws whose ages are all counted.
const ALL_AGED: u64 = 256;
/// Of later draws, one of so many is counted.
const AGED_STEP: u64 = 16;

/// The counts of a table in the form in which they are cheap to add to.
#[derive(Debug, Default)]
pub(super) struct Counting {
    pub(super) priority_updates: u64,
    pub(super) insert_bytes: u64,
    pub(super) sample_bytes: u64,
    last_sample_nanos: u64,
    /// Number of draws, including those that were given back.
    draws: u64,
    age_seconds: f64,
    ages: Buckets,
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

    /// Takes back [`TimesSampled::add`].
    pub(super) fn subtract(&mut self, times_sampled: i32) {
        match self.few.get_mut(times_sampled as usize) {
            Some(count) => *count -= 1,
            None => {
                self.many_sum -= times_sampled as u64;
                self.many.0[times_bucket(times_sampled)] -= 1;
            }
        }
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

    /// Takes back a draw that removed its item.
    pub(super) fn uncount_removed(&mut self, times_sampled: i32) {
        self.removed.subtract(times_sampled);
    }

    /// Counts the items of a reset.
    pub(super) fn count_all_removed(&mut self, items: &TimesSampled) {
        self.removed.add_all(items);
    }

    /// The counts of what happened.
    pub(super) fn show(&self, last_insert_nanos: u64) -> TableCounters {
        let Self { priority_updates, insert_bytes, sample_bytes, last_sample_nanos, .. } = *self;
        let (counts, sum) = (self.ages.0, self.age_seconds);
        TableCounters {
            priority_updates,
            insert_bytes,
            sample_bytes,
            unsampled_removals: self.removed.few[0],
            last_insert_nanos,
            last_sample_nanos,
            sample_age_seconds: Log2Histogram { counts, sum, first_exponent: AGE_EXPONENT },
            removed_times_sampled: self.removed.show(),
        }
    }
}
