//! Describes a rate limiter in numbers and in words.

use super::schema::LimiterDocument;
use reverb_core::{RateLimiter, RateLimiterConfig, SelectorKind, TableConfig, TableInfo};

/// Describes the rate limiter of a table.
pub fn limiter(info: &TableInfo) -> LimiterDocument {
    let limiter = info.limiter();
    let RateLimiterConfig { samples_per_insert, min_size_to_sample, min_diff, max_diff } = limiter.config;
    let bound = |value: f64| (value.abs() < f64::MAX).then_some(value);
    let kind = kind(&info.config);
    let (inserts, samples) = (inserts_allowed(&limiter), samples_allowed(info, &limiter));
    LimiterDocument {
        kind,
        samples_per_insert,
        min_size: min_size_to_sample,
        diff: diff(&limiter),
        min_diff: bound(min_diff),
        max_diff: bound(max_diff),
        inserts_allowed: inserts,
        samples_allowed: samples,
        sentence: sentence(kind, info, &limiter, inserts, samples),
    }
}

/// Returns the number of samples by which a table is ahead.
pub fn diff(limiter: &RateLimiter) -> f64 {
    limiter.inserts as f64 * limiter.config.samples_per_insert - limiter.samples as f64
}

fn kind(config: &TableConfig) -> &'static str {
    let RateLimiterConfig { samples_per_insert, min_size_to_sample, min_diff, max_diff } = config.rate_limiter;
    let gives_each_once = config.max_times_sampled == 1
        && (samples_per_insert, min_size_to_sample, min_diff) == (1.0, 1, 0.0)
        && max_diff < f64::MAX;
    match (&config.sampler, gives_each_once) {
        (SelectorKind::Fifo, true) => "queue",
        (SelectorKind::Lifo, true) => "stack",
        _ if config.rate_limiter.counts_samples() => "ratio",
        _ => "min_size",
    }
}

/// Returns the number of inserts that may go now. `None` if it is not limited.
fn inserts_allowed(limiter: &RateLimiter) -> Option<u64> {
    let config = &limiter.config;
    if config.max_diff >= f64::MAX {
        return None;
    }
    let refill = config.min_size_to_sample.saturating_sub(size(limiter)).max(0);
    let within = ((config.max_diff - diff(limiter)) / config.samples_per_insert).floor() as i64;
    Some(exact(refill.max(within), |count| limiter.can_insert(count)))
}

/// Returns the number of draws that may go now. `None` if it is not limited.
fn samples_allowed(info: &TableInfo, limiter: &RateLimiter) -> Option<u64> {
    let config = &limiter.config;
    if info.current_size == 0 || size(limiter) < config.min_size_to_sample {
        return Some(0);
    }
    let by_diff = (config.min_diff > -f64::MAX).then(|| {
        let within = (diff(limiter) - config.min_diff).floor() as i64;
        exact(within, |count| limiter.can_sample(count))
    });
    // Each draw takes an item, until there are too few of them.
    let by_size = (info.config.max_times_sampled == 1).then(|| {
        let last = size(limiter).saturating_sub(config.min_size_to_sample).saturating_add(1);
        u64::try_from(last).unwrap_or(0).min(info.current_size)
    });
    by_diff.into_iter().chain(by_size).min()
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

fn size(limiter: &RateLimiter) -> i64 {
    limiter.inserts.saturating_sub(limiter.deletes)
}

fn sentence(kind: &str, info: &TableInfo, limiter: &RateLimiter, inserts: Option<u64>, samples: Option<u64>) -> String {
    if matches!(kind, "queue" | "stack") {
        let (items, room) = (samples.unwrap_or_default(), inserts.unwrap_or_default());
        return match (items, room) {
            (0, room) => format!("the {kind} is empty; room for {}", counted(room, "item", " more")),
            (items, 0) => format!("the {kind} is full; {} may be taken", counted(items, "item", "")),
            (items, room) => {
                format!("{} may be taken; room for {room} more", counted(items, "item", ""))
            }
        };
    }
    let missing = limiter.config.min_size_to_sample.saturating_sub(size(limiter));
    if missing > 0 {
        return format!("{} until samples may go", counted(missing as u64, "item", " more"));
    }
    let (more_inserts, more_samples) =
        (|count| counted(count, "insert", " more"), |count| counted(count, "sample", " more"));
    match (samples, inserts) {
        (Some(0), _) if info.current_size == 0 => "the table is empty; samples wait for an insert".into(),
        (None, None) => "samples and inserts are not limited".into(),
        (Some(0), Some(0)) => {
            "neither a sample nor an insert may go: min_diff and max_diff are too close to each other".into()
        }
        (Some(0), inserts) => {
            let needed = needed_inserts(limiter).map_or("more inserts".into(), more_inserts);
            let rest =
                inserts.map_or("inserts are not limited".into(), |count| format!("{} may go", more_inserts(count)));
            format!("samples wait for {needed}; {rest}")
        }
        (samples, Some(0)) => {
            let needed = needed_samples(limiter).map_or("more samples".into(), more_samples);
            let rest =
                samples.map_or("samples are not limited".into(), |count| format!("{} may go", more_samples(count)));
            format!("inserts wait for {needed}; {rest}")
        }
        (Some(samples), Some(inserts)) => format!("{} or {} may go", more_samples(samples), more_inserts(inserts)),
        (Some(samples), None) => format!("{} may go; inserts are not limited", more_samples(samples)),
        (None, Some(inserts)) => format!("{} may go; samples are not limited", more_inserts(inserts)),
    }
}

/// Returns the number of inserts after which a draw may go.
fn needed_inserts(limiter: &RateLimiter) -> Option<u64> {
    let RateLimiterConfig { samples_per_insert, min_diff, .. } = limiter.config;
    needed((min_diff + 1.0 - diff(limiter)) / samples_per_insert)
}

/// Returns the number of draws after which an insert may go.
fn needed_samples(limiter: &RateLimiter) -> Option<u64> {
    let RateLimiterConfig { samples_per_insert, max_diff, .. } = limiter.config;
    needed(diff(limiter) + samples_per_insert - max_diff)
}

fn needed(count: f64) -> Option<u64> {
    (count.is_finite() && count > 0.0).then_some(count.ceil() as u64)
}

fn counted(count: u64, what: &str, more: &str) -> String {
    format!("{count}{more} {what}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use reverb_core::Table;

    fn table(rate_limiter: RateLimiterConfig, max_times_sampled: i32, sampler: SelectorKind) -> TableInfo {
        let config = TableConfig {
            name: "table".into(),
            remover: sampler.clone(),
            sampler,
            max_size: 10,
            max_times_sampled,
            rate_limiter,
            signature: None,
            max_bytes: None,
            seed: Some(1),
        };
        Table::new(config).unwrap().info()
    }

    fn ratio(samples_per_insert: f64, min_size: i64, min_diff: f64, max_diff: f64) -> TableInfo {
        let config = RateLimiterConfig { samples_per_insert, min_size_to_sample: min_size, min_diff, max_diff };
        table(config, 0, SelectorKind::Uniform)
    }

    fn with(mut info: TableInfo, size: u64, inserts: i64, samples: i64) -> LimiterDocument {
        (info.current_size, info.inserts, info.samples) = (size, inserts, samples);
        limiter(&info)
    }

    fn told(document: &LimiterDocument) -> (&str, Option<u64>, Option<u64>, &str) {
        let LimiterDocument { kind, samples_allowed, inserts_allowed, sentence, .. } = document;
        (kind, *samples_allowed, *inserts_allowed, sentence)
    }

    #[test]
    fn a_ratio_says_how_many_of_each_may_go() {
        let info = || ratio(2.0, 1, -10.0, 30.0);
        let told_of = |size, inserts, samples| {
            let document = with(info(), size, inserts, samples);
            let (_, samples, inserts, sentence) = told(&document);
            (samples, inserts, sentence.to_owned())
        };
        assert_eq!(told_of(5, 5, 4), (Some(16), Some(12), "16 more samples or 12 more inserts may go".into()));
        assert_eq!(
            told_of(5, 5, 20),
            (Some(0), Some(20), "samples wait for 1 more insert; 20 more inserts may go".into())
        );
        assert_eq!(
            told_of(9, 20, 10),
            (Some(40), Some(0), "inserts wait for 2 more samples; 40 more samples may go".into())
        );
        assert_eq!(told_of(9, 20, 12).2, "38 more samples or 1 more insert may go");
        assert_eq!(told_of(0, 0, 0).2, "1 more item until samples may go");
    }

    #[test]
    fn unlimited_and_stuck_limiters_are_told_apart() {
        let max = f64::MAX;
        let open = with(ratio(1.0, 3, -max, max), 5, 5, 100);
        assert_eq!(told(&open), ("min_size", None, None, "samples and inserts are not limited"));
        assert_eq!((open.min_diff, open.max_diff), (None, None));
        let small = with(ratio(1.0, 30, -max, max), 18, 25, 0);
        assert_eq!(told(&small), ("min_size", Some(0), None, "12 more items until samples may go"));
        let stuck = with(ratio(1.0, 1, 0.5, 1.2), 3, 4, 3);
        assert_eq!(told(&stuck).1..=told(&stuck).1, Some(0)..=Some(0));
        assert!(stuck.sentence.starts_with("neither a sample nor an insert may go"), "{}", stuck.sentence);
        let above = with(ratio(1.0, 1, -max, 5.0), 3, 3, 0);
        assert_eq!(told(&above), ("ratio", None, Some(2), "2 more inserts may go; samples are not limited"));
        let below = with(ratio(1.0, 1, 0.0, max), 3, 3, 0);
        assert_eq!(told(&below), ("ratio", Some(3), None, "3 more samples may go; inserts are not limited"));
        let emptied = with(ratio(1.0, 1, -max, max), 0, 0, 0);
        assert_eq!(emptied.sentence, "1 more item until samples may go");
    }

    #[test]
    fn queues_and_stacks_speak_of_room() {
        let limits =
            || RateLimiterConfig { samples_per_insert: 1.0, min_size_to_sample: 1, min_diff: 0.0, max_diff: 10.0 };
        let queue = || table(limits(), 1, SelectorKind::Fifo);
        let stack = || table(limits(), 1, SelectorKind::Lifo);
        assert_eq!(
            told(&with(queue(), 0, 7, 7)),
            ("queue", Some(0), Some(10), "the queue is empty; room for 10 more items")
        );
        assert_eq!(told(&with(queue(), 7, 7, 0)), ("queue", Some(7), Some(3), "7 items may be taken; room for 3 more"));
        assert_eq!(
            told(&with(stack(), 10, 11, 1)),
            ("stack", Some(10), Some(0), "the stack is full; 10 items may be taken")
        );
        // Items that were deleted cannot be taken.
        assert_eq!(told(&with(queue(), 4, 9, 0)).1, Some(4));
    }

    #[test]
    fn the_numbers_are_those_that_the_limiter_allows() {
        for samples_per_insert in [0.1, 0.3, 1.0, 3.7] {
            for (inserts, samples) in [(5, 0), (50, 7), (51, 99), (1000, 300)] {
                let mut info = ratio(samples_per_insert, 2, -3.3, 77.7);
                (info.current_size, info.inserts, info.samples) = (5, inserts, samples);
                let (document, limiter) = (limiter(&info), info.limiter());
                let inserts = document.inserts_allowed.unwrap() as i64;
                assert!(inserts == 0 || limiter.can_insert(inserts), "{document:?}");
                assert!(!limiter.can_insert(inserts + 1), "{document:?}");
                let samples = document.samples_allowed.unwrap() as i64;
                assert!(samples == 0 || limiter.can_sample(samples), "{document:?}");
                assert!(!limiter.can_sample(samples + 1), "{document:?}");
            }
        }
    }
}
