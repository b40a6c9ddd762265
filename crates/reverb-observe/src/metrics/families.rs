//! Families of metrics, and how they are written.

use prometheus_client::encoding::{
    CounterValueEncoder, DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, GaugeValueEncoder, MetricEncoder,
    NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use reverb_core::{Figure, Log2Histogram, WAIT_BOUNDS, WaitHistogram};
use std::borrow::Cow;
use std::fmt::Result;

/// The labels of a sample: pairs of a name and a value.
pub type Labels<'a> = &'a [(&'static str, &'a str)];

/// A family of metrics: samples of the same name.
#[derive(Debug, Clone)]
pub struct Family {
    /// Its name without its unit, and without the suffix of its samples.
    pub name: Cow<'static, str>,
    /// Its unit, with which its full name ends.
    pub unit: Option<Unit>,
    /// What it means.
    pub help: &'static str,
}

impl Family {
    /// Makes a family without a unit.
    pub const fn plain(name: &'static str, help: &'static str) -> Self {
        Self { name: Cow::Borrowed(name), unit: None, help }
    }

    /// Makes a family of sizes in bytes.
    pub const fn bytes(name: &'static str, help: &'static str) -> Self {
        Self { name: Cow::Borrowed(name), unit: Some(Unit::Bytes), help }
    }

    /// Makes a family of times in seconds.
    pub const fn seconds(name: &'static str, help: &'static str) -> Self {
        Self { name: Cow::Borrowed(name), unit: Some(Unit::Seconds), help }
    }

    /// Makes the family of a figure of tables. The end of its name is its unit.
    pub fn of(figure: &Figure) -> Self {
        let name = format!("reverb_table_{}", figure.metric_name());
        let units = [("_bytes", Unit::Bytes), ("_seconds", Unit::Seconds)];
        let unit = units.into_iter().find(|(end, _)| name.ends_with(end));
        let stem = unit.as_ref().map_or(name.len(), |(end, _)| name.len() - end.len());
        let help = figure.metric.help.unwrap_or(figure.help);
        Self { name: name[..stem].to_owned().into(), unit: unit.map(|(_, unit)| unit), help }
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
}

impl From<&WaitHistogram> for Buckets {
    fn from(waits: &WaitHistogram) -> Self {
        let bounds = WAIT_BOUNDS.into_iter().chain([f64::INFINITY]);
        Self { sum: waits.sum_seconds, counts: bounds.zip(waits.counts).collect() }
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
        let mut encoder = self.0.encode_descriptor(&family.name, family.help, family.unit.as_ref(), kind)?;
        samples.try_for_each(|sample| write(&mut encoder, sample))
    }

    /// Writes facts as the labels of a sample whose value is 1.
    pub fn info(&mut self, family: &Family, labels: Labels<'_>) -> Result {
        let kind = MetricType::Info;
        self.0.encode_descriptor(&family.name, family.help, family.unit.as_ref(), kind)?.encode_info(&labels)
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
        let buckets = Buckets::of(&histogram, -1, 3, 2);
        assert_eq!(buckets.counts, [(0.5, 6), (2.0, 9), (8.0, 13), (f64::INFINITY, 17)]);
        assert_eq!(buckets.sum, 70.0);
    }

    #[test]
    fn bounds_below_those_of_the_histogram_stay_empty() {
        let mut histogram = Log2Histogram::default();
        histogram.counts[0] = 3;
        assert_eq!(Buckets::of(&histogram, -1, 1, 1).counts, [(0.5, 0), (1.0, 3), (2.0, 0), (f64::INFINITY, 0)]);
    }
}
