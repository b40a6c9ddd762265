//! TLS at both ends of a connection, and what a client shows of itself. Nothing here knows what travels over it.
//!
//! Certificates, keys and authorities are files, which [`ServerTls`] reads again when they change and [`ClientTls`]
//! reads for each connection. No connection without TLS passes through this crate's code, but for one `match` a call.

mod answers;
mod client;
mod files;
mod guests;
mod handshakes;
mod limited;
mod provider;
mod reload;
mod secret;
mod secured;
mod server;

pub use client::{ClientStream, ClientTls, Connector, speaks_tls};
pub use handshakes::Handshakes;
pub use limited::Limited;
pub use secret::{Secret, TokenSource};
pub use secured::Secured;
pub use server::{Port, ServerTls, TlsFiles};
