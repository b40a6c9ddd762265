//! Reads the records of a file on several threads, ahead of whoever looks at them.

use super::record::{Checksum, RecordReader, Tallied, Tally};
use parking_lot::Mutex;
use reverb_core::{Error, Result};
use std::io::Read;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{Builder, Scope, ScopedJoinHandle};

/// Records are read in batches of about this many bytes: they stay in a processor's cache until they are decoded.
const BATCH_BYTES: usize = 256 << 10;
/// Batches of each thread that may wait to be looked at.
const WAITING_BATCHES: usize = 4;
/// Nothing is read until a batch this large was decoded, so that no two large records are in memory. Memory of smaller ones
/// is used again: the system takes longer to give a page than all else that happens to it.
const LARGE_BATCH: usize = 4 << 20;

type File = Box<dyn Read + Send>;

/// A file of records.
pub struct Records {
    reader: RecordReader<Tallied<File>>,
}

impl Records {
    /// The records of a file, of at most `limit_bytes` bytes each.
    ///
    /// # Arguments
    /// `is_stored` says that the file's maker has written a zlib stream of stored blocks.
    pub fn new(file: File, limit_bytes: usize, is_stored: bool) -> Result<Self> {
        let file = Tallied::new(file);
        let reader =
            if is_stored { RecordReader::of_stored(file, limit_bytes) } else { RecordReader::new(file, limit_bytes)? };
        Ok(Self { reader })
    }

    /// Calls `visit`, in the order of the file, with what one of `decoders` makes of each record and its number. Each of
    /// them has a thread of its own, which also reads what it decodes: no processor waits for another, and what was read is
    /// in the cache of the one that needs it.
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
        let reading = Mutex::new(Reading { records: self.reader, number: 0, turns: Some(turns) });
        std::thread::scope(|scope| {
            let (mut outputs, mut threads) = (Vec::new(), Vec::new());
            for (index, decoder) in decoders.into_iter().enumerate() {
                let (decoded, output) = sync_channel(WAITING_BATCHES);
                let reading = &reading;
                threads.push(spawn(scope, move || decode_all(index, decoder, reading, &decoded))?);
                outputs.push(output);
            }
            let visited = visit_all(&order, &outputs, visit);
            // Threads end when nobody takes what they make.
            drop(outputs);
            let panicked = |_| Error::Internal("a thread that loads has panicked".into());
            threads.into_iter().try_for_each(|thread| thread.join().map_err(panicked))?;
            visited
        })?;
        let (_, tally) = reading.into_inner().records.into_file()?.into_parts();
        Ok(Finished { tally, is_compressed })
    }
}

/// Takes what the decoders make, in the order in which they have read.
fn visit_all<T>(
    order: &Receiver<usize>,
    outputs: &[Receiver<Decoded<T>>],
    mut visit: impl FnMut(T) -> Result<()>,
) -> Result<()> {
    for index in order {
        let Ok((values, result)) = outputs[index].recv() else { break };
        // What came before damage is visited first, as if there were no threads.
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
    spawned.map_err(|error| Error::Internal(format!("no thread can be made: {error}")))
}

/// What was read of a file.
#[derive(Debug)]
pub struct Finished {
    /// Size and hash of the file.
    pub tally: Tally,
    /// Whether it is a zlib stream.
    pub is_compressed: bool,
}

/// Records one after another.
#[derive(Debug, Default)]
struct Batch {
    /// Number of the first record in the file.
    first: u64,
    bytes: Vec<u8>,
    ends: Vec<(usize, Checksum)>,
}

impl Batch {
    /// Calls `visit` with each record and its number, once it has its checksum.
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

/// A file that threads read in turn.
struct Reading {
    records: RecordReader<Tallied<File>>,
    /// Of the next record.
    number: u64,
    /// Where each thread says that the next batch is its own; `None` at the end of the file, or where it is damaged.
    turns: Option<Sender<usize>>,
}

impl Reading {
    /// Puts the next records into a batch, in place of what it had, for the thread `index`. What came before damage is
    /// there, too. `None` if nothing more is to be read.
    fn next(&mut self, index: usize, batch: &mut Batch) -> Option<Result<()>> {
        self.turns.as_ref()?.send(index).ok()?;
        batch.first = self.number;
        let more = self.fill(batch);
        self.number += batch.ends.len() as u64;
        if !matches!(more, Ok(true)) {
            self.turns = None;
        }
        Some(more.map(drop))
    }

    /// Whether there may be more.
    fn fill(&mut self, batch: &mut Batch) -> Result<bool> {
        batch.bytes.clear();
        batch.ends.clear();
        while batch.bytes.len() < BATCH_BYTES {
            // What a record has added before it was found damaged lies behind the last end.
            let Some(checksum) = self.records.append(&mut batch.bytes)? else { return Ok(false) };
            batch.ends.push((batch.bytes.len(), checksum));
        }
        Ok(true)
    }
}

/// What became of a batch: the values, up to the first error.
type Decoded<T> = (Vec<T>, Result<()>);

/// Reads and decodes batches until the file ends, or nobody wants more.
fn decode_all<T>(
    index: usize,
    mut decode: impl FnMut(u64, &[u8]) -> Result<T>,
    reading: &Mutex<Reading>,
    decoded: &SyncSender<Decoded<T>>,
) {
    let mut batch = Batch::default();
    loop {
        let mut turn = reading.lock();
        let Some(read) = turn.next(index, &mut batch) else { return };
        let turn = (batch.bytes.len() > LARGE_BATCH).then_some(turn);
        let mut values = Vec::with_capacity(batch.ends.len());
        let result = batch.try_for_each(|number, record| decode(number, record).map(|value| values.push(value)));
        if turn.is_some() {
            // It is gone before its values are visited.
            batch = Batch::default();
        }
        drop(turn);
        if decoded.send((values, result.and(read))).is_err() {
            return;
        }
    }
}
