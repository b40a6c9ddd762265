//! The methods of the replay service.

use super::bench_stream::bench_stream;
use super::insert_stream::insert_stream;
use super::same_server::SameServer;
use super::sample_stream::sample_stream;
use super::segments::Segments;
use super::sums_stream::sums_stream;
use super::write_stream::write_stream;
use crate::grpc::caller::{Audited, may_only_view, token_of};
use crate::grpc::service::{in_background, max_request_bytes, mutate, open, peer_of, reset};
use crate::replay_v1::headers::{SAMPLE_STREAM, SESSION, SHARED_BYTES, number_of};
use crate::replay_v1::proto::{
    BenchRequest, BenchResponse, CheckpointRequest, CheckpointResponse, ConfigureRequest, ConfigureResponse,
    GetRequest, GetResponse, HelloRequest, HelloResponse, InfoRequest, InfoResponse, InsertRequest, InsertResponse,
    MutateRequest, MutateResponse, NewerRequest, NewerResponse, ObserveRequest, ObserveResponse, PeekRequest,
    PeekResponse, ResetRequest, ResetResponse, SampleRequest, SumsRequest, SumsResponse, WriteRequest, WriteResponse,
};
use crate::replay_v1::rpc::replay_server::{Replay as ReplayService, ReplayServer};
use crate::replay_v1::sample_response::SampleResponse;
use crate::replay_v1::status::to_status;
use crate::replay_v1::version::{CAPABILITIES, SHARED_INSERTS, SHARED_MEMORY, VERSION, VIEW_ONLY};
use crate::replay_v1::wire::{
    changes_from_wire, got_to_wire, largest_to_wire, newer_to_wire, peeked_to_wire, shard_to_wire, status_to_wire,
};
use crate::transport::passing::Passing;
use crate::transport::socket::Introduced;
use reverb_core::Error;
use reverb_observe::documents::observed;
use reverb_service::get::{get, newer};
use reverb_service::peek::peek;
use reverb_service::{Peer, Replay, TableHandle};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

/// The implementation of the service trait that tonic generates.
pub struct Router {
    replay: Arc<Replay>,
    unix_path: Option<PathBuf>,
    /// Time after which an empty message is sent on a stream whose requests wait.
    heartbeat: Duration,
}

impl Router {
    /// Returns the time between heartbeats on a stream. `None` if its client is of an earlier edition.
    fn heartbeat_of<T>(&self, request: &Request<T>) -> Option<Duration> {
        request.metadata().contains_key(SESSION.as_str()).then_some(self.heartbeat)
    }

    fn table(&self, name: &str) -> Result<TableHandle, Status> {
        self.open()?.table(name).cloned().map_err(|error| to_status(&error))
    }

    /// Returns the service, or the status of calls to a server that was stopped.
    fn open(&self) -> Result<&Arc<Replay>, Status> {
        open(&self.replay).map_err(|error| to_status(&self.replay.as_told_now(error)))
    }
}

/// Returns the peer that makes a call, and the number of its client. A client that tells none is known by its connection.
fn client_of<T>(request: &Request<T>) -> (Arc<Peer>, u64) {
    let peer = peer_of(request);
    let client = number_of(request.metadata().get(SESSION.as_str()).map(|value| value.as_bytes()));
    let client = client.unwrap_or(peer.id);
    (peer, client)
}

/// Makes the service, to be added to the routes of a server.
pub fn service(
    replay: Arc<Replay>,
    unix_path: Option<PathBuf>,
    heartbeat: Duration,
) -> SameServer<ReplayServer<Router>> {
    let (limit, id, receipts) = (max_request_bytes(&replay), replay.id(), replay.receipts.clone());
    let router = ReplayServer::new(Router { replay, unix_path, heartbeat });
    let router = router.max_decoding_message_size(limit).max_encoding_message_size(usize::MAX);
    SameServer::new(router, &id, receipts)
}

#[tonic::async_trait]
impl ReplayService for Router {
    type BenchStream = ReceiverStream<Result<BenchResponse, Status>>;
    type InsertStream = ReceiverStream<Result<InsertResponse, Status>>;
    type WriteStream = ReceiverStream<Result<WriteResponse, Status>>;
    type SumsStream = ReceiverStream<Result<SumsResponse, Status>>;
    type SampleStream = ReceiverStream<Result<SampleResponse, Status>>;

    async fn hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloResponse>, Status> {
        let peer = peer_of(&request);
        let of_caller = may_only_view(&request).then_some(VIEW_ONLY);
        let shares = (self.replay.shared.limit_of_one() > 0).then_some([SHARED_MEMORY, SHARED_INSERTS]);
        let HelloRequest { version, client_name, .. } = request.into_inner();
        if version == 0 {
            return Err(to_status(&Error::invalid("version must be at least 1, got 0")));
        }
        peer.introduce(&client_name);
        Ok(Response::new(HelloResponse {
            capabilities: CAPABILITIES
                .into_iter()
                .chain(of_caller)
                .chain(shares.into_iter().flatten())
                .map(String::from)
                .collect(),
            version: version.min(VERSION),
            server_id: self.replay.id().to_vec().into(),
            max_message_size: self.replay.max_message_size(),
            heartbeat_ms: u64::try_from(self.heartbeat.as_millis()).unwrap_or(u64::MAX).max(1),
            unix_path: self.unix_path.as_ref().map(|path| path.to_string_lossy().into_owned()).unwrap_or_default(),
            shard: shard_to_wire(&self.replay),
        }))
    }

    async fn insert(&self, request: Request<Streaming<InsertRequest>>) -> Result<Response<Self::InsertStream>, Status> {
        let (client, heartbeat) = (client_of(&request), self.heartbeat_of(&request));
        Ok(Response::new(insert_stream(
            self.replay.clone(),
            client,
            heartbeat,
            passing_of(&request),
            request.into_inner(),
        )))
    }

    async fn sample(&self, request: Request<Streaming<SampleRequest>>) -> Result<Response<Self::SampleStream>, Status> {
        let (peer, heartbeat) = (peer_of(&request), self.heartbeat_of(&request));
        let number = number_of(request.metadata().get(SAMPLE_STREAM.as_str()).map(|value| value.as_bytes()));
        let shared = number_of(request.metadata().get(SHARED_BYTES.as_str()).map(|value| value.as_bytes()));
        let passing = passing_of(&request);
        let segments = passing.zip(shared);
        let segments =
            segments.and_then(|(passing, asked)| Segments::new(passing, self.replay.clone(), peer.clone(), asked));
        Ok(Response::new(sample_stream(self.replay.clone(), peer, heartbeat, number, segments, request.into_inner())))
    }

    async fn write(&self, request: Request<Streaming<WriteRequest>>) -> Result<Response<Self::WriteStream>, Status> {
        let (client, heartbeat) = (client_of(&request), self.heartbeat_of(&request));
        let (owner, passing) = (token_of(&request), passing_of(&request));
        Ok(Response::new(write_stream(self.replay.clone(), client, owner, heartbeat, passing, request.into_inner())))
    }

    async fn mutate(&self, request: Request<MutateRequest>) -> Result<Response<MutateResponse>, Status> {
        let audited = Audited::new(&request, "delete", &request.get_ref().table);
        let MutateRequest { table, update_keys, priorities, delete_keys } = request.into_inner();
        let table = self.table(&table)?;
        if update_keys.len() != priorities.len() {
            return Err(to_status(&Error::invalid(format!(
                "expected as many priorities as keys, got {} keys and {} priorities",
                update_keys.len(),
                priorities.len()
            ))));
        }
        let updates: Vec<_> = update_keys.into_iter().zip(priorities).collect();
        let (count, deletes) = (updates.len() + delete_keys.len(), delete_keys.len());
        let handle = table.clone();
        let mutated = mutate(count, move || handle.mutate(&updates, &delete_keys)).await;
        let mutated = if deletes > 0 { audited.done(deletes, mutated) } else { mutated };
        let num_changed = mutated.map_err(|error| to_status(&error))?;
        let largest = largest_to_wire(&self.replay, &table);
        Ok(Response::new(MutateResponse { num_changed: Some(num_changed), largest }))
    }

    async fn reset(&self, request: Request<ResetRequest>) -> Result<Response<ResetResponse>, Status> {
        let audited = Audited::new(&request, "reset", &request.get_ref().table);
        let table = self.table(&request.into_inner().table)?;
        audited.done(0, reset(table).await).map_err(|error| to_status(&error))?;
        Ok(Response::new(ResetResponse {}))
    }

    async fn configure(&self, request: Request<ConfigureRequest>) -> Result<Response<ConfigureResponse>, Status> {
        let audited = Audited::new(&request, "configure", &request.get_ref().table);
        let (table, changes) = changes_from_wire(request.into_inner());
        let table = self.table(&table)?;
        // Many items may leave.
        let configured = in_background(move || table.configure(&changes)).await;
        audited.done(0, configured).map_err(|error| to_status(&error))?;
        Ok(Response::new(ConfigureResponse {}))
    }

    async fn checkpoint(&self, request: Request<CheckpointRequest>) -> Result<Response<CheckpointResponse>, Status> {
        let audited = Audited::new(&request, "checkpoint", "");
        let path = audited.done(0, self.replay.checkpoint().await).map_err(|error| {
            tracing::info!("the save that {} asked for failed: {error}", peer_of(&request));
            to_status(&error)
        })?;
        Ok(Response::new(CheckpointResponse { path: path.to_string_lossy().into_owned() }))
    }

    async fn peek(&self, request: Request<PeekRequest>) -> Result<Response<PeekResponse>, Status> {
        let audited = Audited::new(&request, "peek", &request.get_ref().table);
        let PeekRequest { table, count, newest } = request.into_inner();
        let peeked = peek(&self.replay, &table, count as usize, newest).await;
        let peeked = audited.done(count as usize, peeked).map_err(|error| to_status(&error))?;
        Ok(Response::new(peeked_to_wire(&peeked)))
    }

    async fn get(&self, request: Request<GetRequest>) -> Result<Response<GetResponse>, Status> {
        let audited = Audited::new(&request, "get", &request.get_ref().table);
        let GetRequest { table, keys, columns } = request.into_inner();
        let got = get(self.open()?, &table, &keys, &columns).await;
        let got = audited.done(keys.len(), got).map_err(|error| to_status(&error))?;
        Ok(Response::new(got_to_wire(got)))
    }

    async fn newer(&self, request: Request<NewerRequest>) -> Result<Response<NewerResponse>, Status> {
        let peer = peer_of(&request);
        let NewerRequest { table, seen, timeout_ms, waited_ms } = request.into_inner();
        let replay = self.open()?;
        let now = Instant::now();
        let since = now.checked_sub(Duration::from_millis(waited_ms)).unwrap_or(now);
        // A balancer closes a connection on which nothing is sent for long.
        let wait = timeout_ms.map_or(self.heartbeat, |ms| Duration::from_millis(ms).min(self.heartbeat));
        match newer(replay, &table, seen, (&peer, since), now.checked_add(wait)).await {
            Ok(newer) => Ok(Response::new(newer_to_wire(newer.as_ref()))),
            Err(error) => Err(to_status(&replay.as_told(error).await)),
        }
    }

    async fn observe(&self, request: Request<ObserveRequest>) -> Result<Response<ObserveResponse>, Status> {
        peer_of(&request).traffic.looks.fetch_add(1, Relaxed);
        let replay = self.open()?.clone();
        let json = in_background(move || Ok(observed(&replay))).await.map_err(|error| to_status(&error))?;
        Ok(Response::new(ObserveResponse { json: json.into() }))
    }

    async fn bench(&self, request: Request<BenchRequest>) -> Result<Response<Self::BenchStream>, Status> {
        let stream = bench_stream(self.open()?.clone(), &peer_of(&request), self.heartbeat);
        stream.map(Response::new).map_err(|error| to_status(&error))
    }

    async fn sums(&self, request: Request<Streaming<SumsRequest>>) -> Result<Response<Self::SumsStream>, Status> {
        Ok(Response::new(sums_stream(self.open()?.clone(), request.into_inner())))
    }

    async fn info(&self, _: Request<InfoRequest>) -> Result<Response<InfoResponse>, Status> {
        let tables = self.open()?.status().iter().map(status_to_wire).collect();
        let server_id = self.replay.id().to_vec().into();
        Ok(Response::new(InfoResponse { server_id, tables, shard: shard_to_wire(&self.replay) }))
    }
}

/// Returns the descriptors on their way over the connection of a call, if it can pass them.
fn passing_of<T>(request: &Request<T>) -> Option<Arc<Passing>> {
    request.extensions().get::<Introduced>().and_then(|introduced| introduced.passing.clone())
}
