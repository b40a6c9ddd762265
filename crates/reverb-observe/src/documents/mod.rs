//! What a server shows of itself: documents that the HTTP port and the call `Observe` send as JSON.

mod columns;
mod histogram;
mod items;
mod limiter;
mod observed;
mod process;
mod schema;
mod server;
mod tables;

pub use histogram::histograms;
pub use items::{ColumnBytes, column_bytes, items};
pub use limiter::diff;
pub use observed::observed;
pub use process::{cpu_seconds, resident_bytes};
pub use schema::*;
pub use server::{checkpoints, clients, log, seconds, server, traffic, waits};
pub use tables::tables;
