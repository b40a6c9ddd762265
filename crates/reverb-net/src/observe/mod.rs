//! What a server shows of itself: documents that the HTTP port and the call `Observe` send as JSON.

mod build;
mod columns;
mod documents;
mod limiter;
mod observed;
mod process;
mod tables;

pub use build::{checkpoints, clients, log, server, waits};
pub use documents::*;
pub use observed::observed;
pub use process::{cpu_seconds, resident_bytes};
pub use reverb_service::ServerFacts;
pub use tables::tables;
