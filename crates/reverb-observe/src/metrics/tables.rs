//! The metrics of tables.

use super::families::{Buckets, Family, Labels, Number, Writer};
use crate::documents::diff;
use reverb_core::{RateLimiter, RemovalCounts, TableInfo};
use reverb_service::{TableStatus, WAIT_BOUNDS, WaitHistogram};
use std::collections::HashSet;
use std::fmt::Result;
use std::time::Duration;

// limit (HTTP, metrics and logs): tables with metrics of their own | {} | their sum is `table="other"`
/// Maximum number of tables with metrics of their own.
const MAX_TABLES: usize = 1000;
/// The label of the sum over the tables beyond the maximum.
const OTHERS: &str = "other";
/// The label of the sum over all tables.
const ALL: &str = "all";

/// The labels of requests that wait.
const OPERATIONS: [&str; 2] = ["insert", "sample"];
/// The labels of removals.
const REASONS: [&str; 5] = ["max_size", "max_bytes", "max_times_sampled", "delete", "reset"];

/// The values of one table, or the sums over several.
#[derive(Debug, Clone)]
struct Row {
    table: String,
    items: u64,
    max_items: u64,
    bytes: u64,
    max_bytes: Option<u64>,
    referenced_bytes: u64,
    episodes: u64,
    undelivered: u64,
    inserts: u64,
    samples: u64,
    removals: [u64; REASONS.len()],
    unsampled_removals: u64,
    priority_updates: u64,
    insert_bytes: u64,
    sample_bytes: u64,
    /// `None` for several tables, whose limiters have no sum.
    limiter: Option<RateLimiter>,
    waiting: [Waiting; OPERATIONS.len()],
    /// Seconds since the Unix epoch.
    last_insert: Option<f64>,
    last_sample: Option<f64>,
    sample_ages: Buckets,
    removed_times_sampled: Buckets,
}

/// The values of requests of one kind.
#[derive(Debug, Clone, Default)]
struct Waiting {
    requests: u64,
    longest_seconds: f64,
    blocked_seconds: f64,
    ended: Buckets,
}

impl Waiting {
    fn of(requests: usize, longest: Duration, blocked_milliseconds: u64, ended: &WaitHistogram) -> Self {
        let bounds = WAIT_BOUNDS.into_iter().chain([f64::INFINITY]);
        Self {
            requests: requests as u64,
            longest_seconds: longest.as_secs_f64(),
            blocked_seconds: blocked_milliseconds as f64 / 1e3,
            ended: Buckets { sum: ended.sum_seconds, counts: bounds.zip(ended.counts).collect() },
        }
    }

    fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.longest_seconds = self.longest_seconds.max(other.longest_seconds);
        self.blocked_seconds += other.blocked_seconds;
        self.ended.add(&other.ended);
    }
}

impl Row {
    fn of(status: TableStatus) -> Self {
        let limiter = status.info.limiter();
        let TableInfo { config, counters, removed, .. } = status.info;
        let RemovalCounts { max_size, max_bytes, max_times_sampled, deleted, reset } = removed;
        let time = |nanos: u64| (nanos > 0).then_some(nanos as f64 / 1e9);
        Self {
            table: config.name,
            items: status.info.current_size,
            max_items: config.max_size,
            bytes: status.info.bytes,
            max_bytes: config.max_bytes,
            referenced_bytes: status.info.referenced_bytes,
            episodes: status.info.num_episodes,
            undelivered: status.undelivered,
            inserts: status.info.inserts.max(0) as u64,
            samples: status.info.samples.max(0) as u64,
            removals: [max_size, max_bytes, max_times_sampled, deleted, reset],
            unsampled_removals: counters.unsampled_removals,
            priority_updates: counters.priority_updates,
            insert_bytes: counters.insert_bytes,
            sample_bytes: counters.sample_bytes,
            limiter: Some(limiter),
            waiting: [
                Waiting::of(
                    status.waiting_inserts,
                    status.longest_insert_wait,
                    status.waited.inserts_ms,
                    &status.insert_waits,
                ),
                Waiting::of(
                    status.waiting_samples,
                    status.longest_sample_wait,
                    status.waited.samples_ms,
                    &status.sample_waits,
                ),
            ],
            last_insert: time(counters.last_insert_nanos),
            last_sample: time(counters.last_sample_nanos),
            // From 1 ms to 12 days.
            sample_ages: Buckets::of(&counters.sample_age_seconds, -10, 20, 2),
            removed_times_sampled: Buckets::of(&counters.removed_times_sampled, -1, 16, 1),
        }
    }

    fn add(&mut self, other: Self) {
        self.items += other.items;
        self.max_items = self.max_items.saturating_add(other.max_items);
        self.bytes += other.bytes;
        self.max_bytes = self.max_bytes.zip(other.max_bytes).map(|(one, more)| one.saturating_add(more));
        self.referenced_bytes += other.referenced_bytes;
        self.episodes += other.episodes;
        self.undelivered += other.undelivered;
        self.inserts += other.inserts;
        self.samples += other.samples;
        for (count, more) in self.removals.iter_mut().zip(other.removals) {
            *count += more;
        }
        self.unsampled_removals += other.unsampled_removals;
        self.priority_updates += other.priority_updates;
        self.insert_bytes += other.insert_bytes;
        self.sample_bytes += other.sample_bytes;
        self.limiter = None;
        for (waiting, more) in self.waiting.iter_mut().zip(other.waiting) {
            waiting.add(&more);
        }
        self.last_insert = latest(self.last_insert, other.last_insert);
        self.last_sample = latest(self.last_sample, other.last_sample);
        self.sample_ages.add(&other.sample_ages);
        self.removed_times_sampled.add(&other.removed_times_sampled);
    }
}

fn latest(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    one.into_iter().chain(other).reduce(f64::max)
}

/// The rows of all tables. At most [`MAX_TABLES`] have one of their own, none of which has a label twice.
fn rows(statuses: Vec<TableStatus>, sums_tables: bool) -> Vec<Row> {
    let (limit, rest) = if sums_tables { (0, ALL) } else { (MAX_TABLES, OTHERS) };
    let is_cut = statuses.len() > limit;
    let mut labels = HashSet::new();
    let mut rows: Vec<Row> = Vec::new();
    let mut sum: Option<Row> = None;
    for row in statuses.into_iter().map(Row::of) {
        let is_own = rows.len() < limit && !(is_cut && row.table == rest) && labels.insert(row.table.clone());
        match &mut sum {
            _ if is_own => rows.push(row),
            Some(sum) => sum.add(row),
            None => sum = Some(Row { table: rest.into(), limiter: None, ..row }),
        }
    }
    rows.extend(sum);
    rows
}

type Value = fn(&Row) -> Option<Number>;

fn bound(value: f64) -> f64 {
    if value.abs() < f64::MAX { value } else { value.signum() * f64::INFINITY }
}

const GAUGES: &[(Family, Value)] = &[
    (Family::plain("reverb_table_items", "Items in the table."), |row| Some(row.items.into())),
    (Family::plain("reverb_table_max_items", "Maximum number of items in the table."), |row| {
        Some(row.max_items.into())
    }),
    (Family::bytes("reverb_table", "Size of the chunks that items refer to. Each chunk counts once."), |row| {
        Some(row.bytes.into())
    }),
    (Family::bytes("reverb_table_max", "Limit of the table's size. Absent without a limit."), |row| {
        row.max_bytes.map(Number::from)
    }),
    (
        Family::bytes(
            "reverb_table_referenced",
            "Size of the rows that items refer to. A row counts once for each item.",
        ),
        |row| Some(row.referenced_bytes.into()),
    ),
    (Family::plain("reverb_table_episodes", "Distinct episodes that items refer to."), |row| Some(row.episodes.into())),
    (Family::plain("reverb_table_undelivered_samples", "Samples that were drawn and have not arrived yet."), |row| {
        Some(row.undelivered.into())
    }),
    (
        Family::plain("reverb_table_limiter_diff", "Inserts times the limiter's samples per insert, less samples."),
        |row| Some(diff(row.limiter.as_ref()?).into()),
    ),
    (Family::plain("reverb_table_limiter_min_diff", "Lower bound of the diff: samples below it wait."), |row| {
        Some(bound(row.limiter.as_ref()?.config.min_diff).into())
    }),
    (Family::plain("reverb_table_limiter_max_diff", "Upper bound of the diff: inserts above it wait."), |row| {
        Some(bound(row.limiter.as_ref()?.config.max_diff).into())
    }),
    (Family::plain("reverb_table_limiter_samples_per_insert", "Samples per insert that the limiter aims at."), |row| {
        Some(row.limiter.as_ref()?.config.samples_per_insert.into())
    }),
    (Family::plain("reverb_table_limiter_min_size", "Number of items below which samples wait."), |row| {
        Some((row.limiter.as_ref()?.config.min_size_to_sample.max(0) as u64).into())
    }),
    (Family::seconds("reverb_table_last_insert_timestamp", "Unix time of the latest insert."), |row| {
        row.last_insert.map(Number::from)
    }),
    (Family::seconds("reverb_table_last_sample_timestamp", "Unix time of the latest sample."), |row| {
        row.last_sample.map(Number::from)
    }),
];

const COUNTERS: &[(Family, Value)] = &[
    (Family::plain("reverb_table_inserts", "Items inserted."), |row| Some(row.inserts.into())),
    (Family::plain("reverb_table_samples", "Items sampled."), |row| Some(row.samples.into())),
    (Family::plain("reverb_table_unsampled_removals", "Items that left the table without a sample."), |row| {
        Some(row.unsampled_removals.into())
    }),
    (Family::plain("reverb_table_priority_updates", "Items whose priority was set after their insert."), |row| {
        Some(row.priority_updates.into())
    }),
    (Family::bytes("reverb_table_insert", "Size of the rows of inserted items."), |row| Some(row.insert_bytes.into())),
    (Family::bytes("reverb_table_sample", "Size of the rows of sampled items."), |row| Some(row.sample_bytes.into())),
];

const REMOVALS: Family = Family::plain("reverb_table_removals", "Items that left the table, by reason.");
const WAITING: Family = Family::plain("reverb_table_waiting_requests", "Requests that wait at the table.");
const LONGEST: Family =
    Family::seconds("reverb_table_longest_wait", "Time that the first waiting request has waited. 0 if none waits.");
const WAITS: Family = Family::seconds("reverb_table_wait", "Time that requests waited that do not wait any more.");
const BLOCKED: Family = Family::seconds("reverb_table_blocked", "Time during which at least one request waited.");
const SAMPLE_AGES: Family = Family::seconds("reverb_table_sample_age", "Age of items when they were sampled.");
const TIMES_SAMPLED: Family =
    Family::plain("reverb_table_removed_times_sampled", "Number of times that items had been sampled when they left.");

/// Writes the metrics of each table, or of their sum.
pub fn write(writer: &mut Writer<'_>, statuses: Vec<TableStatus>, sums_tables: bool) -> Result {
    let rows = rows(statuses, sums_tables);
    let labels: Vec<[(&str, &str); 1]> = rows.iter().map(|row| [("table", row.table.as_str())]).collect();
    let by_table = || labels.iter().map(|labels| &labels[..]).zip(&rows);
    for (family, value) in GAUGES {
        writer.gauges(family, by_table().filter_map(|(labels, row)| Some((labels, value(row)?))))?;
    }
    for (family, value) in COUNTERS {
        writer.counters(family, by_table().filter_map(|(labels, row)| Some((labels, value(row)?))))?;
    }
    let reasons = with_label(&rows, "reason", &REASONS);
    let removals = rows.iter().flat_map(|row| row.removals.map(Number::from));
    writer.counters(&REMOVALS, reasons.iter().map(|labels| &labels[..]).zip(removals))?;
    let operations = with_label(&rows, "operation", &OPERATIONS);
    let by_operation =
        || operations.iter().map(|labels| -> Labels<'_> { labels }).zip(rows.iter().flat_map(|row| &row.waiting));
    writer.gauges(&WAITING, by_operation().map(|(labels, waiting)| (labels, waiting.requests.into())))?;
    writer.gauges(&LONGEST, by_operation().map(|(labels, waiting)| (labels, waiting.longest_seconds.into())))?;
    writer.histograms(&WAITS, by_operation().map(|(labels, waiting)| (labels, &waiting.ended)))?;
    writer.counters(&BLOCKED, by_operation().map(|(labels, waiting)| (labels, waiting.blocked_seconds.into())))?;
    writer.histograms(&SAMPLE_AGES, by_table().map(|(labels, row)| (labels, &row.sample_ages)))?;
    writer.histograms(&TIMES_SAMPLED, by_table().map(|(labels, row)| (labels, &row.removed_times_sampled)))
}

/// The labels of samples by table and by a second label.
fn with_label<'a>(rows: &'a [Row], name: &'static str, values: &[&'a str]) -> Vec<[(&'static str, &'a str); 2]> {
    let of_row = |row: &'a Row| values.iter().map(|&value| [("table", row.table.as_str()), (name, value)]);
    rows.iter().flat_map(of_row).collect()
}
