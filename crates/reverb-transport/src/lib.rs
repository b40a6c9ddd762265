//! How replay data travels: tables that tasks can wait on, the server, and the clients.
//!
//! [`Replay`] is the service itself, without a network: the same-process road uses it directly, and [`server`] offers it
//! over gRPC. [`client`] picks the shortest road to a server by itself.

pub mod checkpoint;
pub mod client;
mod codec;
mod compaction;
mod convert;
mod cut;
mod decoded_size;
mod housekeeping;
mod lease;
pub mod pattern_from_wire;
mod peek;
pub mod proto;
pub mod reference_chunk;
mod registry;
mod replay;
mod sample_response;
pub mod server;
mod socket;
mod status;
mod table_handle;
mod write_ledger;
mod write_queue;

pub use convert::table_info;
pub use peek::Peeked;
pub use replay::{InsertGroup, Replay, wait_for_inserts};
pub use table_handle::{Call, DrawRequest, TableHandle, TableStatus, Waiting};
