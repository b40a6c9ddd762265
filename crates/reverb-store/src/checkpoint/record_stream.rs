//! Reads and decodes the records of a file on several threads, ahead of their consumer.
//!
//! Threads take turns to read a batch of records, and then decode it. The consumer gets the results in the order of the
//! file.

use parking_lot::Mutex;
use reverb_core::{Error, Result};
use reverb_formats::tfrecord::{Checksum, RecordReader, Tallied, Tally};
use std::io::Read;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{Builder, Scope, ScopedJoinHandle};

/// Approximate size of a batch of records in bytes. It fits into the cache of a processor until it is decoded.
const BATCH_BYTES: usize = 256 << 10;
/// Maximum number of decoded batches of each thread that wait for the consumer.
const WAITING_BATCHES: usize = 4;
/// A batch larger than this in bytes is decoded before the next batch is read, so that two large records are not in
/// memory at once. The buffers of smaller batches are reused, because page faults would cost more than all other work
/// on them.
const LARGE_BATCH_BYTES: usize = 4 << 20;

type File = Box<dyn Read + Send>;

/// The records of a file.
pub struct Records {
    reader: RecordReader<Tallied<File>>,
}

impl Records {
    /// Opens the records of a file. Refuses records of more than `limit_bytes` bytes. `is_stored` states that the file
    /// is a zlib stream of stored blocks.
    ///
    /// # Errors
    /// [`Error::Storage`] if the file cannot be read.
    pub fn new(file: File, limit_bytes: usize, is_stored: bool) -> Result<Self> {
        let file = Tallied::new(file);
        let reader =
            if is_stored { RecordReader::of_stored(file, limit_bytes) } else { RecordReader::new(file, limit_bytes)? };
        Ok(Self { reader })
    }

    /// Decodes each record, given its number, with one of `decoders`, and calls `visit` with the results in the order
    /// of the file. Each decoder runs on a separate thread, which also reads the records that it decodes, so that they
    /// are in the cache of its processor.
    ///
    /// # Errors
    /// Those of [`RecordReader`], of the decoders and of `visit`, whichever comes first in the file.
    pub fn for_each<T: Send>(
        self,
        decoders: Vec<impl FnMut(u64, &[u8]) -> Result<T> + Send>,
        visit: impl FnMut(T) -> Result<()>,
    ) -> Result<Finished> {
        let is_compressed = self.reader.is_compressed();
        let (turns, order) = channel();
        let reading = Mutex::new(SharedReader { records: self.reader, number: 0, turns: Some(turns) });
        std::thread::scope(|scope| {
            let (mut outputs, mut threads) = (Vec::new(), Vec::new());
            for (index, decoder) in decoders.into_iter().enumerate() {
                let (decoded, output) = sync_channel(WAITING_BATCHES);
                let reading = &reading;
                threads.push(spawn(scope, move || decode_all(index, decoder, reading, &decoded))?);
                outputs.push(output);
            }
            let visited = visit_all(&order, &outputs, visit);
            // Closes the channels, so that the threads end.
            drop(outputs);
            let panicked = |_| Error::Internal("a loading thread panicked".into());
            threads.into_iter().try_for_each(|thread| thread.join().map_err(panicked))?;
            visited
        })?;
        let (_, tally) = reading.into_inner().records.into_file()?.into_parts();
        Ok(Finished { tally, is_compressed })
    }
}

/// Receives the results of the decoders in the order in which they have read.
fn visit_all<T>(
    order: &Receiver<usize>,
    outputs: &[Receiver<Decoded<T>>],
    mut visit: impl FnMut(T) -> Result<()>,
) -> Result<()> {
    for index in order {
        let Ok((values, result)) = outputs[index].recv() else { break };
        // Records before the damage are visited first, as in a loop without threads.
        values.into_iter().try_for_each(&mut visit)?;
        result?;
    }
    Ok(())
}

fn spawn<'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, ()>> {
    let spawned = Builder::new().name("reverb-load".into()).spawn_scoped(scope, work);
    spawned.map_err(|error| Error::Internal(format!("cannot start a thread: {error}")))
}

/// Properties of a file that was read completely.
#[derive(Debug)]
pub struct Finished {
    /// Size and hash of the file.
    pub tally: Tally,
    /// Whether it is a zlib stream.
    pub is_compressed: bool,
}

/// A batch of consecutive records.
#[derive(Debug, Default)]
struct RecordBatch {
    /// Number in the file of the first record.
    first: u64,
    bytes: Vec<u8>,
    ends: Vec<(usize, Checksum)>,
}

impl RecordBatch {
    /// Calls `visit` with the number and the bytes of each record after verifying its checksum.
    fn try_for_each(&self, mut visit: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        let mut start = 0;
        for (number, &(end, checksum)) in (self.first..).zip(&self.ends) {
            let record = &self.bytes[start..end];
            checksum.check(number, record)?;
            visit(number, record)?;
            start = end;
        }
        Ok(())
    }
}

/// The reader of a file that several threads use in turn.
struct SharedReader {
    records: RecordReader<Tallied<File>>,
    /// Number of the next record.
    number: u64,
    /// Channel for the index of the thread that reads the next batch. `None` after the end of the file or damage.
    turns: Option<Sender<usize>>,
}

impl SharedReader {
    /// Replaces the content of a batch by the next records, for the thread `index`. On damage, the batch has the
    /// records before it. `None` if there is nothing more to read.
    fn next(&mut self, index: usize, batch: &mut RecordBatch) -> Option<Result<()>> {
        self.turns.as_ref()?.send(index).ok()?;
        batch.first = self.number;
        let more = self.fill(batch);
        self.number += batch.ends.len() as u64;
        if !matches!(more, Ok(true)) {
            self.turns = None;
        }
        Some(more.map(drop))
    }

    /// Reads records into the batch. Returns whether there may be more.
    fn fill(&mut self, batch: &mut RecordBatch) -> Result<bool> {
        batch.bytes.clear();
        batch.ends.clear();
        while batch.bytes.len() < BATCH_BYTES {
            // Bytes of a damaged record stay behind the last end and are ignored.
            let Some(checksum) = self.records.append(&mut batch.bytes)? else { return Ok(false) };
            batch.ends.push((batch.bytes.len(), checksum));
        }
        Ok(true)
    }
}

/// The decoded records of a batch up to the first error, and that error.
type Decoded<T> = (Vec<T>, Result<()>);

/// Reads and decodes batches until the file ends or the receiver is dropped.
fn decode_all<T>(
    index: usize,
    mut decode: impl FnMut(u64, &[u8]) -> Result<T>,
    reading: &Mutex<SharedReader>,
    decoded: &SyncSender<Decoded<T>>,
) {
    let mut batch = RecordBatch::default();
    loop {
        let mut turn = reading.lock();
        let Some(read) = turn.next(index, &mut batch) else { return };
        let turn = (batch.bytes.len() > LARGE_BATCH_BYTES).then_some(turn);
        let mut values = Vec::with_capacity(batch.ends.len());
        let result = batch.try_for_each(|number, record| decode(number, record).map(|value| values.push(value)));
        if turn.is_some() {
            // Frees the batch before its values are visited.
            batch = RecordBatch::default();
        }
        drop(turn);
        if decoded.send((values, result.and(read))).is_err() {
            return;
        }
    }
}
