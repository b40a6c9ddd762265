//! Reads the records of a file on a thread of its own, ahead of whoever looks at them.

use super::record::{RecordReader, Tallied, Tally};
use reverb_core::{Error, Result};
use std::io::Read;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Records are handed over in batches of about this many bytes.
const BATCH_BYTES: usize = 1 << 20;
/// Batches that may wait to be looked at.
const WAITING_BATCHES: usize = 2;
/// After a batch this large the thread waits until it was looked at, so that no two large records are in memory.
const LARGE_BATCH: usize = 4 << 20;

/// Records one after another.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Batch {
    fn records(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.bytes[start..end])
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

/// Calls `visit` with each record of a file.
///
/// # Errors
/// Those of [`RecordReader`], and of `visit`.
pub fn for_each_record(
    file: Box<dyn Read + Send>,
    limit_bytes: usize,
    mut visit: impl FnMut(&[u8]) -> Result<()>,
) -> Result<Finished> {
    read_ahead(file, limit_bytes, |batches, done| {
        for batch in batches {
            batch.records().try_for_each(&mut visit)?;
            drop(batch);
            // If the thread has ended, the next batch is the last.
            let _ended = done.send(());
        }
        Ok(())
    })
}

/// Calls `visit` with what `decode` makes of each record. That has a thread of its own, too.
///
/// # Errors
/// Those of [`RecordReader`], of `decode` and of `visit`.
pub fn for_each_decoded<T: Send>(
    file: Box<dyn Read + Send>,
    limit_bytes: usize,
    mut decode: impl FnMut(&[u8]) -> Result<T> + Send,
    mut visit: impl FnMut(T) -> Result<()>,
) -> Result<Finished> {
    read_ahead(file, limit_bytes, |batches, done| {
        let (sender, decoded) = sync_channel::<Vec<T>>(WAITING_BATCHES);
        std::thread::scope(|scope| {
            let decode_all = move || {
                for batch in batches {
                    let mut values = Vec::with_capacity(batch.ends.len());
                    let result = batch.records().try_for_each(|record| decode(record).map(|value| values.push(value)));
                    drop(batch);
                    // What came before the damage is visited first, as if there were no thread.
                    let is_wanted = sender.send(values).is_ok();
                    result?;
                    if !is_wanted {
                        break;
                    }
                    let _ended = done.send(());
                }
                Ok(())
            };
            let decoder = std::thread::Builder::new().name("reverb-decode".into()).spawn_scoped(scope, decode_all);
            let decoder = decoder.map_err(|error| no_thread(&error))?;
            let visited = decoded.iter().flatten().try_for_each(&mut visit);
            // The thread ends when nobody takes its values.
            drop(decoded);
            visited.and(decoder.join().map_err(|_| panicked("decodes"))?)
        })
    })
}

/// Reads on a thread of its own while `visit_all` takes batches, each of which it acknowledges.
fn read_ahead(
    file: Box<dyn Read + Send>,
    limit_bytes: usize,
    visit_all: impl FnOnce(Receiver<Batch>, SyncSender<()>) -> Result<()>,
) -> Result<Finished> {
    let (sender, batches) = sync_channel(WAITING_BATCHES);
    let (done, acknowledged) = sync_channel(WAITING_BATCHES + 1);
    std::thread::scope(|scope| {
        let reader = std::thread::Builder::new().name("reverb-load".into());
        let reader = reader.spawn_scoped(scope, move || read_all(file, limit_bytes, &sender, &acknowledged));
        let reader = reader.map_err(|error| no_thread(&error))?;
        // It drops both ends, so that the thread ends when nobody takes its batches.
        let visited = visit_all(batches, done);
        let read = reader.join().map_err(|_| panicked("reads"))?;
        visited.and(read)
    })
}

fn no_thread(error: &std::io::Error) -> Error {
    Error::Internal(format!("no thread can be made: {error}"))
}

fn panicked(what: &str) -> Error {
    Error::Internal(format!("the thread that {what} has panicked"))
}

fn read_all(
    file: Box<dyn Read + Send>,
    limit_bytes: usize,
    sender: &SyncSender<Batch>,
    acknowledged: &Receiver<()>,
) -> Result<Finished> {
    let mut records = RecordReader::new(Tallied::new(file), limit_bytes)?;
    let is_compressed = records.is_compressed();
    let mut in_flight = 0;
    let mut more = true;
    while more {
        let batch = read_batch(&mut records, &mut more);
        // What came before the damage is looked at first, as if there were no thread.
        let (batch, damage) = match batch {
            (batch, Ok(())) => (batch, None),
            (batch, Err(error)) => (batch, Some(error)),
        };
        let is_large = batch.bytes.len() > LARGE_BATCH;
        if sender.send(batch).is_err() {
            break;
        }
        in_flight += 1;
        if let Some(error) = damage {
            return Err(error);
        }
        while in_flight > 0 && (is_large || in_flight > WAITING_BATCHES) {
            if acknowledged.recv().is_err() {
                more = false;
                break;
            }
            in_flight -= 1;
        }
    }
    let (_, tally) = records.into_file()?.into_parts();
    Ok(Finished { tally, is_compressed })
}

/// Some records; `more` becomes false at the end of the file.
fn read_batch(records: &mut RecordReader<Tallied<Box<dyn Read + Send>>>, more: &mut bool) -> (Batch, Result<()>) {
    let mut batch = Batch::default();
    while batch.bytes.len() < BATCH_BYTES {
        match records.append(&mut batch.bytes) {
            Ok(true) => batch.ends.push(batch.bytes.len()),
            Ok(false) => {
                *more = false;
                break;
            }
            Err(error) => return (batch, Err(error)),
        }
    }
    (batch, Ok(()))
}
