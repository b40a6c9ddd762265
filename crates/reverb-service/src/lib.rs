//! The replay service without a network: tables, and calls that wait for them.
//!
//! [`Replay`] is the service. Clients of the same process call it directly, and servers offer it over a network. A
//! [`TableHandle`] adds a lock and two queues of waiting requests to a table of the core, which itself never waits.

mod batch;
mod bench;
mod clients;
mod compaction;
mod connections;
mod cut;
pub mod decoding;
pub mod event_log;
mod facts;
mod freed_memory;
pub mod get;
pub mod insert;
pub mod lease;
pub mod local;
pub mod maintenance;
mod notice;
pub mod peek;
mod peer;
mod process_name;
mod receipts;
pub mod registry;
mod replay;
mod shard;
mod shared_memory;
mod stacking;
mod store;
mod table_handle;
mod tables_used;
mod verdict;
pub mod write_ledger;
pub mod write_queue;

pub use batch::Batch;
pub use bench::{BenchTable, BenchTables};
pub use clients::LeftClient;
pub use connections::{
    ClosedConnection, Connections, Departure, OpenConnection, OpenStream, StreamKind, TransportTotals,
};
pub use facts::ServerFacts;
pub use insert::{InsertGroup, wait_for_inserts};
pub use local::{BatchRequest, Priorities, RowInsert};
pub use notice::{Notice, warn};
pub use peer::{Identity, Inserter, Peer, Traffic, Transport, program_of};
pub use process_name::{host_name, process_name};
pub use receipts::{Receipts, StreamReceipts};
pub use replay::Replay;
pub use shard::{Load, Shard};
pub use shared_memory::SharedMemory;
pub use stacking::stack;
pub use store::{LogMode, SavedState, Store, StoreLog, StoreProgress, StoreStatus};
pub use table_handle::{
    Arrival, Call, DrawRequest, EffectsBegin, Journal, Kept, MAX_DRAWN, Operation, REPEAT, RoomDeliveries,
    RoomDelivery, RoomLink, RoomMessage, Stock, TIMED_OUT, TableBegin, TableHandle, TablePulse, TableStatus, WaitKind,
    Waiting, WaitingRequest, begin_effects, snapshot_all,
};
pub use tables_used::{Place, TablesUsed};
pub use verdict::{Level, PeerRates, Progress, TableRates, TableVerdict, Trouble, Verdict, Watched};
