//! Chunks whose data a writer puts into memory that it is lent.

use reverb_core::writer::{
    CellData, ChunkCompression, ChunkMemory, ChunkTemplate, LEAST_SHARED_BYTES, StreamChunks, Value, WriterChunk,
};
use reverb_core::{Buffer, Compression, DType, Layout, LentMemory, Shape};
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
    Arc::new(ChunkTemplate::new(&columns, rows, true, compression).unwrap())
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
    let small = Arc::new(ChunkTemplate::new(&columns, 1, true, ChunkCompression::default()).unwrap());
    let stream = StreamChunks::default();
    stream.set_memory(Some(lender.clone()));
    let _chunk = WriterChunk::open(small, 1, stream);
    assert_eq!(lender.0.load(Relaxed), 0);
}
