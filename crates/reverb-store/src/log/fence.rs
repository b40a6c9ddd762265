//! The fence against two servers on one folder: a file that names the server that started last.
//!
//! The lock of the folder (`lock.rs`) keeps servers of one machine apart. It may not reach other machines: a shard that
//! was cut off goes on while another machine has started its successor on the same storage.

use crate::disk::{Disk, LogDisk, storage_error};
use reverb_core::{Error, Result};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Name of the file.
const FILE: &str = "log-generation";
/// Maximum number of bytes of the file that are read.
const MAX_BYTES: u64 = 128;

/// The claim of a server on the log in a folder.
#[derive(Debug)]
pub struct Fence {
    /// The disk and the folder of the log.
    pub(super) disk: Arc<dyn LogDisk>,
    pub(super) folder: PathBuf,
    path: PathBuf,
    generation: u64,
    /// The content of the file while nobody else has claimed the folder.
    content: String,
}

impl Fence {
    /// Claims the folder. A server that claimed it before closes its log when it looks at the file next.
    ///
    /// # Errors
    /// [`Error::Storage`] if the file cannot be read, written or synced.
    pub fn claim(disk: Arc<dyn LogDisk>, folder: &Path) -> Result<Arc<Self>> {
        let path = folder.join(FILE);
        let before = match read(&*disk, &path) {
            // A damaged number does no harm: the random part tells servers apart.
            Ok(content) => generation_of(&content).unwrap_or(0),
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(storage_error("cannot read", &path, &error)),
        };
        let (generation, token) = (before.saturating_add(1), rand::random::<u128>());
        let content = format!("{generation} {token:032x}\n");
        let new = folder.join(format!("{FILE}.{token:032x}"));
        let write = || {
            let mut file = disk.create(&new)?;
            file.write_all(content.as_bytes())?;
            file.sync()?;
            disk.rename(&new, &path)?;
            disk.sync_dir(folder)
        };
        match write() {
            Ok(()) => Ok(Arc::new(Self { disk, folder: folder.into(), path, generation, content })),
            Err(error) => {
                let _stays = disk.remove_file(&new);
                Err(storage_error("cannot write", &path, &error))
            }
        }
    }

    /// Checks that nobody has claimed the folder since.
    ///
    /// # Errors
    /// [`Error::Storage`] if another server has, or if the file cannot be read.
    pub fn check(&self) -> Result<()> {
        let found = read(&*self.disk, &self.path).map_err(|error| storage_error("cannot read", &self.path, &error))?;
        if found == self.content.as_bytes() {
            return Ok(());
        }
        let other = generation_of(&found).map_or_else(|| "another content".into(), |number| format!("start {number}"));
        Err(Error::Storage(format!(
            "another server has started on this folder: {} names {other}, and this server was start {}",
            self.path.display(),
            self.generation
        )))
    }
}

fn read(disk: &dyn Disk, path: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    disk.open(path)?.take(MAX_BYTES).read_to_end(&mut content)?;
    Ok(content)
}

fn generation_of(content: &[u8]) -> Option<u64> {
    std::str::from_utf8(content).ok()?.split_once(' ')?.0.parse().ok()
}
