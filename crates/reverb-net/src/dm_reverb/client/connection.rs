//! A connection of a client to a server of dm-reverb, and the calls over it.

use super::draw_call::DrawCall;
use crate::dial::ATTEMPT_TIME;
use crate::dm_reverb::proto::ServerInfoRequest;
use crate::dm_reverb::rpc::reverb_service_client::ReverbServiceClient;
use crate::dm_reverb::status::from_status;
use reverb_core::{Error, Result};
use reverb_service::local::{BatchRequest, RowInsert};
use reverb_service::peek::Peeked;
use reverb_service::{Batch, TableStatus, Transport};
use std::time::Instant;
use tonic::Code;
use tonic::transport::Channel;

/// An open connection. If it breaks, all its calls fail, and the client opens another.
#[derive(Debug)]
pub struct Connection {
    peer: String,
    transport: Transport,
}

impl Connection {
    /// Asks the server for its tables.
    ///
    /// # Errors
    /// [`Error::Unavailable`] with the cause, or [`Error::Unimplemented`] if the server does not have the service.
    pub async fn greet(peer: &str, transport: Transport, channel: Channel) -> Result<Self> {
        let mut service = ReverbServiceClient::new(channel)
            .max_decoding_message_size(usize::MAX)
            .max_encoding_message_size(usize::MAX);
        match tokio::time::timeout(ATTEMPT_TIME, service.server_info(ServerInfoRequest {})).await {
            Ok(Ok(_)) => Ok(Self { peer: peer.to_owned(), transport }),
            Ok(Err(status)) if status.code() == Code::Unimplemented => Err(Error::Unimplemented(format!(
                "the server at {peer} does not have the service reverb.replay.v1.Replay; is it a server of this package?"
            ))),
            Ok(Err(status)) => Err(from_status(&status, peer)),
            Err(_) => Err(Error::Unavailable(format!("the server at {peer} accepts connections, but does not answer"))),
        }
    }

    /// Whether the connection has failed, so that a new one is needed.
    pub fn is_broken(&self) -> bool {
        false
    }

    /// Returns the address of the server, for display.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// Returns the transport of the connection.
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// See [`crate::client::Client::insert`].
    pub async fn insert(&self, _insert: RowInsert, _deadline: Option<Instant>) -> Result<()> {
        Err(self.unimplemented())
    }

    /// See [`crate::client::Client::sample`].
    pub async fn sample(&self, _request: &BatchRequest, _deadline: Option<Instant>) -> Result<Batch> {
        Err(self.unimplemented())
    }

    /// See [`crate::client::Client::begin_sample`].
    pub async fn begin_sample(&self, _request: &BatchRequest, _deadline: Option<Instant>) -> Result<DrawCall> {
        Err(self.unimplemented())
    }

    /// See [`crate::client::Client::mutate`].
    pub async fn mutate(
        &self,
        _table: &str,
        _updates: &[(u64, f64)],
        _deletes: &[u64],
        _deadline: Option<Instant>,
    ) -> Result<Option<u64>> {
        Err(self.unimplemented())
    }

    /// See [`crate::client::Client::reset`].
    pub async fn reset(&self, _table: &str, _deadline: Option<Instant>) -> Result<()> {
        Err(self.unimplemented())
    }

    /// See [`crate::client::Client::info`].
    pub async fn info(&self, _deadline: Option<Instant>) -> Result<Vec<TableStatus>> {
        Err(self.unimplemented())
    }

    /// See [`crate::client::Client::checkpoint`].
    pub async fn checkpoint(&self, _deadline: Option<Instant>) -> Result<String> {
        Err(self.unimplemented())
    }

    /// See [`crate::client::Client::peek`].
    pub async fn peek(
        &self,
        _table: &str,
        _count: u32,
        _newest: bool,
        _deadline: Option<Instant>,
    ) -> Result<Vec<Peeked>> {
        Err(self.unimplemented())
    }

    fn unimplemented(&self) -> Error {
        Error::Unimplemented(format!("the server at {} is one of dm-reverb", self.peer))
    }
}
