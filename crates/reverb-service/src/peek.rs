//! Reads items of a table without drawing them.
//!
//! Peeking changes no counts and does not use up `max_times_sampled`. A Fifo or Lifo selector knows the order of the
//! items. Without one, the items are found in one pass over the table, which lets others in after each step. At most two
//! such passes run at once.

use crate::batch::Batch;
use crate::decoding;
use crate::replay::Replay;
use crate::table_handle::TableHandle;
use reverb_core::gather::{Gatherer, decoded_bytes};
use reverb_core::{Drawn, Error, ItemPages, ItemView, PeekSearch, Result};

// limit (Draws): items of one `peek` | {}, or {MAX_BYTES} | fewer are shown
/// Maximum number of items returned, and number of data bytes after which no more items are added.
const MAX_ITEMS: usize = 1000;
const MAX_BYTES: usize = 64 << 20;
// limit (Draws): data of an item that `peek` shows | {} | `ResourceExhaustedError` if it is the first, else fewer are
// shown
/// Largest item that is shown. A few bytes of compressed data, named many times, can make an item of gigabytes.
const LARGEST_ITEM_BYTES: usize = 256 << 20;
/// Number of pages of 256 slots that are searched under one lock.
const PAGES_PER_LOCK: usize = 64;

/// An item as a batch of one, with its time of insertion.
#[derive(Debug)]
pub struct Peeked {
    /// The batch that holds the item.
    pub batch: Batch,
    /// Time of insertion in nanoseconds since the Unix epoch.
    pub inserted_at: u64,
}

/// Returns up to `count` items of a table: the oldest in the order of insertion, or the newest in reverse order. Must be
/// called in the context of a Tokio runtime. If the future is dropped, a pass that has begun goes on.
///
/// # Errors
/// [`Error::TableNotFound`]; [`Error::ResourceExhausted`] if the first item has more than 256 MiB of data.
pub async fn peek(replay: &Replay, table: &str, count: usize, newest: bool) -> Result<Vec<Peeked>> {
    let table = replay.table(table)?.clone();
    let order = if newest { ItemOrder::Newest } else { ItemOrder::Oldest };
    let items = first_items(replay, &table, count, order).await?;
    let turn = decoding::turn(decoded_bytes(items.iter().map(|item| &item.trajectory))).await;
    in_background(move || {
        let peeked = batches(&table, items);
        drop(turn);
        peeked
    })
    .await?
}

/// An order of the items of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ItemOrder {
    /// The items that were inserted first come first.
    Oldest,
    /// The items that were inserted last come first.
    Newest,
    /// The items with the highest priorities come first.
    Highest,
}

/// Returns the first items of a table in an order, at most 1000. They are neither drawn nor copied. Must be called in
/// the context of a Tokio runtime. If the future is dropped, a pass that has begun goes on.
///
/// # Errors
/// [`Error::Internal`] if the pass over the table panics.
pub async fn first_items(
    replay: &Replay,
    table: &TableHandle,
    count: usize,
    order: ItemOrder,
) -> Result<Vec<ItemView>> {
    let count = count.min(MAX_ITEMS);
    if let Some(known) = in_known_order(table, count, order) {
        return Ok(known);
    }
    let turn = replay.passes.clone().acquire_owned().await.ok();
    let table = table.clone();
    in_background(move || {
        let items = search(&table, count, order);
        drop(turn);
        items
    })
    .await
}

/// Returns the numbers of the items on up to `max_pages` pages, which are chosen at random, and the number of items.
pub fn random_items(table: &TableHandle, max_pages: usize) -> (ItemPages, usize) {
    let pages = table.with_table(reverb_core::Table::num_pages);
    let chosen = rand::seq::index::sample(&mut rand::rng(), pages, max_pages.min(pages));
    table.with_table(|table| (table.pages(chosen), table.len()))
}

/// Does work on a thread of the blocking pool.
pub(crate) async fn in_background<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let work = tokio::task::spawn_blocking(work);
    work.await.map_err(|error| Error::Internal(format!("the task of a read failed: {error}")))
}

/// Returns the first items if a selector keeps the order.
fn in_known_order(table: &TableHandle, count: usize, order: ItemOrder) -> Option<Vec<ItemView>> {
    match order {
        ItemOrder::Highest => None,
        order => table.with_table(|table| table.peek(count, order == ItemOrder::Newest)),
    }
}

/// Finds items in one pass over the table.
fn search(table: &TableHandle, count: usize, order: ItemOrder) -> Vec<ItemView> {
    let mut search = match order {
        ItemOrder::Highest => PeekSearch::by_priority(count),
        order => PeekSearch::new(count, order == ItemOrder::Newest),
    };
    let mut page = Some(0);
    while let Some(from) = page {
        page = table.with_table(|table| table.peek_pages(&mut search, from, PAGES_PER_LOCK));
    }
    table.with_table(|table| table.peeked(search))
}

fn batches(table: &TableHandle, items: Vec<ItemView>) -> Result<Vec<Peeked>> {
    let size = table.with_table(reverb_core::Table::len) as u64;
    let mut peeked = Vec::with_capacity(items.len());
    let mut bytes = 0;
    for item in items {
        let (key, inserted_at) = (item.key, item.inserted_at);
        let mut gatherer = Gatherer::new(vec![Drawn::peeked(item, size)], false)
            .map_err(|mismatch| Error::invalid(format!("item {key} does not fit into a batch: {}", mismatch.reason)))?;
        let item_bytes = gatherer.layout().size_bytes;
        if item_bytes > LARGEST_ITEM_BYTES {
            if !peeked.is_empty() {
                break;
            }
            return Err(Error::ResourceExhausted(format!(
                "item {key} has {item_bytes} bytes of data; items of at most {LARGEST_ITEM_BYTES} bytes can be shown"
            )));
        }
        let batch = Batch::gather(&mut gatherer, table.signature_token());
        bytes += batch.buffer.len();
        peeked.push(Peeked { batch, inserted_at });
        if bytes > MAX_BYTES {
            break;
        }
    }
    Ok(peeked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::Peer;
    use crate::table_handle::Call;
    use reverb_core::{
        Chunk, Codec, DType, EpisodeIds, Layout, NewItem, RateLimiterConfig, SelectorKind, StepRange, Table,
        TableConfig, Trajectory,
    };
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Waker};
    use std::time::Duration;

    fn table(name: &str, remover: SelectorKind) -> TableHandle {
        let rate_limiter = RateLimiterConfig {
            samples_per_insert: 1.0,
            min_size_to_sample: 1,
            min_diff: -f64::MAX,
            max_diff: f64::MAX,
        };
        let config = TableConfig {
            name: name.into(),
            sampler: SelectorKind::Uniform,
            remover,
            max_size: 10,
            max_times_sampled: 0,
            rate_limiter,
            signature: None,
            max_bytes: None,
            seed: Some(1),
        };
        TableHandle::new(Table::new(config).unwrap())
    }

    #[tokio::test]
    async fn a_third_pass_waits_and_a_look_at_a_table_in_order_does_not() {
        let tables = vec![table("ordered", SelectorKind::Fifo), table("heap", SelectorKind::MinHeap)];
        let replay = Replay::new(tables, 1 << 20).unwrap();
        let others = replay.passes.clone().acquire_many_owned(2).await.unwrap();
        let mut pass = pin!(peek(&replay, "heap", 1, true));
        assert!(pass.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(peek(&replay, "ordered", 1, true).await.unwrap().len(), 0);
        assert_eq!(replay.passes.available_permits(), 0);
        drop(others);
        assert_eq!(pass.await.unwrap().len(), 0);
        assert_eq!(replay.passes.available_permits(), 2);
    }

    #[tokio::test]
    async fn large_compressed_chunks_are_decoded_in_turn() {
        let layout = Layout::new(2048, [(DType::UInt8, [1024].into_iter().collect(), 0)]).unwrap();
        let episodes = EpisodeIds::Same(1);
        let chunk = Chunk::new(1, episodes, StepRange::default(), Arc::new(layout), vec![1; 2 << 20].into()).unwrap();
        let trajectory = Trajectory::rows(Arc::new(chunk.compress(Codec::Lz4, &[])), 0, 1).unwrap();
        let table = table("table", SelectorKind::Fifo);
        let item = NewItem { key: 1, priority: 1.0, takes_largest: false, others: None, times_sampled: 0, trajectory };
        assert!(matches!(table.insert(vec![item], &Peer::in_same_process()), Call::Done(Ok(()))));
        let replay = Replay::new(vec![table], 1 << 20).unwrap();
        let others = decoding::turn(u64::MAX).await;
        let mut peeked = pin!(peek(&replay, "table", 1, true));
        let early = tokio::time::timeout(Duration::from_millis(200), peeked.as_mut()).await;
        assert!(early.is_err(), "the chunk was decoded without a turn");
        drop(others);
        assert_eq!(peeked.await.unwrap().len(), 1);
    }
}
