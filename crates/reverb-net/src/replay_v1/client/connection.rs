//! A connection of a client to a server, and the calls over it.

use super::insert_link::InsertLink;
use super::sample_link::{DrawCall, SampleLink};
use crate::caller_driven::flush;
use crate::dial::ATTEMPT_TIME;
use crate::replay_v1::proto::{
    CheckpointRequest, Draw, HelloRequest, HelloResponse, InfoRequest, InsertRequest, ItemBatch, MutateRequest,
    PeekRequest, ResetRequest, WriteRequest, WriteResponse,
};
use crate::replay_v1::rpc::replay_client::ReplayClient;
use crate::replay_v1::status::from_status;
use crate::replay_v1::version::{CAPABILITIES, VERSION};
use crate::replay_v1::wire::{chunk_to_wire, peeked_from_wire, status_from_wire};
use reverb_core::{Error, Result, item_keys};
use reverb_service::insert::check_size;
use reverb_service::local::{BatchRequest, RowInsert};
use reverb_service::peek::Peeked;
use reverb_service::{Batch, TableStatus, Transport, process_name};
use std::time::{Duration, Instant};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

/// Time to wait, after the deadline of a call, for the answer of the server that the deadline has passed.
const GRACE: Duration = Duration::from_secs(2);

/// An open connection. If it breaks, all its calls fail, and the client opens another.
#[derive(Debug)]
pub struct Connection {
    peer: String,
    transport: Transport,
    service: ReplayClient<Channel>,
    hello: HelloResponse,
    inserts: InsertLink,
    samples: SampleLink,
}

impl Connection {
    /// Asks the server for its id, its version of the protocol and its limits. `None` if the server does not have the
    /// service.
    ///
    /// # Errors
    /// [`Error::Unavailable`] with the cause, or [`Error::Unimplemented`] if the server uses a different version.
    pub async fn greet(peer: &str, transport: Transport, channel: Channel) -> Result<Option<Self>> {
        let mut service = ReplayClient::new(channel.clone())
            .max_decoding_message_size(usize::MAX)
            .max_encoding_message_size(usize::MAX);
        let capabilities = CAPABILITIES.map(String::from).to_vec();
        let request = HelloRequest { version: VERSION, client_name: process_name(), capabilities };
        let hello = match tokio::time::timeout(ATTEMPT_TIME, service.hello(request)).await {
            Ok(Ok(hello)) => hello.into_inner(),
            Ok(Err(status)) if status.code() == Code::Unimplemented => return Ok(None),
            Ok(Err(status)) => return Err(from_status(&status, peer)),
            Err(_) => {
                return Err(Error::Unavailable(format!(
                    "the server at {peer} accepts connections, but does not answer"
                )));
            }
        };
        if hello.version == 0 || hello.version > VERSION {
            return Err(Error::Unimplemented(format!(
                "the server at {peer} uses version {} of reverb.replay.v1; this client supports version {VERSION}",
                hello.version
            )));
        }
        let inserts = InsertLink::open(service.clone(), peer);
        let samples = SampleLink::open(channel, peer);
        Ok(Some(Self { peer: peer.to_owned(), transport, service, hello, inserts, samples }))
    }

    /// Returns the random id of the server, which it made when it started.
    pub fn server_id(&self) -> &[u8] {
        &self.hello.server_id
    }

    /// Returns the path of the server's Unix socket. Empty if it has none.
    pub fn unix_path(&self) -> &str {
        &self.hello.unix_path
    }

    /// Whether the connection has failed, so that a new one is needed.
    pub fn is_broken(&self) -> bool {
        self.inserts.is_broken() || self.samples.is_broken()
    }

    /// Returns the address of the server, for display.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// Returns the transport of the connection.
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// Returns the maximum number of bytes of data in one insert.
    pub fn max_message_size(&self) -> u64 {
        self.hello.max_message_size
    }

    /// Opens a stream for the items of a writer.
    pub async fn open_write(
        &self,
        requests: impl tokio_stream::Stream<Item = WriteRequest> + Send + 'static,
    ) -> Result<tonic::Streaming<WriteResponse>> {
        let mut service = self.service.clone();
        match service.write(requests).await {
            Ok(responses) => Ok(responses.into_inner()),
            Err(status) => Err(from_status(&status, &self.peer)),
        }
    }

    pub async fn insert(&self, insert: RowInsert, deadline: Option<Instant>) -> Result<()> {
        check_size(insert.chunk.decoded_bytes() as u64, self.hello.max_message_size)?;
        let items = insert.num_items();
        let batch = |(table, priorities): (String, Vec<f64>)| ItemBatch {
            table,
            keys: item_keys(|key| (0..items).map(|_| key()).collect()),
            priorities,
            chunk_key: insert.chunk.key,
            first_row: 0,
            rows_per_item: insert.rows_per_item,
            trajectories: Vec::new(),
        };
        let request = InsertRequest {
            chunks: vec![chunk_to_wire(&insert.chunk)],
            batches: insert.tables.into_iter().map(batch).collect(),
            timeout_ms: timeout_ms(deadline),
            ..InsertRequest::default()
        };
        self.within(deadline, self.inserts.call(request)).await
    }

    pub async fn sample(&self, request: &BatchRequest, deadline: Option<Instant>) -> Result<Batch> {
        self.within(deadline, self.samples.call(draw(request, deadline))).await
    }

    /// Begins a draw, and sends the request.
    pub async fn begin_sample(&self, request: &BatchRequest, deadline: Option<Instant>) -> Result<DrawCall> {
        let call = self.samples.begin(draw(request, deadline))?;
        flush().await;
        Ok(call)
    }

    pub async fn mutate(
        &self,
        table: &str,
        updates: &[(u64, f64)],
        deletes: &[u64],
        deadline: Option<Instant>,
    ) -> Result<Option<u64>> {
        let (update_keys, priorities) = updates.iter().copied().unzip();
        let request = MutateRequest { table: table.into(), update_keys, priorities, delete_keys: deletes.to_vec() };
        let mut service = self.service.clone();
        Ok(self.unary(deadline, service.mutate(request)).await?.into_inner().num_changed)
    }

    pub async fn reset(&self, table: &str, deadline: Option<Instant>) -> Result<()> {
        let mut service = self.service.clone();
        self.unary(deadline, service.reset(ResetRequest { table: table.into() })).await.map(drop)
    }

    pub async fn info(&self, deadline: Option<Instant>) -> Result<Vec<TableStatus>> {
        let mut service = self.service.clone();
        let response = self.unary(deadline, service.info(Request::new(InfoRequest {}))).await?;
        response.into_inner().tables.into_iter().map(status_from_wire).collect()
    }

    /// Saves all tables of the server, and waits until the save is complete. Returns the path of the checkpoint.
    pub async fn checkpoint(&self, deadline: Option<Instant>) -> Result<String> {
        let mut service = self.service.clone();
        let response = self.unary(deadline, service.checkpoint(Request::new(CheckpointRequest {}))).await?;
        Ok(response.into_inner().path)
    }

    /// See [`crate::client::Client::peek`].
    pub async fn peek(&self, table: &str, count: u32, newest: bool, deadline: Option<Instant>) -> Result<Vec<Peeked>> {
        let request = PeekRequest { table: table.into(), count, newest };
        let mut service = self.service.clone();
        peeked_from_wire(self.unary(deadline, service.peek(request)).await?.into_inner())
    }

    async fn unary<T>(
        &self,
        deadline: Option<Instant>,
        call: impl Future<Output = std::result::Result<T, Status>>,
    ) -> Result<T> {
        let call = async { call.await.map_err(|status| from_status(&status, &self.peer)) };
        let Some(deadline) = deadline else { return call.await };
        tokio::time::timeout_at(deadline.into(), call).await.unwrap_or_else(|_| Err(self.no_answer()))
    }

    /// Awaits a call whose deadline the server enforces, because the server knows what the call waited for. Gives up if
    /// the server does not answer [`GRACE`] after the deadline.
    async fn within<T>(&self, deadline: Option<Instant>, call: impl Future<Output = Result<T>>) -> Result<T> {
        match deadline.and_then(|deadline| deadline.checked_add(GRACE)) {
            None => call.await,
            Some(limit) => tokio::time::timeout_at(limit.into(), call).await.unwrap_or_else(|_| Err(self.no_answer())),
        }
    }

    fn no_answer(&self) -> Error {
        Error::DeadlineExceeded(format!("the server at {} did not answer in time", self.peer))
    }
}

fn draw(request: &BatchRequest, deadline: Option<Instant>) -> Draw {
    Draw {
        table: request.table.clone(),
        at_least: request.draw.at_least as u64,
        at_most: request.draw.at_most as u64,
        ahead: request.draw.ahead as u64,
        timeout_ms: timeout_ms(deadline),
        squeeze_time: request.squeeze_time,
    }
}

fn timeout_ms(deadline: Option<Instant>) -> Option<u64> {
    let left = deadline?.saturating_duration_since(Instant::now());
    // Rounded up: a deadline that has not passed yet is not "at once".
    Some(left.as_micros().div_ceil(1000) as u64)
}
