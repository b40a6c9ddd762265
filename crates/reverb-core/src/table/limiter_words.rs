//! What a rate limiter allows, in numbers and in words for people: how far the actors, who insert, may be ahead of the
//! learner, who samples, and what each side waits for.
//!
//! All texts about limiters are made here: those of the page, `reverb top`, `reverb info`, the log, errors and documents.

use super::config::TableConfig;
use crate::words::{counted, may_go, more, number};
use crate::{RateLimiter, RateLimiterConfig, SelectorKind};

/// How a rate limiter is made, as people see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimiterKind {
    /// Samples wait until the table has enough items. Nothing else waits.
    MinSize,
    /// Each item is delivered once, oldest first.
    Queue,
    /// Each item is delivered once, newest first.
    Stack,
    /// Samples and inserts keep a ratio.
    Ratio,
}

impl LimiterKind {
    /// Returns the name of the kind.
    pub fn name(self) -> &'static str {
        match self {
            Self::MinSize => "min_size",
            Self::Queue => "queue",
            Self::Stack => "stack",
            Self::Ratio => "ratio",
        }
    }
}

/// A rate limiter at one moment, with the table that it limits.
#[derive(Debug, Clone, Copy)]
pub struct LimiterView<'a> {
    /// The definition of the table.
    pub table: &'a TableConfig,
    /// What the limiter has counted.
    pub limiter: &'a RateLimiter,
    /// Number of items in the table.
    pub items: u64,
}

/// How many items the first request of each side waits for. `None` for a side where none waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WaitingBatches {
    /// Of the first insert.
    pub inserts: Option<u64>,
    /// Of the first draw.
    pub samples: Option<u64>,
}

impl LimiterView<'_> {
    fn config(&self) -> &RateLimiterConfig {
        &self.limiter.config
    }

    fn size(&self) -> i64 {
        self.limiter.inserts.saturating_sub(self.limiter.deletes)
    }

    /// Number of samples that inserts have allowed, less those that were made.
    pub fn diff(&self) -> f64 {
        self.limiter.balance()
    }

    /// Returns how the limiter is made.
    pub fn kind(&self) -> LimiterKind {
        let RateLimiterConfig { samples_per_insert, min_size_to_sample, min_diff, max_diff } = *self.config();
        let gives_each_once = self.table.max_times_sampled == 1
            && (samples_per_insert, min_size_to_sample, min_diff) == (1.0, 1, 0.0)
            && max_diff < f64::MAX;
        match (&self.table.sampler, gives_each_once) {
            (SelectorKind::Fifo, true) => LimiterKind::Queue,
            (SelectorKind::Lifo, true) => LimiterKind::Stack,
            _ if self.config().counts_samples() => LimiterKind::Ratio,
            _ => LimiterKind::MinSize,
        }
    }

    /// Number of items by which the actors are ahead of the learner: inserts beyond those that its samples stand for.
    /// Negative if the learner is ahead. `None` if the limiter keeps no ratio.
    pub fn ahead(&self) -> Option<f64> {
        (self.kind() == LimiterKind::Ratio).then(|| self.diff() / self.config().samples_per_insert)
    }

    /// The most that [`LimiterView::ahead`] may be. `None` without such a bound.
    pub fn most_ahead(&self) -> Option<f64> {
        self.config().most_ahead().filter(|_| self.kind() == LimiterKind::Ratio)
    }

    /// The least that [`LimiterView::ahead`] may be. `None` without such a bound.
    pub fn least_ahead(&self) -> Option<f64> {
        self.config().least_ahead().filter(|_| self.kind() == LimiterKind::Ratio)
    }

    /// Number of inserts that may go now. `None` if it is not limited.
    pub fn inserts_allowed(&self) -> Option<u64> {
        let config = self.config();
        if config.max_diff >= f64::MAX {
            return None;
        }
        let refill = config.min_size_to_sample.saturating_sub(self.size()).max(0);
        let within = ((config.max_diff - self.diff()) / config.samples_per_insert).floor() as i64;
        Some(exact(refill.max(within), |count| self.limiter.can_insert(count)))
    }

    /// Number of samples that may go now. `None` if it is not limited.
    pub fn samples_allowed(&self) -> Option<u64> {
        let config = self.config();
        if self.items == 0 || self.size() < config.min_size_to_sample {
            return Some(0);
        }
        let by_diff = (config.min_diff > -f64::MAX).then(|| {
            let within = (self.diff() - config.min_diff).floor() as i64;
            exact(within, |count| self.limiter.can_sample(count))
        });
        // Each draw takes an item, until there are too few of them.
        let by_size = (self.table.max_times_sampled == 1).then(|| {
            let last = self.size().saturating_sub(config.min_size_to_sample).saturating_add(1);
            u64::try_from(last).unwrap_or(0).min(self.items)
        });
        by_diff.into_iter().chain(by_size).min()
    }

    /// Number of items that the table lacks before the first sample may go.
    pub fn missing_items(&self) -> u64 {
        let missing = self.config().min_size_to_sample.saturating_sub(self.size());
        u64::try_from(missing).unwrap_or(0).max(u64::from(self.items == 0))
    }

    /// Number of inserts after which `samples` samples may go, if nothing else happens.
    pub fn inserts_until(&self, samples: u64) -> u64 {
        let RateLimiterConfig { samples_per_insert, min_diff, .. } = *self.config();
        let by_ratio = (min_diff + samples as f64 - self.diff()) / samples_per_insert;
        let by_ratio = least(by_ratio, |inserts| {
            let after = self.limiter.inserts.saturating_add(inserts) as f64 * samples_per_insert;
            after - self.limiter.samples as f64 - samples as f64 >= min_diff
        });
        // Each insert allows one sample of a table that gives each item once.
        let by_size = if self.table.max_times_sampled == 1 { samples.saturating_sub(self.items) } else { 0 };
        by_ratio.max(self.missing_items()).max(by_size)
    }

    /// Number of samples after which `inserts` inserts may go, if nothing else happens.
    pub fn samples_until(&self, inserts: u64) -> u64 {
        let RateLimiterConfig { samples_per_insert, max_diff, .. } = *self.config();
        least(self.diff() + inserts as f64 * samples_per_insert - max_diff, |samples| {
            let after = self.limiter.inserts.saturating_add_unsigned(inserts) as f64 * samples_per_insert;
            after - self.limiter.samples.saturating_add(samples) as f64 <= max_diff
        })
    }

    /// Says what may go now. Of a side that waits, what the batch of its first request waits for.
    pub fn sentence(&self, waiting: WaitingBatches) -> String {
        if self.both_wait() {
            return format!("neither a sample nor an insert may go: {BUFFER_TOO_SMALL}");
        }
        let (inserts, samples) = (self.inserts_allowed(), self.samples_allowed());
        if let Some(batch) = held_back(waiting.samples, samples) {
            return self.until_samples_go(batch).unwrap_or_else(|| format!("{}; {ABOUT_TO_GO}", self.state()));
        }
        if let Some(batch) = held_back(waiting.inserts, inserts) {
            return format!("{}; {}", self.state(), self.until_inserts_go(batch));
        }
        if self.delivers_once() {
            let (items, room) = (samples.unwrap_or_default(), inserts.unwrap_or_default());
            return format!("{} may be taken; room for {} more", counted(items, "item"), number(room));
        }
        let state = self.state();
        match (samples.map(|count| more(count, "sample")), inserts.map(|count| more(count, "insert"))) {
            (None, None) => "samples and inserts are not limited".into(),
            (Some(samples), Some(inserts)) => format!("{state}; {samples} or {inserts} may go"),
            (Some(samples), None) => format!("{state}; {samples} may go, inserts are not limited"),
            (None, Some(inserts)) => format!("{state}; {inserts} may go, samples are not limited"),
        }
    }

    /// Says what an insert of `items` items waits for, as the end of a sentence.
    pub fn insert_waits_for(&self, items: u64) -> String {
        if self.both_wait() {
            return format!("no sample may go either: {BUFFER_TOO_SMALL}");
        }
        match self.samples_until(items) {
            0 => ABOUT_TO_GO.into(),
            _ if self.delivers_once() => format!("{}; {}", self.state(), self.until_inserts_go(items)),
            _ => format!("{}; {}", self.until_inserts_go(items), self.config().insert_bound()),
        }
    }

    /// Says what a draw of `samples` samples waits for, as the end of a sentence.
    pub fn sample_waits_for(&self, samples: u64) -> String {
        if self.both_wait() {
            return format!("no insert may go either: {BUFFER_TOO_SMALL}");
        }
        match self.kind() {
            LimiterKind::Ratio if self.missing_items() == 0 => match self.inserts_until(samples) {
                0 => ABOUT_TO_GO.into(),
                inserts => format!("{}; {}", until_samples(inserts, samples), self.config().sample_bound()),
            },
            _ => self.until_samples_go(samples).unwrap_or_else(|| ABOUT_TO_GO.into()),
        }
    }

    /// Says how the table is, and how many inserts a batch of samples waits for. `None` if it waits for none.
    fn until_samples_go(&self, batch: u64) -> Option<String> {
        let missing = self.missing_items();
        match self.inserts_until(batch) {
            0 => None,
            inserts if inserts == missing && !self.is_empty() => Some(self.filling()),
            inserts => Some(format!("{}; {}", self.state(), until_samples(inserts, batch))),
        }
    }

    fn until_inserts_go(&self, batch: u64) -> String {
        format!("{} until {}", more(self.samples_until(batch), "sample"), may_go(batch, "insert"))
    }

    /// Says what holds back inserts, whatever was counted. `None` if nothing does.
    pub fn insert_bound(&self) -> Option<String> {
        match self.kind() {
            kind @ (LimiterKind::Queue | LimiterKind::Stack) => {
                Some(format!("the {} is full at {}", kind.name(), items(self.config().max_diff)))
            }
            _ => self.most_ahead().map(|_| self.config().insert_bound()),
        }
    }

    /// Says what holds back samples once there are enough items, whatever was counted. `None` if nothing does.
    pub fn sample_bound(&self) -> Option<String> {
        match self.kind() {
            kind @ (LimiterKind::Queue | LimiterKind::Stack) => Some(format!("the {} is empty", kind.name())),
            _ => self.least_ahead().map(|_| self.config().sample_bound()),
        }
    }

    /// Says in a few words why inserts wait: `full`, or how far the actors may be ahead.
    pub fn why_inserts_wait(&self) -> String {
        match self.kind() {
            LimiterKind::Queue | LimiterKind::Stack => "full".into(),
            _ => self.config().insert_bound(),
        }
    }

    /// Says in a few words why samples wait: `empty`, how many of the first items there are, or how far the learner may
    /// be ahead.
    pub fn why_samples_wait(&self) -> String {
        match (self.items, self.missing_items(), self.kind()) {
            (0, ..) => "empty".into(),
            (_, 1.., _) => {
                let wanted = self.config().min_size_to_sample;
                format!("{} of {}", number(self.size().max(0) as u64), counted(wanted.max(0) as u64, "item"))
            }
            (.., LimiterKind::Ratio) => self.config().sample_bound(),
            (items, ..) => counted(items, "item"),
        }
    }

    /// Whether the bounds of the ratio allow neither an insert nor a sample now, so that both wait for each other.
    pub fn both_wait(&self) -> bool {
        self.missing_items() == 0 && !self.limiter.can_insert(1) && !self.limiter.can_sample(1)
    }

    /// Whether the table lacks nothing but a first item.
    fn is_empty(&self) -> bool {
        self.items == 0 && self.config().min_size_to_sample <= 1
    }

    fn filling(&self) -> String {
        let wanted = self.config().min_size_to_sample.max(1) as u64;
        let missing = self.missing_items();
        let has = number(wanted.saturating_sub(missing));
        format!("{} until samples may go ({has} of {} so far)", more(missing, "item"), number(wanted))
    }

    fn delivers_once(&self) -> bool {
        matches!(self.kind(), LimiterKind::Queue | LimiterKind::Stack)
    }

    /// Says how full the table is, or else who is ahead.
    fn state(&self) -> String {
        match self.kind() {
            kind @ (LimiterKind::Queue | LimiterKind::Stack) => {
                // Items whose samples are on their way still take room.
                let taken = self.diff().max(0.0) as u64;
                let (kind, most) = (kind.name(), self.config().max_diff as u64);
                match self.items {
                    _ if taken >= most => {
                        format!("the {kind} is full ({} of {})", number(taken), counted(most, "item"))
                    }
                    0 => format!("the {kind} is empty"),
                    items => format!("the {kind} has {} of {}", number(items), counted(most, "item")),
                }
            }
            _ if self.is_empty() => "the table is empty".into(),
            LimiterKind::MinSize => format!("the table has {}", counted(self.items, "item")),
            LimiterKind::Ratio => self.place(),
        }
    }

    /// Says who is ahead, and how far that may go.
    fn place(&self) -> String {
        let ahead = self.diff() / self.config().samples_per_insert;
        if rounded(ahead.abs()) == "0" {
            return "neither side is ahead".into();
        }
        let config = self.config();
        let (most, least) = (config.most_ahead(), config.least_ahead());
        let (who, least, most, bound) = match ahead < 0.0 {
            true => ("the learner is", most.map(|most| -most), least.map(|least| -least), config.sample_bound()),
            false => ("actors are", least, most, config.insert_bound()),
        };
        let allowed = match (least.filter(|least| *least > 0.0), most) {
            // The other side must be ahead, or neither may be.
            (_, Some(most)) if most <= 0.0 => format!(" ({bound})"),
            (Some(least), Some(most)) => format!(" ({} to {} allowed)", rounded(least), rounded(most)),
            (None, Some(most)) => format!(" (up to {} allowed)", rounded(most)),
            (Some(least), None) => format!(" (at least {} required)", rounded(least)),
            (None, None) => String::new(),
        };
        format!("{who} {} ahead{allowed}", items(ahead.abs()))
    }
}

impl RateLimiterConfig {
    /// Says what the limiter is for, whatever it has counted.
    pub fn rule(&self) -> String {
        let begin = format!("once the table has {}", items(self.min_size_to_sample as f64));
        if !self.counts_samples() {
            return format!("samples {begin}");
        }
        let samples = if self.samples_per_insert == 1.0 { "sample" } else { "samples" };
        let bounds = match (self.least_ahead(), self.most_ahead()) {
            (Some(least), Some(most)) if least > 0.0 => {
                format!("actors must be {} to {} ahead", rounded(least), items(most))
            }
            (Some(least), Some(most)) if most < 0.0 => {
                format!("the learner must be {} to {} ahead", rounded(-most), items(-least))
            }
            _ => format!("{}, {}", self.insert_bound(), self.sample_bound()),
        };
        format!("{} {samples} per insert, {begin}; {bounds}", self.samples_per_insert)
    }

    fn most_ahead(&self) -> Option<f64> {
        (self.max_diff < f64::MAX).then(|| self.max_diff / self.samples_per_insert)
    }

    fn least_ahead(&self) -> Option<f64> {
        (self.min_diff > -f64::MAX).then(|| self.min_diff / self.samples_per_insert)
    }

    /// Says how far the actors may be ahead: what inserts wait for.
    fn insert_bound(&self) -> String {
        match self.most_ahead() {
            Some(most) if most < 0.0 => format!("the learner must be at least {} ahead", items(-most)),
            Some(0.0) => "actors must not be ahead".into(),
            Some(most) => format!("actors may be at most {} ahead", items(most)),
            None => "inserts are not limited".into(),
        }
    }

    /// Says how far the learner may be ahead: what samples wait for.
    fn sample_bound(&self) -> String {
        match self.least_ahead() {
            Some(least) if least > 0.0 => format!("actors must be at least {} ahead", items(least)),
            Some(0.0) => "the learner must not be ahead".into(),
            Some(least) => format!("the learner may be at most {} ahead", items(-least)),
            None => "samples are not limited".into(),
        }
    }
}

/// What to say of bounds that hold back both sides.
const BUFFER_TOO_SMALL: &str = "the error buffer is smaller than one insert and one sample";
/// What to say of a request that waited until a moment ago.
const ABOUT_TO_GO: &str = "it is about to go on";

/// Writes a number of items that the ratio may have made a fraction.
fn items(count: f64) -> String {
    let count = rounded(count);
    if count == "1" { "1 item".into() } else { format!("{count} items") }
}

fn rounded(count: f64) -> String {
    // A large one has no use for a fraction, and a small one is wrong without it: 0.25 items are one of four samples.
    let count = if count.abs() < 10.0 { (count * 100.0).round() / 100.0 } else { count.round() };
    if count.fract() == 0.0 { number(count as u64) } else { format!("{count}") }
}

/// The batch of a side that may not go now: that of its first request, or the least that anybody may ask for.
fn held_back(waiting: Option<u64>, allowed: Option<u64>) -> Option<u64> {
    let allowed = allowed?;
    waiting.or((allowed == 0).then_some(1)).filter(|batch| *batch > allowed)
}

fn until_samples(inserts: u64, batch: u64) -> String {
    format!("{} until {}", more(inserts, "insert"), may_go(batch, "sample"))
}

/// Corrects an estimate that rounding may have moved by one, to the last number that is allowed.
fn exact(estimate: i64, is_allowed: impl Fn(i64) -> bool) -> u64 {
    let mut count = estimate.max(0);
    if count > 0 && !is_allowed(count) {
        count -= 1;
    } else if count < i64::MAX && is_allowed(count + 1) {
        count += 1;
    }
    count as u64
}

/// Corrects an estimate that rounding may have moved by one, to the least number that is enough.
fn least(estimate: f64, is_enough: impl Fn(i64) -> bool) -> u64 {
    let mut count = if estimate.is_finite() && estimate > 0.0 { estimate.ceil() as i64 } else { 0 };
    if count > 0 && is_enough(count - 1) {
        count -= 1;
    } else if !is_enough(count) {
        count = count.saturating_add(1);
    }
    count as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_that_the_limiter_allows() {
        for samples_per_insert in [0.1, 0.3, 1.0, 3.7] {
            for (inserts, samples) in [(5, 0), (50, 7), (51, 99), (1000, 300)] {
                let rate_limiter =
                    RateLimiterConfig { samples_per_insert, min_size_to_sample: 2, min_diff: -3.3, max_diff: 77.7 };
                let limiter = RateLimiter { inserts, samples, ..RateLimiter::new(rate_limiter.clone()) };
                let table = TableConfig {
                    name: "table".into(),
                    sampler: SelectorKind::Uniform,
                    remover: SelectorKind::Fifo,
                    max_size: 1000,
                    max_times_sampled: 0,
                    rate_limiter,
                    signature: None,
                    max_bytes: None,
                    seed: None,
                };
                let view = LimiterView { table: &table, limiter: &limiter, items: 5 };
                let allowed = view.inserts_allowed().unwrap() as i64;
                assert!(allowed == 0 || limiter.can_insert(allowed), "{limiter:?}");
                assert!(!limiter.can_insert(allowed + 1), "{limiter:?}");
                let allowed = view.samples_allowed().unwrap() as i64;
                assert!(allowed == 0 || limiter.can_sample(allowed), "{limiter:?}");
                assert!(!limiter.can_sample(allowed + 1), "{limiter:?}");
                the_others_suffice(&view, &limiter);
            }
        }
    }

    /// What is said to be missing for a batch is enough, and one less is not.
    fn the_others_suffice(view: &LimiterView<'_>, limiter: &RateLimiter) {
        for batch in [1, 16, 1000] {
            let after = |inserts, samples| RateLimiter {
                inserts: limiter.inserts + inserts as i64,
                samples: limiter.samples + samples as i64,
                ..limiter.clone()
            };
            let inserts = view.inserts_until(batch);
            assert!(after(inserts, 0).can_sample(batch as i64), "{inserts} for {batch}: {limiter:?}");
            assert!(inserts == 0 || !after(inserts - 1, 0).can_sample(batch as i64), "{inserts} for {batch}");
            let samples = view.samples_until(batch);
            assert!(after(0, samples).can_insert(batch as i64), "{samples} for {batch}: {limiter:?}");
            assert!(samples == 0 || !after(0, samples - 1).can_insert(batch as i64), "{samples} for {batch}");
        }
    }
}
