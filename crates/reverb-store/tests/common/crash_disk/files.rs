//! The disk as programs use it.

use super::content::{Content, Names, Naming, Node, Write as Change};
use super::{CrashDisk, Fault};
use reverb_store::disk::{Disk, LogDisk, OutFile, SharedFile};
use std::ffi::{OsStr, OsString};
use std::io::{self, Cursor, IoSlice, Read, Write};
use std::path::Path;

/// An open file: its index, and where the next write goes.
#[derive(Debug)]
struct Open(CrashDisk, usize, usize);

fn parts(path: &Path) -> (&Path, &OsStr) {
    (path.parent().unwrap(), path.file_name().unwrap())
}

impl CrashDisk {
    /// The folder in which a path is or would be, and its name there.
    fn place(&self, path: &Path) -> io::Result<(usize, OsString)> {
        let (parent, name) = parts(path);
        match self.state().find(parent)? {
            Node::Folder(folder) => Ok((folder, name.to_owned())),
            Node::File(_) => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    fn file(&self, path: &Path) -> io::Result<usize> {
        match self.state().find(path)? {
            Node::File(file) => Ok(file),
            Node::Folder(_) => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    fn folder(&self, path: &Path) -> io::Result<usize> {
        match self.state().find(path)? {
            Node::Folder(folder) => Ok(folder),
            Node::File(_) => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    fn create_file(&self, path: &Path) -> io::Result<Open> {
        self.call(false)?;
        let (folder, name) = self.place(path)?;
        if self.state().find(path).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let mut state = self.state();
        let file = state.files.len();
        state.files.push(Content::synced(Vec::new()));
        state.change_names(folder, Naming::Put(name, Node::File(file)));
        drop(state);
        Ok(Open(self.clone(), file, 0))
    }

    fn write(&self, file: usize, offset: usize, bytes: &[u8]) -> io::Result<usize> {
        let fault = self.call(true)?;
        let is_short = matches!(fault, Some(Fault::Short | Fault::Fills));
        let bytes = if is_short { &bytes[..bytes.len().div_ceil(2)] } else { bytes };
        self.state().change(file, Change::Bytes(offset, bytes.to_vec()));
        if fault == Some(Fault::Lies) { Err(io::Error::from_raw_os_error(libc::EIO)) } else { Ok(bytes.len()) }
    }

    fn sync(&self, file: usize) -> io::Result<()> {
        let result = self.call(false);
        if self.has_ended() {
            return result.map(drop);
        }
        let unsynced = self.state().files[file].take_unsynced();
        let held = self.state().held.take();
        if let Some((begun, ends)) = held {
            begun.send(()).unwrap();
            ends.recv().unwrap();
        }
        self.state().files[file].end_sync(unsynced, result.is_ok());
        result.map(drop)
    }

    fn remove(&self, path: &Path, is_folder: bool) -> io::Result<()> {
        self.call(false)?;
        if is_folder {
            let folder = self.folder(path)?;
            if !self.state().folders[folder].seen.is_empty() {
                return Err(io::ErrorKind::DirectoryNotEmpty.into());
            }
        } else {
            self.file(path)?;
        }
        let (folder, name) = self.place(path)?;
        self.state().change_names(folder, Naming::Remove(name));
        Ok(())
    }
}

impl Write for Open {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let size = self.0.write(self.1, self.2, bytes)?;
        self.2 += size;
        Ok(size)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl OutFile for Open {
    fn sync(&mut self) -> io::Result<()> {
        self.0.sync(self.1)
    }
}

impl SharedFile for Open {
    fn write_at(&self, pieces: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let bytes = pieces.iter().flat_map(|piece| piece.iter().copied()).collect::<Vec<_>>();
        self.0.write(self.1, offset as usize, &bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync(self.1)
    }

    fn allocate(&self, size: u64) -> io::Result<()> {
        self.0.call(false)?;
        self.0.state().change(self.1, Change::Size(size as usize));
        Ok(())
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        self.allocate(size)
    }
}

impl Disk for CrashDisk {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.call(false)?;
        let missing: Vec<_> = path.ancestors().take_while(|folder| self.state().find(folder).is_err()).collect();
        for folder in missing.into_iter().rev() {
            let (parent, name) = self.place(folder)?;
            let mut state = self.state();
            state.folders.push(Content::synced(Names::new()));
            let new = Node::Folder(state.folders.len() - 1);
            state.change_names(parent, Naming::Put(name, new));
        }
        self.folder(path).map(drop)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn OutFile>> {
        Ok(Box::new(self.create_file(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Read + Send>> {
        self.call(false)?;
        let file = self.file(path)?;
        Ok(Box::new(Cursor::new(self.state().files[file].seen.clone())))
    }

    fn size(&self, path: &Path) -> io::Result<u64> {
        self.call(false)?;
        let file = self.file(path)?;
        Ok(self.state().files[file].seen.len() as u64)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        self.call(false)?;
        let folder = self.folder(path)?;
        Ok(self.state().folders[folder].seen.keys().cloned().collect())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call(false)?;
        let ((folder, old), (into, new)) = (self.place(from)?, self.place(to)?);
        assert_eq!(folder, into, "the disk does not know how to move to another folder");
        if !self.state().folders[folder].seen.contains_key(&old) {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.state().change_names(folder, Naming::Move(old, new));
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.remove(path, false)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.remove(path, true)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let result = self.call(false);
        if self.has_ended() {
            return result.map(drop);
        }
        let folder = self.folder(path)?;
        let mut state = self.state();
        let unsynced = state.folders[folder].take_unsynced();
        state.folders[folder].end_sync(unsynced, result.is_ok());
        result.map(drop)
    }
}

impl LogDisk for CrashDisk {
    fn create_shared(&self, path: &Path) -> io::Result<Box<dyn SharedFile>> {
        Ok(Box::new(self.create_file(path)?))
    }

    fn open_shared(&self, path: &Path) -> io::Result<Box<dyn SharedFile>> {
        self.call(false)?;
        Ok(Box::new(Open(self.clone(), self.file(path)?, 0)))
    }

    fn free_space(&self, _: &Path) -> io::Result<u64> {
        self.call(false)?;
        Ok(self.state().free)
    }
}
