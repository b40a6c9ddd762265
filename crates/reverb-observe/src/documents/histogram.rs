//! Makes histograms.

use super::schema::{HistogramDocument, HistogramsDocument};
use super::seconds;
use reverb_core::{ItemNumbers, LOG2_BUCKETS, Log2Histogram};
use reverb_service::TableHandle;
use reverb_service::peek::random_items;
use std::time::{SystemTime, UNIX_EPOCH};

// limit (HTTP, metrics and logs): items that histograms read | {} pages at random, of {slab.rs:PAGE_SLOTS} items each;
// answers are kept for {histogram_cache.rs:KEPT} | counts are estimates
/// Maximum number of pages that are read, of up to 256 items each.
const MAX_PAGES: usize = 256;
/// Approximate maximum number of buckets for numbers of one sign.
const BUCKETS: i32 = 32;
/// Numbers of draws up to which each has a bucket of its own.
const SINGLE_TIMES: i32 = 30;

/// Makes the histograms of a table from pages that are chosen at random. Takes milliseconds.
pub fn histograms(table: &TableHandle) -> HistogramsDocument {
    let now = SystemTime::now();
    let (pages, items) = random_items(table, MAX_PAGES);
    let numbers: Vec<_> = pages.items().collect();
    // No longer than needed, because the table copies a page that it changes meanwhile.
    drop(pages);
    let counters = table.status().info.counters;
    let now_nanos = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let age = |item: &ItemNumbers| now_nanos.saturating_sub(item.inserted_at) as f64 / 1e9;
    HistogramsDocument {
        at: seconds(now),
        items: items as u64,
        looked_at: numbers.len() as u64,
        priority: by_size(&numbers.iter().map(|item| item.priority).collect::<Vec<_>>()),
        age_seconds: by_size(&numbers.iter().map(age).collect::<Vec<_>>()),
        times_sampled: by_times(&numbers.iter().map(|item| item.times_sampled).collect::<Vec<_>>()),
        sample_age_seconds: of_log2(&counters.sample_age_seconds),
        removed_times_sampled: of_log2(&counters.removed_times_sampled),
    }
}

/// Makes a histogram whose bounds are powers, of numbers of either sign. Zeros have a bucket of their own. Numbers that
/// are not finite are left out.
fn by_size(values: &[f64]) -> HistogramDocument {
    let of_sign =
        |sign: f64| values.iter().map(move |value| value * sign).filter(|&size| size > 0.0 && size.is_finite());
    let has_zeros = values.contains(&0.0);
    let mut edges: Vec<_> = bounds(of_sign(-1.0)).into_iter().rev().map(|bound| -bound).collect();
    let positive = bounds(of_sign(1.0));
    if has_zeros && (edges.is_empty() || positive.is_empty()) {
        edges.push(0.0);
    }
    edges.extend(positive);
    count(edges, values.iter().copied().filter(|value| value.is_finite()))
}

/// Chooses bounds for positive numbers: all of these are above the first bound, and none is above the last.
fn bounds(sizes: impl Iterator<Item = f64>) -> Vec<f64> {
    let (least, most) = sizes.fold((f64::INFINITY, 0.0), |(least, most), size| (size.min(least), size.max(most)));
    if most == 0.0 {
        return Vec::new();
    }
    let (mut first, mut last) = (least.log2().floor() as i32, most.log2().ceil() as i32);
    while power(f64::from(first)) >= least && first > f64::MIN_EXP - 60 {
        first -= 1;
    }
    while power(f64::from(last)) < most {
        last += 1;
    }
    let octaves = (last - first).max(1);
    // Several buckets an octave, or several octaves a bucket.
    let (parts, step) = ((BUCKETS / octaves).clamp(1, 8), (octaves + BUCKETS - 1) / BUCKETS);
    let steps = if parts > 1 { octaves * parts } else { (octaves + step - 1) / step };
    let edge = |number: i32| power(f64::from(first) + f64::from(number) * f64::from(step) / f64::from(parts));
    (0..=steps).map(edge).collect()
}

/// Returns a power of two that JSON can represent.
fn power(exponent: f64) -> f64 {
    exponent.exp2().min(f64::MAX)
}

/// Makes a histogram of numbers of draws.
fn by_times(times: &[i32]) -> HistogramDocument {
    let most = times.iter().copied().max().unwrap_or(0).max(1);
    let mut edges = vec![0.0, 0.5];
    if most <= SINGLE_TIMES {
        edges.extend((1..=most).map(f64::from));
    } else {
        let powers = (0..).map(|exponent| power(f64::from(exponent)));
        edges.extend(powers.take_while(|&bound| bound < 2.0 * f64::from(most)));
    }
    count(edges, times.iter().copied().map(f64::from))
}

/// Converts a histogram of a table. Empty buckets at its ends are left out.
fn of_log2(histogram: &Log2Histogram) -> HistogramDocument {
    let filled = |bucket: &usize| histogram.counts[*bucket] > 0;
    let (Some(first), Some(last)) = ((0..LOG2_BUCKETS).find(filled), (0..LOG2_BUCKETS).rfind(filled)) else {
        return HistogramDocument { edges: vec![0.0, 1.0], counts: vec![0] };
    };
    // The last bucket has no upper bound, which JSON could not represent.
    let bound = |bucket: usize| power(f64::from(histogram.first_exponent) + bucket as f64);
    let lowest = if first == 0 { 0.0 } else { bound(first - 1) };
    let edges = std::iter::once(lowest).chain((first..=last).map(bound)).collect();
    HistogramDocument { edges, counts: histogram.counts[first..=last].to_vec() }
}

fn count(mut edges: Vec<f64>, values: impl Iterator<Item = f64>) -> HistogramDocument {
    edges.dedup();
    if edges.len() < 2 {
        edges = vec![0.0, 1.0];
    }
    let mut counts = vec![0; edges.len() - 1];
    for value in values {
        let bucket = edges.partition_point(|&edge| edge < value).saturating_sub(1).min(counts.len() - 1);
        counts[bucket] += 1;
    }
    HistogramDocument { edges, counts }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(values: &[f64]) -> HistogramDocument {
        let histogram = by_size(values);
        let HistogramDocument { edges, counts } = &histogram;
        assert!(edges.is_sorted_by(|a, b| a < b) && edges.iter().all(|edge| edge.is_finite()), "{histogram:?}");
        assert!(edges.len() <= 2 * BUCKETS as usize + 4, "{values:?} {}", edges.len());
        assert_eq!(counts.len() + 1, edges.len());
        for (bucket, &number) in counts.iter().enumerate() {
            let is_in = |value: f64| {
                let above = value > edges[bucket] || (bucket == 0 && value == edges[0]);
                above && value <= edges[bucket + 1]
            };
            let expected = values.iter().filter(|&&value| is_in(value)).count();
            assert_eq!(number, expected as u64, "{bucket} of {histogram:?} for {values:?}");
        }
        assert_eq!(counts.iter().sum::<u64>(), values.len() as u64);
        histogram
    }

    #[test]
    fn each_value_is_in_the_bucket_of_its_size() {
        check(&[1.0]);
        check(&[0.0, 0.0]);
        check(&[-3.0, 0.0, 5.0, 1e-9]);
        check(&[f64::MAX, f64::MIN, f64::MIN_POSITIVE, 5e-324, -5e-324]);
        check(&[0.1, 0.2, 0.3, 0.7, 0.9, 1.0]);
        check(&(0..1000).map(|number| f64::from(number) * 0.37).collect::<Vec<_>>());
        check(&(-40..40).map(|exponent| f64::from(exponent).exp2()).collect::<Vec<_>>());
        let zeros = check(&[0.0, 0.0, 4.0, 7.0]);
        assert_eq!((zeros.edges[0], zeros.counts[0]), (0.0, 2), "zeros have a bucket of their own");
        let both = check(&[-4.0, 0.0, 0.0, 4.0]);
        assert!(both.counts.contains(&2), "{both:?}");
        assert_eq!(by_size(&[f64::NAN, f64::INFINITY, 1.0]).counts.iter().sum::<u64>(), 1);
        assert_eq!(by_size(&[]), HistogramDocument { edges: vec![0.0, 1.0], counts: vec![0] });
    }

    #[test]
    fn numbers_of_draws_have_their_own_buckets_while_they_are_few() {
        let few = by_times(&[0, 0, 1, 2, 3, 3]);
        assert_eq!(few, HistogramDocument { edges: vec![0.0, 0.5, 1.0, 2.0, 3.0], counts: vec![2, 1, 1, 2] });
        let many = by_times(&[0, 1, 2, 3, 4, 100]);
        assert_eq!(many.edges, [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0]);
        assert_eq!(many.counts, [1, 1, 1, 2, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn a_histogram_of_a_table_loses_its_empty_ends() {
        let mut histogram = Log2Histogram { first_exponent: -1, ..Log2Histogram::default() };
        assert_eq!(of_log2(&histogram).counts, [0]);
        (histogram.counts[0], histogram.counts[3]) = (5, 2);
        let shown = of_log2(&histogram);
        assert_eq!((shown.edges, shown.counts), (vec![0.0, 0.5, 1.0, 2.0, 4.0], vec![5, 0, 0, 2]));
        histogram.counts[LOG2_BUCKETS - 1] = 1;
        assert!(of_log2(&histogram).edges.iter().all(|edge| edge.is_finite()));
    }
}
