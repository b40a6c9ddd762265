//! Families of metrics, and how they are written.

use prometheus_client::encoding::{
    CounterValueEncoder, DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, GaugeValueEncoder, MetricEncoder,
    NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use reverb_core::Log2Histogram;
use std::fmt::Result;

/// The labels of a sample: pairs of a name and a value.
pub type Labels<'a> = &'a [(&'static str, &'a str)];

/// A family of metrics: samples of the same name.
#[derive(Debug, Clone)]
pub struct Family {
    /// Its name without its unit, and without the suffix of its samples.
    pub name: &'static str,
    /// Its unit, with which its full name ends.
    pub unit: Option<Unit>,
    /// What it means.
    pub help: &'static str,
}

impl Family {
    /// Makes a family without a unit.
    pub const fn plain(name: &'static str, help: &'static str) -> Self {
        Self { name, unit: None, help }
    }

    /// Makes a family of sizes in bytes.
    pub const fn bytes(name: &'static str, help: &'static str) -> Self {
        Self { name, unit: Some(Unit::Bytes), help }
    }

    /// Makes a family of times in seconds.
    pub const fn seconds(name: &'static str, help: &'static str) -> Self {
        Self { name, unit: Some(Unit::Seconds), help }
    }
}

/// The value of a gauge or of a counter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// A count, which is written without a fraction.
    Whole(u64),
    /// A measure.
    Real(f64),
}

impl From<u64> for Number {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

impl EncodeGaugeValue for Number {
    fn encode(&self, encoder: &mut GaugeValueEncoder) -> Result {
        match self {
            Self::Whole(value) => EncodeGaugeValue::encode(value, encoder),
            Self::Real(value) => EncodeGaugeValue::encode(value, encoder),
        }
    }
}

impl EncodeCounterValue for Number {
    fn encode(&self, encoder: &mut CounterValueEncoder) -> Result {
        match self {
            Self::Whole(value) => EncodeCounterValue::encode(value, encoder),
            Self::Real(value) => EncodeCounterValue::encode(value, encoder),
        }
    }
}

/// The values of a histogram by bucket.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Buckets {
    /// Sum of the values.
    pub sum: f64,
    /// Upper bounds in ascending order, the last of which is infinite, and the numbers of values in the buckets.
    pub counts: Vec<(f64, u64)>,
}

impl Buckets {
    /// Takes every `step`th bucket of a histogram with bounds from 2^`lowest` to 2^`highest`, and adds the others to the
    /// next larger one. A series of Prometheus costs memory there, so a few have to do.
    pub fn of(histogram: &Log2Histogram, lowest: i32, highest: i32, step: usize) -> Self {
        let bounds = (lowest..=highest).step_by(step).map(|exponent| 2f64.powi(exponent));
        let mut counts: Vec<(f64, u64)> = bounds.chain([f64::INFINITY]).map(|bound| (bound, 0)).collect();
        let mut index = 0;
        for (bucket, &count) in histogram.counts.iter().enumerate() {
            while counts[index].0 < histogram.bound(bucket) {
                index += 1;
            }
            counts[index].1 += count;
        }
        Self { sum: histogram.sum, counts }
    }

    /// Adds the values of another histogram with the same buckets.
    pub fn add(&mut self, other: &Self) {
        self.sum += other.sum;
        for ((_, count), (_, more)) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
    }
}

/// Writes families of metrics.
#[derive(Debug)]
pub struct Writer<'a>(pub DescriptorEncoder<'a>);

impl Writer<'_> {
    /// Writes a family of gauges. Writes nothing if it has no samples.
    pub fn gauges<'s>(&mut self, family: &Family, samples: impl Iterator<Item = (Labels<'s>, Number)>) -> Result {
        self.family(family, MetricType::Gauge, samples, |encoder, (labels, value)| match labels {
            [] => encoder.encode_gauge(&value),
            _ => encoder.encode_family(&labels)?.encode_gauge(&value),
        })
    }

    /// Writes a family of counters. Writes nothing if it has no samples.
    pub fn counters<'s>(&mut self, family: &Family, samples: impl Iterator<Item = (Labels<'s>, Number)>) -> Result {
        self.family(family, MetricType::Counter, samples, |encoder, (labels, value)| match labels {
            [] => encoder.encode_counter::<NoLabelSet, _, f64>(&value, None),
            _ => encoder.encode_family(&labels)?.encode_counter::<NoLabelSet, _, f64>(&value, None),
        })
    }

    /// Writes a family of histograms. Writes nothing if it has no samples.
    pub fn histograms<'s>(
        &mut self,
        family: &Family,
        samples: impl Iterator<Item = (Labels<'s>, &'s Buckets)>,
    ) -> Result {
        self.family(family, MetricType::Histogram, samples, |encoder, (labels, buckets)| {
            let count = buckets.counts.iter().map(|(_, count)| count).sum();
            let mut encoder = encoder.encode_family(&labels)?;
            encoder.encode_histogram::<NoLabelSet>(buckets.sum, count, &buckets.counts, None)
        })
    }

    fn family<T>(
        &mut self,
        family: &Family,
        kind: MetricType,
        samples: impl Iterator<Item = T>,
        write: impl Fn(&mut MetricEncoder<'_>, T) -> Result,
    ) -> Result {
        let mut samples = samples.peekable();
        if samples.peek().is_none() {
            return Ok(());
        }
        let mut encoder = self.0.encode_descriptor(family.name, family.help, family.unit.as_ref(), kind)?;
        samples.try_for_each(|sample| write(&mut encoder, sample))
    }

    /// Writes facts as the labels of a sample whose value is 1.
    pub fn info(&mut self, family: &Family, labels: Labels<'_>) -> Result {
        let kind = MetricType::Info;
        self.0.encode_descriptor(family.name, family.help, family.unit.as_ref(), kind)?.encode_info(&labels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_outside_of_the_bounds_count_in_the_next_larger_one() {
        let mut histogram = Log2Histogram { first_exponent: -3, sum: 70.0, ..Log2Histogram::default() };
        // Up to 1/8, 1/4, 1/2, 1, 2, 4, 8, 16, and the last.
        histogram.counts[..8].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
        histogram.counts[39] = 9;
        let mut buckets = Buckets::of(&histogram, -1, 3, 2);
        assert_eq!(buckets.counts, [(0.5, 6), (2.0, 9), (8.0, 13), (f64::INFINITY, 17)]);
        buckets.add(&buckets.clone());
        assert_eq!(buckets.counts, [(0.5, 12), (2.0, 18), (8.0, 26), (f64::INFINITY, 34)]);
        assert_eq!(buckets.sum, 140.0);
    }

    #[test]
    fn bounds_below_those_of_the_histogram_stay_empty() {
        let mut histogram = Log2Histogram::default();
        histogram.counts[0] = 3;
        assert_eq!(Buckets::of(&histogram, -1, 1, 1).counts, [(0.5, 0), (1.0, 3), (2.0, 0), (f64::INFINITY, 0)]);
    }
}
