//! Chunks: which of them the reader of the log has, and their bytes.
//!
//! The reader has to keep the chunks that an item may still refer to, and so the chunks of a *window*: those since the
//! beginning of the epoch or the last [`FORGET`]. A window ends when it has taken so much memory; chunks that are still
//! in use are then put into the log again, with the next item that refers to them.

use super::format::{CHUNK, EPISODE_PER_ROW, FORGET, HAS_LAYOUT, LAYOUT_SLOTS, SPARSE};
use super::input::Input;
use super::layout::{LoggedLayouts, put_layout, read_layout};
use super::output::{put_signed, put_u64, put_varint};
use crate::log::Payload;
use reverb_core::{Chunk, Codec, EpisodeIds, Layout, Result, StepRange};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Memory that the reader of the log needs for the chunks of a window, and about how much of it for a chunk without data.
const WINDOW_BYTES: u64 = 256 << 20;
const CHUNK_BYTES: u64 = 128;
/// Data of so many bytes is written to the log from the memory of the chunk. Less is copied: an entry in the lists of
/// pieces and of the kernel, and the 32 bytes that sharing adds to the data, are not worth it.
const PIECE_BYTES: usize = 4096;

/// Bits of a place that count the chunks of a window. It has at most 2^21 and those of one item, which has less than 2^22
/// slices.
const NUMBER_BITS: u32 = 24;
/// The windows of all logs of this process are counted in the other bits of a place. They do not come to an end: with a
/// window each millisecond, they are enough for 34 years.
static NEXT_WINDOW: AtomicU64 = AtomicU64::new(1);

/// Maximum number of bytes to which a byte of LZ4 decodes: one of a length says that there are 255 more.
const MAX_LZ4_RATIO: usize = 255;
/// The same for Zstandard: a block of 128 KiB takes at least four bytes.
const MAX_ZSTD_RATIO: usize = 32 << 10;

/// The chunks that the reader of the log has.
#[derive(Debug)]
pub struct LoggedChunks {
    /// The number of the window.
    window: u64,
    /// Number of chunks in it.
    count: u64,
    memory_bytes: u64,
    layouts: Box<LoggedLayouts>,
}

impl LoggedChunks {
    /// No chunks.
    pub fn new() -> Self {
        Self { window: next_window(), count: 0, memory_bytes: 0, layouts: Box::default() }
    }

    /// Begins a window without chunks.
    pub fn forget(&mut self) {
        (self.window, self.count, self.memory_bytes) = (next_window(), 0, 0);
        self.layouts.clear();
    }

    /// Begins a new window if this one is full. All chunks of an item are of one window.
    #[inline]
    pub fn begin_item(&mut self, payload: &mut Payload) {
        if self.memory_bytes >= WINDOW_BYTES {
            payload.own().push(FORGET);
            self.forget();
        }
    }

    /// Puts a chunk into the payload if the window does not have it. Returns its number.
    #[inline]
    pub fn put(&mut self, payload: &mut Payload, chunk: &Chunk) -> Result<u64> {
        let place = chunk.log_place();
        if place >> NUMBER_BITS == self.window {
            return Ok(place & ((1 << NUMBER_BITS) - 1));
        }
        self.put_new(payload, chunk)
    }

    fn put_new(&mut self, payload: &mut Payload, chunk: &Chunk) -> Result<u64> {
        // Reading the data of a packed chunk in this way leaves it packed.
        let mut scratch = Vec::new();
        let unpacked = if chunk.is_packed() { Some(chunk.view(&mut scratch)?.data()) } else { None };
        let out = payload.own();
        let (slot, is_new) = self.layouts.enter(chunk.layout());
        let (episode, per_row) = match chunk.episodes {
            EpisodeIds::Same(id) => (id, 0),
            EpisodeIds::PerRow(id) => (id, EPISODE_PER_ROW),
        };
        let StepRange { first, last, sparse } = chunk.steps;
        let flags = per_row | if is_new { HAS_LAYOUT } else { 0 } | if sparse { SPARSE } else { 0 };
        out.extend_from_slice(&[CHUNK, flags, slot]);
        if is_new {
            put_layout(out, chunk.layout());
        }
        put_u64(out, chunk.key);
        put_u64(out, episode);
        put_signed(out, first.into());
        put_signed(out, i64::from(last) - i64::from(first));
        let data_bytes = match unpacked {
            Some(data) => put_data(payload, data, || data.to_vec().into()),
            None => put_data(payload, chunk.data(), || chunk.data().clone()),
        };
        self.memory_bytes += CHUNK_BYTES + data_bytes as u64;
        let number = self.count;
        self.count += 1;
        debug_assert_eq!(number >> NUMBER_BITS, 0);
        chunk.set_log_place(self.window << NUMBER_BITS | number);
        Ok(number)
    }

    /// Returns by how many chunks this one comes before the newest.
    #[inline]
    pub fn distance(&self, number: u64) -> u64 {
        self.count - 1 - number
    }
}

fn next_window() -> u64 {
    NEXT_WINDOW.fetch_add(1, Relaxed)
}

/// Appends data and its number of bytes, which it returns.
fn put_data(payload: &mut Payload, data: &[u8], piece: impl FnOnce() -> bytes::Bytes) -> usize {
    put_varint(payload.own(), data.len() as u64);
    if data.len() < PIECE_BYTES {
        payload.own().extend_from_slice(data);
    } else {
        payload.put_piece(piece());
    }
    data.len()
}

/// The chunks of a window, as they are read from a log.
#[derive(Debug)]
pub struct ReadChunks {
    chunks: Vec<Arc<Chunk>>,
    layouts: Vec<Option<Arc<Layout>>>,
}

impl ReadChunks {
    /// No chunks.
    pub fn new() -> Self {
        Self { chunks: Vec::new(), layouts: vec![None; LAYOUT_SLOTS] }
    }

    /// Begins a window without chunks.
    pub fn forget(&mut self) {
        self.chunks.clear();
        self.layouts.fill(None);
    }

    /// Reads a chunk.
    pub fn read(&mut self, input: &mut Input<'_>) -> Result<()> {
        let flags = input.byte("the flags of a chunk")?;
        if flags & !(HAS_LAYOUT | EPISODE_PER_ROW | SPARSE) != 0 {
            return Err(input.unknown("a set of flags of a chunk", flags));
        }
        let slot = &mut self.layouts[usize::from(input.byte("the slot of a layout")?)];
        if flags & HAS_LAYOUT != 0 {
            *slot = Some(Arc::new(read_layout(input)?));
        }
        let layout = slot.clone().ok_or_else(|| input.damaged("a chunk has a layout that was not read before"))?;
        let key = input.u64("the key of a chunk")?;
        let episode = input.u64("the episode of a chunk")?;
        let episodes = match flags & EPISODE_PER_ROW {
            0 => EpisodeIds::Same(episode),
            _ => EpisodeIds::PerRow(episode),
        };
        let first: i32 = input.signed("the first step of a chunk")?;
        let steps: i64 = input.signed("the steps of a chunk")?;
        let last = i64::from(first).checked_add(steps).and_then(|last| i32::try_from(last).ok());
        let last = last.ok_or_else(|| input.damaged(format_args!("a chunk has {steps} steps after step {first}")))?;
        let steps = StepRange { first, last, sparse: flags & SPARSE != 0 };
        let data = input.data()?;
        check_ratio(input, &layout, data.len())?;
        let chunk = Chunk::new(key, episodes, steps, layout, data).map_err(|error| input.damaged(error))?;
        self.chunks.push(Arc::new(chunk));
        Ok(())
    }

    /// Reads which chunk a record refers to.
    #[inline]
    pub fn read_reference(&self, input: &mut Input<'_>) -> Result<&Arc<Chunk>> {
        let distance: usize = input.number("a chunk")?;
        let index = self.chunks.len().checked_sub(1).and_then(|newest| newest.checked_sub(distance));
        let index = index.ok_or_else(|| {
            let count = self.chunks.len();
            input.damaged(format_args!("an item refers to chunk {distance} before the newest of {count} chunks"))
        })?;
        Ok(&self.chunks[index])
    }
}

/// Refuses data that cannot decode to the size that its layout states. The chunk is decoded to check it, for which so
/// much memory is needed.
fn check_ratio(input: &Input<'_>, layout: &Layout, data_bytes: usize) -> Result<()> {
    let Some(encoding) = layout.encoding() else { return Ok(()) };
    let ratio = match encoding.codec {
        Codec::Lz4 => MAX_LZ4_RATIO,
        Codec::Zstd => MAX_ZSTD_RATIO,
    };
    if layout.size_bytes > data_bytes.saturating_mul(ratio) {
        let (size_bytes, codec) = (layout.size_bytes, encoding.codec.name());
        return Err(
            input.damaged(format_args!("{data_bytes} bytes of {codec} data cannot decode to {size_bytes} bytes"))
        );
    }
    Ok(())
}
