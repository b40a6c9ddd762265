//! Tables for measurements of what a server carries. They are no tables of the service: it does not list, show or save
//! them, and each goes with what holds it.

use crate::maintenance::trim;
use crate::replay::Replay;
use crate::table_handle::TableHandle;
use parking_lot::Mutex;
use reverb_core::{Error, RateLimiterConfig, Result, SelectorKind, Table, TableConfig};
use std::sync::Arc;
use tokio::runtime::Handle;

/// What names of these tables begin with. A table of the service may have such a name too, and is then found first.
const PREFIX: &str = "reverb/bench/";
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
    replay: Arc<Replay>,
    table: TableHandle,
}

impl BenchTable {
    /// Makes an empty table with a name of its own. It draws at random, never lets a request wait once it has an item,
    /// and drops its oldest items when it is full.
    ///
    /// # Errors
    /// [`Error::ResourceExhausted`] if there are too many.
    pub fn new(replay: Arc<Replay>) -> Result<Self> {
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
        let mut tables = replay.bench().0.lock();
        if tables.len() >= MAX_TABLES {
            return Err(Error::ResourceExhausted(format!(
                "{MAX_TABLES} measurements of this server are running; wait until one has ended"
            )));
        }
        tables.push(table.clone());
        drop(tables);
        Ok(Self { replay, table })
    }

    /// Returns the name of the table.
    pub fn name(&self) -> &str {
        self.table.name()
    }
}

impl Drop for BenchTable {
    fn drop(&mut self) {
        self.replay.bench().0.lock().retain(|table| table.name() != self.table.name());
        self.table.close();
        let table = self.table.clone();
        // Freeing hundreds of megabytes takes a while, and this may be a thread that serves connections.
        let free = move || {
            table.reset();
            trim();
        };
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(free)),
            Err(_) => free(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replay() -> Arc<Replay> {
        Replay::new(Vec::new(), 1 << 20).unwrap()
    }

    #[test]
    fn table_is_found_and_shown_nowhere_until_it_is_dropped() {
        let replay = replay();
        let made = BenchTable::new(replay.clone()).unwrap();
        let name = made.name().to_owned();
        assert_eq!(replay.served(&name).unwrap().name(), name);
        assert!(replay.table(&name).is_err());
        assert!(replay.tables().is_empty() && replay.status().is_empty());
        let held = replay.served(&name).unwrap();
        drop(made);
        assert!(matches!(replay.served(&name), Err(Error::TableNotFound { .. })));
        assert!(matches!(held.insert(Vec::new()), crate::Call::Done(Err(Error::Cancelled(_)))));
    }

    #[test]
    fn number_of_tables_is_limited() {
        let replay = replay();
        let mut made: Vec<_> = (0..MAX_TABLES).map(|_| BenchTable::new(replay.clone()).unwrap()).collect();
        assert!(matches!(BenchTable::new(replay.clone()), Err(Error::ResourceExhausted(_))));
        made.pop();
        BenchTable::new(replay).unwrap();
    }
}
