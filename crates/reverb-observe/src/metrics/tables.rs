//! The metrics of tables.

use super::families::{Buckets, Family, Number, Writer};
use reverb_core::{FIGURES, Figure, FigureValue, MetricKind, RateLimiter, TableInfo};
use reverb_service::{Progress, TableStatus, TableVerdict};
use std::collections::HashSet;
use std::fmt::Result;

// limit (HTTP, metrics and logs): tables with metrics of their own | {} | their sum is `table="other"`
/// Maximum number of tables with metrics of their own.
const MAX_TABLES: usize = 1000;
/// The label of the sum over the tables beyond the maximum.
const OTHERS: &str = "other";
/// The label of the sum over all tables.
const ALL: &str = "all";

/// One table, or the sum of several.
#[derive(Debug)]
struct Row {
    label: String,
    info: TableInfo,
    /// `None` for several tables, whose limiters have no sum.
    limiter: Option<RateLimiter>,
    /// Number of them that are stalled.
    stalled: u64,
}

impl Row {
    fn of(TableStatus { info, .. }: TableStatus, verdict: Option<&TableVerdict>) -> Self {
        let stalled = verdict.map_or(0, |verdict| u64::from(verdict.progress == Progress::Stalled));
        Self { label: info.config.name.clone(), limiter: Some(info.limiter()), info, stalled }
    }

    fn add(&mut self, other: &Self) {
        self.info.add(&other.info);
        self.stalled += other.stalled;
    }
}

/// The rows of all tables. At most [`MAX_TABLES`] have one of their own, none of which has a label twice.
fn rows(statuses: Vec<TableStatus>, verdicts: &[TableVerdict], sums_tables: bool) -> Vec<Row> {
    let (limit, rest) = if sums_tables { (0, ALL) } else { (MAX_TABLES, OTHERS) };
    let is_cut = statuses.len() > limit;
    let mut labels = HashSet::new();
    let mut rows: Vec<Row> = Vec::new();
    let mut sum: Option<Row> = None;
    // A table that the verdict has not seen yet is not stalled.
    let verdicts = verdicts.iter().map(Some).chain(std::iter::repeat(None));
    for row in statuses.into_iter().zip(verdicts).map(|(status, verdict)| Row::of(status, verdict)) {
        let is_own = rows.len() < limit && !(is_cut && row.label == rest) && labels.insert(row.label.clone());
        match &mut sum {
            _ if is_own => rows.push(row),
            Some(sum) => sum.add(&row),
            None => sum = Some(Row { label: rest.into(), limiter: None, ..row }),
        }
    }
    rows.extend(sum);
    rows
}

type Value = fn(&Row) -> Option<Number>;

fn bound(value: f64) -> f64 {
    if value.abs() < f64::MAX { value } else { value.signum() * f64::INFINITY }
}

/// The options of tables, and the verdict on them.
const OPTIONS: [(Family, Value); 8] = [
    (
        Family::plain(
            "reverb_table_stalled",
            "1 if the table is stalled, otherwise 0; of several tables, how many are.",
        ),
        |row| Some(row.stalled.into()),
    ),
    (Family::plain("reverb_table_max_items", "Maximum number of items in the table."), |row| {
        Some(row.info.config.max_size.into())
    }),
    (Family::bytes("reverb_table_max", "Limit of the table's size. Absent without a limit."), |row| {
        row.info.config.max_bytes.map(Number::from)
    }),
    (
        Family::plain(
            "reverb_table_limiter_diff",
            "How far the actors are ahead of the learner, in samples: inserts times samples per insert, less samples.",
        ),
        |row| Some(row.limiter.as_ref()?.balance().into()),
    ),
    (
        Family::plain(
            "reverb_table_limiter_min_diff",
            "The least that the diff may be: samples that would take it lower wait.",
        ),
        |row| Some(bound(row.limiter.as_ref()?.config.min_diff).into()),
    ),
    (
        Family::plain(
            "reverb_table_limiter_max_diff",
            "The most that the diff may be: inserts that would take it higher wait.",
        ),
        |row| Some(bound(row.limiter.as_ref()?.config.max_diff).into()),
    ),
    (Family::plain("reverb_table_limiter_samples_per_insert", "Samples per insert that the limiter aims at."), |row| {
        Some(row.limiter.as_ref()?.config.samples_per_insert.into())
    }),
    (Family::plain("reverb_table_limiter_min_size", "Number of items below which samples wait."), |row| {
        Some((row.limiter.as_ref()?.config.min_size_to_sample.max(0) as u64).into())
    }),
];

/// Writes the metrics of each table, or of their sum.
pub fn write(
    writer: &mut Writer<'_>,
    statuses: Vec<TableStatus>,
    verdicts: &[TableVerdict],
    sums_tables: bool,
) -> Result {
    let rows = rows(statuses, verdicts, sums_tables);
    let labels: Vec<[(&str, &str); 1]> = rows.iter().map(|row| [("table", row.label.as_str())]).collect();
    for (family, value) in &OPTIONS {
        let by_table = labels.iter().zip(&rows);
        writer.gauges(family, by_table.filter_map(|(labels, row)| Some((&labels[..], value(row)?))))?;
    }
    FIGURES
        .chunk_by(|one, other| one.metric_name() == other.metric_name())
        .try_for_each(|figures| write_figures(writer, &rows, figures))
}

/// Writes the figures of one family.
fn write_figures(writer: &mut Writer<'_>, rows: &[Row], figures: &[Figure]) -> Result {
    let (family, kind) = (Family::of(&figures[0]), figures[0].metric.kind);
    let (mut numbers, mut histograms) = (Vec::new(), Vec::new());
    for (row, figure) in rows.iter().flat_map(|row| figures.iter().map(move |figure| (row, figure))) {
        let operation = figure.metric.operation.map(|operation| ("operation", operation));
        let labels =
            |reason| [Some(("table", row.label.as_str())), operation, reason].into_iter().flatten().collect::<Vec<_>>();
        match (figure.value)(&row.info) {
            Some(FigureValue::Whole(value)) => numbers.push((labels(None), Number::Whole(value))),
            Some(FigureValue::Real(value)) => numbers.push((labels(None), Number::Real(value))),
            Some(FigureValue::Removals(removals)) => {
                let by_reason = removals.by_reason().into_iter();
                numbers.extend(by_reason.map(|(reason, count)| (labels(Some(("reason", reason))), count.into())));
            }
            Some(FigureValue::Waits(waits)) => histograms.push((labels(None), Buckets::from(waits))),
            Some(FigureValue::Log2(values)) => {
                let MetricKind::Histogram { lowest, highest, step } = kind else { continue };
                histograms.push((labels(None), Buckets::of(values, lowest, highest, step)));
            }
            Some(FigureValue::Clients(_)) | None => {}
        }
    }
    let numbers = numbers.iter().map(|(labels, number)| (&labels[..], *number));
    match kind {
        MetricKind::None => Ok(()),
        MetricKind::Gauge => writer.gauges(&family, numbers),
        MetricKind::Counter => writer.counters(&family, numbers),
        MetricKind::Histogram { .. } => {
            writer.histograms(&family, histograms.iter().map(|(labels, buckets)| (&labels[..], buckets)))
        }
    }
}
