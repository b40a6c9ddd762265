//! Chunks that a writer fills step by step, and that then never change.

use super::options::ColumnOptions;
use super::row_bytes::{RowBytes, StreamChunks};
use crate::{
    Chunk, ChunkKey, Column, Compression, Compressor, DType, EpisodeId, EpisodeIds, Layout, RecentLayouts, Result,
    Shape, StepRange, random_key,
};
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// One value of a step. Its bytes are those of this column in a chunk of one row: numbers in C order, little-endian;
/// strings as their ends and then their bytes (see [`Column`]).
#[derive(Debug, Clone, Copy)]
pub struct Value<'a> {
    /// Element type.
    pub dtype: DType,
    /// Shape.
    pub shape: &'a [usize],
    /// The bytes.
    pub bytes: &'a [u8],
}

/// The compression of a writer's chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChunkCompression {
    /// The codec, or the way to find it.
    pub codec: Compression,
    /// Whether integers are stored as differences between rows.
    pub delta: bool,
}

impl ChunkCompression {
    fn compressor(self, num_columns: usize) -> Option<Compressor> {
        (self.codec != Compression::None).then(|| Compressor::new(self.codec, &vec![self.delta; num_columns]))
    }
}

/// The template of the chunks of a group of columns.
#[derive(Debug)]
pub struct ChunkTemplate {
    /// The writer's numbers of the columns, in the order of the columns in a chunk.
    pub ids: Box<[u32]>,
    /// The columns of a full chunk; the offsets of strings have no meaning.
    columns: Box<[Column]>,
    /// Whether the columns of a row lie side by side.
    is_interleaved: bool,
    has_strings: bool,
    /// Number of rows of a full chunk.
    pub max_rows: u32,
    /// Whether the writer wants integers to be stored as differences between rows.
    pub is_delta_encoded: bool,
    /// See [`WriterChunk::closes_early`].
    closes_early: bool,
    /// Size of a full chunk in bytes without strings.
    size_bytes: usize,
    /// Compresses the chunks; `None` if they stay uncompressed.
    compressor: Option<Mutex<Compressor>>,
    layouts: Mutex<RecentLayouts>,
}

impl ChunkTemplate {
    /// Creates a template of chunks with `max_rows` rows of these columns (number, dtype, shape of a row). If items can
    /// have single rows only, the columns of a row lie side by side where that makes draws faster.
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] if a full chunk would exceed 4 GiB.
    pub fn new(
        columns: &[(u32, DType, Shape)],
        max_rows: u32,
        options: ColumnOptions,
        compression: ChunkCompression,
    ) -> Result<Self> {
        let specs = columns.iter().map(|(_, dtype, shape)| (*dtype, shape.clone(), 0));
        let mut layout = Layout::new(max_rows as usize, specs)?;
        // Interleaved bytes are never compressed.
        if options.num_keep_alive_refs == 1 && compression.codec == Compression::None && layout.is_drawn_better_by_row()
        {
            layout = layout.interleaved()?;
        }
        Ok(Self {
            ids: columns.iter().map(|(id, ..)| *id).collect(),
            has_strings: columns.iter().any(|(_, dtype, _)| *dtype == DType::String),
            max_rows,
            is_delta_encoded: compression.delta,
            closes_early: options.max_chunk_length.is_none(),
            size_bytes: layout.held_bytes(),
            is_interleaved: layout.is_interleaved(),
            compressor: compression.compressor(columns.len()).map(Mutex::new),
            columns: layout.columns,
            layouts: Mutex::default(),
        })
    }

    /// Shape of a row of the column at `index`.
    pub fn shape(&self, index: u32) -> &Shape {
        &self.columns[index as usize].shape
    }

    /// Makes room for the numbers of a full chunk. What is compressed, or has strings, is copied again.
    fn row_bytes(&self, stream: &StreamChunks) -> RowBytes {
        let is_copied = self.has_strings || self.compressor.is_some();
        let ends = self.columns.iter().map(|column| column.offset + column.size_bytes);
        let starts = self.columns.iter().map(|column| column.offset).chain([self.size_bytes]);
        // Interleaved columns leave none.
        let gaps = [0].into_iter().chain(ends).zip(starts).filter(|_| !self.is_interleaved);
        let is_one_row = self.max_rows == 1 && !self.has_strings;
        RowBytes::new(Some(stream).filter(|_| !is_copied), self.size_bytes, is_one_row, gaps)
    }

    fn layout(&self, rows: u32, string_bytes: impl Fn(usize) -> usize) -> Result<Arc<Layout>> {
        let fits = |(): &(), layout: &Layout| {
            layout.rows == rows
                && (!self.has_strings
                    || layout
                        .columns
                        .iter()
                        .enumerate()
                        .all(|(i, column)| column.dtype != DType::String || column.size_bytes == string_bytes(i)))
        };
        let mut layouts = self.layouts.lock();
        if let Some(layout) = layouts.find(fits) {
            return Ok(layout);
        }
        let specs =
            self.columns.iter().enumerate().map(|(i, column)| (column.dtype, column.shape.clone(), string_bytes(i)));
        let layout = Layout::new(rows as usize, specs)?;
        Ok(layouts.keep((), if self.is_interleaved { layout.interleaved()? } else { layout }))
    }
}

/// A column of strings in an open chunk.
#[derive(Debug, Default)]
struct Strings {
    ends: Vec<u32>,
    text: Vec<u8>,
}

impl Strings {
    /// Adds the strings of an encoded region.
    fn push(&mut self, region: &[u8], elements: usize) {
        let (ends, text) = region.split_at((elements + 1) * 4);
        let base = self.text.len() as u32;
        let end = |bytes: &[u8]| base + u32::from_le_bytes(bytes.try_into().expect("four bytes"));
        self.ends.extend(ends.chunks_exact(4).skip(1).map(end));
        self.text.extend_from_slice(text);
    }

    fn region_bytes(&self) -> usize {
        (self.ends.len() + 1) * 4 + self.text.len()
    }

    fn write(&self, region: &mut [u8]) {
        let (ends, text) = region.split_at_mut((self.ends.len() + 1) * 4);
        ends[..4].fill(0);
        for (target, end) in ends[4..].chunks_exact_mut(4).zip(&self.ends) {
            target.copy_from_slice(&end.to_le_bytes());
        }
        text.copy_from_slice(&self.text);
    }
}

#[derive(Debug)]
struct OpenRows {
    data: RowBytes,
    /// The strings by index of the column; empty for a column of numbers.
    strings: Vec<Strings>,
    rows: u32,
    steps: StepRange,
}

#[derive(Debug)]
struct ChunkState {
    /// The number of each row's step, counted since the writer was created.
    rows: Vec<u64>,
    body: Body,
}

#[derive(Debug)]
enum Body {
    Open(OpenRows),
    Closed(Arc<Chunk>),
}

/// A chunk of a writer: open while rows are added, then closed for good.
#[derive(Debug)]
pub struct WriterChunk {
    /// Key of the chunk, known from the beginning.
    pub key: ChunkKey,
    /// Template of the chunk.
    pub template: Arc<ChunkTemplate>,
    episode: EpisodeId,
    state: Mutex<ChunkState>,
    /// Whether compression was tried or is not wanted.
    is_final: AtomicBool,
    /// Whether a server holds the chunk until it is told that the chunk is gone.
    is_sent: AtomicBool,
    stream: StreamChunks,
}

/// Rows of a column, copied out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CellData {
    /// The bytes of the rows, one after another.
    Numbers(Vec<u8>),
    /// The strings of the rows, one after another.
    Strings(Vec<Vec<u8>>),
}

impl WriterChunk {
    /// Creates an open chunk without rows.
    pub fn open(template: Arc<ChunkTemplate>, episode: EpisodeId, stream: StreamChunks) -> Self {
        let strings =
            if template.has_strings { template.columns.iter().map(|_| Strings::default()).collect() } else { vec![] };
        let data = template.row_bytes(&stream);
        let open = OpenRows { data, strings, rows: 0, steps: StepRange::default() };
        let state = Mutex::new(ChunkState { rows: Vec::new(), body: Body::Open(open) });
        let is_final = AtomicBool::new(template.compressor.is_none());
        Self { key: random_key(), template, episode, state, is_final, is_sent: AtomicBool::new(false), stream }
    }

    /// Adds a row, whose values are in the order of the template's columns, and closes the chunk when it is full.
    /// `number` counts the step since the writer was created, `step` within its episode. Returns the offset of the row;
    /// `None` if the chunk is closed.
    ///
    /// # Errors
    /// If the chunk cannot be closed; see [`WriterChunk::close`].
    pub fn push<'a>(&self, number: u64, step: i32, values: impl Iterator<Item = Value<'a>>) -> Result<Option<u32>> {
        let mut state = self.state.lock();
        let ChunkState { rows, body: Body::Open(open) } = &mut *state else { return Ok(None) };
        let row = open.rows;
        for (index, (value, column)) in values.zip(&self.template.columns).enumerate() {
            if column.dtype == DType::String {
                open.strings[index].push(value.bytes, column.elements);
            } else {
                debug_assert_eq!(value.bytes.len(), column.row_bytes, "a row of column {index}");
                open.data.put(column.start + row as usize * column.stride, value.bytes);
            }
        }
        open.steps = match row {
            0 => StepRange { first: step, last: step, sparse: false },
            _ => StepRange { last: step, sparse: open.steps.sparse || step != open.steps.last + 1, ..open.steps },
        };
        open.rows += 1;
        rows.push(number);
        if open.rows == self.template.max_rows {
            self.finish(&mut state.body)?;
        }
        Ok(Some(row))
    }

    /// Returns the finished chunk. Closes an open chunk that has rows.
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] if its strings exceed 4 GiB, or it has no rows.
    pub fn close(&self) -> Result<Arc<Chunk>> {
        self.finish(&mut self.state.lock().body)
    }

    /// Whether the chunk should be compressed before it is sent, and was not yet.
    pub fn needs_compression(&self) -> bool {
        !self.is_final.load(Relaxed)
    }

    /// Closes the chunk, and compresses it if that is wanted and saves enough.
    ///
    /// # Errors
    /// The errors of [`WriterChunk::close`].
    pub fn compress(&self) -> Result<()> {
        let chunk = self.close()?;
        if self.is_final.swap(true, Relaxed) {
            return Ok(());
        }
        if let Some(compressor) = &self.template.compressor {
            let (steps, layout, data) = (chunk.steps, chunk.layout().clone(), chunk.data().clone());
            let compressed = compressor.lock().compress(Chunk::new(chunk.key, chunk.episodes, steps, layout, data)?);
            self.state.lock().body = Body::Closed(Arc::new(compressed));
        }
        Ok(())
    }

    /// Records that the chunk was sent to a server, which must hear when its last reference is dropped.
    pub fn set_sent(&self) {
        self.is_sent.store(true, Relaxed);
    }

    /// Whether no row can be added any more.
    pub fn is_closed(&self) -> bool {
        matches!(self.state.lock().body, Body::Closed(_))
    }

    /// The finished chunk, if it is closed.
    pub fn closed(&self) -> Option<Arc<Chunk>> {
        match &self.state.lock().body {
            Body::Open(_) => None,
            Body::Closed(chunk) => Some(chunk.clone()),
        }
    }

    /// Size of its rows in bytes.
    pub fn size_bytes(&self) -> usize {
        match &self.state.lock().body {
            Body::Closed(chunk) => chunk.size_bytes(),
            Body::Open(open) => {
                let numbers: usize = self.template.columns.iter().map(|column| column.row_bytes).sum();
                let strings: usize = open.strings.iter().map(|strings| strings.region_bytes()).sum();
                numbers * open.rows as usize + strings
            }
        }
    }

    /// The number of a row's step, counted since the writer was created. The row must exist.
    pub fn row_number(&self, offset: u32) -> u64 {
        self.state.lock().rows[offset as usize]
    }

    /// Whether the chunk may be closed before it is full, so that no item has to wait for it.
    pub fn closes_early(&self) -> bool {
        self.template.closes_early
    }

    /// Index of the writer's column `id` in this chunk.
    pub fn index_of(&self, id: u32) -> Option<u32> {
        self.template.ids.iter().position(|&other| other == id).map(|index| index as u32)
    }

    /// Copies rows `[offset, offset + length)` of a column. The rows must exist.
    ///
    /// # Errors
    /// [`crate::Error::DataLoss`] if a compressed chunk does not decode.
    pub fn read(&self, index: u32, offset: u32, length: u32) -> Result<CellData> {
        let column = &self.template.columns[index as usize];
        let (first, count) = (offset as usize * column.elements, length as usize * column.elements);
        let chunk = match &self.state.lock().body {
            Body::Closed(chunk) => chunk.clone(),
            Body::Open(open) if column.dtype == DType::String => {
                let Strings { ends, text } = &open.strings[index as usize];
                let start = |i: usize| if i == 0 { 0 } else { ends[i - 1] as usize };
                let string = |i: usize| text[start(i)..ends[i] as usize].to_vec();
                return Ok(CellData::Strings((first..first + count).map(string).collect()));
            }
            Body::Open(open) => {
                let (bytes, mut rows) = (open.data.bytes(), Vec::with_capacity(length as usize * column.row_bytes));
                for row in offset..offset + length {
                    let start = column.start + row as usize * column.stride;
                    rows.extend_from_slice(&bytes[start..start + column.row_bytes]);
                }
                return Ok(CellData::Numbers(rows));
            }
        };
        if column.dtype != DType::String && chunk.is_readable(length) {
            return Ok(CellData::Numbers(chunk.rows_of(index as usize, offset, length).to_vec()));
        }
        let mut scratch = Vec::new();
        let view = chunk.view(&mut scratch)?;
        Ok(match column.dtype {
            DType::String => {
                CellData::Strings(view.strings_of(index as usize, first, count).map(<[u8]>::to_vec).collect())
            }
            _ => CellData::Numbers(view.rows_of(index as usize, offset, length).to_vec()),
        })
    }

    fn finish(&self, body: &mut Body) -> Result<Arc<Chunk>> {
        let open = match body {
            Body::Closed(chunk) => return Ok(chunk.clone()),
            Body::Open(open) => open,
        };
        let layout = self.template.layout(open.rows, |index| match open.strings.get(index) {
            Some(strings) if self.template.columns[index].dtype == DType::String => strings.region_bytes(),
            _ => 0,
        })?;
        let data = self.pack(open, &layout);
        let chunk = Chunk::new(self.key, EpisodeIds::Same(self.episode), open.steps, layout, data)?;
        let chunk = Arc::new(chunk);
        *body = Body::Closed(chunk.clone());
        Ok(chunk)
    }

    /// Returns the bytes as `layout` arranges them. A full chunk of numbers already has this arrangement, and so have
    /// interleaved rows.
    fn pack(&self, open: &mut OpenRows, layout: &Layout) -> Bytes {
        let columns = layout.columns.iter().zip(&self.template.columns);
        if self.template.has_strings {
            let mut data = vec![0; layout.size_bytes];
            for (index, (to, from)) in columns.enumerate() {
                let target = &mut data[to.offset..to.offset + to.size_bytes];
                match to.dtype {
                    DType::String => open.strings[index].write(target),
                    _ => target.copy_from_slice(&open.data.bytes()[from.offset..from.offset + to.size_bytes]),
                }
            }
            return data.into();
        }
        let is_arranged = self.template.is_interleaved || open.rows == self.template.max_rows;
        open.data.finish(self.template.size_bytes, layout.held_bytes(), |data| {
            let mut end = 0;
            for (to, from) in columns.filter(|_| !is_arranged) {
                // Columns only move towards the beginning, so none is overwritten before it has moved.
                data.copy_within(from.offset..from.offset + to.size_bytes, to.offset);
                // Gaps between columns must not contain earlier data.
                data[end..to.offset].fill(0);
                end = to.offset + to.size_bytes;
            }
        })
    }
}

impl Drop for WriterChunk {
    fn drop(&mut self) {
        if *self.is_sent.get_mut() {
            self.stream.drop_chunks(&[self.key]);
        }
    }
}
