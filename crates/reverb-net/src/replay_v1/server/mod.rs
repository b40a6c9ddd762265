//! The server half of the protocol: the methods of the service, and its streams.

mod bench_stream;
mod held_races;
mod insert_stream;
mod last_word;
mod same_server;
mod sample_stream;
mod segments;
mod service;
mod staged;
mod sums_stream;
mod vanished;
mod waiting_beats;
mod woken;
mod write_stream;

pub use crate::replay_v1::rpc::replay_server::SERVICE_NAME as NAME;
pub use service::service;
