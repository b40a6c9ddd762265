//! Reads items of a table by their keys, or the newest one, without drawing them. Nothing is counted and no limiter is
//! asked.

use crate::batch::Batch;
use crate::decoding::{self, ITEMS_AT_ONCE};
use crate::peek::in_background;
use crate::peer::Peer;
use crate::replay::Replay;
use crate::stacking::stack;
use crate::table_handle::{TableHandle, WaitKind};
use reverb_core::gather::decoded_bytes;
use reverb_core::{Drawn, Error, ItemKey, ItemView, Result, Table};
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

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

/// Waits until the newest item of a table has another key than the one that was `seen`, and returns it, without a time axis
/// if it has one step. `None` at the end of `limit`. Any other key ends the wait: an item of a restored table, or one
/// inserted after a reset, is another one even if it is older. The waits of the table show the peer, and since when it has
/// waited.
///
/// # Errors
/// [`Error::TableNotFound`]; [`Error::InvalidArgument`] if the table does not know its newest item;
/// [`Error::ResourceExhausted`] if that has more than 1 GiB of data; [`Error::Cancelled`] if the service is closed.
pub async fn newer(
    replay: &Replay,
    table: &str,
    seen: Option<ItemKey>,
    (peer, since): (&Arc<Peer>, Instant),
    limit: Option<Instant>,
) -> Result<Option<Batch>> {
    let table = replay.table(table)?.clone();
    let watch = table.watchers().watch(WaitKind::Newer, peer.clone(), since);
    let mut closed = pin!(replay.closed());
    let mut late = pin!(async {
        match limit {
            Some(limit) => tokio::time::sleep_until(limit.into()).await,
            None => std::future::pending().await,
        }
    });
    loop {
        let mut changed = pin!(watch.changed());
        // From here on no change is missed.
        changed.as_mut().enable();
        let (newest, table_size) = table.with_table(|table| (newest(table), table.len() as u64));
        if let Some(item) = newest?.filter(|item| Some(item.key) != seen) {
            let (found, _) = read(table, vec![0], vec![Drawn::peeked(item, table_size)], true).await?;
            return Ok(Some(found.batch));
        }
        tokio::select! {
            () = changed => {}
            () = &mut closed => return Err(Error::Cancelled("the server was stopped".into())),
            () = &mut late => return Ok(None),
        }
    }
}

fn newest(table: &Table) -> Result<Option<ItemView>> {
    let newest = table.peek(1, true).ok_or_else(|| {
        let name = &table.config().name;
        Error::invalid(format!(
            "table `{name}` does not know its newest item: expected a Fifo or Lifo as its sampler or its remover"
        ))
    })?;
    Ok(newest.into_iter().next())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table_handle::Call;
    use reverb_core::{
        Chunk, Codec, DType, EpisodeIds, Layout, NewItem, RateLimiterConfig, SelectorKind, StepRange, TableConfig,
        Trajectory, encode_strings,
    };
    use std::time::Duration;

    fn config() -> TableConfig {
        let (min_diff, max_diff) = (-f64::MAX, f64::MAX);
        TableConfig {
            name: "table".into(),
            sampler: SelectorKind::Lifo,
            remover: SelectorKind::Fifo,
            max_size: 10,
            max_times_sampled: 0,
            rate_limiter: RateLimiterConfig { samples_per_insert: 1.0, min_size_to_sample: 1, min_diff, max_diff },
            signature: None,
            max_bytes: None,
            seed: Some(1),
        }
    }

    fn insert(table: &TableHandle, key: ItemKey, trajectory: Trajectory) {
        let item = NewItem { key, priority: 1.0, takes_largest: false, others: None, times_sampled: 0, trajectory };
        assert!(matches!(table.insert(vec![item], &Peer::in_same_process()), Call::Done(Ok(()))));
    }

    fn rows(rows: usize, dtype: DType, data: Vec<u8>, string_bytes: usize) -> Chunk {
        let shape = if dtype == DType::String { vec![] } else { vec![data.len() / rows] };
        let layout = Layout::new(rows, [(dtype, shape.into_iter().collect(), string_bytes)]).unwrap();
        Chunk::new(1, EpisodeIds::Same(1), StepRange::default(), Arc::new(layout), data.into()).unwrap()
    }

    #[tokio::test]
    async fn large_compressed_chunks_are_decoded_in_turn() {
        let table = TableHandle::new(Table::new(config()).unwrap());
        let chunk = rows(2048, DType::UInt8, vec![1; 2 << 20], 0);
        insert(&table, 1, Trajectory::rows(Arc::new(chunk.compress(Codec::Lz4, &[])), 0, 1).unwrap());
        let replay = Replay::new(vec![table], 1 << 20).unwrap();
        let others = decoding::turn(u64::MAX).await;
        let mut got = pin!(get(&replay, "table", &[1], &[]));
        let early = tokio::time::timeout(Duration::from_millis(200), got.as_mut()).await;
        assert!(early.is_err(), "the chunk was decoded without a turn");
        drop(others);
        assert_eq!(got.await.unwrap().num_keys, 1);
    }

    /// A row of a chunk of strings may have far more text than the others, by whose average items are counted.
    #[tokio::test]
    async fn long_strings_among_short_ones_come_in_several_answers() {
        let table = TableHandle::new(Table::new(config()).unwrap());
        let long = vec![b'x'; 3 << 20];
        let mut texts = vec![&b""[..]; 1000];
        texts[0] = &long;
        let data = encode_strings(texts.into_iter()).unwrap();
        let bytes = data.len();
        insert(&table, 1, Trajectory::rows(Arc::new(rows(1000, DType::String, data, bytes)), 0, 1).unwrap());
        let replay = Replay::new(vec![table], 1 << 20).unwrap();
        let keys = [1; 100];
        let mut first = 0;
        while first < keys.len() {
            let got = get(&replay, "table", &keys[first..], &[]).await.unwrap();
            let found = got.found.unwrap();
            assert!(found.batch.buffer.len() <= 2 * MAX_BYTES);
            assert_eq!(found.places, (0..got.num_keys as u32).collect::<Vec<_>>());
            first += got.num_keys;
        }
        assert_eq!(first, keys.len());
    }

    #[tokio::test]
    async fn another_item_ends_a_wait_and_so_does_the_end_of_the_service() {
        let trajectory = Trajectory::rows(Arc::new(rows(1, DType::UInt8, vec![1], 0)), 0, 1).unwrap();
        let table = TableHandle::new(Table::new(config()).unwrap());
        insert(&table, 7, trajectory.clone());
        let replay = Replay::new(vec![table.clone()], 1 << 20).unwrap();
        let here = (replay.this_process(), Instant::now());
        let mut waiting = pin!(newer(&replay, "table", Some(7), here, None));
        let early = tokio::time::timeout(Duration::from_millis(50), waiting.as_mut()).await;
        assert!(early.is_err(), "the item that was seen ended the wait");
        let waits = table.waits(10);
        assert_eq!(waits.iter().map(|wait| wait.kind).collect::<Vec<_>>(), [WaitKind::Newer]);
        assert!(waits[0].waited >= Duration::from_millis(50));
        table.reset().unwrap();
        let early = tokio::time::timeout(Duration::from_millis(50), waiting.as_mut()).await;
        assert!(early.is_err(), "an empty table ended the wait");
        insert(&table, 3, trajectory);
        assert_eq!(waiting.as_mut().await.unwrap().unwrap().info.keys(), [3]);
        assert!(table.waits(10).is_empty(), "the wait is over");
        let (closing, waiting) = (replay.clone(), newer(&replay, "table", Some(3), here, None));
        let close = async move { closing.close() };
        let (ended, ()) = tokio::join!(waiting, close);
        assert!(matches!(ended, Err(Error::Cancelled(_))), "{ended:?}");
    }
}
