//! A server of dm-reverb that a test plays: it gets each insert stream, reads it, confirms items and ends it.
//!
//! The stream checks what such a server checks: an item refers only to chunks that the stream holds, and a message with
//! items lists as kept only chunks that the stream holds, each once.

#![allow(dead_code, reason = "each test file is a separate program that uses only a part of this module")]

use super::common::{SOON, config};
use prost::Message;
use reverb_core::{Table, TableConfig, TableInfo};
use reverb_formats::definitions::table_info;
use reverb_formats::proto::schema::{ChunkData, PrioritizedItem, TableWorkerTime};
use reverb_net::dm_reverb::proto::*;
use reverb_net::dm_reverb::rpc::reverb_service_server::{ReverbService, ReverbServiceServer};
use socket2::Socket;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Shutdown, TcpListener};
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_stream::wrappers::{TcpListenerStream, UnboundedReceiverStream};
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

/// The server. Dropping it stops it.
pub struct Reference {
    pub port: u16,
    streams: mpsc::UnboundedReceiver<InsertStream>,
    tables: Arc<Mutex<Vec<TableInfo>>>,
    sockets: Arc<Mutex<Vec<Socket>>>,
    task: JoinHandle<()>,
}

/// One insert stream.
pub struct InsertStream {
    requests: Streaming<InsertStreamRequest>,
    responses: mpsc::UnboundedSender<Result<InsertStreamResponse, Status>>,
    /// The chunks that the stream holds.
    pub held: BTreeMap<u64, ChunkData>,
}

/// A message of a client.
pub struct Received {
    pub size_bytes: usize,
    pub chunks: Vec<ChunkData>,
    pub items: Vec<PrioritizedItem>,
    pub keep: BTreeSet<u64>,
}

impl Reference {
    pub async fn start(tables: &[&str]) -> Self {
        Self::start_with(tables.iter().map(|name| config(name)).collect()).await
    }

    pub async fn start_with(tables: Vec<TableConfig>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, streams) = mpsc::unbounded_channel();
        let (tables, sockets) =
            (Arc::new(Mutex::new(tables.into_iter().map(info).collect())), Arc::<Mutex<Vec<Socket>>>::default());
        let copies = sockets.clone();
        let incoming =
            TcpListenerStream::new(tokio::net::TcpListener::from_std(listener).unwrap()).map(move |stream| {
                stream
                    .inspect(|stream| copies.lock().unwrap().push(socket2::SockRef::from(stream).try_clone().unwrap()))
            });
        let service = ReverbServiceServer::new(Service { tables: tables.clone(), streams: sender })
            .max_decoding_message_size(usize::MAX);
        let server = tonic::transport::Server::builder().add_service(service);
        let task = tokio::spawn(async move { server.serve_with_incoming(incoming).await.unwrap() });
        Self { port, streams, tables, sockets, task }
    }

    pub fn address(&self) -> String {
        format!("ipv4:127.0.0.1:{}", self.port)
    }

    /// Waits for the next insert stream.
    pub async fn stream(&mut self) -> InsertStream {
        timeout(SOON, self.streams.recv()).await.expect("an insert stream opens").unwrap()
    }

    pub fn add_table(&self, name: &str) {
        self.tables.lock().unwrap().push(info(config(name)));
    }

    /// Sets what the server says of the items of its first table.
    pub fn set_inserted(&self, items: u64) {
        let mut tables = self.tables.lock().unwrap();
        (tables[0].inserts, tables[0].current_size) = (items as i64, items);
    }

    /// Breaks all connections.
    pub fn lose_connections(&self) {
        // A connection that the client has closed before is not connected.
        self.sockets.lock().unwrap().drain(..).for_each(|socket| drop(socket.shutdown(Shutdown::Both)));
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        self.task.abort();
        self.lose_connections();
    }
}

impl InsertStream {
    /// Waits for the next message. `None` if the client has ended the stream.
    pub async fn receive(&mut self) -> Option<Received> {
        let message = timeout(SOON, self.requests.message()).await.expect("a message arrives");
        let request = message.ok().flatten()?;
        let size_bytes = request.encoded_len();
        assert!(!request.chunks.is_empty() || !request.items.is_empty(), "a message has chunks or items");
        let chunks: Vec<_> = request.chunks.iter().map(|chunk| ChunkData::decode(&**chunk).unwrap()).collect();
        for chunk in &chunks {
            let old = self.held.insert(chunk.chunk_key, chunk.clone());
            assert!(old.is_none(), "chunk {} was sent twice on a stream", chunk.chunk_key);
        }
        let items: Vec<_> = request.items.iter().map(|item| PrioritizedItem::decode(&**item).unwrap()).collect();
        for key in items.iter().flat_map(chunk_keys) {
            assert!(self.held.contains_key(&key), "an item refers to chunk {key}, which the stream does not hold");
        }
        let keep: BTreeSet<u64> = request.keep_chunk_keys.iter().copied().collect();
        assert_eq!(keep.len(), request.keep_chunk_keys.len(), "no chunk is listed twice");
        if !items.is_empty() {
            assert!(keep.iter().all(|key| self.held.contains_key(key)), "only chunks of the stream are listed");
            self.held.retain(|key, _| keep.contains(key));
        }
        Some(Received { size_bytes, chunks, items, keep })
    }

    /// Waits until this number of items has arrived. Returns them.
    pub async fn items(&mut self, count: usize) -> Vec<PrioritizedItem> {
        let mut items = Vec::new();
        while items.len() < count {
            items.extend(self.receive().await.expect("the stream goes on").items);
        }
        assert_eq!(items.len(), count);
        items
    }

    pub fn confirm(&self, keys: impl IntoIterator<Item = u64>) {
        let _ended = self.responses.send(Ok(InsertStreamResponse { keys: keys.into_iter().collect() }));
    }

    /// Waits for this number of items, and confirms them.
    pub async fn confirm_next(&mut self, count: usize) {
        let items = self.items(count).await;
        self.confirm(items.iter().map(|item| item.key));
    }

    pub fn fail(self, status: Status) {
        let _ended = self.responses.send(Err(status));
    }

    /// Waits until the client has ended the stream.
    pub async fn ended(mut self) {
        while self.receive().await.is_some() {}
    }
}

fn info(config: TableConfig) -> TableInfo {
    Table::new(config).unwrap().info()
}

/// Returns the keys of the chunks of an item.
pub fn chunk_keys(item: &PrioritizedItem) -> Vec<u64> {
    let columns = &item.flat_trajectory.as_ref().unwrap().columns;
    columns.iter().flat_map(|column| &column.chunk_slices).map(|slice| slice.chunk_key).collect()
}

struct Service {
    tables: Arc<Mutex<Vec<TableInfo>>>,
    streams: mpsc::UnboundedSender<InsertStream>,
}

type Answers<T> = std::pin::Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl ReverbService for Service {
    type InsertStreamStream = Answers<InsertStreamResponse>;
    type SampleStreamStream = Answers<SampleStreamResponse>;
    type InitializeConnectionStream = Answers<InitializeConnectionResponse>;

    async fn insert_stream(
        &self,
        request: Request<Streaming<InsertStreamRequest>>,
    ) -> Result<Response<Self::InsertStreamStream>, Status> {
        let (responses, mut stream) = mpsc::unbounded_channel();
        let requests = request.into_inner();
        // A test that has ended needs no more streams.
        let _ended = self.streams.send(InsertStream { requests, responses, held: BTreeMap::new() });
        // Such a server sends its headers with its first response.
        let Some(first) = stream.recv().await else { return Ok(Response::new(Box::pin(tokio_stream::empty()))) };
        let first = tokio_stream::once(Ok(first?));
        Ok(Response::new(Box::pin(first.chain(UnboundedReceiverStream::new(stream)))))
    }

    async fn server_info(&self, _: Request<ServerInfoRequest>) -> Result<Response<ServerInfoResponse>, Status> {
        let tables = self.tables.lock().unwrap().clone();
        let encode = |info: TableInfo| table_info(&info, TableWorkerTime::default()).encode_to_vec().into();
        let table_info = tables.into_iter().map(encode).collect();
        Ok(Response::new(ServerInfoResponse { tables_state_id: Some(Uint128 { high: 1, low: 2 }), table_info }))
    }

    async fn sample_stream(
        &self,
        _: Request<Streaming<SampleStreamRequest>>,
    ) -> Result<Response<Self::SampleStreamStream>, Status> {
        Ok(Response::new(Box::pin(tokio_stream::pending())))
    }

    async fn checkpoint(&self, _: Request<CheckpointRequest>) -> Result<Response<CheckpointResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn mutate_priorities(
        &self,
        _: Request<MutatePrioritiesRequest>,
    ) -> Result<Response<MutatePrioritiesResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn reset(&self, _: Request<ResetRequest>) -> Result<Response<ResetResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn initialize_connection(
        &self,
        _: Request<Streaming<InitializeConnectionRequest>>,
    ) -> Result<Response<Self::InitializeConnectionStream>, Status> {
        Err(Status::unimplemented(""))
    }
}
