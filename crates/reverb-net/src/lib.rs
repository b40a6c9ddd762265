//! Servers and clients of the replay service, and the protocol between them.
//!
//! [`server`] serves on TCP and on a Unix socket. [`client`] finds the shortest road to a server. Each protocol is a
//! folder with a server half and a client half that do not depend on each other: [`replay_v1`] is ours,
//! [`dm_reverb`] is that of dm-reverb 0.14.

mod address;
mod bind;
pub mod caller_driven;
mod calls;
pub mod client;
mod descriptors;
mod dial;
pub mod dm_reverb;
mod driven_runtime;
mod health;
pub mod http;
mod http2;
mod idle_driver;
mod listen;
pub mod observe;
mod reflection;
pub mod replay_v1;
mod serve;
pub mod server;
mod socket;
mod table_info;

pub use address::Endpoint;
pub use calls::{CallCount, Calls};
pub use descriptors::DESCRIPTORS;
pub use replay_v1::wire::status_bytes;
pub use table_info::info_bytes;
