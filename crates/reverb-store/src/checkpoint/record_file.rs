//! A record file of a new checkpoint, written by a separate thread.

use super::sidecar::{FileSum, Sidecar};
use crate::disk::{Disk, OutFile, storage_error};
use reverb_core::{Error, Result};
use reverb_formats::tfrecord::{RecordWriter, Tallied, put_record};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Size in bytes of the pieces that are passed to the thread.
const PIECE_BYTES: usize = 1 << 20;
/// Maximum number of pieces that wait for the thread.
const WAITING_PIECES: usize = 2;
/// Number of bytes after which the system is asked to begin writing to disk. Otherwise the disk would be idle until the
/// end. The thread does not wait for these writes, so that the data of written records can be freed early.
const SYNC_BYTES: usize = 32 << 20;

type File = Tallied<Box<dyn OutFile>>;
type Writing = JoinHandle<io::Result<FileSum>>;

/// A record file. The caller encodes records while the thread compresses, hashes and writes earlier ones.
pub struct RecordFile {
    name: &'static str,
    path: PathBuf,
    piece: Vec<u8>,
    /// The thread and the channel to it. `None` after the file is finished or has failed.
    writing: Option<(SyncSender<Vec<u8>>, Writing)>,
}

impl RecordFile {
    /// Creates the file `name` in a folder. `level` is the compression level of zlib.
    ///
    /// # Errors
    /// [`Error::Storage`] if the file cannot be created.
    pub fn create(disk: &dyn Disk, folder: &Path, name: &'static str, level: u32) -> Result<Self> {
        let path = folder.join(name);
        let file = disk.create(&path).map_err(|error| storage_error("cannot create", &path, &error))?;
        let (sender, pieces) = sync_channel(WAITING_PIECES);
        let writer = RecordWriter::new(Tallied::new(file), level);
        let thread = std::thread::Builder::new().name("reverb-save".into()).spawn(move || write_all(writer, &pieces));
        let thread = thread.map_err(|error| Error::Internal(format!("cannot start a thread: {error}")))?;
        Ok(Self { name, path, piece: Vec::with_capacity(PIECE_BYTES), writing: Some((sender, thread)) })
    }

    /// Appends a record.
    ///
    /// # Errors
    /// [`Error::Storage`] if the thread could not write earlier records.
    pub fn write(&mut self, record: &[u8]) -> Result<()> {
        put_record(&mut self.piece, record);
        if self.piece.len() < PIECE_BYTES {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE_BYTES + PIECE_BYTES / 8));
        self.send(piece)
    }

    fn send(&mut self, piece: Vec<u8>) -> Result<()> {
        match &self.writing {
            Some((sender, _)) if sender.send(piece).is_ok() => Ok(()),
            // The channel is closed, so the thread has failed.
            _ => self.join().map(drop),
        }
    }

    /// Waits until the file is on disk, and adds its size and hash to the sidecar.
    ///
    /// # Errors
    /// [`Error::Storage`] if the file cannot be written.
    pub fn finish(mut self, sidecar: &mut Sidecar) -> Result<()> {
        let piece = std::mem::take(&mut self.piece);
        self.send(piece)?;
        sidecar.files.insert(self.name.into(), self.join()?);
        Ok(())
    }

    fn join(&mut self) -> Result<FileSum> {
        let (sender, thread) =
            self.writing.take().ok_or_else(|| Error::Internal("the file was finished or has failed before".into()))?;
        drop(sender);
        let written = thread.join().map_err(|_| Error::Internal("the writing thread panicked".into()))?;
        written.map_err(|error| storage_error("cannot write", &self.path, &error))
    }
}

impl Drop for RecordFile {
    fn drop(&mut self) {
        // The thread must end before the folder is removed.
        if self.writing.is_some() {
            let _failed = self.join();
        }
    }
}

fn write_all(mut writer: RecordWriter<File>, pieces: &Receiver<Vec<u8>>) -> io::Result<FileSum> {
    let mut unsynced = 0;
    for piece in pieces {
        writer.write_framed(&piece)?;
        unsynced += piece.len();
        if unsynced >= SYNC_BYTES {
            unsynced = 0;
            writer.target_mut().get_mut().begin_sync();
        }
    }
    let (mut file, tally) = writer.finish()?.into_parts();
    file.sync()?;
    let (size, xxh3) = tally.result();
    Ok(FileSum { size, xxh3 })
}
