//! The unconfirmed items of a writer: those to be sent, and those that were sent.

use super::in_flight::InFlight;
use reverb_core::Error;
use reverb_core::writer::{WriterChunk, WriterItem};

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

/// Bytes that an item counts in addition to its columns and the data of its chunks.
const ITEM_BYTES: usize = 256;

/// Maximum number of items whose chunks are compressed at a time.
const COMPRESSED_AHEAD: usize = 64;

/// An item and its number.
#[derive(Debug)]
pub struct Pending {
    /// Items are numbered from 1 in the order in which they were made.
    pub sequence: u64,
    /// The item.
    pub item: WriterItem,
}

/// Whether all chunks of an item are closed.
pub fn is_ready(item: &WriterItem) -> bool {
    item.chunks().all(|chunk| chunk.is_closed())
}

/// Whether an item waits for an open chunk that may be closed early.
pub fn waits_for_chunk(item: &WriterItem) -> bool {
    !is_ready(item) && item.chunks().any(|chunk| chunk.closes_early())
}

/// Returns the bytes that an item counts in addition to the data of its chunks.
fn own_bytes(item: &WriterItem) -> usize {
    ITEM_BYTES + size_of_val(&*item.columns)
}

/// Items in order: those that were not sent yet, and those that were sent and are not confirmed.
#[derive(Debug, Default)]
pub struct Outbox {
    unsent: VecDeque<Pending>,
    in_flight: InFlight,
    last_sequence: u64,
    /// Chunks of all items by key, with the number of items that refer to each and the bytes it was counted as.
    chunks: HashMap<u64, (u32, usize), foldhash::fast::RandomState>,
    bytes: usize,
    confirmed: u64,
    /// Errors of items that the server refused, not yet reported to the caller.
    refused: VecDeque<Error>,
}

impl Outbox {
    /// Adds an item at the end.
    pub fn push(&mut self, item: WriterItem) {
        self.last_sequence += 1;
        self.bytes += own_bytes(&item);
        for chunk in item.chunks() {
            // An open chunk grows with each item, and is counted as it is now. `recount` corrects what closing it changes.
            let size = chunk.size_bytes();
            let (uses, counted) = self.chunks.entry(chunk.key).or_default();
            self.bytes = self.bytes - std::mem::replace(counted, size) + size;
            *uses += 1;
        }
        self.unsent.push_back(Pending { sequence: self.last_sequence, item });
    }

    /// Returns the size of the items and their chunks in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Corrects the counted sizes of the chunks of an item, which are closed now.
    fn recount(&mut self, item: &WriterItem) {
        for chunk in item.chunks() {
            if let Some((_, counted)) = self.chunks.get_mut(&chunk.key) {
                let size = chunk.size_bytes();
                self.bytes = self.bytes - *counted + size;
                *counted = size;
            }
        }
    }

    fn release(&mut self, item: &WriterItem) {
        self.bytes -= own_bytes(item);
        for chunk in item.chunks() {
            if let Some((uses, counted)) = self.chunks.get_mut(&chunk.key) {
                *uses -= 1;
                if *uses == 0 {
                    self.bytes -= *counted;
                    self.chunks.remove(&chunk.key);
                }
            }
        }
    }

    /// Returns the first unsent item.
    pub fn front(&self) -> Option<&WriterItem> {
        self.unsent.front().map(|pending| &pending.item)
    }

    /// Counts the unsent items at the front that have no open chunk, up to `at_most`.
    pub fn num_ready(&self, at_most: usize) -> usize {
        self.unsent.iter().take(at_most).take_while(|pending| is_ready(&pending.item)).count()
    }

    /// Returns the chunks of the first unsent items that are to be compressed before they are sent.
    pub fn uncompressed(&self) -> Vec<Arc<WriterChunk>> {
        let ready = self.unsent.iter().take(COMPRESSED_AHEAD).take_while(|pending| is_ready(&pending.item));
        let mut chunks: Vec<Arc<WriterChunk>> = Vec::new();
        for chunk in ready.flat_map(|pending| pending.item.chunks()) {
            if chunk.needs_compression() && !chunks.iter().any(|other| Arc::ptr_eq(other, chunk)) {
                chunks.push(chunk.clone());
            }
        }
        chunks
    }

    /// Moves the first unsent item to the sent ones. `use_it` gets its number and the item.
    pub fn send_front<T>(&mut self, use_it: impl FnOnce(u64, &WriterItem) -> T) -> Option<T> {
        let Pending { sequence, item } = self.unsent.pop_front()?;
        self.recount(&item);
        let used = use_it(sequence, &item);
        self.in_flight.push(sequence, item);
        Some(used)
    }

    /// Returns the sequence number of the first unsent item.
    pub fn next_sequence(&self) -> u64 {
        self.unsent.front().map_or(self.last_sequence + 1, |pending| pending.sequence)
    }

    /// Returns the greatest number up to which the results of all items are known.
    pub fn settled_through(&self) -> u64 {
        self.in_flight.first().unwrap_or_else(|| self.next_sequence()) - 1
    }

    /// Puts all sent items back to the unsent ones, in order. Called when the road was lost.
    pub fn return_all(&mut self) {
        for (sequence, item) in self.in_flight.take_all().rev() {
            self.unsent.push_front(Pending { sequence, item });
        }
    }

    /// Removes an item that is in its table now. Returns it, so that the caller can drop it without a lock.
    pub fn confirm(&mut self, sequence: u64) -> Option<WriterItem> {
        let item = self.in_flight.remove(sequence)?;
        self.release(&item);
        self.confirmed += 1;
        Some(item)
    }

    /// Removes an item that the server refused, and keeps the error. Returns the item like [`Outbox::confirm`].
    pub fn refuse(&mut self, sequence: u64, error: Error) -> Option<WriterItem> {
        let item = self.in_flight.remove(sequence)?;
        self.release(&item);
        self.refused.push_back(error);
        Some(item)
    }

    /// Keeps an error for the caller that concerns items which the outbox no longer has.
    pub fn keep_error(&mut self, error: Error) {
        self.refused.push_back(error);
    }

    /// Takes over what is known of the items of another outbox of the writer that were confirmed or refused.
    pub fn take_results(&mut self, other: &mut Self) {
        self.confirmed += std::mem::take(&mut other.confirmed);
        self.refused.append(&mut other.refused);
    }

    /// Takes the first error that was not reported to the caller.
    pub fn take_refusal(&mut self) -> Option<Error> {
        self.refused.pop_front()
    }

    /// Whether there is an error that was not reported to the caller.
    pub fn has_refusal(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Returns the number of unconfirmed items.
    pub fn len(&self) -> usize {
        self.unsent.len() + self.in_flight.len()
    }

    /// Returns the number of unsent items, and the number of sent items that are not confirmed.
    pub fn counts(&self) -> (usize, usize) {
        (self.unsent.len(), self.in_flight.len())
    }

    /// Returns the number of items confirmed so far.
    pub fn confirmed(&self) -> u64 {
        self.confirmed
    }

    /// Returns the chunks of all unsent items except the last `but_last`, open or closed.
    pub fn unsent_chunks(&self, but_last: usize) -> Vec<Arc<WriterChunk>> {
        let count = self.unsent.len().saturating_sub(but_last);
        let mut chunks: Vec<Arc<WriterChunk>> = Vec::new();
        for pending in self.unsent.iter().take(count) {
            for chunk in pending.item.chunks() {
                if chunks.last().is_none_or(|last| !Arc::ptr_eq(last, chunk)) {
                    chunks.push(chunk.clone());
                }
            }
        }
        chunks
    }

    /// Removes all items. Returns them, so that the caller can report them and drop them without a lock.
    pub fn take_all(&mut self) -> Vec<WriterItem> {
        self.bytes = 0;
        self.chunks.clear();
        let sent = self.in_flight.take_all().map(|(_, item)| item);
        sent.chain(std::mem::take(&mut self.unsent).into_iter().map(|pending| pending.item)).collect()
    }
}

/// Counts items by their tables.
pub fn count_items<'a>(items: impl Iterator<Item = &'a WriterItem>) -> BTreeMap<Arc<str>, usize> {
    let mut tables = BTreeMap::new();
    items.for_each(|item| *tables.entry(item.table.clone()).or_default() += 1);
    tables
}

/// Describes items by their number for each table.
pub fn name_items<'a>(items: impl Iterator<Item = &'a WriterItem>) -> String {
    name_counts(&count_items(items))
}

/// Describes the numbers of items for each table.
pub fn name_counts(tables: &BTreeMap<Arc<str>, usize>) -> String {
    let tables: Vec<_> = tables.iter().map(|(table, count)| format!("{count} for table `{table}`")).collect();
    tables.join(", ")
}

impl Outbox {
    /// Iterates over the unconfirmed items, in order.
    pub fn items(&self) -> impl Iterator<Item = &WriterItem> {
        self.in_flight.items().chain(self.unsent.iter().map(|pending| &pending.item))
    }

    /// Describes the unconfirmed items by their number for each table.
    pub fn describe(&self) -> String {
        name_items(self.items())
    }
}
