//! What a server shows of itself: documents that the HTTP port and the call `Observe` send as JSON.

mod build;
mod documents;
mod observed;

pub use build::{checkpoints, clients, server, tables, waits};
pub use documents::*;
pub use observed::observed;
pub use reverb_service::ServerFacts;
