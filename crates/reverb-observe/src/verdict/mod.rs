//! The verdict on a server: whether it flows, what is stuck, and whose fault that is.
//!
//! [`judge`] makes it from plain data. A table that stands still while requests wait is a stall if nobody who is connected
//! can end that: for ten seconds a warning, for a minute an alarm. If somebody can, it is an ordinary wait, until it lasts
//! longer than the table's limit. It changes no answer to health checks. [`watch()`] looks at a server each second.

mod chain;
mod judge;
mod rates;
mod state;
mod watch;
mod words;

pub use judge::judge;
pub use state::{ClientState, LeftClient, ServerState, TableState, WaitState};
pub use watch::watch;
pub(crate) use words::grouped;
