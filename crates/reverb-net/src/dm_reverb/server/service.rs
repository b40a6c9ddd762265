//! The methods of the service.

use super::insert_stream::insert_stream;
use super::sample_stream::sample_stream;
use crate::dm_reverb::proto::{
    CheckpointRequest, CheckpointResponse, InitializeConnectionRequest, InitializeConnectionResponse,
    InsertStreamRequest, InsertStreamResponse, MutatePrioritiesRequest, MutatePrioritiesResponse, ResetRequest,
    ResetResponse, SampleStreamRequest, SampleStreamResponse, ServerInfoRequest, ServerInfoResponse,
};
use crate::dm_reverb::rpc::reverb_service_server::{ReverbService, ReverbServiceServer};
use crate::dm_reverb::status::to_status;
use reverb_core::Error;
use reverb_service::{Peer, Replay, Transport};
use std::sync::Arc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

/// Maximum size in bytes of everything in a message except the data of an insert: keys, priorities, names.
const MESSAGE_SLACK: usize = 16 << 20;

/// The implementation of the service trait that tonic generates.
pub struct Router {
    replay: Arc<Replay>,
}

/// Makes the service, to be added to the routes of a server.
pub fn service(replay: Arc<Replay>) -> ReverbServiceServer<Router> {
    let limit = usize::try_from(replay.max_message_size()).unwrap_or(usize::MAX).saturating_add(MESSAGE_SLACK);
    ReverbServiceServer::new(Router { replay }).max_decoding_message_size(limit).max_encoding_message_size(usize::MAX)
}

/// Returns the peer that makes a call.
fn peer_of<T>(request: &Request<T>) -> Arc<Peer> {
    // Every accepted connection has a peer, so this is only a fallback.
    let unknown = || Arc::new(Peer::new(Transport::Tcp, String::new()));
    request.extensions().get::<Arc<Peer>>().cloned().unwrap_or_else(unknown)
}

fn unimplemented() -> Status {
    to_status(&Error::Unimplemented("calls of dm-reverb".into()))
}

#[tonic::async_trait]
impl ReverbService for Router {
    type InsertStreamStream = ReceiverStream<Result<InsertStreamResponse, Status>>;
    type SampleStreamStream = ReceiverStream<Result<SampleStreamResponse, Status>>;
    type InitializeConnectionStream = ReceiverStream<Result<InitializeConnectionResponse, Status>>;

    async fn insert_stream(
        &self,
        request: Request<Streaming<InsertStreamRequest>>,
    ) -> Result<Response<Self::InsertStreamStream>, Status> {
        let peer = peer_of(&request);
        Ok(Response::new(insert_stream(self.replay.clone(), peer, request.into_inner())))
    }

    async fn sample_stream(
        &self,
        request: Request<Streaming<SampleStreamRequest>>,
    ) -> Result<Response<Self::SampleStreamStream>, Status> {
        let peer = peer_of(&request);
        Ok(Response::new(sample_stream(self.replay.clone(), peer, request.into_inner())))
    }

    async fn initialize_connection(
        &self,
        _: Request<Streaming<InitializeConnectionRequest>>,
    ) -> Result<Response<Self::InitializeConnectionStream>, Status> {
        Err(unimplemented())
    }

    async fn mutate_priorities(
        &self,
        _: Request<MutatePrioritiesRequest>,
    ) -> Result<Response<MutatePrioritiesResponse>, Status> {
        Err(unimplemented())
    }

    async fn reset(&self, _: Request<ResetRequest>) -> Result<Response<ResetResponse>, Status> {
        Err(unimplemented())
    }

    async fn checkpoint(&self, _: Request<CheckpointRequest>) -> Result<Response<CheckpointResponse>, Status> {
        Err(unimplemented())
    }

    async fn server_info(&self, _: Request<ServerInfoRequest>) -> Result<Response<ServerInfoResponse>, Status> {
        Err(unimplemented())
    }
}
