//! Where the log of a server is.

use crate::disk::LogDisk;
use crate::log::{Id, SEGMENT_BYTES, boot_id};
use std::path::PathBuf;
use std::sync::Arc;

/// Where a log is.
#[derive(Debug, Clone)]
pub struct LogPlace {
    /// The file system.
    pub disk: Arc<dyn LogDisk>,
    /// The folder of the checkpoints.
    pub folder: PathBuf,
    /// Size of a segment in bytes.
    pub segment_bytes: u64,
    /// Id of this boot of the system. `None` if it is not known.
    pub boot_id: Option<Id>,
}

impl LogPlace {
    /// A log in a folder of this system, with segments of the usual size.
    pub fn new(disk: Arc<dyn LogDisk>, folder: PathBuf) -> Self {
        Self { disk, folder, segment_bytes: SEGMENT_BYTES, boot_id: boot_id() }
    }
}
