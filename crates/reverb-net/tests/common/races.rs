//! Tables that race, and what they count.

use super::{config, eventually, here, items};
use crate::done;
use reverb_core::{Table, TableConfig};
use reverb_service::TableHandle;

/// A table of items, each of which can be drawn once. The value of an item is its key.
pub fn once(name: &str, keys: impl IntoIterator<Item = u64>, seed: u64) -> TableHandle {
    let config = TableConfig { max_times_sampled: 1, seed: Some(seed), ..config(name) };
    let table = TableHandle::new(Table::new(config).unwrap());
    done!(table.insert(items(keys), here()));
    table
}

pub fn len(table: &TableHandle) -> usize {
    table.with_table(Table::len)
}

/// The number of items, of draws on their way, of samples, and of those that went back.
pub fn figures(table: &TableHandle) -> (usize, [u64; 3]) {
    let info = table.status().info;
    (len(table), [info.undelivered_samples, info.process_samples, info.returned_samples].map(Option::unwrap))
}

/// Waits until nothing is on its way, and the table has so many items.
pub async fn at_rest(table: &TableHandle, expected: usize) {
    eventually("the table comes to rest", || {
        let (len, [undelivered, ..]) = figures(table);
        (len, undelivered) == (expected, 0)
    })
    .await;
}
