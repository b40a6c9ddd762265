//! The methods of the replay service.

use super::insert_stream::insert_stream;
use super::sample_stream::sample_stream;
use super::write_stream::write_stream;
use crate::convert::status_to_wire;
use crate::peek;
use crate::proto::replay::replay_server::{Replay as ReplayService, ReplayServer};
use crate::proto::replay::{
    CheckpointRequest, CheckpointResponse, HelloRequest, HelloResponse, InfoRequest, InfoResponse, InsertRequest,
    InsertResponse, MutateRequest, MutateResponse, PeekRequest, PeekResponse, ResetRequest, ResetResponse,
    SampleRequest, WriteRequest, WriteResponse,
};
use crate::replay::Replay;
use crate::sample_response::SampleResponse;
use crate::socket::Socket;
use crate::status::to_status;
use reverb_core::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming, transport};

/// The version of `reverb.replay.v1` that this server speaks.
const VERSION: u32 = 1;
/// What a message may hold besides the data of an insert: keys, priorities, names.
const MESSAGE_SLACK: usize = 16 << 20;
pub const STREAM_WINDOW: u32 = 8 << 20;
pub const CONNECTION_WINDOW: u32 = 16 << 20;
pub const FRAME_BYTES: u32 = 256 << 10;
/// Streams of one connection; a client opens two, and each of its writers one.
const MAX_STREAMS: u32 = 10_000;

/// The service as tonic calls it.
pub struct Router {
    replay: Arc<Replay>,
    unix_path: Option<PathBuf>,
}

impl Router {
    pub fn new(replay: Arc<Replay>, unix_path: Option<PathBuf>) -> Self {
        Self { replay, unix_path }
    }

    /// The service, unless it was stopped: connections end a little later.
    fn open(&self) -> Result<&Replay, Error> {
        match self.replay.is_closed() {
            true => Err(Error::Cancelled("the server was stopped".into())),
            false => Ok(&self.replay),
        }
    }
}

/// Serves until the service is closed and its last streams have ended.
pub async fn serve(router: Router, connections: ReceiverStream<std::io::Result<Socket>>, replay: Arc<Replay>) {
    let limit = usize::try_from(replay.max_message_size()).unwrap_or(usize::MAX).saturating_add(MESSAGE_SLACK);
    let service = ReplayServer::new(router).max_decoding_message_size(limit).max_encoding_message_size(usize::MAX);
    let server = transport::Server::builder()
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(FRAME_BYTES)
        .max_concurrent_streams(MAX_STREAMS)
        .http2_keepalive_interval(Some(Duration::from_secs(10)))
        .http2_keepalive_timeout(Some(Duration::from_secs(20)))
        .add_service(service);
    let closed = async move { replay.closed().await };
    if let Err(error) = server.serve_with_incoming_shutdown(connections, closed).await {
        tracing::error!("the server ended: {error}");
    }
}

#[tonic::async_trait]
impl ReplayService for Router {
    type InsertStream = ReceiverStream<Result<InsertResponse, Status>>;
    type WriteStream = ReceiverStream<Result<WriteResponse, Status>>;
    type SampleStream = ReceiverStream<Result<SampleResponse, Status>>;

    async fn hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloResponse>, Status> {
        let version = request.into_inner().version;
        if version == 0 {
            return Err(to_status(&Error::invalid("version must be at least 1, got 0")));
        }
        Ok(Response::new(HelloResponse {
            version: version.min(VERSION),
            server_id: self.replay.id().to_vec().into(),
            max_message_size: self.replay.max_message_size(),
            unix_path: self.unix_path.as_ref().map(|path| path.to_string_lossy().into_owned()).unwrap_or_default(),
        }))
    }

    async fn insert(&self, request: Request<Streaming<InsertRequest>>) -> Result<Response<Self::InsertStream>, Status> {
        Ok(Response::new(insert_stream(self.replay.clone(), request.into_inner())))
    }

    async fn sample(&self, request: Request<Streaming<SampleRequest>>) -> Result<Response<Self::SampleStream>, Status> {
        Ok(Response::new(sample_stream(self.replay.clone(), request.into_inner())))
    }

    async fn write(&self, request: Request<Streaming<WriteRequest>>) -> Result<Response<Self::WriteStream>, Status> {
        Ok(Response::new(write_stream(self.replay.clone(), request.into_inner())))
    }

    async fn mutate(&self, request: Request<MutateRequest>) -> Result<Response<MutateResponse>, Status> {
        let MutateRequest { table, update_keys, priorities, delete_keys } = request.into_inner();
        let mutate = || {
            let table = self.open()?.table(&table)?;
            if update_keys.len() != priorities.len() {
                return Err(Error::invalid(format!(
                    "expected as many priorities as keys, got {} keys and {} priorities",
                    update_keys.len(),
                    priorities.len()
                )));
            }
            let updates: Vec<_> = update_keys.iter().copied().zip(priorities).collect();
            table.mutate(&updates, &delete_keys)
        };
        mutate().map_err(|error| to_status(&error))?;
        Ok(Response::new(MutateResponse {}))
    }

    async fn reset(&self, request: Request<ResetRequest>) -> Result<Response<ResetResponse>, Status> {
        let reset = || -> Result<(), Error> {
            self.open()?.table(&request.into_inner().table)?.reset();
            Ok(())
        };
        reset().map_err(|error| to_status(&error))?;
        Ok(Response::new(ResetResponse {}))
    }

    async fn checkpoint(&self, _: Request<CheckpointRequest>) -> Result<Response<CheckpointResponse>, Status> {
        let path = self.replay.checkpoint().await.map_err(|error| to_status(&error))?;
        Ok(Response::new(CheckpointResponse { path: path.to_string_lossy().into_owned() }))
    }

    async fn peek(&self, request: Request<PeekRequest>) -> Result<Response<PeekResponse>, Status> {
        let request = request.into_inner();
        let table = self.replay.table(&request.table).map_err(|error| to_status(&error))?.clone();
        let look = tokio::task::spawn_blocking(move || {
            let items = peek::peek(&table, request.count as usize, request.newest)?;
            Ok(peek::to_wire(&items, &request))
        });
        let response = look.await.unwrap_or_else(|error| Err(Error::Internal(error.to_string())));
        response.map(Response::new).map_err(|error| to_status(&error))
    }

    async fn info(&self, _: Request<InfoRequest>) -> Result<Response<InfoResponse>, Status> {
        let tables = self.open().map_err(|error| to_status(&error))?.status().iter().map(status_to_wire).collect();
        Ok(Response::new(InfoResponse { server_id: self.replay.id().to_vec().into(), tables }))
    }
}
