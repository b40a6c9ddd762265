//! A connection of a client to a server of dm-reverb.

use super::answering::within;
use super::draw_call::DrawCall;
use super::draws::Draws;
use super::idle_streams::IdleStreams;
use super::insert_link::InsertLink;
use super::sample_link::SampleLink;
use super::tables::{Tables, statuses};
use crate::dm_reverb::proto::ServerInfoRequest;
use crate::dm_reverb::rpc::reverb_service_client::ReverbServiceClient;
use crate::dm_reverb::status::from_status;
use crate::transport::address::Endpoint;
use crate::transport::authorized::Channel;
use crate::transport::caller_driven::flush;
use crate::transport::dial::ATTEMPT_TIME;
use reverb_core::{Error, Result};
use reverb_service::local::BatchRequest;
use reverb_service::{Batch, TableStatus, Transport};
use std::sync::Arc;
use std::time::Instant;
use tokio::task::JoinHandle;
use tonic::{Code, Response, Status};

// limit (Beside dm-reverb): one message from or to a server of dm-reverb | {} | the call fails
/// Maximum size of a message in bytes. Protocol Buffers cannot encode larger ones.
const MAX_MESSAGE_BYTES: usize = i32::MAX as usize;

/// An open connection. If it breaks, all its calls fail, and the client opens another.
#[derive(Debug)]
pub struct Connection {
    /// The address of the server, for display.
    pub peer: String,
    pub transport: Transport,
    service: ReverbServiceClient<Channel>,
    /// The tables of the server.
    pub tables: Arc<Tables>,
    draws: Arc<Draws>,
    /// The insert streams that no call uses.
    pub(super) idle_inserts: IdleStreams<InsertLink>,
    /// Ends when the connection does.
    watch: JoinHandle<()>,
}

impl Connection {
    /// Asks the server for its tables.
    ///
    /// # Errors
    /// [`Error::Unavailable`] with the cause, or [`Error::Unimplemented`] if the server does not have the service.
    pub async fn greet(endpoint: &Endpoint, transport: Transport, channel: Channel) -> Result<Self> {
        let peer = endpoint.address.text();
        let mut service = ReverbServiceClient::new(channel)
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES);
        let tables = match tokio::time::timeout(ATTEMPT_TIME, service.server_info(ServerInfoRequest {})).await {
            Ok(Ok(response)) => Tables::read(response.into_inner())?,
            Ok(Err(status)) if status.code() == Code::Unimplemented => {
                return Err(Error::Unimplemented(format!(
                    "the server at {peer} does not have the service reverb.replay.v1.Replay; is it a server of this \
                     package?"
                )));
            }
            Ok(Err(status)) => return Err(from_status(&status, peer)),
            Err(_) => {
                return Err(Error::Unavailable(format!(
                    "the server at {peer} accepts connections, but does not answer"
                )));
            }
        };
        let tables = Arc::new(tables);
        let draws = Arc::new(Draws::new(peer, service.clone(), tables.clone()));
        let watch = tokio::spawn(watch(service.clone()));
        let idle_inserts = IdleStreams::default();
        Ok(Self { peer: peer.to_owned(), transport, service, tables, draws, idle_inserts, watch })
    }

    /// Whether the connection has failed, so that a new one is needed.
    pub fn is_broken(&self) -> bool {
        self.watch.is_finished()
    }

    /// Returns the service, for a call or a stream.
    pub fn service(&self) -> ReverbServiceClient<Channel> {
        self.service.clone()
    }

    /// Returns the error of a call that the protocol lacks.
    pub fn lacks(&self, what: &str) -> Error {
        Error::Unimplemented(format!("the server at {} is one of dm-reverb 0.14, {what}", self.peer))
    }

    /// Asks for the status of all tables.
    pub async fn info(&self, deadline: Option<Instant>) -> Result<Vec<TableStatus>> {
        let call = async |mut service: ReverbServiceClient<_>| service.server_info(ServerInfoRequest {}).await;
        statuses(self.unary(None, deadline, call).await?)
    }

    /// Makes a call with one request and one answer, which may concern a table.
    ///
    /// # Errors
    /// [`Error::TableNotFound`], the error that the server answers, or [`Error::DeadlineExceeded`].
    pub async fn unary<T>(
        &self,
        table: Option<&str>,
        deadline: Option<Instant>,
        call: impl AsyncFnOnce(ReverbServiceClient<Channel>) -> std::result::Result<Response<T>, Status>,
    ) -> Result<T> {
        table.map_or(Ok(()), |table| self.tables.get(table).map(drop))?;
        let call = async {
            call(self.service()).await.map(Response::into_inner).map_err(|status| match table {
                Some(table) if status.code() == Code::NotFound => self.tables.not_found(table),
                _ => from_status(&status, &self.peer),
            })
        };
        let late = || Error::DeadlineExceeded(format!("the server at {} did not answer in time", self.peer));
        within(deadline, call).await.ok_or_else(late)?
    }

    /// See [`crate::client::Client::sample`].
    pub async fn sample(&self, request: &BatchRequest, deadline: Option<Instant>) -> Result<Batch> {
        let (batch, unconfirmed) = self.draws.begin(request, deadline).result().await?;
        unconfirmed.confirm();
        Ok(batch)
    }

    /// See [`crate::client::Client::begin_sample`].
    pub async fn begin_sample(&self, request: &BatchRequest, deadline: Option<Instant>) -> Result<DrawCall> {
        let call = DrawCall::begin(self.draws.begin(request, deadline).result());
        flush().await;
        Ok(call)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

/// Waits for the end of the connection. An open stream tells it; without one, the next call would open another
/// connection unnoticed, perhaps to another server.
async fn watch(service: ReverbServiceClient<Channel>) {
    let mut stream = SampleLink::open(service);
    while let Ok(Some(_)) = stream.next().await {}
}
