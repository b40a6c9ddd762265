//! `reverb._rust.Table`.

use crate::errors::{PyReverbError, PyReverbResult};
use crate::signature::{FlatSpec, to_signature};
use crate::without_gil::without_gil;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use reverb_core::{Error, RateLimiterConfig, SelectorKind, Table as CoreTable, TableConfig};
use reverb_formats::definitions::info_bytes;
use reverb_net::status_bytes;
use reverb_service::TableHandle;
use std::sync::Arc;
use std::time::Duration;

/// A table, with or without a server.
#[pyclass(frozen, module = "reverb._rust")]
pub struct Table {
    pub handle: TableHandle,
}

#[pymethods]
impl Table {
    #[new]
    #[expect(clippy::too_many_arguments, reason = "the Python class above it gathers them")]
    fn new(
        name: String,
        sampler: (String, f64),
        remover: (String, f64),
        max_size: u64,
        max_times_sampled: i32,
        rate_limiter: (f64, i64, f64, f64),
        signature: Option<&[u8]>,
        specs: Option<Vec<FlatSpec>>,
        max_bytes: Option<u64>,
        seed: Option<u64>,
        stall_after: Option<f64>,
    ) -> PyReverbResult<Self> {
        let config = TableConfig {
            name,
            sampler: selector(&sampler.0, sampler.1)?,
            remover: selector(&remover.0, remover.1)?,
            max_size,
            max_times_sampled,
            rate_limiter: limiter_config(rate_limiter),
            signature: match (signature, specs) {
                (Some(structure), Some(specs)) => Some(Arc::new(to_signature(structure, specs)?)),
                _ => None,
            },
            max_bytes,
            seed,
        };
        let handle = TableHandle::new(CoreTable::new(config)?);
        if let Some(seconds) = stall_after {
            // More seconds than a Duration can hold mean never.
            handle.set_stall_after(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX));
        }
        Ok(Self { handle })
    }

    #[getter]
    fn name(&self) -> &str {
        self.handle.name()
    }

    fn can_sample(&self, py: Python<'_>, n: i64) -> PyReverbResult<bool> {
        check_count("num_samples", n)?;
        Ok(without_gil(py, || self.handle.with_table(|table| table.can_sample(n))))
    }

    fn can_insert(&self, py: Python<'_>, n: i64) -> PyReverbResult<bool> {
        check_count("num_inserts", n)?;
        Ok(without_gil(py, || self.handle.with_table(|table| table.can_insert(n))))
    }

    fn info<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let status = without_gil(py, || self.handle.status());
        PyBytes::new(py, &info_bytes(&status.info))
    }

    fn status<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let status = without_gil(py, || self.handle.status());
        PyBytes::new(py, &status_bytes(&status))
    }

    fn close(&self, py: Python<'_>) {
        without_gil(py, || self.handle.close());
    }
}

/// The numbers of a rate limiter, in the order in which Python gives them.
pub fn limiter_config(numbers: (f64, i64, f64, f64)) -> RateLimiterConfig {
    let (samples_per_insert, min_size_to_sample, min_diff, max_diff) = numbers;
    RateLimiterConfig { samples_per_insert, min_size_to_sample, min_diff, max_diff }
}

/// Says in words for people what a rate limiter is for.
#[pyfunction]
pub fn limiter_rule(rate_limiter: (f64, i64, f64, f64)) -> String {
    limiter_config(rate_limiter).rule()
}

fn check_count(name: &str, count: i64) -> Result<(), PyReverbError> {
    if count >= 1 {
        return Ok(());
    }
    Err(Error::invalid(format!("{name} must be at least 1, got {count}")).into())
}

fn selector(name: &str, priority_exponent: f64) -> Result<SelectorKind, Error> {
    Ok(match name {
        "fifo" => SelectorKind::Fifo,
        "lifo" => SelectorKind::Lifo,
        "uniform" => SelectorKind::Uniform,
        "prioritized" => SelectorKind::Prioritized { priority_exponent },
        "min_heap" => SelectorKind::MinHeap,
        "max_heap" => SelectorKind::MaxHeap,
        _ => return Err(Error::invalid(format!("`{name}` is not a selector"))),
    })
}
