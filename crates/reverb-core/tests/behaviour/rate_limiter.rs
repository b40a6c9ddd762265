//! The conditions under which inserts and samples are allowed.

use crate::common::{min_size, queue};
use reverb_core::{Error, RateLimiter, RateLimiterConfig};

fn limiter(samples_per_insert: f64, min_size_to_sample: i64, min_diff: f64, max_diff: f64) -> RateLimiter {
    RateLimiter::new(RateLimiterConfig { samples_per_insert, min_size_to_sample, min_diff, max_diff })
}

#[test]
fn ratio_of_two_gives_the_counts_of_the_worked_example() {
    // Two samples for each insert, 3 items at the start, and an error buffer of 4 around 3 × 2.
    let mut limiter = limiter(2.0, 3, 2.0, 10.0);
    while limiter.can_insert(1) {
        limiter.inserts += 1;
    }
    assert_eq!(limiter.inserts, 5);
    let mut waiting = 2;
    loop {
        if waiting > 0 && limiter.can_insert(1) {
            limiter.inserts += 1;
            waiting -= 1;
        } else if limiter.can_sample(1) {
            limiter.samples += 1;
        } else {
            break;
        }
    }
    assert_eq!((limiter.inserts, limiter.samples), (7, 12));
    assert!(limiter.can_insert(4) && !limiter.can_insert(5));
    limiter.deletes += 6;
    assert!(!limiter.can_sample(1) && limiter.can_insert(2));
}

#[test]
fn table_may_refill_to_its_minimum_whatever_the_ratio_says() {
    let mut limiter = limiter(2.0, 3, 2.0, 10.0);
    limiter.inserts = 5;
    assert!(!limiter.can_insert(1));
    limiter.deletes = 4;
    assert!(limiter.can_insert(2) && !limiter.can_insert(3));
}

#[test]
fn queue_lets_each_item_be_sampled_once() {
    let mut limiter = RateLimiter::new(queue(2));
    assert!(!limiter.can_sample(1));
    assert!(limiter.can_insert(2) && !limiter.can_insert(3));
    limiter.inserts = 2;
    assert!(limiter.can_sample(2) && !limiter.can_sample(3));
    limiter.samples = 1;
    limiter.deletes = 1;
    assert!(limiter.can_insert(1) && !limiter.can_insert(2));
}

#[test]
fn min_size_limits_nothing_but_the_first_sample() {
    let mut limiter = RateLimiter::new(min_size(3));
    limiter.inserts = 2;
    assert!(!limiter.can_sample(1) && limiter.can_insert(i64::MAX));
    limiter.inserts = 3;
    assert!(limiter.can_sample(i64::MAX) && limiter.can_insert(1));
}

#[test]
fn samples_count_unless_neither_bound_can_be_reached() {
    assert!(!min_size(3).counts_samples());
    assert!(queue(3).counts_samples());
    let only_lower = RateLimiterConfig { min_diff: 0.0, ..min_size(1) };
    let only_upper = RateLimiterConfig { max_diff: 5.0, ..min_size(1) };
    assert!(only_lower.counts_samples() && only_upper.counts_samples());
}

#[test]
fn impossible_configurations_are_refused() {
    let cases = [
        (0.0, 1, 0.0, 1.0, "samples_per_insert"),
        (-1.0, 1, 0.0, 1.0, "samples_per_insert"),
        (f64::NAN, 1, 0.0, 1.0, "samples_per_insert"),
        (f64::INFINITY, 1, 0.0, 1.0, "samples_per_insert"),
        (1.0, 0, 0.0, 1.0, "min_size_to_sample"),
        (1.0, 1, f64::NAN, 1.0, "min_diff"),
        (1.0, 1, 0.0, f64::NAN, "max_diff"),
        (1.0, 1, 2.0, 1.0, "min_diff"),
    ];
    for (samples_per_insert, min_size_to_sample, min_diff, max_diff, field) in cases {
        let config = RateLimiterConfig { samples_per_insert, min_size_to_sample, min_diff, max_diff };
        let Err(Error::InvalidArgument(text)) = config.validate() else {
            panic!("{config:?} was accepted");
        };
        assert!(text.contains(field), "{text}");
    }
    min_size(1).validate().unwrap();
}

#[test]
fn rules_say_what_a_limiter_is_for() {
    let rule = |samples_per_insert, min_size_to_sample, min_diff, max_diff| {
        RateLimiterConfig { samples_per_insert, min_size_to_sample, min_diff, max_diff }.rule()
    };
    assert_eq!(rule(1.0, 1, -f64::MAX, f64::MAX), "samples once the table has 1 item");
    assert_eq!(
        rule(8.0, 1000, 7600.0, 8400.0),
        "8 samples per insert, once the table has 1,000 items; actors must be 950 to 1,050 items ahead"
    );
    assert_eq!(
        rule(0.5, 2, -5.0, f64::MAX),
        "0.5 samples per insert, once the table has 2 items; inserts are not limited, the learner may be at most 10 items ahead"
    );
}
