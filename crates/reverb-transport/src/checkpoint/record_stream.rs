//! Reads the records of a file on a thread of its own, ahead of whoever looks at them.

use super::record::{RecordReader, Tallied, Tally};
use reverb_core::{Error, Result};
use std::io::Read;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{Builder, Scope, ScopedJoinHandle};

/// Records are handed over in batches of about this many bytes.
const BATCH_BYTES: usize = 512 << 10;
/// Batches that may wait to be looked at, for each thread that does.
const WAITING_BATCHES: usize = 2;
/// After a batch this large the thread waits until it was looked at, so that no two large records are in memory. Memory of
/// smaller ones is used again: the system takes longer to give a page than all else that happens to it.
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
    /// them has a thread of its own.
    ///
    /// # Errors
    /// Those of [`RecordReader`], of the decoders and of `visit`, whichever comes first in the file.
    pub fn for_each<T: Send>(
        self,
        decoders: Vec<impl FnMut(u64, &[u8]) -> Result<T> + Send>,
        mut visit: impl FnMut(T) -> Result<()>,
    ) -> Result<Finished> {
        std::thread::scope(|scope| {
            let (done, returned) = channel();
            let (mut inputs, mut outputs, mut threads) = (Vec::new(), Vec::new(), Vec::new());
            for decoder in decoders {
                let (input, batches) = sync_channel(WAITING_BATCHES);
                let (decoded, output) = sync_channel(WAITING_BATCHES);
                let done = done.clone();
                let work = move || decode_all(decoder, &batches, &decoded, &done);
                threads.push(spawn(scope, "reverb-decode", work)?);
                inputs.push(input);
                outputs.push(output);
            }
            // The reader ends when nobody returns batches.
            drop(done);
            let reader = spawn(scope, "reverb-load", move || read_all(self.reader, &inputs, &returned))?;
            let visited = visit_all(&outputs, &mut visit);
            // Threads end when nobody takes what they make.
            drop(outputs);
            let read = reader.join().map_err(|_| panicked("reads"))?;
            threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| panicked("decodes")))?;
            visited.and(read)
        })
    }
}

/// Takes what the decoders make in turn, as they got it.
fn visit_all<T>(outputs: &[Receiver<Decoded<T>>], visit: &mut impl FnMut(T) -> Result<()>) -> Result<()> {
    for output in outputs.iter().cycle() {
        let Ok((values, error)) = output.recv() else { break };
        // What came before damage is visited first, as if there were no threads.
        values.into_iter().try_for_each(&mut *visit)?;
        error.map_or(Ok(()), Err)?;
    }
    Ok(())
}

fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    let spawned = Builder::new().name(name.into()).spawn_scoped(scope, work);
    spawned.map_err(|error| Error::Internal(format!("no thread can be made: {error}")))
}

fn panicked(what: &str) -> Error {
    Error::Internal(format!("the thread that {what} has panicked"))
}

/// Records one after another.
#[derive(Debug, Default)]
struct Batch {
    /// Number of the first record in the file.
    first: u64,
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Batch {
    fn records(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        (self.first..).zip(starts.zip(&self.ends).map(|(start, &end)| &self.bytes[start..end]))
    }
}

/// What was read of a file.
#[derive(Debug)]
pub struct Finished {
    /// Size and hash of the file.
    pub tally: Tally,
    /// Whether it is a zlib stream.
    pub is_compressed: bool,
}

/// What became of a batch: the values, up to the first error.
type Decoded<T> = (Vec<T>, Option<Error>);

fn decode_all<T>(
    mut decode: impl FnMut(u64, &[u8]) -> Result<T>,
    batches: &Receiver<Batch>,
    decoded: &SyncSender<Decoded<T>>,
    done: &Sender<Batch>,
) {
    for batch in batches {
        let mut values = Vec::with_capacity(batch.ends.len());
        let mut records = batch.records();
        let result = records.try_for_each(|(number, record)| decode(number, record).map(|value| values.push(value)));
        drop(records);
        let failed = result.is_err();
        // A large batch is gone before its values are visited.
        let batch = if batch.bytes.len() > LARGE_BATCH { Batch::default() } else { batch };
        let _has_ended = done.send(batch);
        if decoded.send((values, result.err())).is_err() || failed {
            return;
        }
    }
}

/// Hands batches out in turn, until the file ends, or nobody wants more.
///
/// # Errors
/// Those of [`RecordReader`].
fn read_all(
    mut records: RecordReader<Tallied<File>>,
    inputs: &[SyncSender<Batch>],
    returned: &Receiver<Batch>,
) -> Result<Finished> {
    let is_compressed = records.is_compressed();
    let (mut in_flight, mut first, mut more) = (0, 0, true);
    let mut free = Vec::new();
    for input in inputs.iter().cycle() {
        let mut batch = Batch { first, ..free.pop().unwrap_or_default() };
        let read = fill(&mut batch, &mut records, &mut more);
        first += batch.ends.len() as u64;
        let is_large = batch.bytes.len() > LARGE_BATCH;
        // What came before the damage is looked at, too.
        let is_wanted = input.send(batch).is_ok();
        read?;
        if !more || !is_wanted {
            break;
        }
        in_flight += 1;
        while in_flight > 0 && (is_large || in_flight > WAITING_BATCHES * inputs.len()) {
            let Ok(batch) = returned.recv() else { break };
            free.push(batch);
            in_flight -= 1;
        }
    }
    let (_, tally) = records.into_file()?.into_parts();
    Ok(Finished { tally, is_compressed })
}

/// Puts the next records into a batch, in place of what it had; `more` becomes false at the end of the file.
fn fill(batch: &mut Batch, records: &mut RecordReader<Tallied<File>>, more: &mut bool) -> Result<()> {
    batch.bytes.clear();
    batch.ends.clear();
    while batch.bytes.len() < BATCH_BYTES && *more {
        // What a record has added before it was found damaged lies behind the last end.
        *more = records.append(&mut batch.bytes)?;
        if *more {
            batch.ends.push(batch.bytes.len());
        }
    }
    Ok(())
}
