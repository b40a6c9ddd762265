//! Reads items of a table without drawing them.
//!
//! Items are read from a snapshot, so peeking changes no counts and does not use up `max_times_sampled`.

use crate::batch::Batch;
use crate::table_handle::TableHandle;
use reverb_core::{ItemView, Result, Table};

/// Maximum number of items returned, and number of data bytes after which no more items are added.
const MAX_ITEMS: usize = 1000;
const MAX_BYTES: usize = 64 << 20;

/// An item as a batch of one, with its time of insertion.
#[derive(Debug)]
pub struct Peeked {
    /// The batch that holds the item.
    pub batch: Batch,
    /// Time of insertion in nanoseconds since the Unix epoch.
    pub inserted_at: u64,
}

/// Returns up to `count` items: the oldest in the order of insertion, or the newest in reverse order.
///
/// # Errors
/// [`Error::InvalidArgument`] if a single item does not fit into memory.
pub fn peek(table: &TableHandle, count: usize, newest: bool) -> Result<Vec<Peeked>> {
    let snapshot = table.with_table(Table::snapshot);
    let size = snapshot.num_items();
    let count = count.min(MAX_ITEMS);
    let mut items: Vec<ItemView> = match newest {
        true => snapshot.items().skip(size.saturating_sub(count)).collect(),
        false => snapshot.items().take(count).collect(),
    };
    if newest {
        items.reverse();
    }
    let mut peeked = Vec::with_capacity(items.len());
    let mut bytes = 0;
    for item in items {
        let inserted_at = item.inserted_at;
        let batch = Batch::of_items(&[item], size as u64, false, table.signature_token())?;
        bytes += batch.buffer.len();
        peeked.push(Peeked { batch, inserted_at });
        if bytes > MAX_BYTES {
            break;
        }
    }
    Ok(peeked)
}
