//! Connections: where they lead, how they are dialled, and which thread drives those of a client.

pub(crate) mod address;
pub(crate) mod authorized;
pub(crate) mod back_off;
pub mod caller_driven;
pub mod cluster;
pub(crate) mod dial;
mod driven_runtime;
pub(crate) mod http2;
mod idle_driver;
pub(crate) mod passing;
pub(crate) mod peer_user;
pub(crate) mod segment;
pub(crate) mod socket;
pub(crate) mod unix_path;
pub(crate) mod wrong_port;
