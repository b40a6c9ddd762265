//! The chunks that an insert stream holds for its items, and the memory of its waiting items.

use bytes::Bytes;
use foldhash::fast::RandomState;
use reverb_core::{Chunk, EpisodeIds, Error, Result, Slice, Trajectory, TrajectoryColumn};
use reverb_formats::chunk::{ChunkDecoder, key_of};
use reverb_formats::item::FindChunk;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// Bytes that a chunk counts in addition to its data.
const CHUNK_BYTES: usize = 512;
// limit (Beside dm-reverb): size from which chunks of dm-reverb's clients stay in their messages until one of our own
// readers draws them | {} | smaller ones are decoded at once
/// Size in bytes of chunks from which on they stay in their messages until one of our own readers draws them. Smaller
/// ones are decoded at once: they take less memory then, and are encoded again in a microsecond.
const KEPT_BYTES: usize = 1024;
/// Size in bytes from which the message of a chunk may stay where it was received.
const SHARED_BYTES: usize = 64 << 10;

/// The chunks that items of the stream may name, and those that its waiting items use.
///
/// A chunk counts until the stream has dropped it and no waiting item uses it.
#[derive(Debug)]
pub struct HeldChunks {
    decoder: ChunkDecoder,
    limit_bytes: u64,
    /// The chunks that the client has not dropped, by their keys.
    known: HashMap<u64, Arc<Chunk>, RandomState>,
    /// The waiting items by their numbers.
    waiting: HashMap<u64, WaitingItem, RandomState>,
    /// The chunks of waiting items, by their addresses: a client may use the key of a dropped chunk again.
    used: HashMap<usize, Use, RandomState>,
    bytes: usize,
}

#[derive(Debug)]
struct WaitingItem {
    key: u64,
    /// The distinct chunks.
    chunks: Vec<Arc<Chunk>>,
    /// Memory of the item in bytes.
    bytes: usize,
}

#[derive(Debug)]
struct Use {
    /// Number of waiting items.
    items: usize,
    is_dropped: bool,
}

impl HeldChunks {
    /// Holds nothing. The chunks of one message may have at most `limit_bytes` in all.
    pub fn new(limit_bytes: u64) -> Self {
        let (known, waiting, used) = (HashMap::default(), HashMap::default(), HashMap::default());
        let decoder = ChunkDecoder::new(limit_bytes).keep_messages(KEPT_BYTES);
        Self { decoder, limit_bytes, known, waiting, used, bytes: 0 }
    }

    /// Memory of the chunks and of the waiting items in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds the chunks of a message. Of chunks with the same key, the first stays.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if a chunk is damaged, [`Error::MessageTooLarge`] if one of them or all exceed the
    /// limit.
    pub fn add(&mut self, messages: Vec<Bytes>) -> Result<()> {
        let mut spent_bytes = 0;
        // A chunk that is most of what was allocated for its message stays there. Smaller ones are copied, since each
        // of them would keep the others.
        let shared_from = SHARED_BYTES.max(messages.iter().map(Bytes::len).sum::<usize>() / 2);
        for message in messages {
            let Entry::Vacant(place) = self.known.entry(key_of(&message).map_err(as_invalid)?) else { continue };
            self.decoder.set_spent(spent_bytes);
            let chunk = match message.len() >= shared_from {
                true => self.decoder.decode_shared(&message, EpisodeIds::Same),
                false => self.decoder.decode(&message, EpisodeIds::Same),
            };
            let chunk = chunk.map_err(as_invalid)?;
            self.bytes += chunk.size_bytes() + CHUNK_BYTES;
            // A packed chunk takes the memory of its message.
            let data_bytes = if chunk.is_packed() { message.len() } else { chunk.size_bytes() };
            place.insert(Arc::new(chunk));
            spent_bytes += (data_bytes + CHUNK_BYTES) as u64;
            if spent_bytes > self.limit_bytes {
                return Err(Error::MessageTooLarge {
                    what: "the memory of the chunks of a message".into(),
                    option: "max_message_size (an argument of reverb.Server)".into(),
                    size_bytes: spent_bytes,
                    limit_bytes: self.limit_bytes,
                });
            }
        }
        Ok(())
    }

    /// Drops all chunks but those with these keys. Returns the number of chunks that are left.
    pub fn keep_only(&mut self, mut keys: Vec<u64>) -> usize {
        keys.sort_unstable();
        let Self { known, used, bytes, .. } = self;
        known.retain(|key, chunk| {
            let is_kept = keys.binary_search(key).is_ok();
            if !is_kept {
                match used.get_mut(&address(chunk)) {
                    Some(used) => used.is_dropped = true,
                    None => *bytes -= chunk.size_bytes() + CHUNK_BYTES,
                }
            }
            is_kept
        });
        known.len()
    }

    /// Counts an item that waits from now on. `number` is unique in the stream, `key` is the key of the item.
    pub fn begin_wait(&mut self, number: u64, key: u64, trajectory: &Trajectory) {
        let mut chunks = Vec::new();
        trajectory.for_each_use(|chunk, _| chunks.push(chunk.clone()));
        chunks.sort_unstable_by_key(address);
        chunks.dedup_by_key(|chunk| address(chunk));
        chunks.shrink_to_fit();
        for chunk in &chunks {
            self.used.entry(address(chunk)).or_insert(Use { items: 0, is_dropped: false }).items += 1;
        }
        let bytes = trajectory_bytes(trajectory) + size_of::<WaitingItem>() + size_of_val(&*chunks);
        self.bytes += bytes;
        self.waiting.insert(number, WaitingItem { key, chunks, bytes });
    }

    /// Stops counting an item, which is in its table now or was refused. Returns its key.
    pub fn end_wait(&mut self, number: u64) -> Option<u64> {
        let WaitingItem { key, chunks, bytes } = self.waiting.remove(&number)?;
        self.bytes -= bytes;
        for chunk in chunks {
            let Entry::Occupied(mut used) = self.used.entry(address(&chunk)) else { continue };
            used.get_mut().items -= 1;
            if used.get().items == 0 && used.remove().is_dropped {
                self.bytes -= chunk.size_bytes() + CHUNK_BYTES;
            }
        }
        Some(key)
    }
}

impl FindChunk for HeldChunks {
    fn find(&mut self, key: u64) -> Result<&Arc<Chunk>> {
        self.known.get(&key).ok_or_else(|| Error::Internal(format!("Could not find sequence chunk {key}.")))
    }
}

/// The error of a client that has sent a damaged message.
pub fn as_invalid(error: Error) -> Error {
    match error {
        Error::DataLoss(reason) => Error::InvalidArgument(reason),
        error => error,
    }
}

fn trajectory_bytes(trajectory: &Trajectory) -> usize {
    let Trajectory::Columns(columns) = trajectory else { return 0 };
    // A column has room for one slice. More slices are in a list that doubles as it grows.
    let slices = |count: usize| if count > 1 { count.next_power_of_two() * size_of::<Slice>() } else { 0 };
    columns.iter().map(|column| size_of::<TrajectoryColumn>() + slices(column.slices.len())).sum()
}

fn address(chunk: &Arc<Chunk>) -> usize {
    Arc::as_ptr(chunk).addr()
}
