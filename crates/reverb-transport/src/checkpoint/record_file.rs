//! A file of records on its way to the disk, written by a thread of its own.

use super::disk::{Disk, OutFile, storage_error};
use super::record::{RecordWriter, Tallied, put_record};
use super::sidecar::{FileSum, Sidecar};
use reverb_core::{Error, Result};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Records are handed over in pieces of this many bytes.
const PIECE_BYTES: usize = 1 << 20;
/// Pieces that may wait for the thread.
const WAITING_PIECES: usize = 2;
/// Bytes after which the disk is told to begin, which would rest until the end otherwise. It is not waited for: data that
/// is on its way there no longer has to be kept for the checkpoint if it leaves its table.
const SYNC_BYTES: usize = 32 << 20;

type File = Tallied<Box<dyn OutFile>>;
type Writing = JoinHandle<io::Result<FileSum>>;

/// Encoding goes on while the thread compresses, hashes and writes.
pub struct RecordFile {
    name: &'static str,
    path: PathBuf,
    piece: Vec<u8>,
    /// Both are there until the file is finished or has failed.
    writing: Option<(SyncSender<Vec<u8>>, Writing)>,
}

impl RecordFile {
    /// Makes the file `name` in a folder.
    pub fn create(disk: &dyn Disk, folder: &Path, name: &'static str, level: u32) -> Result<Self> {
        let path = folder.join(name);
        let file = disk.create(&path).map_err(|error| storage_error("cannot make", &path, &error))?;
        let (sender, pieces) = sync_channel(WAITING_PIECES);
        let writer = RecordWriter::new(Tallied::new(file), level);
        let thread = std::thread::Builder::new().name("reverb-save".into()).spawn(move || write_all(writer, &pieces));
        let thread = thread.map_err(|error| Error::Internal(format!("no thread can be made: {error}")))?;
        Ok(Self { name, path, piece: Vec::with_capacity(PIECE_BYTES), writing: Some((sender, thread)) })
    }

    /// Appends a record.
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
            // The thread takes no more, so it has failed.
            _ => self.join().map(drop),
        }
    }

    /// Waits until the file is on the disk, and notes its size and hash.
    pub fn finish(mut self, sidecar: &mut Sidecar) -> Result<()> {
        let piece = std::mem::take(&mut self.piece);
        self.send(piece)?;
        sidecar.files.insert(self.name.into(), self.join()?);
        Ok(())
    }

    fn join(&mut self) -> Result<FileSum> {
        let (sender, thread) = self.writing.take().ok_or_else(|| Error::Internal("the file has failed".into()))?;
        drop(sender);
        let written = thread.join().map_err(|_| Error::Internal("the thread that writes has panicked".into()))?;
        written.map_err(|error| storage_error("cannot write", &self.path, &error))
    }
}

impl Drop for RecordFile {
    fn drop(&mut self) {
        // The folder is about to be removed: nobody may write there any more.
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
