//! Chunks: consecutive steps of one or more columns, in one allocation, never changed once made.

use crate::compression::{self, Codec, Encoding};
use crate::interleave;
use crate::layout::{Column, Layout, MAX_CHUNK_BYTES};
use crate::packed::{Packed, Unpack};
use crate::prefetch::prefetch;
use crate::{ChunkKey, DType, EpisodeId, Error, Result};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Whether this process ever had a compressed or packed chunk. Who has none must not pay for looking for one in every batch.
static ANY_COMPRESSED: AtomicBool = AtomicBool::new(false);
/// Whether it ever had an interleaved one.
static ANY_INTERLEAVED: AtomicBool = AtomicBool::new(false);
/// Before what an [`Arc`] points to lie its counts.
const COUNTS_BYTES: usize = 2 * size_of::<usize>();

/// The steps of an episode that a chunk covers, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StepRange {
    /// Step of the first row.
    pub first: i32,
    /// Step of the last row.
    pub last: i32,
    /// Whether steps in between are missing.
    pub sparse: bool,
}

/// Which episode the rows of a chunk belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EpisodeIds {
    /// All rows to one.
    Same(EpisodeId),
    /// Row `i` to the episode `first + i` (wrapping): a batch of rows that have nothing to do with each other.
    PerRow(EpisodeId),
}

/// The bytes of a chunk.
#[derive(Debug)]
enum Data {
    Held(Bytes),
    /// To be unpacked when they are first read.
    Packed(Box<Packed>),
}

impl Data {
    fn size_bytes(&self, layout: &Layout) -> usize {
        match self {
            Self::Held(data) => data.len(),
            Self::Packed(_) => layout.size_bytes,
        }
    }
}

/// An immutable block of steps. Items hold it by reference; it goes with the last of them.
#[derive(Debug)]
pub struct Chunk {
    /// Name of the chunk, made by the writer.
    pub key: ChunkKey,
    /// The episode of its rows.
    pub episodes: EpisodeIds,
    /// The steps it covers.
    pub steps: StepRange,
    layout: Arc<Layout>,
    data: Data,
    /// Bytes of the data by its rows: a division less for every item.
    bytes_per_row: u32,
    /// The table that counts its uses in `used_cells` (its number), or 0. See [`crate::TableUsage`].
    pub(crate) owner: AtomicU32,
    /// Cells (a row of a column) that items of the owner use, counted once an item.
    pub(crate) used_cells: AtomicU64,
}

impl Chunk {
    /// Puts a chunk together from its layout and bytes. Encoded bytes are decoded once here, so that a chunk which cannot
    /// be is refused where it comes from; that takes no more memory than the layout says.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the bytes are, or decode to, another number than the layout says, or the ends of a
    /// string column do not ascend within its region: after this call every row can be read without a check. Also if
    /// encoded bytes are not fewer than they stand for.
    pub fn new(
        key: ChunkKey,
        episodes: EpisodeIds,
        steps: StepRange,
        layout: Arc<Layout>,
        data: Bytes,
    ) -> Result<Self> {
        let (got, expected) = (data.len(), layout.held_bytes());
        if let Some(encoding) = layout.encoding() {
            // Nothing is never compressed, so sizes can be divided by.
            if got >= expected {
                let codec = encoding.codec.name();
                let text =
                    format!("chunk {key}: {got} bytes of {codec} for {expected} bytes of data: send it as it is");
                return Err(Error::invalid(text));
            }
        } else if got != expected {
            return Err(Error::invalid(format!("chunk {key}: expected {expected} bytes of data, got {got}")));
        }
        let chunk = Self::unchecked(key, episodes, steps, layout, Data::Held(data));
        if chunk.layout.is_interleaved() {
            // There are no strings, which are all that is checked.
            return Ok(chunk);
        }
        let mut scratch = Vec::new();
        let view = chunk.view(&mut scratch).map_err(|error| Error::invalid(error.to_string()))?;
        check_columns(key, view)?;
        Ok(chunk)
    }

    /// A chunk whose bytes are made by `source` when they are first read. Its sizes are those of the bytes that it will
    /// have. The layout has no columns of strings, whose ends would have to be checked, and says of no other encoding.
    pub fn packed(
        key: ChunkKey,
        episodes: EpisodeIds,
        steps: StepRange,
        layout: Arc<Layout>,
        source: Arc<dyn Unpack>,
    ) -> Self {
        debug_assert!(layout.encoding().is_none() && layout.columns.iter().all(|column| column.dtype != DType::String));
        Self::unchecked(key, episodes, steps, layout, Data::Packed(Box::new(Packed::new(source))))
    }

    fn unchecked(key: ChunkKey, episodes: EpisodeIds, steps: StepRange, layout: Arc<Layout>, data: Data) -> Self {
        if layout.is_interleaved() {
            ANY_INTERLEAVED.store(true, Relaxed);
        } else if layout.encoding().is_some() || matches!(data, Data::Packed(_)) {
            ANY_COMPRESSED.store(true, Relaxed);
        }
        // A chunk has a row at least, and less than 4 GiB.
        let bytes_per_row = (data.size_bytes(&layout) / layout.rows.max(1) as usize) as u32;
        let (owner, used_cells) = (AtomicU32::new(0), AtomicU64::new(0));
        Self { key, episodes, steps, layout, data, bytes_per_row, owner, used_cells }
    }

    /// The same chunk with its bytes encoded, or as they are if that would save less than a sixteenth, or if they are
    /// encoded already.
    ///
    /// # Arguments
    /// `delta` says for each column whether to store differences; columns that cannot are passed over, missing ones
    /// count as false.
    #[must_use]
    pub fn compress(&self, codec: Codec, delta: &[bool]) -> Self {
        self.compress_as(&Arc::new(compression::encoded_layout(&self.layout, codec, delta)))
    }

    /// [`Chunk::compress`] with a layout that many chunks can share: that of this chunk, encoded.
    #[must_use]
    pub(crate) fn compress_as(&self, encoded: &Arc<Layout>) -> Self {
        debug_assert_eq!((encoded.rows, encoded.size_bytes), (self.rows(), self.decoded_bytes()));
        let data = match (encoded.encoding(), self.is_encoded()) {
            (Some(encoding), false) => compression::encode(&self.layout, self.data(), encoding),
            _ => None,
        };
        let (layout, data) = match data {
            Some(data) => (encoded, data.into()),
            None => (&self.layout, self.data().clone()),
        };
        Self::unchecked(self.key, self.episodes, self.steps, layout.clone(), Data::Held(data))
    }

    /// The same chunk, interleaved.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if it has strings, [`Error::DataLoss`] if its bytes do not decode.
    pub fn interleave(&self) -> Result<Self> {
        let layout = self.layout.interleaved()?;
        let mut scratch = Vec::new();
        let data = interleave::encode(&layout, self.view(&mut scratch)?.data());
        Ok(Self::unchecked(self.key, self.episodes, self.steps, Arc::new(layout), Data::Held(data.into())))
    }

    /// How [`Chunk::data`] is compressed; `None` if it is not.
    pub fn encoding(&self) -> Option<&Encoding> {
        self.layout.encoding()
    }

    /// Whether [`Chunk::data`] has to be decoded, or put into columns, before any rows can be read.
    #[inline]
    pub fn is_encoded(&self) -> bool {
        self.layout.is_interleaved() || self.layout.encoding().is_some()
    }

    /// Begins to load what it takes to count a reference and to find the rows: of most chunks two cache lines.
    #[inline]
    pub(crate) fn prefetch(this: &Arc<Self>) {
        let start = Arc::as_ptr(this).cast::<u8>().wrapping_sub(COUNTS_BYTES);
        (0..COUNTS_BYTES + size_of::<Self>()).step_by(64).for_each(|byte| prefetch(start.wrapping_add(byte)));
        prefetch(start.wrapping_add(COUNTS_BYTES + size_of::<Self>() - 1));
    }

    /// Whether so many rows one after another can be read from [`Chunk::data`] as it is, if it is not packed: all of a
    /// chunk that is not encoded, single ones of an interleaved one.
    #[inline]
    pub(crate) fn is_readable(&self, rows: u32) -> bool {
        self.layout.encoding().is_none() && (rows == 1 || !self.layout.is_interleaved())
    }

    /// Whether its bytes are fewer than it stands for.
    pub fn is_compressed(&self) -> bool {
        self.layout.encoding().is_some()
    }

    /// Whether [`Chunk::data`] has to be unpacked first.
    #[inline]
    pub fn is_packed(&self) -> bool {
        match &self.data {
            Data::Held(_) => false,
            Data::Packed(packed) => !packed.is_unpacked(),
        }
    }

    /// The rows, to be read. If they have to be decoded or unpacked, that is done here and now, into `scratch`: read as
    /// much as you can through one view.
    ///
    /// # Errors
    /// [`Error::DataLoss`] if the bytes do not decode; those of a chunk that was made do.
    pub fn view<'a>(&'a self, scratch: &'a mut Vec<u8>) -> Result<ChunkView<'a>> {
        if self.layout.is_interleaved() {
            scratch.resize(self.layout.size_bytes, 0);
            interleave::decode(&self.layout, self.data(), scratch);
            return Ok(ChunkView { layout: &self.layout, data: scratch });
        }
        let Some(encoding) = self.encoding() else {
            let data = match &self.data {
                Data::Held(data) => data,
                Data::Packed(packed) => packed.peek(self.layout.size_bytes, scratch),
            };
            return Ok(ChunkView { layout: &self.layout, data });
        };
        scratch.resize(self.layout.size_bytes, 0);
        compression::decode(&self.layout, self.data(), encoding, scratch).map_err(|reason| {
            let (codec, size_bytes) = (encoding.codec.name(), self.layout.size_bytes);
            Error::DataLoss(format!("chunk {}: its {codec} does not decode to {size_bytes} bytes: {reason}", self.key))
        })?;
        Ok(ChunkView { layout: &self.layout, data: scratch })
    }

    /// Whether any chunk of this process may be compressed or packed.
    #[inline]
    pub(crate) fn may_be_compressed() -> bool {
        // Whoever holds a compressed chunk got it after the flag was set.
        ANY_COMPRESSED.load(Relaxed)
    }

    /// Whether any chunk of this process may be interleaved.
    #[inline]
    pub(crate) fn may_be_interleaved() -> bool {
        ANY_INTERLEAVED.load(Relaxed)
    }

    fn plain(&self) -> ChunkView<'_> {
        debug_assert!(!self.is_encoded(), "an encoded chunk is read through `view`");
        ChunkView { layout: &self.layout, data: self.data() }
    }

    /// The columns.
    pub fn columns(&self) -> &[Column] {
        &self.layout.columns
    }

    /// How the columns lie in [`Chunk::data`], or would if it were not encoded.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// Rows of every column.
    pub fn rows(&self) -> u32 {
        self.layout.rows
    }

    /// All columns' bytes, as [`Layout::is_interleaved`] and [`Chunk::encoding`] say. Packed ones are unpacked here and
    /// now, and stay so.
    #[inline]
    pub fn data(&self) -> &Bytes {
        match &self.data {
            Data::Held(data) => data,
            Data::Packed(packed) => packed.bytes(self.layout.size_bytes),
        }
    }

    /// Bytes of the data as it is held: encoded, if it is, but unpacked, since the first reader will leave it so.
    pub fn size_bytes(&self) -> usize {
        self.data.size_bytes(&self.layout)
    }

    /// Bytes of the data, as it is held, by row, rounded down.
    pub fn bytes_per_row(&self) -> u64 {
        self.bytes_per_row.into()
    }

    /// Rows times columns.
    pub fn cells(&self) -> u64 {
        u64::from(self.rows()) * self.columns().len() as u64
    }

    /// Bytes of the rows when they are not encoded.
    pub fn decoded_bytes(&self) -> usize {
        self.layout.size_bytes
    }

    /// [`ChunkView::rows_of`] of a chunk that is not encoded, or of one row of an interleaved chunk.
    #[inline]
    pub fn rows_of(&self, column: usize, first: u32, length: u32) -> &[u8] {
        debug_assert!(self.is_readable(length), "an encoded chunk is read through `view`");
        let column = &self.layout.columns[column];
        let start = column.start + first as usize * column.stride;
        &self.data()[start..start + length as usize * column.row_bytes]
    }

    /// [`ChunkView::strings_of`] of a chunk that is not encoded.
    pub fn strings_of(&self, column: usize, first: usize, length: usize) -> impl Iterator<Item = &[u8]> {
        self.plain().strings_of(column, first, length)
    }
}

/// The rows of a chunk, decoded.
#[derive(Debug, Clone, Copy)]
pub struct ChunkView<'a> {
    layout: &'a Layout,
    data: &'a [u8],
}

impl<'a> ChunkView<'a> {
    /// Bytes of rows `[first, first + length)` of a column of numbers. The caller has checked the range.
    #[inline]
    pub fn rows_of(self, column: usize, first: u32, length: u32) -> &'a [u8] {
        let column = &self.layout.columns[column];
        let start = column.offset + first as usize * column.row_bytes;
        &self.data[start..start + length as usize * column.row_bytes]
    }

    /// Elements `[first, first + length)` of a column of strings. The caller has checked the range.
    pub fn strings_of(self, column: usize, first: usize, length: usize) -> impl Iterator<Item = &'a [u8]> {
        let column = &self.layout.columns[column];
        let elements = column.elements * self.layout.rows as usize;
        let region = &self.data[column.offset..column.offset + column.size_bytes];
        let (ends, bytes) = region.split_at((elements + 1) * 4);
        let end = move |i: usize| u32::from_le_bytes(ends[i * 4..i * 4 + 4].try_into().expect("four bytes")) as usize;
        (first..first + length).map(move |i| &bytes[end(i)..end(i + 1)])
    }

    /// All bytes, as the layout says.
    pub fn data(self) -> &'a [u8] {
        self.data
    }
}

/// Writes a column of strings as a chunk's region holds it.
pub fn encode_strings<'a>(strings: impl ExactSizeIterator<Item = &'a [u8]> + Clone) -> Result<Vec<u8>> {
    let total: usize = strings.clone().map(<[u8]>::len).sum();
    let size = (strings.len() + 1) * 4 + total;
    if size > MAX_CHUNK_BYTES {
        return Err(Error::invalid(format!("a column of strings of {size} bytes passes {MAX_CHUNK_BYTES}")));
    }
    let mut region = Vec::with_capacity(size);
    let mut end = 0_u32;
    region.extend_from_slice(&end.to_le_bytes());
    for string in strings.clone() {
        end += string.len() as u32;
        region.extend_from_slice(&end.to_le_bytes());
    }
    strings.for_each(|string| region.extend_from_slice(string));
    Ok(region)
}

/// Checks what readers of rows rely on.
fn check_columns(key: ChunkKey, view: ChunkView<'_>) -> Result<()> {
    let ChunkView { layout, data } = view;
    for (index, column) in layout.columns.iter().enumerate() {
        if column.dtype == DType::String {
            let region = &data[column.offset..column.offset + column.size_bytes];
            check_strings(region, column.elements * layout.rows as usize)
                .map_err(|reason| Error::invalid(format!("chunk {key}, column {index}: {reason}")))?;
        }
    }
    Ok(())
}

fn check_strings(region: &[u8], elements: usize) -> std::result::Result<(), String> {
    let ends_bytes = (elements + 1) * 4;
    if region.len() < ends_bytes {
        return Err(format!("{elements} strings need at least {ends_bytes} bytes, got {}", region.len()));
    }
    let (ends, bytes) = region.split_at(ends_bytes);
    let mut previous = 0;
    for (i, end) in ends.chunks_exact(4).enumerate() {
        let end = u32::from_le_bytes(end.try_into().expect("four bytes")) as usize;
        if (i == 0 && end != 0) || end < previous || end > bytes.len() {
            return Err(format!("string {i} ends at {end}, outside {previous}..={}", bytes.len()));
        }
        previous = end;
    }
    Ok(())
}
