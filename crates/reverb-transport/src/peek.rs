//! A look at some items of a table that neither draws nor counts them.

use crate::checkpoint::to_batch;
use crate::client::Batch;
use crate::convert::{batch_from_wire, gathered_to_wire};
use crate::proto::replay::{PeekRequest, PeekResponse, peek_response};
use crate::table_handle::TableHandle;
use reverb_core::gather::BatchLayout;
use reverb_core::{Buffer, Error, ItemView, Result, Table};
use std::time::{Duration, Instant};

/// Items shown at most, and bytes of data after which no more are.
const MAX_ITEMS: usize = 1000;
const MAX_BYTES: usize = 64 << 20;

/// An item as a batch of one, and when it was inserted, in nanoseconds since the epoch.
#[derive(Debug)]
pub struct Peeked {
    /// The batch.
    pub batch: Batch,
    /// The time.
    pub inserted_at: u64,
}

/// Up to `count` items: the oldest, in the order in which they were inserted, or the newest, in the reverse order.
///
/// # Errors
/// [`Error::InvalidArgument`] if an item alone does not fit into memory.
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
        let batch = to_batch(&[item], size as u64, false, table.signature_token())?;
        bytes += batch.buffer.len();
        peeked.push(Peeked { batch, inserted_at });
        if bytes > MAX_BYTES {
            break;
        }
    }
    Ok(peeked)
}

/// As a message.
pub fn to_wire(items: &[Peeked], request: &PeekRequest) -> PeekResponse {
    debug_assert!(items.len() <= request.count as usize);
    let item = |item: &Peeked| peek_response::Item {
        batch: Some(gathered_to_wire(&item.batch)),
        // SAFETY: the batch was gathered whole.
        payload: unsafe { item.batch.buffer.to_vec() }.into(),
        inserted_at: item.inserted_at,
    };
    PeekResponse { items: items.iter().map(item).collect() }
}

/// From a message.
///
/// # Errors
/// [`Error::DataLoss`] if a payload is not as its batch says.
pub fn from_wire(response: PeekResponse) -> Result<Vec<Peeked>> {
    let item = |item: peek_response::Item| {
        let batch = item.batch.ok_or_else(|| Error::DataLoss("an item has no batch".into()))?;
        let (info, layout, signature_token) = batch_from_wire(batch)?;
        let buffer = to_buffer(&item.payload, &layout)?;
        Ok(Peeked {
            batch: Batch {
                info,
                layout,
                buffer,
                signature_token,
                receipt_may_wait: true,
                waited: Duration::ZERO,
                arrived: Instant::now(),
            },
            inserted_at: item.inserted_at,
        })
    };
    response.items.into_iter().map(item).collect()
}

fn to_buffer(payload: &[u8], layout: &BatchLayout) -> Result<Buffer> {
    if payload.len() != layout.size_bytes {
        let (got, expected) = (payload.len(), layout.size_bytes);
        return Err(Error::DataLoss(format!("an item has {got} bytes, its columns take {expected}")));
    }
    let mut buffer = Buffer::new(payload.len());
    for (target, byte) in buffer.as_uninit_mut().iter_mut().zip(payload) {
        target.write(*byte);
    }
    Ok(buffer)
}
