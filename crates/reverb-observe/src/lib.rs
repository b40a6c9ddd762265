//! What a server shows of itself: documents, metrics, and the HTTP port with the live page.
//!
//! [`documents`] describe a server as JSON; our protocol sends them too. [`verdict`] says whether it works.
//! [`metrics`] are for Prometheus, [`http`] serves all of these, the page and health. Nothing here changes a table.

pub mod bind;
mod calls;
pub mod documents;
pub mod http;
mod metrics;
pub mod verdict;

pub use calls::{CODES, CallCount, Calls, Methods};
