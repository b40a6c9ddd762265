//! A file system with one checkpoint, in memory.

use reverb_store::disk::{Disk, OutFile};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Cursor, Read};
use std::path::Path;

/// Files by name. Folders are ignored.
#[derive(Debug, Clone, Default)]
pub struct MemoryDisk(pub BTreeMap<String, Vec<u8>>);

fn refused<T>() -> io::Result<T> {
    Err(io::ErrorKind::PermissionDenied.into())
}

impl MemoryDisk {
    fn file(&self, path: &Path) -> io::Result<&Vec<u8>> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        Ok(self.0.get(&*name).ok_or(io::ErrorKind::NotFound)?)
    }
}

impl Disk for MemoryDisk {
    fn create_dir_all(&self, _: &Path) -> io::Result<()> {
        refused()
    }

    fn create(&self, _: &Path) -> io::Result<Box<dyn OutFile>> {
        refused()
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(Cursor::new(self.file(path)?.clone())))
    }

    fn size(&self, path: &Path) -> io::Result<u64> {
        Ok(self.file(path)?.len() as u64)
    }

    fn list(&self, _: &Path) -> io::Result<Vec<OsString>> {
        Ok(self.0.keys().map(OsString::from).collect())
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        refused()
    }

    fn remove_file(&self, _: &Path) -> io::Result<()> {
        refused()
    }

    fn remove_dir(&self, _: &Path) -> io::Result<()> {
        refused()
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        refused()
    }
}
