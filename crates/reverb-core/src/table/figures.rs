//! The figures of a table: what it counts and measures.
//!
//! Each is declared once, below. From the declaration come the fields of [`TableInfo`], their sums over servers, the
//! conversion to the messages of the network, and, by [`FIGURES`], the documents and metrics of a server and the class
//! of Python. A figure that a server does not tell is `None`, never 0.

use super::config::TableConfig;
use super::histograms::{Log2Histogram, WaitHistogram};
use super::removal::RemovalCounts;
use std::collections::BTreeMap;

/// Calls a macro with the declaration of all figures: `name ("public name"): type, metric, rule of its sum`. The name is
/// that of its field in the message `TableStatus`, and its end is its unit. The first line says what users read of it.
///
/// `reference` are the figures of dm-reverb, which every server tells. `first` are those that each server of our
/// protocol tells, `later` those that servers of earlier versions lack: both are `None` where they are not known.
#[macro_export]
macro_rules! table_figures {
    ($make:ident) => {
        $make! {
            reference {
                /// Items in the table.
                current_size ("items"): u64, GAUGE, Total;
                /// Distinct episodes that items refer to.
                num_episodes ("episodes"): u64, GAUGE, Total;
                /// Episodes whose last item has left the table.
                num_deleted_episodes ("deleted_episodes"): u64, GAUGE, Total;
                /// Items that were sampled at least once, also of those that have left.
                num_unique_samples ("unique_samples"): u64, GAUGE, Total;
                /// Items inserted since the last reset, also before a checkpoint.
                inserts: i64, GAUGE.named("limiter_inserts", "Inserts that the rate limiter counts."), Total;
                /// Items sampled since the last reset, also before a checkpoint, without samples that went back.
                samples: i64, GAUGE.named("limiter_samples", "Samples that the rate limiter counts."), Total;
                /// Time since the table was created.
                age_seconds: f64, GAUGE, Largest;
                /// Time during which at least one insert waited.
                insert_blocked_seconds: f64, BLOCKED.of("insert"), Total;
                /// Time during which at least one sample waited.
                sample_blocked_seconds: f64, BLOCKED.of("sample"), Total;
            }
            first {
                /// Size of the chunks that items refer to. Each chunk counts once.
                size_bytes ("bytes"): Option<u64>, GAUGE, Total;
                /// Samples that were drawn and have not arrived yet.
                undelivered_samples: Option<u64>, GAUGE, Total;
                /// Inserts that wait.
                waiting_inserts: Option<u64>, WAITING.of("insert"), Total;
                /// Samples that wait.
                waiting_samples: Option<u64>, WAITING.of("sample"), Total;
                /// Items that left the table, by reason. One that came back and left again counts twice.
                removed ("removals"): Option<RemovalCounts>, COUNTER, Total;
                /// Sum of the weights of all items in draws: for a prioritized sampler of their priorities to the power
                /// of its exponent, otherwise their number.
                weight: Option<f64>, GAUGE, Total;
            }
            later {
                /// Size of the rows that items refer to. A row counts once for each item.
                referenced_bytes: Option<u64>, GAUGE, Total;
                /// Estimated size of the table without its chunks: slots of items, index of keys, and selectors.
                index_bytes: Option<u64>, GAUGE, Total;
                /// Distinct chunks that items refer to.
                chunks: Option<u64>, GAUGE, Total;
                /// Items that left the table without a sample.
                unsampled_removals: Option<u64>, COUNTER, Total;
                /// Items whose priority was set after their insert.
                priority_updates: Option<u64>, COUNTER, Total;
                /// Size of the rows of inserted items.
                insert_bytes: Option<u64>, COUNTER, Total;
                /// Size of the rows of sampled items, also of samples that went back.
                sample_bytes: Option<u64>, COUNTER, Total;
                /// Unix time of the latest insert. Absent before the first.
                last_insert_at: Option<f64>, GAUGE.named("last_insert_timestamp_seconds", "Unix time of the latest insert."), Latest;
                /// Unix time of the latest sample. Absent before the first.
                last_sample_at: Option<f64>, GAUGE.named("last_sample_timestamp_seconds", "Unix time of the latest sample."), Latest;
                /// Time that the first waiting insert has waited. 0 if none waits.
                longest_insert_wait_seconds: Option<f64>, LONGEST.of("insert"), Largest;
                /// Time that the first waiting sample has waited. 0 if none waits.
                longest_sample_wait_seconds: Option<f64>, LONGEST.of("sample"), Largest;
                /// Time that inserts waited that do not wait any more.
                insert_wait_seconds: Option<WaitHistogram>, WAITS.of("insert"), Total;
                /// Time that samples waited that do not wait any more.
                sample_wait_seconds: Option<WaitHistogram>, WAITS.of("sample"), Total;
                /// Age of items when they were sampled.
                sample_age_seconds: Option<Log2Histogram>, histogram(-10, 20, 2), Total;
                /// Number of times that items had been sampled when they left.
                removed_times_sampled: Option<Log2Histogram>, histogram(-1, 16, 1), Total;
                /// Largest finite priority of inserts and updates since the last reset. 1 before the first above 0.
                largest_priority: Option<f64>, GAUGE, Largest;
                /// Items inserted since the server started.
                process_inserts: Option<u64>, COUNTER.named("inserts", "Items inserted since the server started."), Total;
                /// Items sampled since the server started, also of samples that went back.
                process_samples: Option<u64>, COUNTER.named("samples", "Items sampled since the server started."), Total;
                /// Samples that went back to the table, since their receiver never got them.
                returned_samples: Option<u64>, COUNTER, Total;
                /// Items that came back to the table after their last sample, which went back.
                returned_items: Option<u64>, COUNTER, Total;
                /// Items inserted, by the name of the program that inserted them: of at most 1,024, and of `others`.
                inserts_by_client: Option<ClientCounts>, NOT_A_METRIC, Total;
            }
        }
    };
}

const GAUGE: Metric = Metric { kind: MetricKind::Gauge, name: None, help: None, operation: None };
/// Of something that may have any number of values.
const NOT_A_METRIC: Metric = Metric { kind: MetricKind::None, ..GAUGE };
const COUNTER: Metric = Metric { kind: MetricKind::Counter, ..GAUGE };
const BLOCKED: Metric = COUNTER.named("blocked_seconds", "Time during which at least one request waited.");
const WAITING: Metric = GAUGE.named("waiting_requests", "Requests that wait at the table.");
const LONGEST: Metric =
    GAUGE.named("longest_wait_seconds", "Time that the first waiting request has waited. 0 if none waits.");
const WAITS: Metric = histogram(0, 0, 1).named("wait_seconds", "Time that requests waited that do not wait any more.");

macro_rules! declare {
    ($($group:ident {
        $($(#[doc = $help:literal])+ $name:ident $(($public:literal))?: $type:ty, $metric:expr, $sum:ident;)+
    })+) => {
        /// The configuration of a table and its figures at one moment.
        #[derive(Debug, Clone)]
        pub struct TableInfo {
            /// The configuration of the table.
            pub config: TableConfig,
            $($($(#[doc = $help])+ pub $name: $type,)+)+
        }

        impl TableInfo {
            /// Makes an info of a configuration. The figures of the reference are 0, and the others unknown.
            pub fn new(config: TableConfig) -> Self {
                Self { config, $($($name: Default::default(),)+)+ }
            }

            /// Adds the figures and the limits of a table of the same name and options.
            pub fn add(&mut self, other: &Self) {
                let (config, more) = (&mut self.config, &other.config);
                config.max_size = config.max_size.saturating_add(more.max_size).min(i64::MAX as u64);
                config.max_bytes.add(&more.max_bytes, Sum::Total);
                $($(self.$name.add(&other.$name, Sum::$sum);)+)+
            }
        }

        /// All figures, in the order of their declaration.
        pub static FIGURES: &[Figure] = &[$($(Figure {
            name: *[stringify!($name) $(, $public)?].last().unwrap(),
            help: concat!($($help),+).trim_ascii_start(),
            metric: $metric,
            value: |info| info.$name.value(),
        },)+)+];
    };
}

table_figures!(declare);

/// A figure: its name, what users read of it, and how it is read.
#[derive(Debug)]
pub struct Figure {
    /// Its name in documents and in Python.
    pub name: &'static str,
    /// What it means.
    pub help: &'static str,
    /// How it is shown as a metric.
    pub metric: Metric,
    /// Returns its value, and `None` if the server does not tell it.
    pub value: fn(&TableInfo) -> Option<FigureValue<'_>>,
}

impl Figure {
    /// The name of its metric, without the beginning `reverb_table_` of all of them.
    pub fn metric_name(&self) -> &'static str {
        self.metric.name.unwrap_or(self.name)
    }
}

/// The value of a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FigureValue<'a> {
    /// A count, or a size.
    Whole(u64),
    /// A measure.
    Real(f64),
    /// A count for each reason of removals.
    Removals(&'a RemovalCounts),
    /// A count for each client.
    Clients(&'a ClientCounts),
    /// A histogram of all values since the table was created.
    Log2(&'a Log2Histogram),
    /// A histogram of waits.
    Waits(&'a WaitHistogram),
}

/// How a figure is shown as a metric, whose name begins with `reverb_table_`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Metric {
    /// Its kind.
    pub kind: MetricKind,
    /// Its name, if not that of the figure.
    pub name: Option<&'static str>,
    /// What it means, if not what the figure means.
    pub help: Option<&'static str>,
    /// The label `operation`, for a metric of several figures.
    pub operation: Option<&'static str>,
}

/// The kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MetricKind {
    /// It is not shown as a metric.
    None,
    /// It can fall.
    Gauge,
    /// It only grows, from 0 at the start of the server.
    Counter,
    /// A histogram. Of one with powers of two as bounds, every `step`th from `2^lowest` to `2^highest` is shown.
    Histogram {
        /// Binary exponent of the lowest bound.
        lowest: i32,
        /// Binary exponent of the highest bound.
        highest: i32,
        /// Number of exponents from bound to bound.
        step: usize,
    },
}

const fn histogram(lowest: i32, highest: i32, step: usize) -> Metric {
    Metric { kind: MetricKind::Histogram { lowest, highest, step }, ..GAUGE }
}

impl Metric {
    const fn named(self, name: &'static str, help: &'static str) -> Self {
        Self { name: Some(name), help: Some(help), ..self }
    }

    const fn of(self, operation: &'static str) -> Self {
        Self { operation: Some(operation), ..self }
    }
}

/// How a figure adds up over servers, or over tables.
#[derive(Clone, Copy)]
enum Sum {
    /// The sum of all. Unknown if one of them is.
    Total,
    /// The largest of all. Unknown if one of them is.
    Largest,
    /// The largest of those that are known.
    Latest,
}

/// A type that a figure may have.
trait FigureType {
    fn add(&mut self, other: &Self, sum: Sum);

    fn value(&self) -> Option<FigureValue<'_>>;
}

macro_rules! numbers {
    ($($type:ty: $total:expr, $value:expr;)+) => {
        $(impl FigureType for $type {
            fn add(&mut self, other: &Self, sum: Sum) {
                *self = if let Sum::Total = sum { $total(*self, *other) } else { (*self).max(*other) };
            }

            fn value(&self) -> Option<FigureValue<'_>> {
                Some($value(*self))
            }
        })+
    };
}

numbers! {
    u64: u64::saturating_add, FigureValue::Whole;
    i64: i64::saturating_add, |count: i64| FigureValue::Whole(count.max(0) as u64);
    f64: std::ops::Add::add, FigureValue::Real;
}

fn add_counts(counts: &mut [u64], more: &[u64]) {
    counts.iter_mut().zip(more).for_each(|(count, more)| *count = count.saturating_add(*more));
}

impl FigureType for RemovalCounts {
    fn add(&mut self, other: &Self, sum: Sum) {
        self.by_reason_mut().into_iter().zip(other.by_reason()).for_each(|(count, (_, more))| count.add(&more, sum));
    }

    fn value(&self) -> Option<FigureValue<'_>> {
        Some(FigureValue::Removals(self))
    }
}

/// Counts by the names of clients.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientCounts(pub BTreeMap<String, u64>);

impl FigureType for ClientCounts {
    fn add(&mut self, other: &Self, sum: Sum) {
        other.0.iter().for_each(|(name, more)| self.0.entry(name.clone()).or_default().add(more, sum));
    }

    fn value(&self) -> Option<FigureValue<'_>> {
        Some(FigureValue::Clients(self))
    }
}

impl FigureType for Log2Histogram {
    fn add(&mut self, other: &Self, _: Sum) {
        add_counts(&mut self.counts, &other.counts);
        self.sum += other.sum;
    }

    fn value(&self) -> Option<FigureValue<'_>> {
        Some(FigureValue::Log2(self))
    }
}

impl FigureType for WaitHistogram {
    fn add(&mut self, other: &Self, _: Sum) {
        add_counts(&mut self.counts, &other.counts);
        self.sum_seconds += other.sum_seconds;
    }

    fn value(&self) -> Option<FigureValue<'_>> {
        Some(FigureValue::Waits(self))
    }
}

impl<T: FigureType + Clone> FigureType for Option<T> {
    fn add(&mut self, other: &Self, sum: Sum) {
        *self = match (self.take(), other.clone(), sum) {
            (Some(mut one), Some(other), _) => {
                one.add(&other, sum);
                Some(one)
            }
            (one, other, Sum::Latest) => one.or(other),
            _ => None,
        };
    }

    fn value(&self) -> Option<FigureValue<'_>> {
        self.as_ref()?.value()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum<T: FigureType + Clone>(one: &T, other: &T, sum: Sum) -> T {
        let mut all = one.clone();
        all.add(other, sum);
        all
    }

    #[test]
    fn a_sum_is_unknown_if_a_part_is() {
        assert_eq!(sum(&Some(1_u64), &Some(2), Sum::Total), Some(3));
        assert_eq!(sum(&Some(u64::MAX), &Some(2), Sum::Total), Some(u64::MAX));
        assert_eq!(sum(&Some(1.5), &Some(0.5), Sum::Largest), Some(1.5));
        for rule in [Sum::Total, Sum::Largest] {
            assert_eq!([sum(&Some(1.0), &None, rule), sum(&None, &Some(1.0), rule)], [None; 2]);
        }
    }

    #[test]
    fn the_latest_of_several_times_is_that_of_those_that_are_known() {
        for (one, other) in [(Some(1.0), Some(2.0)), (Some(2.0), None), (None, Some(2.0))] {
            assert_eq!(sum(&one, &other, Sum::Latest), Some(2.0));
        }
        assert_eq!(sum(&None::<f64>, &None, Sum::Latest), None);
    }

    #[test]
    fn removals_and_histograms_add_up_by_part() {
        let removed = RemovalCounts { max_size: 1, deleted: 2, ..RemovalCounts::default() };
        let both = RemovalCounts { max_size: 2, deleted: 4, ..RemovalCounts::default() };
        assert_eq!(sum(&removed, &removed, Sum::Total), both);
        let [one, other] = ["a", "b"].map(|name| ClientCounts([(name.into(), 1), ("both".into(), 2)].into()));
        let all = [("a".into(), 1), ("b".into(), 1), ("both".into(), 4)];
        assert_eq!(sum(&one, &other, Sum::Total), ClientCounts(all.into()));
        let waits = WaitHistogram { counts: [3; 20], sum_seconds: 0.5 };
        assert_eq!(sum(&waits, &waits, Sum::Total), WaitHistogram { counts: [6; 20], sum_seconds: 1.0 });
    }

    #[test]
    fn figures_of_one_metric_stand_together_and_have_one_kind() {
        let metrics: Vec<_> = FIGURES
            .chunk_by(|one, other| one.metric_name() == other.metric_name())
            .map(|figures| figures[0].metric_name())
            .collect();
        let distinct: std::collections::HashSet<_> = metrics.iter().collect();
        assert_eq!(distinct.len(), metrics.len(), "{metrics:?}");
    }
}
