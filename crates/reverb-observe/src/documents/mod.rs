//! What a server shows of itself: documents that the HTTP port and the call `Observe` send as JSON.

mod clients;
mod columns;
mod histogram;
mod items;
mod limiter;
mod observed;
mod process;
mod schema;
mod server;
mod tables;
mod verdict;

pub use clients::{MAX_WAITS, clients, waits};
pub use histogram::histograms;
pub use items::{ColumnBytes, column_bytes, items};
pub use observed::observed;
pub use process::{cpu_seconds, memory_limit, resident_bytes};
pub use schema::*;
pub use server::{checkpoints, log, seconds, server, traffic};
pub use tables::tables;
pub use verdict::verdict;
