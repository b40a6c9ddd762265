//! A connection to a server, and the calls over it.

use super::address::{Address, Endpoint};
use super::insert_link::InsertLink;
use super::sample_link::{DrawCall, SampleLink};
use super::{Batch, BatchRequest, RowInsert};
use crate::convert::chunk_to_wire;
use crate::peek::{self, Peeked};
use crate::proto::replay::replay_client::ReplayClient;
use crate::proto::replay::{
    CheckpointRequest, Draw, HelloRequest, HelloResponse, InfoRequest, InsertRequest, ItemBatch, MutateRequest,
    PeekRequest, ResetRequest, TableStatus, WriteRequest, WriteResponse,
};
use crate::replay::check_size;
use crate::socket::Socket;
use crate::status::from_status;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use reverb_core::{Error, Result, random_keys};
use std::time::{Duration, Instant};
use tokio::net::UnixStream;
use tonic::codegen::http::Uri;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tower::ServiceExt;

/// How long a client looks for a server that is not there.
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// A single attempt; a host that drops packets must not use up all the time.
const ATTEMPT_TIME: Duration = Duration::from_secs(3);
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// What a server that is alive may take to say that a deadline has passed.
const GRACE: Duration = Duration::from_secs(2);
const STREAM_WINDOW: u32 = 8 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;
/// Larger than HTTP/2's 16 KiB, which would halve what the client can receive.
const FRAME_BYTES: u32 = 256 << 10;
/// The version of `reverb.replay.v1` that this client speaks.
const VERSION: u32 = 1;

/// An open connection. When it breaks, all its calls fail and the client opens another.
#[derive(Debug)]
pub struct Connection {
    pub(super) peer: String,
    road: &'static str,
    service: ReplayClient<Channel>,
    hello: HelloResponse,
    inserts: InsertLink,
    samples: SampleLink,
}

impl Connection {
    /// Connects, trying again for a while if the server is not there yet.
    ///
    /// # Errors
    /// [`Error::Unavailable`] with the last cause, or [`Error::DeadlineExceeded`] if the caller's deadline came first.
    pub async fn open(address: &Address, deadline: Option<Instant>) -> Result<Self> {
        let endpoint = address.endpoint()?;
        let begun = Instant::now();
        let give_up = begun + CONNECT_TIME;
        let mut pause = FIRST_PAUSE;
        loop {
            let attempt = Self::attempt(address.text(), endpoint);
            let limit = deadline.unwrap_or(give_up).max(begun + FIRST_PAUSE);
            let error = match tokio::time::timeout_at(limit.into(), attempt).await {
                Ok(Ok(connection)) => return Ok(connection),
                Ok(Err(error @ Error::Unimplemented(_))) => return Err(error),
                Ok(Err(error)) => error,
                Err(_) => Error::Unavailable("it does not answer".into()),
            };
            let now = Instant::now();
            let waited = begun.elapsed().as_secs_f64();
            if deadline.is_some_and(|deadline| now >= deadline) {
                return Err(Error::DeadlineExceeded(format!(
                    "no server could be reached at {} within {waited:.1} s: {error}",
                    address.text()
                )));
            }
            if now >= give_up {
                return Err(Error::Unavailable(format!(
                    "no server could be reached at {} in {waited:.0} s: {error}",
                    address.text()
                )));
            }
            let next = now + pause.mul_f64(rand::random_range(0.5..1.0));
            tokio::time::sleep_until(deadline.map_or(next, |deadline| next.min(deadline)).into()).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// As [`Connection::open`], where the server was one of this process and was stopped. Another process may listen at
    /// its address by now, so it is tried, but not for long: nobody is known to be about to start one.
    pub async fn open_after_stop(address: &Address, deadline: Option<Instant>) -> Result<Self> {
        let attempt = Self::attempt(address.text(), address.endpoint()?);
        let now = Instant::now();
        let limit = deadline.unwrap_or(now + ATTEMPT_TIME).clamp(now + FIRST_PAUSE, now + ATTEMPT_TIME);
        match tokio::time::timeout_at(limit.into(), attempt).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error @ Error::Unimplemented(_))) => Err(error),
            _ => Err(Error::Unavailable(format!(
                "the server at {} was stopped by this process, and there is no other",
                address.text()
            ))),
        }
    }

    async fn attempt(peer: &str, endpoint: Endpoint<'_>) -> Result<Self> {
        match endpoint {
            Endpoint::Unix(path) => Self::dial(peer, path, "unix").await,
            Endpoint::Tcp { host, port, or_shorter } => {
                let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
                let tcp = Self::dial(peer, &format!("http://{host}:{port}"), "tcp").await?;
                if !or_shorter || tcp.hello.unix_path.is_empty() || !std::path::Path::new(&tcp.hello.unix_path).exists()
                {
                    return Ok(tcp);
                }
                // The path means something else on another host, so the server behind it must be the same.
                match Self::dial(peer, &tcp.hello.unix_path, "unix").await {
                    Ok(unix) if unix.hello.server_id == tcp.hello.server_id => Ok(unix),
                    _ => Ok(tcp),
                }
            }
        }
    }

    /// Connects to a URI, or over the road `unix` to a path.
    async fn dial(peer: &str, target: &str, road: &'static str) -> Result<Self> {
        let channel = match road {
            "unix" => connect_unix(target).await?,
            _ => connect_tcp(target).await?,
        };
        let mut service = ReplayClient::new(channel.clone())
            .max_decoding_message_size(usize::MAX)
            .max_encoding_message_size(usize::MAX);
        let hello = tokio::time::timeout(ATTEMPT_TIME, service.hello(HelloRequest { version: VERSION })).await;
        let hello = match hello {
            Ok(Ok(hello)) => hello.into_inner(),
            Ok(Err(status)) if status.code() == Code::Unimplemented => {
                return Err(Error::Unimplemented(format!(
                    "the server at {peer} does not have the service reverb.replay.v1.Replay; is it a server of this package?"
                )));
            }
            Ok(Err(status)) => return Err(from_status(&status, peer)),
            Err(_) => return Err(Error::Unavailable(format!("{peer} accepts connections, but does not answer"))),
        };
        if hello.version == 0 || hello.version > VERSION {
            return Err(Error::Unimplemented(format!(
                "the server at {peer} speaks version {} of reverb.replay.v1, this client speaks {VERSION}",
                hello.version
            )));
        }
        let inserts = InsertLink::open(service.clone(), peer);
        let samples = SampleLink::open(channel, peer);
        Ok(Self { peer: peer.to_owned(), road, service, hello, inserts, samples })
    }

    /// Whether calls would fail, so that a new connection is needed.
    pub fn is_broken(&self) -> bool {
        self.inserts.is_broken() || self.samples.is_broken()
    }

    /// `tcp` or `unix`.
    pub fn road_name(&self) -> &'static str {
        self.road
    }

    /// Bytes of data that one insert may carry.
    pub fn max_message_size(&self) -> u64 {
        self.hello.max_message_size
    }

    /// Opens a stream for a writer's items.
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
            keys: random_keys(|key| (0..items).map(|_| key()).collect()),
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

    pub fn begin_sample(&self, request: &BatchRequest, deadline: Option<Instant>) -> Result<DrawCall> {
        self.samples.begin(draw(request, deadline))
    }

    pub async fn mutate(
        &self,
        table: &str,
        updates: &[(u64, f64)],
        deletes: &[u64],
        deadline: Option<Instant>,
    ) -> Result<()> {
        let (update_keys, priorities) = updates.iter().copied().unzip();
        let request = MutateRequest { table: table.into(), update_keys, priorities, delete_keys: deletes.to_vec() };
        let mut service = self.service.clone();
        self.unary(deadline, service.mutate(request)).await.map(drop)
    }

    pub async fn reset(&self, table: &str, deadline: Option<Instant>) -> Result<()> {
        let mut service = self.service.clone();
        self.unary(deadline, service.reset(ResetRequest { table: table.into() })).await.map(drop)
    }

    pub async fn info(&self, deadline: Option<Instant>) -> Result<Vec<TableStatus>> {
        let mut service = self.service.clone();
        let response = self.unary(deadline, service.info(Request::new(InfoRequest {}))).await?;
        Ok(response.into_inner().tables)
    }

    /// Waits for the save to end.
    pub async fn checkpoint(&self, deadline: Option<Instant>) -> Result<String> {
        let mut service = self.service.clone();
        let response = self.unary(deadline, service.checkpoint(Request::new(CheckpointRequest {}))).await?;
        Ok(response.into_inner().path)
    }

    pub async fn peek(&self, request: PeekRequest, deadline: Option<Instant>) -> Result<Vec<Peeked>> {
        let mut service = self.service.clone();
        peek::from_wire(self.unary(deadline, service.peek(request)).await?.into_inner())
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

    /// The server watches the deadline and says what the call waited for; a server that says nothing is not waited for.
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

async fn connect_tcp(uri: &str) -> Result<Channel> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(ATTEMPT_TIME));
    let connector = connector.map_response(|stream| TokioIo::new(Socket::from(stream.into_inner())));
    endpoint(uri)?.connect_with_connector(connector).await.map_err(|error| Error::Unavailable(causes(&error)))
}

async fn connect_unix(path: &str) -> Result<Channel> {
    let path = path.to_owned();
    let connector = tower::service_fn(move |_: Uri| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(|stream| TokioIo::new(Socket::from(stream))) }
    });
    // The URI only names the server in the requests' headers.
    endpoint("http://localhost")?
        .connect_with_connector(connector)
        .await
        .map_err(|error| Error::Unavailable(causes(&error)))
}

fn endpoint(uri: &str) -> Result<tonic::transport::Endpoint> {
    let endpoint = tonic::transport::Endpoint::from_shared(uri.to_owned())
        .map_err(|error| Error::invalid(format!("{uri} is no address of a server: {error}")))?;
    Ok(endpoint
        .connect_timeout(ATTEMPT_TIME)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(FRAME_BYTES)
        .http2_keep_alive_interval(Duration::from_secs(10))
        .keep_alive_timeout(Duration::from_secs(20))
        .keep_alive_while_idle(true))
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

/// An error with its causes, of which the last one is what people need.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}
