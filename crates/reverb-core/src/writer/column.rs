//! The properties of a column that a writer shares with references to its values.

use crate::DType;
use std::sync::atomic::AtomicU64;

/// The properties of a column that references to its values need.
#[derive(Debug)]
pub struct WriterColumn {
    /// The writer's number of the column.
    pub id: u32,
    /// Number of the writer, unique within the process.
    pub writer: u64,
    /// Element type.
    pub dtype: DType,
    /// The first step whose value is still kept, counted since the writer was created.
    pub alive_from: AtomicU64,
}
