//! Puts samples together from the responses of a server, which may split them anywhere.

use super::chunk_cache::ChunkCache;
use crate::dm_reverb::proto::sample_stream_response::SampleEntry;
use crate::dm_reverb::proto::{SampleInfo, SampleStreamResponse};
use bytes::Bytes;
use reverb_core::{
    Chunk, Drawn, EpisodeIds, Error, ItemView, MAX_ITEM_BYTES, Result, Slice, Trajectory, TrajectoryColumn,
    keep_rows_encoded,
};
use reverb_formats::chunk::{ChunkDecoder, key_of};
use reverb_formats::item::{Chunks, ItemMessage};
use std::sync::Arc;

// limit (Beside dm-reverb): a message from a server of dm-reverb, and a chunk in it, decoded | {} |
// `ResourceExhaustedError`; `DataLossError`
/// Maximum number of bytes of a decoded chunk.
const MAX_CHUNK_BYTES: u64 = i32::MAX as u64;
/// Maximum number of bytes of a decoded chunk whose message may repeat strings. Servers of dm-reverb send no such ones.
const MAX_REPEATS_BYTES: u64 = 64 << 20;
// limit (Beside dm-reverb): whole chunks that the samples of one draw from a server of dm-reverb hold | {} | of further
// chunks, only the rows in use are kept
/// Number of bytes of the chunks of an answer above which only the rows are kept that samples refer to.
const WHOLE_CHUNK_BYTES: u64 = 64 << 20;
// limit (Beside dm-reverb): chunks of one sample from a server of dm-reverb | {}, and {limits.rs:MAX_ITEM_BYTES}
// decoded | `DataLossError`
/// Maximum number of chunks of a sample.
const MAX_CHUNKS: usize = 1 << 20;

/// Reads the samples of one request after another.
#[derive(Debug)]
pub struct SampleReader {
    cache: Arc<ChunkCache>,
    decoder: ChunkDecoder,
    /// The sample whose last entry has not arrived.
    begun: Option<Begun>,
    /// Number of bytes of the chunks of all samples.
    held_bytes: u64,
}

#[derive(Debug)]
struct Begun {
    info: SampleInfo,
    chunks: Chunks,
    num_chunks: usize,
    size_bytes: u64,
}

impl SampleReader {
    /// Creates a reader that decodes chunks only if they are not in the cache.
    pub fn new(cache: Arc<ChunkCache>) -> Self {
        let decoder = ChunkDecoder::new(MAX_CHUNK_BYTES).limit_repeats(MAX_REPEATS_BYTES);
        Self { cache, decoder, begun: None, held_bytes: 0 }
    }

    /// Adds the samples that a response completes to `drawn`, which must not exceed `wanted` samples.
    ///
    /// # Errors
    /// [`Error::DataLoss`] if the server sends more than it was asked for, or samples that are not complete or valid.
    pub fn read(&mut self, response: SampleStreamResponse, wanted: usize, drawn: &mut Vec<Drawn>) -> Result<()> {
        for entry in response.entries {
            if drawn.len() == wanted {
                return Err(Error::DataLoss("the server sent more samples than it was asked for".into()));
            }
            drawn.extend(self.read_entry(entry)?);
        }
        Ok(())
    }

    fn read_entry(&mut self, entry: SampleEntry) -> Result<Option<Drawn>> {
        let mut begun = match (self.begun.take(), entry.info) {
            (None, Some(info)) => Begun { info, chunks: Chunks::default(), num_chunks: 0, size_bytes: 0 },
            (Some(begun), None) => begun,
            (None, None) => return Err(Error::DataLoss("a sample has no description".into())),
            (Some(_), Some(_)) => return Err(Error::DataLoss("a sample ended without its last part".into())),
        };
        for message in entry.data {
            begun.add(self.chunk(&message)?)?;
        }
        if entry.end_of_sequence {
            let held_bytes = begun.size_bytes;
            let mut drawn = begun.into_drawn()?;
            // A batch must not take the memory of whole chunks if its samples are small parts of them.
            if self.held_bytes + held_bytes > WHOLE_CHUNK_BYTES && drawn.trajectory.size_bytes() < held_bytes / 2 {
                drawn.trajectory = without_other_rows(&drawn.trajectory)?;
                self.held_bytes += drawn.trajectory.size_bytes();
            } else {
                self.held_bytes += held_bytes;
            }
            return Ok(Some(drawn));
        }
        self.begun = Some(begun);
        Ok(None)
    }

    fn chunk(&mut self, message: &Bytes) -> Result<Arc<Chunk>> {
        let key = key_of(message)?;
        if let Some(known) = self.cache.find(key, message) {
            return Ok(known);
        }
        let chunk = Arc::new(self.decoder.decode(message, EpisodeIds::Same)?);
        self.cache.keep(message, &chunk);
        Ok(chunk)
    }
}

impl Begun {
    fn add(&mut self, chunk: Arc<Chunk>) -> Result<()> {
        self.num_chunks += 1;
        self.size_bytes += chunk.size_bytes() as u64;
        if self.num_chunks > MAX_CHUNKS || self.size_bytes > MAX_ITEM_BYTES {
            return Err(Error::DataLoss(format!(
                "a sample has {} chunks of {} bytes; the maximum is {MAX_CHUNKS} chunks of {MAX_ITEM_BYTES} bytes",
                self.num_chunks, self.size_bytes
            )));
        }
        self.chunks.push(chunk)
    }

    fn into_drawn(self) -> Result<Drawn> {
        let SampleInfo { item, probability, table_size, rate_limited } = self.info;
        let (item, inserted_at) = ItemMessage::read(&item)?.resolve(&mut self.chunks.finder())?;
        let view = ItemView {
            key: item.key,
            priority: item.priority,
            times_sampled: item.times_sampled,
            inserted_at,
            trajectory: item.trajectory,
        };
        let table_size = u64::try_from(table_size).unwrap_or_default();
        let mut drawn = Drawn::peeked(view, table_size);
        (drawn.probability, drawn.rate_limited) = (probability, rate_limited);
        Ok(drawn)
    }
}

/// Copies the rows of a trajectory to chunks of their own.
fn without_other_rows(trajectory: &Trajectory) -> Result<Trajectory> {
    let mut scratch = Vec::new();
    let mut copy = |chunk: &Chunk, offset: u32, length: u32| {
        let rows: Vec<u32> = (offset..offset + length).collect();
        keep_rows_encoded(chunk, &rows, &mut scratch).map(Arc::new)
    };
    let columns = match trajectory {
        &Trajectory::Rows { ref chunk, offset, length, squeeze } => {
            return Ok(Trajectory::Rows { chunk: copy(chunk, offset, length)?, offset: 0, length, squeeze });
        }
        Trajectory::Columns(columns) => columns,
    };
    let mut copy_slice = |slice: &Slice| {
        let chunk = copy(&slice.chunk, slice.offset, slice.length)?;
        Ok(Slice { chunk, column: slice.column, offset: 0, length: slice.length })
    };
    let copied = columns.iter().map(|column| {
        let slices = column.slices.iter().map(&mut copy_slice).collect::<Result<_>>()?;
        Ok(TrajectoryColumn { slices, squeeze: column.squeeze })
    });
    Trajectory::columns(copied.collect::<Result<_>>()?)
}
