//! Chunks: consecutive steps of one or more columns in one allocation, which never change once made.

use crate::column::Column;
use crate::compression;
use crate::encoding::{Codec, Encoding};
use crate::layout::{Layout, MAX_CHUNK_BYTES};
use crate::packed::{Packed, Unpack};
use crate::prefetch::prefetch;
use crate::{ChunkKey, DType, EpisodeId, Error, Result};
use bytes::Bytes;
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Whether this process ever had a compressed or packed chunk. Lets processes without such chunks skip the check in
/// every batch.
static ANY_COMPRESSED: AtomicBool = AtomicBool::new(false);
/// Whether this process ever had an interleaved chunk.
static ANY_INTERLEAVED: AtomicBool = AtomicBool::new(false);
/// The reference counts of an [`Arc`] lie before the value that it points to.
const COUNTS_BYTES: usize = 2 * size_of::<usize>();

/// The steps of an episode that a chunk covers, including both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StepRange {
    /// Step of the first row.
    pub first: i32,
    /// Step of the last row.
    pub last: i32,
    /// Whether the chunk lacks steps between the two.
    pub sparse: bool,
}

/// The episodes that the rows of a chunk belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EpisodeIds {
    /// All rows belong to one episode.
    Same(EpisodeId),
    /// Row `i` belongs to episode `first + i` (wrapping): the rows of a batch are unrelated.
    PerRow(EpisodeId),
}

/// The bytes of a chunk.
#[derive(Debug)]
enum Data {
    Held(Bytes),
    /// Bytes that are unpacked by their first reader.
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

/// An immutable block of steps. Items hold it by reference, and it is freed with the last of them.
#[derive(Debug)]
#[repr(C)]
pub struct Chunk {
    // What draws and removals read comes first, beside the counts: see `prefetch`.
    layout: Arc<Layout>,
    data: Data,
    /// Bytes of the data divided by the number of rows: saves a division for every item.
    bytes_per_row: u32,
    /// The number of the table that counts its uses in `used_cells`, or 0. See [`crate::TableUsage`].
    pub(crate) owner: AtomicU32,
    /// Number of cells that items of the owner use, counted once for each item. A cell is a row of a column.
    pub(crate) used_cells: AtomicU64,
    /// Key of the chunk, chosen by the writer.
    pub key: ChunkKey,
    /// Episodes of the rows.
    pub episodes: EpisodeIds,
    /// Steps that the chunk covers.
    pub steps: StepRange,
    /// See [`Chunk::log_place`].
    log_place: AtomicU64,
}

// With its counts, a chunk fits the size class of 120 bytes of glibc, and two cache lines.
const _: () = assert!(COUNTS_BYTES + size_of::<Chunk>() <= 120);

impl Chunk {
    /// Creates a chunk from its layout and bytes. Encoded bytes are decoded once here, so that a chunk which does not
    /// decode is refused at its origin. This needs no more memory than the layout states.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the data has, or decodes to, another number of bytes than the layout states; if
    /// the ends of a string column do not ascend within its region; if it has more than 65 536 rows and fewer bytes
    /// than rows; or if encoded data is not smaller than the data it
    /// decodes to. After this call every row can be read without a check.
    pub fn new(
        key: ChunkKey,
        episodes: EpisodeIds,
        steps: StepRange,
        layout: Arc<Layout>,
        data: Bytes,
    ) -> Result<Self> {
        layout.check_rows().map_err(|error| Error::invalid(format!("chunk {key}: {error}")))?;
        let (got, expected) = (data.len(), layout.held_bytes());
        if let Some(encoding) = layout.encoding() {
            // Empty data is never compressed, so sizes can be divisors.
            if got >= expected {
                let codec = encoding.codec.name();
                let text = format!(
                    "chunk {key}: {got} bytes of {codec} data decode to only {expected} bytes; do not compress it"
                );
                return Err(Error::invalid(text));
            }
        } else if got != expected {
            return Err(Error::invalid(format!("chunk {key}: expected {expected} bytes of data, got {got}")));
        }
        let chunk = Self::unchecked(key, episodes, steps, layout, Data::Held(data));
        if chunk.layout.is_interleaved() {
            // Only strings need a check, and an interleaved chunk has none.
            return Ok(chunk);
        }
        let mut scratch = Vec::new();
        let view = chunk.view(&mut scratch).map_err(|error| Error::invalid(error.to_string()))?;
        check_columns(key, view)?;
        Ok(chunk)
    }

    /// Creates a chunk whose bytes `source` makes when they are first read. Its sizes are those of the unpacked bytes.
    /// The layout has no columns of strings, whose ends would need a check, and no encoding.
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
        // A chunk has at least one row and less than 4 GiB.
        let bytes_per_row = (data.size_bytes(&layout) / layout.rows.max(1) as usize) as u32;
        let (owner, used_cells) = (AtomicU32::new(0), AtomicU64::new(0));
        let log_place = AtomicU64::new(0);
        Self { key, episodes, steps, layout, data, bytes_per_row, owner, used_cells, log_place }
    }

    /// Returns the same chunk with its bytes encoded. The bytes stay as they are if encoding would save less than a
    /// sixteenth, or if they are encoded already.
    ///
    /// # Arguments
    /// `delta` holds a flag for each column: whether to store differences between rows. Flags of columns that cannot be
    /// stored as differences are ignored; missing flags count as false.
    #[must_use]
    pub fn compress(&self, codec: Codec, delta: &[bool]) -> Self {
        self.compress_as(&Arc::new(compression::encoded_layout(&self.layout, codec, delta)))
    }

    /// As [`Chunk::compress`], with the encoded layout of this chunk given, so that many chunks can share it.
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

    /// Returns the same chunk, interleaved.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the chunk has strings; [`Error::DataLoss`] if its bytes do not decode.
    pub fn interleave(&self) -> Result<Self> {
        let layout = self.layout.interleaved()?;
        let mut scratch = Vec::new();
        let data = layout.interleave_bytes(self.view(&mut scratch)?.data());
        Ok(Self::unchecked(self.key, self.episodes, self.steps, Arc::new(layout), Data::Held(data.into())))
    }

    /// The encoding of [`Chunk::data`]; `None` if the data is not compressed.
    pub fn encoding(&self) -> Option<&Encoding> {
        self.layout.encoding()
    }

    /// Whether [`Chunk::data`] must be decoded, or separated into columns, before rows can be read.
    #[inline]
    pub fn is_encoded(&self) -> bool {
        self.layout.is_interleaved() || self.layout.encoding().is_some()
    }

    /// Prefetches what is needed to count a reference and uses, and to find the rows: a cache line, or two.
    #[inline]
    pub(crate) fn prefetch(this: &Arc<Self>) {
        let start = Arc::as_ptr(this).cast::<u8>();
        prefetch(start.wrapping_sub(COUNTS_BYTES));
        prefetch(start.wrapping_add(offset_of!(Self, key) - 1));
    }

    /// Whether this number of consecutive rows can be read from [`Chunk::data`] directly, once unpacked. True for all
    /// rows of a chunk that is not encoded, and for single rows of an interleaved one.
    #[inline]
    pub(crate) fn is_readable(&self, rows: u32) -> bool {
        self.layout.encoding().is_none() && (rows == 1 || !self.layout.is_interleaved())
    }

    /// Where a log has the chunk. What the number means is known to the log that has set it; 0 if none has.
    #[inline]
    pub fn log_place(&self) -> u64 {
        self.log_place.load(Relaxed)
    }

    /// Sets [`Chunk::log_place`]. Of several logs, the last one wins, so each must know its own numbers.
    #[inline]
    pub fn set_log_place(&self, place: u64) {
        self.log_place.store(place, Relaxed);
    }

    /// Whether the data is compressed.
    pub fn is_compressed(&self) -> bool {
        self.layout.encoding().is_some()
    }

    /// Whether [`Chunk::data`] must be unpacked first.
    #[inline]
    pub fn is_packed(&self) -> bool {
        match &self.data {
            Data::Held(_) => false,
            Data::Packed(packed) => !packed.is_unpacked(),
        }
    }

    /// Returns the message in which the chunk arrived, if it is still packed in one. See [`Unpack::message`].
    #[inline]
    pub fn message(&self) -> Option<Bytes> {
        match &self.data {
            Data::Held(_) => None,
            Data::Packed(packed) => packed.message(),
        }
    }

    /// Returns a view of the rows. Rows that must be decoded or unpacked are written to `scratch` by this call, so read
    /// as much as possible through one view.
    ///
    /// # Errors
    /// [`Error::DataLoss`] if the bytes do not decode, which [`Chunk::new`] has ruled out for every chunk it made.
    pub fn view<'a>(&'a self, scratch: &'a mut Vec<u8>) -> Result<ChunkView<'a>> {
        if self.layout.is_interleaved() {
            scratch.resize(self.layout.size_bytes, 0);
            self.layout.separate_bytes(self.data(), scratch);
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
            Error::DataLoss(format!(
                "chunk {}: its {codec} data does not decode to {size_bytes} bytes: {reason}",
                self.key
            ))
        })?;
        Ok(ChunkView { layout: &self.layout, data: scratch })
    }

    /// Whether a chunk of this process may be compressed or packed.
    #[inline]
    pub(crate) fn may_be_compressed() -> bool {
        // A thread that holds a compressed chunk received it after the flag was set.
        ANY_COMPRESSED.load(Relaxed)
    }

    /// Whether a chunk of this process may be interleaved.
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

    /// The places of the columns in [`Chunk::data`], or in the decoded data if it is encoded.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// Number of rows, the same for every column.
    pub fn rows(&self) -> u32 {
        self.layout.rows
    }

    /// The bytes of all columns, arranged as [`Layout::is_interleaved`] and [`Chunk::encoding`] state. Packed bytes are
    /// unpacked by this call and stay unpacked.
    #[inline]
    pub fn data(&self) -> &Bytes {
        match &self.data {
            Data::Held(data) => data,
            Data::Packed(packed) => packed.bytes(self.layout.size_bytes),
        }
    }

    /// Size of the data as it is stored: encoded if it is encoded, but unpacked, because its first reader unpacks it
    /// for good.
    pub fn size_bytes(&self) -> usize {
        self.data.size_bytes(&self.layout)
    }

    /// Size of the stored data divided by the number of rows, rounded down.
    pub fn bytes_per_row(&self) -> u64 {
        self.bytes_per_row.into()
    }

    /// Rows times columns.
    pub fn cells(&self) -> u64 {
        u64::from(self.rows()) * self.columns().len() as u64
    }

    /// Size of the decoded data.
    pub fn decoded_bytes(&self) -> usize {
        self.layout.size_bytes
    }

    /// As [`ChunkView::rows_of`], for a chunk that is not encoded or for one row of an interleaved chunk.
    #[inline]
    pub fn rows_of(&self, column: usize, first: u32, length: u32) -> &[u8] {
        debug_assert!(self.is_readable(length), "an encoded chunk is read through `view`");
        let column = &self.layout.columns[column];
        let start = column.start + first as usize * column.stride;
        &self.data()[start..start + length as usize * column.row_bytes]
    }

    /// As [`ChunkView::text_of`], for a chunk that is not encoded.
    pub(crate) fn text_of(&self, column: usize, first: usize, length: usize) -> Text<'_> {
        self.plain().text_of(column, first, length)
    }

    /// As [`ChunkView::strings_of`], for a chunk that is not encoded.
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
    /// Returns the bytes of rows `[first, first + length)` of a column of numbers. The caller has checked the range.
    #[inline]
    pub fn rows_of(self, column: usize, first: u32, length: u32) -> &'a [u8] {
        let column = &self.layout.columns[column];
        let start = column.offset + first as usize * column.row_bytes;
        &self.data[start..start + length as usize * column.row_bytes]
    }

    /// Returns elements `[first, first + length)` of a column of strings. The caller has checked the range.
    pub fn strings_of(self, column: usize, first: usize, length: usize) -> impl Iterator<Item = &'a [u8]> {
        let column = &self.layout.columns[column];
        let elements = column.elements * self.layout.rows as usize;
        let region = &self.data[column.offset..column.offset + column.size_bytes];
        let (ends, bytes) = region.split_at((elements + 1) * 4);
        (first..first + length).map(move |i| &bytes[end_of(ends, i)..end_of(ends, i + 1)])
    }

    /// Elements `[first, first + length)` of a column of strings, as they lie in the chunk. The caller has checked the
    /// range.
    pub(crate) fn text_of(self, column: usize, first: usize, length: usize) -> Text<'a> {
        let column = &self.layout.columns[column];
        let elements = column.elements * self.layout.rows as usize;
        let region = &self.data[column.offset..column.offset + column.size_bytes];
        let (ends, bytes) = region.split_at((elements + 1) * 4);
        let before = end_of(ends, first);
        let bytes = &bytes[before..end_of(ends, first + length)];
        Text { ends: &ends[4 * (first + 1)..4 * (first + length + 1)], before, bytes }
    }

    /// Size in bytes of elements `[first, first + length)` of a column of strings, without their ends. The caller has
    /// checked the range.
    pub(crate) fn text_bytes(self, column: usize, first: usize, length: usize) -> u64 {
        let ends = &self.data[self.layout.columns[column].offset..];
        (end_of(ends, first + length) - end_of(ends, first)) as u64
    }

    /// All bytes, arranged as the layout states.
    pub fn data(self) -> &'a [u8] {
        self.data
    }
}

/// Consecutive strings of a chunk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Text<'a> {
    ends: &'a [u8],
    /// Number of bytes of the strings before them in the chunk.
    before: usize,
    /// The strings, one after another.
    pub(crate) bytes: &'a [u8],
}

impl Text<'_> {
    /// Number of strings.
    pub(crate) fn len(self) -> usize {
        self.ends.len() / 4
    }

    /// Number of bytes of the strings up to and including string `index`.
    #[inline]
    pub(crate) fn end(self, index: usize) -> usize {
        end_of(self.ends, index) - self.before
    }
}

/// Entry `index` of the ends of a column of strings.
#[inline]
fn end_of(ends: &[u8], index: usize) -> usize {
    u32::from_le_bytes(ends[index * 4..index * 4 + 4].try_into().expect("four bytes")) as usize
}

/// Encodes a column of strings as its region in a chunk.
pub fn encode_strings<'a>(strings: impl ExactSizeIterator<Item = &'a [u8]> + Clone) -> Result<Vec<u8>> {
    let total: usize = strings.clone().map(<[u8]>::len).sum();
    let size = (strings.len() + 1) * 4 + total;
    if size > MAX_CHUNK_BYTES {
        return Err(Error::invalid(format!(
            "a column of strings has {size} bytes, more than the {MAX_CHUNK_BYTES} bytes of a chunk"
        )));
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

/// Checks the region of a column of strings.
///
/// # Errors
/// The string that does not fit, and how.
pub(crate) fn check_strings(region: &[u8], elements: usize) -> std::result::Result<(), String> {
    let ends_bytes = elements.saturating_add(1).saturating_mul(4);
    if region.len() < ends_bytes {
        return Err(format!("{elements} strings need at least {ends_bytes} bytes, got {}", region.len()));
    }
    let (ends, bytes) = region.split_at(ends_bytes);
    let mut previous = 0;
    for (i, end) in ends.chunks_exact(4).enumerate() {
        let end = u32::from_le_bytes(end.try_into().expect("four bytes")) as usize;
        if (i == 0 && end != 0) || end < previous || end > bytes.len() {
            return Err(format!("string {i} ends at {end}, expected {previous} to {}", bytes.len()));
        }
        previous = end;
    }
    Ok(())
}
