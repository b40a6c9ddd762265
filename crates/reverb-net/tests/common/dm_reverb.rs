//! A server of dm-reverb that answers as a test tells it.
#![allow(dead_code, reason = "each test file is a separate program that uses only a part of this module")]

use bytes::Bytes;
use parking_lot::Mutex;
use prost::Message;
use reverb_formats::proto::schema::key_distribution_options::Distribution;
use reverb_formats::proto::schema::{KeyDistributionOptions, RateLimiterInfo, TableInfo};
use reverb_formats::wire::{put_bytes, put_double, put_int32, put_number, put_varint};
use reverb_net::dm_reverb::proto::{
    CheckpointRequest, CheckpointResponse, InitializeConnectionRequest, InitializeConnectionResponse,
    InsertStreamRequest, InsertStreamResponse, MutatePrioritiesRequest, MutatePrioritiesResponse, ResetRequest,
    ResetResponse, SampleInfo, SampleStreamRequest, SampleStreamResponse, ServerInfoRequest, ServerInfoResponse,
    sample_stream_response::SampleEntry,
};
use reverb_net::dm_reverb::rpc::reverb_service_server::{ReverbService, ReverbServiceServer};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Notify, mpsc};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::codegen::http;
use tonic::transport::server::TcpConnectInfo;
use tonic::{Request, Response, Status, Streaming};

/// The answer to a request for samples, and what happens to the stream then.
pub struct Answer {
    pub responses: Vec<SampleStreamResponse>,
    pub then: Then,
}

pub enum Then {
    /// The next request is read.
    GoOn,
    /// The stream ends without an error.
    End,
    Fail(Status),
    /// More responses are sent when the test says so.
    When(Arc<Notify>, Vec<SampleStreamResponse>),
    /// Nothing is sent any more.
    Hang,
}

/// Says how to answer a request. The number counts the requests of all streams.
type Script = dyn Fn(usize, &SampleStreamRequest) -> Answer + Send + Sync;

#[derive(Default)]
pub struct Log {
    /// Each call with the address of its client.
    pub calls: Vec<(SocketAddr, String)>,
    pub requests: Vec<SampleStreamRequest>,
    /// Number of the stream of each request.
    pub streams: Vec<usize>,
    /// Number of streams that were opened, and of those that have ended.
    pub opened: usize,
    pub closed: usize,
}

#[derive(Clone)]
pub struct Fake {
    tables: Arc<Vec<TableInfo>>,
    script: Arc<Script>,
    pub log: Arc<Mutex<Log>>,
}

/// A running server. Dropping it ends all connections.
pub struct Running {
    pub port: u16,
    pub log: Arc<Mutex<Log>>,
    /// Its connections live here, and end with it.
    runtime: Option<Runtime>,
}

impl Running {
    pub fn address(&self) -> String {
        format!("ipv4:127.0.0.1:{}", self.port)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

/// Starts a server at a port, or at a free one for port 0.
pub async fn serve(
    port: u16,
    tables: Vec<TableInfo>,
    script: impl Fn(usize, &SampleStreamRequest) -> Answer + Send + Sync + 'static,
) -> Running {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let listener = runtime.spawn(bind(port)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let log = Arc::<Mutex<Log>>::default();
    let fake = Fake { tables: Arc::new(tables), script: Arc::new(script), log: log.clone() };
    let seen = log.clone();
    let note = move |request: http::Request<tonic::body::Body>| {
        let client = request.extensions().get::<TcpConnectInfo>().and_then(TcpConnectInfo::remote_addr).unwrap();
        seen.lock().calls.push((client, request.uri().path().to_owned()));
        request
    };
    let layer = tower::util::MapRequestLayer::new(note);
    let server = tonic::transport::Server::builder().layer(layer).add_service(ReverbServiceServer::new(fake));
    runtime.spawn(async move { server.serve_with_incoming(TcpListenerStream::new(listener)).await.unwrap() });
    Running { port, log, runtime: Some(runtime) }
}

/// Binds a port that another server may just be leaving.
async fn bind(port: u16) -> TcpListener {
    loop {
        match TcpListener::bind(("127.0.0.1", port)).await {
            Ok(listener) => return listener,
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

type Stream<T> = ReceiverStream<Result<T, Status>>;

#[tonic::async_trait]
impl ReverbService for Fake {
    type InsertStreamStream = Stream<InsertStreamResponse>;
    type SampleStreamStream = Stream<SampleStreamResponse>;
    type InitializeConnectionStream = Stream<InitializeConnectionResponse>;

    async fn checkpoint(&self, _request: Request<CheckpointRequest>) -> Result<Response<CheckpointResponse>, Status> {
        Err(Status::invalid_argument("no Checkpointer configured for the replay service."))
    }

    async fn insert_stream(
        &self,
        _request: Request<Streaming<InsertStreamRequest>>,
    ) -> Result<Response<Self::InsertStreamStream>, Status> {
        Err(Status::internal("not for this test"))
    }

    async fn mutate_priorities(
        &self,
        request: Request<MutatePrioritiesRequest>,
    ) -> Result<Response<MutatePrioritiesResponse>, Status> {
        match request.into_inner().updates.first() {
            Some(update) if update.priority < 0.0 => Err(Status::invalid_argument("Priority must not be negative.")),
            _ => Ok(Response::new(MutatePrioritiesResponse {})),
        }
    }

    async fn reset(&self, _request: Request<ResetRequest>) -> Result<Response<ResetResponse>, Status> {
        std::future::pending().await
    }

    async fn sample_stream(
        &self,
        request: Request<Streaming<SampleStreamRequest>>,
    ) -> Result<Response<Self::SampleStreamStream>, Status> {
        let stream = {
            let mut log = self.log.lock();
            log.opened += 1;
            log.opened - 1
        };
        let (answers, receiver) = mpsc::channel(1);
        tokio::spawn(answer(self.clone(), request.into_inner(), answers, stream));
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn server_info(&self, _request: Request<ServerInfoRequest>) -> Result<Response<ServerInfoResponse>, Status> {
        let table_info = self.tables.iter().map(|table| Bytes::from(table.encode_to_vec())).collect();
        Ok(Response::new(ServerInfoResponse { tables_state_id: None, table_info }))
    }

    async fn initialize_connection(
        &self,
        _request: Request<Streaming<InitializeConnectionRequest>>,
    ) -> Result<Response<Self::InitializeConnectionStream>, Status> {
        panic!("our clients do not ask for pointers")
    }
}

async fn answer(
    fake: Fake,
    mut requests: Streaming<SampleStreamRequest>,
    answers: mpsc::Sender<Result<SampleStreamResponse, Status>>,
    stream: usize,
) {
    while let Ok(Some(request)) = requests.message().await {
        let number = {
            let mut log = fake.log.lock();
            log.requests.push(request.clone());
            log.streams.push(stream);
            log.requests.len() - 1
        };
        let Answer { responses, then } = (fake.script)(number, &request);
        for response in responses {
            let _gone = answers.send(Ok(response)).await;
        }
        match then {
            Then::GoOn => continue,
            Then::End => {}
            Then::Fail(status) => {
                let _gone = answers.send(Err(status)).await;
            }
            Then::When(told, responses) => {
                told.notified().await;
                for response in responses {
                    let _gone = answers.send(Ok(response)).await;
                }
                continue;
            }
            Then::Hang => answers.closed().await,
        }
        break;
    }
    fake.log.lock().closed += 1;
}

pub fn responses(responses: Vec<SampleStreamResponse>) -> Answer {
    Answer { responses, then: Then::GoOn }
}

/// Answers with as many samples as a request asks for, each with a value of its own.
pub fn numbers(number: usize, request: &SampleStreamRequest) -> Answer {
    let values = (0..request.num_samples).map(|index| 1000 * number as i64 + index);
    responses(vec![SampleStreamResponse { entries: values.map(|value| sample(value, 1)).collect() }])
}

/// A table whose draws take nothing from others, or a queue.
pub fn table(name: &str, is_queue: bool) -> TableInfo {
    let selector = |distribution| {
        Some(KeyDistributionOptions { distribution: Some(distribution), ..KeyDistributionOptions::default() })
    };
    let (samples_per_insert, min_diff, max_diff) = if is_queue { (1.0, 0.0, 10.0) } else { (1.0, -f64::MAX, f64::MAX) };
    TableInfo {
        name: name.into(),
        sampler_options: selector(if is_queue { Distribution::Fifo(true) } else { Distribution::Uniform(true) }),
        remover_options: selector(Distribution::Fifo(true)),
        max_size: 10,
        max_times_sampled: i32::from(is_queue),
        rate_limiter_info: Some(RateLimiterInfo {
            samples_per_insert,
            min_diff,
            max_diff,
            min_size_to_sample: 1,
            ..RateLimiterInfo::default()
        }),
        current_size: 3,
        ..TableInfo::default()
    }
}

fn message(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

/// A tensor of a chunk, whose content is given as it is.
pub fn tensor(dtype: u64, dims: &[u64], content: &[u8]) -> Vec<u8> {
    let shape = message(|out| {
        for &dim in dims {
            put_bytes(out, 2, &message(|out| put_number(out, 1, dim)));
        }
    });
    message(|out| {
        put_number(out, 1, dtype);
        put_bytes(out, 2, &shape);
        put_bytes(out, 4, content);
    })
}

/// A chunk of tensors.
pub fn chunk_of(key: u64, tensors: &[Vec<u8>]) -> Bytes {
    let data = message(|out| tensors.iter().for_each(|tensor| put_bytes(out, 1, tensor)));
    message(|out| {
        put_number(out, 1, key);
        put_bytes(out, 5, &data);
    })
    .into()
}

/// Bytes as one block of Snappy.
pub fn snappy(bytes: &[u8]) -> Vec<u8> {
    message(|out| {
        put_varint(out, bytes.len() as u64);
        for literal in bytes.chunks(60) {
            out.push((literal.len() as u8 - 1) << 2);
            out.extend_from_slice(literal);
        }
    })
}

/// A chunk of 64-bit numbers, one a row.
pub fn chunk(key: u64, values: &[i64]) -> Bytes {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    chunk_of(key, &[tensor(9, &[values.len() as u64], &snappy(&bytes))])
}

/// The slice of a chunk: its key, first row, number of rows and column.
pub type SliceOf = (u64, i32, i32, i32);

/// The description of a sample with these slices in one column each.
pub fn info(key: u64, columns: &[Vec<SliceOf>]) -> SampleInfo {
    let slice = |&(key, offset, length, index): &SliceOf| {
        message(|out| {
            put_number(out, 1, key);
            put_int32(out, 2, offset);
            put_int32(out, 3, length);
            put_int32(out, 4, index);
        })
    };
    let trajectory = message(|out| {
        for column in columns {
            let column = message(|out| column.iter().for_each(|of| put_bytes(out, 1, &slice(of))));
            put_bytes(out, 1, &column);
        }
    });
    let item = message(|out| {
        put_number(out, 1, key);
        put_double(out, 5, 0.5);
        put_int32(out, 6, 7);
        put_bytes(out, 8, &trajectory);
    });
    SampleInfo { item: item.into(), probability: 0.25, table_size: 3, rate_limited: false }
}

/// A sample of rows with consecutive numbers.
pub fn sample(first: i64, rows: i64) -> SampleEntry {
    let values: Vec<i64> = (first..first + rows).collect();
    let key = first as u64 + 1;
    SampleEntry {
        info: Some(info(key, &[vec![(key, 0, rows as i32, 0)]])),
        data: vec![chunk(key, &values)],
        end_of_sequence: true,
    }
}
