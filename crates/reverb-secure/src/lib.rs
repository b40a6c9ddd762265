//! TLS at both ends of a connection, what a client shows of itself, and who may do what at a server. Nothing here knows
//! what travels over it.
//!
//! Certificates, keys and authorities are files, which [`ServerTls`] reads again when they change and [`ClientTls`]
//! reads for each connection. No connection without TLS passes through this crate's code, but for one `match` a call.
//! [`Access`] decides by tokens with roles, which [`Tokens`] reads from a file.

mod access;
mod answers;
mod audit;
mod client;
mod failures;
mod files;
mod guests;
mod handshakes;
mod limited;
mod provider;
mod reload;
mod role;
mod secret;
mod secured;
mod server;
mod token_file;
mod tokens;
mod watched;

pub use access::{Access, Origin, Reason, Refusal};
pub use audit::{AUDIT, Audit, Entry as AuditEntry, Value as AuditValue};
pub use client::{ClientStream, ClientTls, Connector, speaks_tls};
pub use handshakes::Handshakes;
pub use limited::Limited;
pub use reload::Reloads;
pub use role::Role;
pub use secret::{Secret, TokenSource};
pub use secured::Secured;
pub use server::{Port, ServerTls, TlsFiles};
pub use token_file::{Entry as TokenEntry, of_text as tokens_of_text};
pub use tokens::{Guest, Proof, Tokens, sha256_hex};
