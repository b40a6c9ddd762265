//! Chunks whose data a writer puts into memory that it is lent.

use reverb_core::writer::{
    CellData, ChunkCompression, ChunkMemory, ChunkTemplate, ColumnOptions, ColumnValue, LEAST_SHARED_BYTES, StepBuffer,
    StreamChunks, Value, WriterChunk,
};
use reverb_core::{Buffer, Chunk, Compression, DType, Layout, LentMemory, Shape};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Memory whose bytes are all 0xAA, as earlier chunks may have left them.
struct Used(Box<[u64]>, Arc<AtomicUsize>);

// SAFETY: the bytes are initialised, and nobody else uses them. Tests need no alignment.
unsafe impl LentMemory for Used {
    fn bytes(&self) -> (*mut u8, usize) {
        (self.0.as_ptr().cast_mut().cast(), size_of_val(&*self.0))
    }
}

impl Drop for Used {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Relaxed);
    }
}

/// Lends memory, and counts what is lent.
#[derive(Debug, Default)]
struct Lender(Arc<AtomicUsize>);

impl ChunkMemory for Lender {
    fn take(&self, bytes: usize) -> Option<Buffer> {
        self.0.fetch_add(1, Relaxed);
        let words = vec![0xAAAA_AAAA_AAAA_AAAA; bytes.div_ceil(8)].into_boxed_slice();
        Some(Buffer::lent(Box::new(Used(words, self.0.clone())), bytes))
    }
}

/// A column of bytes whose size leaves a gap behind it, and one of numbers.
const COLUMNS: [(DType, usize); 2] =
    [(DType::UInt8, LEAST_SHARED_BYTES / 2 + 3), (DType::Int32, LEAST_SHARED_BYTES / 8)];

fn template(rows: u32, compression: ChunkCompression) -> Arc<ChunkTemplate> {
    let columns = COLUMNS.map(|(dtype, len)| (0, dtype, Shape::from_slice(&[len])));
    Arc::new(ChunkTemplate::new(&columns, rows, kept(8), compression).unwrap())
}

/// Options of a writer of which so many values stay available to new items.
fn kept(num_keep_alive_refs: u32) -> ColumnOptions {
    ColumnOptions { num_keep_alive_refs, max_chunk_length: None }
}

/// The values of a row.
fn row(number: u8) -> [Vec<u8>; 2] {
    [vec![number; COLUMNS[0].1], vec![number + 100; 4 * COLUMNS[1].1]]
}

fn push(chunk: &WriterChunk, number: u8) {
    let values = row(number);
    let shapes = COLUMNS.map(|(_, len)| [len]);
    let values = values.iter().zip(&shapes).zip(COLUMNS);
    let values = values.map(|((bytes, shape), (dtype, _))| Value { dtype, shape, bytes });
    chunk.push(u64::from(number), i32::from(number), values).unwrap();
}

/// Writes a chunk of so many rows, of a template of so many, with this memory. Returns its bytes.
fn written(rows: u8, template: &Arc<ChunkTemplate>, memory: Option<Arc<dyn ChunkMemory>>) -> bytes::Bytes {
    let stream = StreamChunks::default();
    stream.set_memory(memory);
    let chunk = WriterChunk::open(template.clone(), 1, stream);
    for number in 0..rows {
        push(&chunk, number);
        let CellData::Numbers(read) = chunk.read(0, u32::from(number), 1).unwrap() else { panic!("no numbers") };
        assert_eq!(read, row(number)[0], "row {number}");
    }
    chunk.close().unwrap().data().clone()
}

#[test]
fn chunks_in_lent_memory_have_the_same_bytes_as_others() {
    let lender = Arc::new(Lender::default());
    for (rows, most) in [(1, 1), (1, 4), (3, 4), (4, 4)] {
        let template = template(most, ChunkCompression::default());
        let data = written(rows, &template, Some(lender.clone()));
        assert_eq!(lender.0.load(Relaxed), 1);
        assert!(data == written(rows, &template, None), "{rows} of {most} rows");
        drop(data);
        assert_eq!(lender.0.load(Relaxed), 0, "it goes back with the last bytes");
    }
}

#[test]
fn batches_in_lent_memory_have_the_same_bytes_as_others() {
    let lender = Lender::default();
    let columns = COLUMNS.map(|(dtype, len)| (dtype, Shape::from_slice(&[len]), 0));
    let layout = Layout::new(3, columns).unwrap();
    let rows: Vec<_> =
        (0..2).map(|column| (0..3).flat_map(|number| row(number)[column].clone()).collect::<Vec<_>>()).collect();
    let data = layout.assemble_in(&rows, Some(&lender));
    assert_eq!(lender.0.load(Relaxed), 1);
    assert!(data == layout.assemble(&rows));
}

#[test]
fn what_is_small_or_copied_anyway_lies_elsewhere() {
    let lender = Arc::new(Lender::default());
    let compressed = ChunkCompression { codec: Compression::Lz4, delta: false };
    written(1, &template(1, compressed), Some(lender.clone()));
    let columns = [(0, DType::UInt8, Shape::from_slice(&[LEAST_SHARED_BYTES - 8]))];
    let small = Arc::new(ChunkTemplate::new(&columns, 1, kept(1), ChunkCompression::default()).unwrap());
    let stream = StreamChunks::default();
    stream.set_memory(Some(lender.clone()));
    let _chunk = WriterChunk::open(small, 1, stream);
    assert_eq!(lender.0.load(Relaxed), 0);
}

#[test]
fn chunks_that_are_closed_early_keep_lent_memory_only_if_they_are_large() {
    let width = LEAST_SHARED_BYTES / 4;
    let columns = [(0, DType::UInt8, Shape::from_slice(&[width]))];
    let template = Arc::new(ChunkTemplate::new(&columns, 8, kept(8), ChunkCompression::default()).unwrap());
    let lender = Arc::new(Lender::default());
    for (rows, lent) in [(1, 0), (3, 0), (4, 1), (8, 1)] {
        let stream = StreamChunks::default();
        stream.set_memory(Some(lender.clone()));
        let chunk = WriterChunk::open(template.clone(), 1, stream);
        for number in 0..rows {
            let bytes = vec![number; width];
            let value = Value { dtype: DType::UInt8, shape: &[width], bytes: &bytes };
            chunk.push(number.into(), number.into(), [value].into_iter()).unwrap();
        }
        let closed = chunk.close().unwrap();
        assert_eq!(lender.0.load(Relaxed), lent, "{rows} of 8 rows");
        let expected: Vec<_> = (0..rows).flat_map(|number| vec![number; width]).collect();
        assert!(closed.data()[..] == expected[..], "{rows} of 8 rows");
        drop((chunk, closed));
        assert_eq!(lender.0.load(Relaxed), 0);
    }
}

#[test]
fn chunks_of_automatic_length_have_up_to_64_kib_and_64_rows() {
    for (dtype, len, expected) in [
        (DType::Float32, 1000, 16),
        (DType::Float64, 1000, 8),
        (DType::UInt8, 84 * 84, 9),
        (DType::Bool, 64 << 10, 1),
        (DType::UInt8, (64 << 10) + 1, 1),
        (DType::Int64, 1, 64),
    ] {
        let mut steps = StepBuffer::new(kept(200), ChunkCompression::default(), StreamChunks::default()).unwrap();
        let bytes = vec![0; len * dtype.size()];
        let value = Value { dtype, shape: &[len], bytes: &bytes };
        for _ in 0..130 {
            steps.append(&[ColumnValue { column: 0, value, opens_rows: false }], false).unwrap();
        }
        let mut rows_of = HashMap::new();
        (0..130).for_each(|row| *rows_of.entry(steps.cell(0, row).unwrap().chunk.key).or_insert(0) += 1);
        assert_eq!(rows_of.values().max(), Some(&expected), "{dtype:?} [{len}]");
        assert_eq!(rows_of.len(), 130_usize.div_ceil(expected));
    }
}

/// A chunk of so many rows, of a template of four: a column of bytes and one of numbers. Reads each row twice.
fn small(rows: u8, width: usize, options: ColumnOptions, codec: Compression) -> Arc<Chunk> {
    let columns = [(0, DType::UInt8, Shape::from_slice(&[width])), (1, DType::Int32, Shape::new())];
    let compression = ChunkCompression { codec, delta: false };
    let template = Arc::new(ChunkTemplate::new(&columns, 4, options, compression).unwrap());
    let chunk = WriterChunk::open(template, 1, StreamChunks::default());
    let values = |number: u8| [vec![number; width], vec![0, number, 0, 0]];
    let shapes: [&[usize]; 2] = [&[width], &[]];
    let check = |number: u8| {
        for (index, expected) in (0..).zip(values(number)) {
            assert_eq!(chunk.read(index, number.into(), 1).unwrap(), CellData::Numbers(expected));
        }
    };
    for number in 0..rows {
        let values = values(number);
        let values = values.iter().zip(columns.iter().zip(shapes));
        let values = values.map(|(bytes, ((_, dtype, _), shape))| Value { dtype: *dtype, shape, bytes });
        chunk.push(number.into(), number.into(), values).unwrap();
        check(number);
    }
    let closed = chunk.close().unwrap();
    (0..rows).for_each(check);
    closed
}

#[test]
fn rows_of_items_of_one_step_lie_side_by_side() {
    for rows in 1..=4 {
        let [by_row, by_column] = [1, 2].map(|keep| small(rows, 3, kept(keep), Compression::None));
        assert!(by_row.layout().is_interleaved() && !by_column.layout().is_interleaved());
        assert_eq!(by_row.data().len(), 7 * usize::from(rows));
        let mut scratch = Vec::new();
        assert_eq!(by_row.view(&mut scratch).unwrap().data(), by_column.data());
    }
    // Compressed chunks and large rows do not.
    assert!(!small(4, 3, kept(1), Compression::Lz4).layout().is_interleaved());
    assert!(!small(4, 5000, kept(1), Compression::None).layout().is_interleaved());
}
