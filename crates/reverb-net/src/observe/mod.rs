//! What a server shows of itself: documents that the HTTP port and the call `Observe` send as JSON.

mod build;
mod documents;
mod facts;

pub use build::{checkpoints, clients, seconds, server, tables, waits};
pub use documents::*;
pub use facts::ServerFacts;
