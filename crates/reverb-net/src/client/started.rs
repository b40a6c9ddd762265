//! The result of making a call: it is complete, or in progress.

use reverb_core::Result;
use std::future::{Future, IntoFuture};
use std::pin::Pin;

/// What a call waits for. Determines the runtime on which to await it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitsFor {
    /// Tables or disks of this process. The call may be awaited on any runtime.
    ThisProcess,
    /// A server elsewhere. The connection lives on the runtime on which the call is awaited.
    Connection,
}

/// A call that is complete, or the rest of a call in progress.
#[must_use = "a call that is dropped is withdrawn"]
pub enum Started<'a, T> {
    /// The result of the call.
    Done(Result<T>),
    /// The rest of the call, to be awaited. Dropping it withdraws the call.
    Waiting(WaitsFor, Rest<'a, T>),
}

/// A future of the rest of a call.
pub type Rest<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

impl<'a, T> Started<'a, T> {
    /// Wraps the rest of a call that waits for tables or disks of this process.
    pub(crate) fn here(rest: impl Future<Output = Result<T>> + Send + 'a) -> Self {
        Self::Waiting(WaitsFor::ThisProcess, Box::pin(rest))
    }

    /// Wraps the rest of a call that waits for a server elsewhere.
    pub(crate) fn elsewhere(rest: impl Future<Output = Result<T>> + Send + 'a) -> Self {
        Self::Waiting(WaitsFor::Connection, Box::pin(rest))
    }
}

impl<'a, T: Send + 'a> IntoFuture for Started<'a, T> {
    type Output = Result<T>;
    type IntoFuture = Rest<'a, T>;

    fn into_future(self) -> Self::IntoFuture {
        match self {
            Self::Done(result) => Box::pin(std::future::ready(result)),
            Self::Waiting(_, rest) => rest,
        }
    }
}
