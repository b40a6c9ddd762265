//! The chunks that an insert stream holds for its items.

use crate::grpc::held_memory::{CHUNK_BYTES, HeldMemory, columns_bytes};
use bytes::Bytes;
use foldhash::fast::RandomState;
use reverb_core::{Chunk, EpisodeIds, Error, Result, Trajectory};
use reverb_formats::chunk::{ChunkDecoder, key_of, most_decoded_bytes};
use reverb_formats::item::FindChunk;
use reverb_service::decoding::decode;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

// limit (Beside dm-reverb): size from which chunks of dm-reverb's clients stay in their messages until one of our own
// readers draws them | {} | smaller ones are decoded at once
/// Size in bytes of chunks from which on they stay in their messages until one of our own readers draws them. Smaller
/// ones are decoded at once: they take less memory then, and are encoded again in a microsecond.
const KEPT_BYTES: usize = 1024;
/// Size in bytes from which the message of a chunk may stay where it was received.
const SHARED_BYTES: usize = 64 << 10;

/// The chunks that items of the stream may name, and their memory.
#[derive(Debug)]
pub struct HeldChunks {
    decoder: ChunkDecoder,
    limit_bytes: u64,
    /// The chunks that the client has not dropped, by their keys.
    known: HashMap<u64, Arc<Chunk>, RandomState>,
    /// Their memory, and that of the waiting items.
    pub memory: HeldMemory,
}

impl HeldChunks {
    /// Holds nothing. The chunks of one message may have at most `limit_bytes` in all.
    pub fn new(limit_bytes: u64) -> Self {
        let decoder = ChunkDecoder::new(limit_bytes).keep_messages(KEPT_BYTES);
        Self { decoder, limit_bytes, known: HashMap::default(), memory: HeldMemory::default() }
    }

    /// Adds the chunks of a message, in turn with others if many bytes are decoded for them. Of chunks with the same key, the first stays.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if a chunk is damaged, or if the stream holds too much; [`Error::MessageTooLarge`] if
    /// one chunk or all exceed the limit.
    pub async fn add(&mut self, messages: Vec<Bytes>) -> Result<()> {
        let most = messages.iter().map(|message| most_decoded_bytes(message)).sum::<u64>();
        decode(most.min(self.limit_bytes), || self.add_all(messages)).await
    }

    fn add_all(&mut self, messages: Vec<Bytes>) -> Result<()> {
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
            self.memory.add(1, chunk.size_bytes())?;
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
        let dropped = self.known.extract_if(|key, _| keys.binary_search(key).is_err());
        dropped.for_each(|(_, chunk)| self.memory.release(&chunk));
        self.known.len()
    }

    /// Counts an item that waits from now on. `number` is unique in the stream, `key` is the key of the item.
    pub fn begin_wait(&mut self, number: u64, key: u64, trajectory: &Trajectory) {
        let mut chunks = Vec::new();
        trajectory.for_each_use(|chunk, _| chunks.push(chunk.clone()));
        let bytes = match trajectory {
            Trajectory::Rows { .. } => 0,
            Trajectory::Columns(columns) => columns_bytes(columns.iter().map(|column| column.slices.len())),
        };
        self.memory.begin_wait(number, key, chunks, bytes);
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
