//! Reads items of a table by their keys, without drawing them. Nothing is counted and no limiter is asked.

use crate::batch::Batch;
use crate::decoding::{self, ITEMS_AT_ONCE};
use crate::peek::in_background;
use crate::replay::Replay;
use crate::stacking::stack;
use crate::table_handle::TableHandle;
use reverb_core::gather::decoded_bytes;
use reverb_core::{Drawn, Error, ItemKey, ItemView, Result};

/// Maximum number of keys that one answer is about. They are looked up under one lock.
pub const MAX_KEYS: usize = ITEMS_AT_ONCE;
// limit (Draws): data of one answer to `Client.get` | {}, or one item | the client asks again for the other keys
/// Number of data bytes after which an answer has no more items.
const MAX_BYTES: usize = 64 << 20;
// limit (Draws): data of an item that `Client.get` reads | {} | `ResourceExhaustedError`
/// Largest item that is read. An answer is one message, which a server holds whole.
const LARGEST_ITEM_BYTES: usize = 1 << 30;
/// Data of up to this many bytes is copied at once, because a thread of the blocking pool would cost more.
const COPIED_AT_ONCE_BYTES: usize = 1 << 20;

/// Items that were found by their keys.
#[derive(Debug)]
pub struct Found {
    /// The places of their keys among those that were asked for, rising.
    pub places: Vec<u32>,
    /// The items, one for each place.
    pub batch: Batch,
}

/// What is known of the first keys of a request.
#[derive(Debug)]
pub struct Got {
    /// The number of these keys: all of them, or fewer if their items have much data.
    pub num_keys: usize,
    /// Their items. `None` if the table has none of them.
    pub found: Option<Found>,
}

/// Returns the items of a table that have these keys: those of the first keys if there are many, or if they have much
/// data. Only the given columns of an item are read, in their order; without any, all of them. Must be called in the
/// context of a Tokio runtime. If the future is dropped, a copy that has begun goes on.
///
/// # Errors
/// [`Error::TableNotFound`]; [`Error::InvalidArgument`] if an item lacks a column, or if the items cannot be stacked;
/// [`Error::ResourceExhausted`] if an item has more than 1 GiB of data.
pub async fn get(replay: &Replay, table: &str, keys: &[ItemKey], columns: &[u32]) -> Result<Got> {
    let table = replay.table(table)?.clone();
    let keys = &keys[..keys.len().min(MAX_KEYS)];
    let (views, table_size) = table.with_table(|table| {
        let views: Vec<_> = keys.iter().map(|&key| table.get(key)).collect();
        (views, table.len() as u64)
    });
    let (mut places, mut items) = (Vec::new(), Vec::new());
    let (mut bytes, mut num_keys) = (0, 0);
    for (place, view) in views.into_iter().enumerate() {
        if let Some(view) = view {
            let item = with_columns(view, columns)?;
            bytes += item.trajectory.size_bytes() as usize;
            if bytes > MAX_BYTES && !items.is_empty() {
                break;
            }
            places.push(place as u32);
            items.push(Drawn::peeked(item, table_size));
        }
        num_keys = place + 1;
    }
    if items.is_empty() {
        return Ok(Got { num_keys, found: None });
    }
    let (found, next) = read(table, places, items, false).await?;
    Ok(Got { num_keys: next.unwrap_or(num_keys), found: Some(found) })
}

/// Copies items into a batch, and returns the place of the first key that is left out. Large ones take turns, and a thread
/// of the blocking pool.
async fn read(
    table: TableHandle,
    places: Vec<u32>,
    items: Vec<Drawn>,
    squeeze_time: bool,
) -> Result<(Found, Option<usize>)> {
    let bytes: u64 = items.iter().map(|item| item.trajectory.size_bytes()).sum();
    let turn = decoding::turn(decoded_bytes(items.iter().map(|item| &item.trajectory))).await;
    let is_quick = turn.is_none() && bytes <= COPIED_AT_ONCE_BYTES as u64;
    let copy = move || {
        let copied = copied(&table, places, items, squeeze_time);
        drop(turn);
        copied
    };
    if is_quick { copy() } else { in_background(copy).await? }
}

fn with_columns(item: ItemView, columns: &[u32]) -> Result<ItemView> {
    if columns.is_empty() {
        return Ok(item);
    }
    let trajectory = item.trajectory.only_columns(columns).ok_or_else(|| {
        let (key, count) = (item.key, item.trajectory.num_columns());
        let got = match columns.iter().find(|&&column| column as usize >= count) {
            Some(column) => format!("column {column}"),
            None => format!("{} columns", columns.len()),
        };
        Error::invalid(format!("item {key} has {count} columns, numbered from 0, got a request for {got}"))
    })?;
    Ok(ItemView { trajectory, ..item })
}

/// See [`read`]. Items are left out whose strings turn out to have much more text than others of their chunks.
fn copied(
    table: &TableHandle,
    mut places: Vec<u32>,
    mut items: Vec<Drawn>,
    squeeze_time: bool,
) -> Result<(Found, Option<usize>)> {
    let mut next = None;
    loop {
        let count = items.len();
        let mut gatherer = stack(table.name(), items, count, squeeze_time, drop)?;
        let size_bytes = gatherer.layout().size_bytes;
        if size_bytes <= if count == 1 { LARGEST_ITEM_BYTES } else { 2 * MAX_BYTES } {
            let batch = Batch::gather(&mut gatherer, table.signature_token());
            return Ok((Found { places, batch }, next));
        }
        items = gatherer.into_items();
        if count == 1 {
            let key = items[0].key;
            return Err(Error::ResourceExhausted(format!(
                "item {key} has {size_bytes} bytes of data; items of at most {LARGEST_ITEM_BYTES} bytes can be read by \
                 their keys"
            )));
        }
        items.truncate(count / 2);
        next = Some(places[count / 2] as usize);
        places.truncate(count / 2);
    }
}
