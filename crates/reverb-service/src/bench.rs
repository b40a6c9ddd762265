//! Tables for measurements of what a server carries. The service does not list, show or save them, and each goes with
//! its holder.

use crate::freed_memory::trim;
use crate::table_handle::TableHandle;
use parking_lot::Mutex;
use reverb_core::{Error, RateLimiterConfig, Result, SelectorKind, Table, TableConfig};
use std::sync::Arc;
use tokio::runtime::Handle;

/// What names of these tables begin with. A table of the service may have such a name too, and is then found first.
const PREFIX: &str = "reverb/bench/";
// limit (Tables): tables for measurements (`reverb bench`) of a server, and the size of each | {}; {MAX_BYTES},
// {MAX_ITEMS} items | `ResourceExhaustedError`; the oldest items leave
/// Maximum number of these tables at the same time.
const MAX_TABLES: usize = 4;
/// Maximum size of each. Its oldest items leave first.
const MAX_BYTES: u64 = 256 << 20;
/// Maximum number of items of each.
const MAX_ITEMS: u64 = 100_000;

/// The tables for measurements that exist now.
#[derive(Debug, Default)]
pub struct BenchTables(Mutex<Vec<TableHandle>>);

impl BenchTables {
    /// Makes an empty table with a name of its own. It draws at random, never lets a request wait once it has an item,
    /// and drops its oldest items when it is full.
    ///
    /// # Errors
    /// [`Error::ResourceExhausted`] if there are too many.
    pub fn make(self: &Arc<Self>) -> Result<BenchTable> {
        let limiter = RateLimiterConfig {
            samples_per_insert: 1.0,
            min_size_to_sample: 1,
            min_diff: -f64::MAX,
            max_diff: f64::MAX,
        };
        let table = TableHandle::new(Table::new(TableConfig {
            name: format!("{PREFIX}{:016x}", rand::random::<u64>()),
            sampler: SelectorKind::Uniform,
            remover: SelectorKind::Fifo,
            max_size: MAX_ITEMS,
            max_times_sampled: 0,
            rate_limiter: limiter,
            signature: None,
            max_bytes: Some(MAX_BYTES),
            seed: None,
        })?);
        let mut tables = self.0.lock();
        if tables.len() >= MAX_TABLES {
            return Err(Error::ResourceExhausted(format!(
                "{MAX_TABLES} measurements of this server are running; wait until one has ended"
            )));
        }
        tables.push(table.clone());
        drop(tables);
        Ok(BenchTable { tables: self.clone(), table })
    }

    /// Returns the table called `name`.
    pub(crate) fn find(&self, name: &str) -> Option<TableHandle> {
        // Other names take no lock.
        name.starts_with(PREFIX).then(|| self.0.lock().iter().find(|table| table.name() == name).cloned()).flatten()
    }

    /// Fails all requests that wait at the tables, and all later ones.
    pub(crate) fn close(&self) {
        self.0.lock().iter().for_each(TableHandle::close);
    }
}

/// A table for measurements, which exists until this is dropped.
#[derive(Debug)]
pub struct BenchTable {
    tables: Arc<BenchTables>,
    table: TableHandle,
}

impl BenchTable {
    /// Returns the name of the table.
    pub fn name(&self) -> &str {
        self.table.name()
    }
}

impl Drop for BenchTable {
    fn drop(&mut self) {
        self.tables.0.lock().retain(|table| table.name() != self.table.name());
        self.table.close();
        let table = self.table.clone();
        // Freeing hundreds of megabytes takes a while, and this may be a thread that serves connections.
        let free = move || {
            // Nothing else is left to do if it cannot be kept.
            let _kept = table.reset();
            trim();
        };
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(free)),
            Err(_) => free(),
        }
    }
}
