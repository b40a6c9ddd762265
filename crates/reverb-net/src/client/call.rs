//! What a call is: a value that each kind of road executes.

use super::started::Started;
use crate::dm_reverb::client as dm_reverb;
use crate::replay_v1::client::Connection;
use reverb_core::Result;
use reverb_service::Replay;
use std::sync::Arc;
use std::time::Instant;

/// A call to one server, with a method for each kind of [`super::Road`].
pub trait Call: Send + Sized {
    /// What the server answers.
    type Answer: Send;

    /// What a server of dm-reverb cannot do, if its protocol lacks the call. Ends a sentence about the server.
    const NOT_IN_DM_REVERB: &'static str = "which does not know this call; start the server with this package";

    /// Makes the call at a server of this process. The calling thread does as much of it as is possible without a wait.
    fn here<'a>(self, replay: Arc<Replay>, deadline: Option<Instant>) -> Started<'a, Self::Answer>
    where
        Self: 'a;

    /// Makes the call over a connection that uses our protocol.
    fn replay_v1(
        self,
        connection: &Connection,
        deadline: Option<Instant>,
    ) -> impl Future<Output = Result<Self::Answer>> + Send;

    /// Makes the call over a connection to a server of dm-reverb. By default, its protocol lacks the call.
    fn dm_reverb(
        self,
        connection: &dm_reverb::Connection,
        _deadline: Option<Instant>,
    ) -> impl Future<Output = Result<Self::Answer>> + Send {
        std::future::ready(Err(connection.lacks(Self::NOT_IN_DM_REVERB)))
    }
}
