//! The calls of a client that takes part in the limiter of a table.

use crate::client::call::Call;
use crate::client::started::Started;
use crate::replay_v1::client::Connection;
use crate::replay_v1::proto::{SumsRequest, SumsResponse};
use reverb_core::{Error, Result};
use reverb_service::Replay;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

/// Asks whether shards keep the ratio of a table together.
#[derive(Debug)]
pub struct KeepsRatio<'a>(pub &'a str);

/// Attaches the client to a table. `None` if the server does not know how to.
#[derive(Debug)]
pub struct Attach(pub mpsc::Receiver<SumsRequest>);

/// No client of a cluster uses tables of its process directly.
fn not_here<'a, T>() -> Started<'a, T> {
    Started::Done(Err(Error::Internal("a shard of a cluster is reached over a connection".into())))
}

impl Call for KeepsRatio<'_> {
    type Answer = bool;

    fn here<'a>(self, _: Arc<Replay>, _: Option<Instant>) -> Started<'a, bool>
    where
        Self: 'a,
    {
        not_here()
    }

    async fn replay_v1(self, connection: &Connection, deadline: Option<Instant>) -> Result<bool> {
        connection.keeps_ratio(self.0, deadline).await
    }
}

impl Call for Attach {
    type Answer = Option<Streaming<SumsResponse>>;

    fn here<'a>(self, _: Arc<Replay>, _: Option<Instant>) -> Started<'a, Self::Answer> {
        not_here()
    }

    async fn replay_v1(self, connection: &Connection, _: Option<Instant>) -> Result<Self::Answer> {
        connection.open_sums(ReceiverStream::new(self.0)).await
    }
}
