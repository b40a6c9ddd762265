//! What all writers send their items with.

use crate::client::Client;
use crate::errors::PyReverbResult;
use crate::runtime::{runtime, wait};
use parking_lot::Mutex;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use reverb_core::writer::{ChunkCompression, DroppedChunks, WriterItem};
use reverb_transport::client::warn;
use reverb_transport::client::writer::{Session, SessionOptions};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of unconfirmed items past which the caller waits, and seconds that a lost server is looked for.
pub type Limits = (usize, f64);

/// A codec by name, and whether integers are stored as differences.
pub type CompressionOptions = (String, bool);

/// The compression that Python asks for.
pub fn compression((codec, delta): CompressionOptions) -> PyReverbResult<ChunkCompression> {
    Ok(ChunkCompression { codec: codec.parse()?, delta })
}

/// A session, and the names of tables that its items share.
pub struct Post {
    pub session: Session,
    tables: Mutex<Vec<Arc<str>>>,
}

impl Post {
    pub fn new(client: &Client, limits: Limits, dropped: DroppedChunks) -> Self {
        let options = SessionOptions {
            max_pending_bytes: limits.0,
            reconnect_timeout: Duration::try_from_secs_f64(limits.1).unwrap_or(Duration::MAX),
        };
        Self { session: Session::new(client.background().clone(), options, dropped), tables: Mutex::default() }
    }

    /// The name of a table, a str or bytes.
    pub fn table(&self, table: &Bound<'_, PyAny>) -> PyReverbResult<Arc<str>> {
        if let Ok(name) = table.cast::<PyString>() {
            return Ok(self.intern(&name.to_cow()?));
        }
        match table.cast::<PyBytes>() {
            Ok(name) => Ok(self.intern(&String::from_utf8_lossy(name.as_bytes()))),
            Err(_) => Err(PyTypeError::new_err(format!("table: expected a str, got {}", table.get_type())).into()),
        }
    }

    /// A name that items share.
    pub fn intern(&self, name: &str) -> Arc<str> {
        let mut tables = self.tables.lock();
        if let Some(known) = tables.iter().find(|known| &***known == name) {
            return known.clone();
        }
        tables.push(name.into());
        tables[tables.len() - 1].clone()
    }

    /// Queues items, and waits while too much is unconfirmed.
    pub fn push(&self, py: Python<'_>, items: impl IntoIterator<Item = WriterItem> + Send) -> PyReverbResult<()> {
        let runtime = runtime()?;
        let is_full = py.detach(|| self.session.push(runtime.1.handle(), items))?;
        if is_full {
            wait(py, self.session.room(warn))?;
        }
        Ok(())
    }

    /// Ends the session; what was given up, in words.
    pub fn close(&self, py: Python<'_>, patience: f64) -> PyReverbResult<Option<String>> {
        let patience = Duration::try_from_secs_f64(patience).unwrap_or(Duration::MAX);
        wait(py, async { Ok(self.session.close(patience).await) })
    }
}
