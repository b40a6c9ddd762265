//! The counts of a table that may only grow.

use reverb_core::{FIGURES, FigureValue, MetricKind, TableInfo};

/// All counts that users see as counters and histograms.
pub fn counters(info: &TableInfo) -> Vec<f64> {
    let mut counts = Vec::with_capacity(128);
    for figure in FIGURES {
        if let MetricKind::Counter | MetricKind::Histogram { .. } = figure.metric.kind {
            match (figure.value)(info) {
                Some(FigureValue::Whole(count)) => counts.push(count as f64),
                Some(FigureValue::Real(value)) => counts.push(value),
                Some(FigureValue::Removals(counted)) => {
                    counts.extend(counted.by_reason().map(|(_, count)| count as f64));
                }
                Some(FigureValue::Log2(values)) => {
                    counts.push(values.sum);
                    counts.extend(values.counts.map(|count| count as f64));
                }
                Some(FigureValue::Waits(_) | FigureValue::Clients(_)) | None => {}
            }
        }
    }
    counts
}
