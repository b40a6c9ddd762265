//! The methods of the service.

use super::client_names::NAME_OF_CLIENTS;
use super::encoded_chunks::EncodedChunks;
use super::insert_stream::insert_stream;
use super::sample_stream::{SampleResponses, sample_stream};
use crate::dm_reverb::proto::{
    CheckpointRequest, CheckpointResponse, InitializeConnectionRequest, InitializeConnectionResponse,
    InsertStreamRequest, InsertStreamResponse, MutatePrioritiesRequest, MutatePrioritiesResponse, ResetRequest,
    ResetResponse, SampleStreamRequest, ServerInfoRequest, ServerInfoResponse, Uint128,
};
use crate::dm_reverb::rpc::reverb_service_server::{ReverbService, ReverbServiceServer};
use crate::dm_reverb::status::{stopped, to_status};
use crate::grpc::caller::Audited;
use crate::grpc::service::{max_request_bytes, mutate, open, peer_of, reset};
use reverb_core::Error;
use reverb_formats::definitions::info_bytes;
use reverb_service::{Peer, Replay, TableHandle, host_name};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_stream::{StreamExt, wrappers::ReceiverStream};
use tonic::{Request, Response, Status, Streaming};

/// The implementation of the service trait that tonic generates.
pub struct Router {
    replay: Arc<Replay>,
    encoded: Arc<EncodedChunks>,
}

/// Makes the service, to be added to the routes of a server.
pub fn service(replay: Arc<Replay>) -> ReverbServiceServer<Router> {
    let limit = max_request_bytes(&replay);
    let router = Router { replay, encoded: Arc::default() };
    ReverbServiceServer::new(router).max_decoding_message_size(limit).max_encoding_message_size(usize::MAX)
}

impl Router {
    /// Returns the service, or the status that makes clients retry if it was stopped.
    fn open(&self) -> Result<&Arc<Replay>, Status> {
        open(&self.replay).map_err(|_| stopped())
    }

    fn table(&self, name: &str) -> Result<TableHandle, Status> {
        self.open()?.table(name).cloned().map_err(|error| to_status(&error))
    }
}

/// Returns the reason for which the table refuses the first of these updates. Unlike the error of the mutation it does
/// not name the key, because clients know the text.
fn first_refused(table: &TableHandle, updates: &[(u64, f64)]) -> Option<Error> {
    table.with_table(|table| updates.iter().find_map(|(_, priority)| table.check_priority(*priority).err()))
}

/// Declines to share the memory of a table with a client. Its first message says who it is.
async fn decline(
    replay: Arc<Replay>,
    peer: Arc<Peer>,
    mut requests: Streaming<InitializeConnectionRequest>,
    answers: mpsc::Sender<Result<InitializeConnectionResponse, Status>>,
) {
    let request = tokio::select! {
        request = requests.next() => request,
        () = answers.closed() => return,
        () = replay.closed() => Some(Err(stopped())),
    };
    let answer = match request {
        Some(Ok(request)) => {
            // Only clients on the server's machine shake hands.
            peer.introduce(&format!("{NAME_OF_CLIENTS} ({}:{})", host_name(), request.pid));
            // Any other address would be read by the client as a pointer.
            Ok(InitializeConnectionResponse { address: 0 })
        }
        Some(Err(status)) => Err(status),
        None => Err(to_status(&Error::Internal("Failed to read from stream".into()))),
    };
    let _gone = answers.send(answer).await;
}

#[tonic::async_trait]
impl ReverbService for Router {
    type InsertStreamStream = ReceiverStream<Result<InsertStreamResponse, Status>>;
    type SampleStreamStream = SampleResponses;
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
        let (replay, encoded) = (self.replay.clone(), self.encoded.clone());
        Ok(Response::new(sample_stream(replay, peer, encoded, request.into_inner())))
    }

    async fn initialize_connection(
        &self,
        request: Request<Streaming<InitializeConnectionRequest>>,
    ) -> Result<Response<Self::InitializeConnectionStream>, Status> {
        let peer = peer_of(&request);
        let (answers, stream) = mpsc::channel(1);
        tokio::spawn(decline(self.replay.clone(), peer, request.into_inner(), answers));
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn mutate_priorities(
        &self,
        request: Request<MutatePrioritiesRequest>,
    ) -> Result<Response<MutatePrioritiesResponse>, Status> {
        let audited = Audited::new(&request, "delete", &request.get_ref().table);
        let MutatePrioritiesRequest { table, updates, delete_keys } = request.into_inner();
        let table = self.table(&table)?;
        let (count, deletes) = (updates.len() + delete_keys.len(), delete_keys.len());
        let work = move || {
            let updates: Vec<_> = updates.into_iter().map(|update| (update.key, update.priority)).collect();
            let mutated = table.mutate(&updates, &delete_keys);
            mutated.map_err(|error| first_refused(&table, &updates).unwrap_or(error))
        };
        let mutated = mutate(count, work).await;
        let mutated = if deletes > 0 { audited.done(deletes, mutated) } else { mutated };
        mutated.map_err(|error| to_status(&error))?;
        Ok(Response::new(MutatePrioritiesResponse {}))
    }

    async fn reset(&self, request: Request<ResetRequest>) -> Result<Response<ResetResponse>, Status> {
        let audited = Audited::new(&request, "reset", &request.get_ref().table);
        let table = self.table(&request.into_inner().table)?;
        audited.done(0, reset(table).await).map_err(|error| to_status(&error))?;
        Ok(Response::new(ResetResponse {}))
    }

    async fn checkpoint(&self, request: Request<CheckpointRequest>) -> Result<Response<CheckpointResponse>, Status> {
        let audited = Audited::new(&request, "checkpoint", "");
        let path = audited.done(0, self.open()?.checkpoint().await).map_err(|error| to_status(&error))?;
        Ok(Response::new(CheckpointResponse { checkpoint_path: path.to_string_lossy().into_owned() }))
    }

    async fn server_info(&self, _: Request<ServerInfoRequest>) -> Result<Response<ServerInfoResponse>, Status> {
        let replay = self.open()?;
        let table_info = replay.status().iter().map(|status| info_bytes(&status.info).into()).collect();
        // Clients compare it to learn that the server was started again.
        let id = u128::from_be_bytes(replay.id());
        let tables_state_id = Some(Uint128 { high: (id >> 64) as u64, low: id as u64 });
        Ok(Response::new(ServerInfoResponse { tables_state_id, table_info }))
    }
}
