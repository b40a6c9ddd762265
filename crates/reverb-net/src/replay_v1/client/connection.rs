//! A connection of a client to a server, and the calls over it.

use super::draw_call::DrawCall;
use super::insert_link::InsertLink;
use super::named_channel::NamedChannel;
use super::race_call::{RaceCall, RaceRequest};
use super::sample_link::SampleLink;
use super::session::{Link, Session};
use super::staging::Staging;
use super::stock_call::{StockCall, StockRequest};
use crate::grpc::largest;
use crate::replay_v1::headers::{RECEIPTS, hex, receipts_value, shown};
use crate::replay_v1::proto::{
    BenchRequest, BenchResponse, Draw, HelloRequest, HelloResponse, InsertRequest, ItemBatch, OtherShards, SumsRequest,
    SumsResponse, WriteRequest, WriteResponse,
};
use crate::replay_v1::rpc::replay_client::ReplayClient;
use crate::replay_v1::status::from_status;
use crate::replay_v1::version::{
    CAPABILITIES, LARGEST_PRIORITY, RACE, SHARED_INSERTS, SHARED_MEMORY, SUMS, VERSION, VIEW_ONLY,
};
use crate::replay_v1::wire::{chunk_to_wire, others_to_wire, slots_from_wire};
use crate::transport::address::Endpoint;
use crate::transport::authorized::Channel;
use crate::transport::caller_driven::flush;
use crate::transport::dial::ATTEMPT_TIME;
use reverb_core::writer::ChunkMemory;
use reverb_core::{Chunk, Error, ItemKey, ItemKeys, KeySlots, Result};
use reverb_service::insert::check_size;
use reverb_service::local::{BatchRequest, Priorities, RowInsert};
use reverb_service::{Batch, Transport, process_name};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tonic::{Code, Response, Status, Streaming};

// limit (Connections and calls): time for the answer after a deadline has passed | {} | `DeadlineExceededError`
/// Time to wait, after the deadline of a call, for the answer of the server that the deadline has passed.
pub const GRACE: Duration = Duration::from_secs(2);
/// Time within which the streams of a connection end after a call has failed because the connection was lost, and time
/// between two looks.
const STREAM_END_TIME: Duration = Duration::from_millis(100);
const STREAM_END_PAUSE: Duration = Duration::from_millis(1);
/// Number of times that a client says `Hello` again where a balancer may spread its streams. A balancer that chooses among
/// two servers at random goes unnoticed once in 65 536 times.
const PROBES: usize = 16;

/// An open connection. If it breaks, all its calls fail, and the client opens another.
#[derive(Debug)]
pub struct Connection {
    /// The address of the server, for display.
    pub peer: String,
    pub transport: Transport,
    service: ReplayClient<NamedChannel>,
    channel: NamedChannel,
    pub link: Arc<Link>,
    /// What the server has told of itself: the random id that it made when it started, the path of its Unix socket, and
    /// its limits.
    pub hello: HelloResponse,
    /// The time after which an empty message is sent on a stream that waits. `None` if the server does not know such
    /// messages.
    pub heartbeat: Option<Duration>,
    /// Whether the server fills in the largest priority of a table; see [`largest`].
    pub knows_largest: bool,
    /// Whether the server makes a table's part in a race.
    knows_race: bool,
    /// Whether the server keeps the ratio of a table over all shards.
    knows_sums: bool,
    /// Whether batches may lie in memory that the server shares.
    pub shares_memory: bool,
    /// The slots of the keys of the server's items.
    pub key_slots: KeySlots,
    inserts: InsertLink,
    samples: SampleLink,
}

/// Holds a table for measurements, which the server removes when this is dropped.
#[derive(Debug)]
pub struct BenchHold {
    /// The name of the table.
    pub table: String,
    /// Its end is the end of the table. Nothing reads the few heartbeats.
    _stream: Streaming<BenchResponse>,
}

/// The result of saying `Hello`.
#[derive(Debug)]
pub enum Greeting {
    /// The server has the service.
    Connected(Arc<Connection>),
    /// The server does not have the service.
    NoService,
    /// Another connection of the client is open, and leads to another server. A balancer of connections may choose that
    /// one next time.
    OtherServer,
}

impl Connection {
    /// Asks the server for its id, its version of the protocol and its limits. With `or_other`, a server other than that
    /// of the client's open connections is accepted, and they are given up.
    ///
    /// # Errors
    /// [`Error::Unavailable`] with the cause, [`Error::Unimplemented`] if the server uses a different version,
    /// [`Error::DataLoss`] if it says that it is a shard that cannot be, or [`Error::SplitClient`] if a balancer spreads the
    /// streams of a connection over servers.
    pub async fn greet(
        endpoint: &Endpoint,
        transport: Transport,
        channel: Channel,
        session: &Session,
        or_other: bool,
    ) -> Result<Greeting> {
        let (peer, place) = (endpoint.address.text(), endpoint.address.place()?.name());
        let connections = session.connections();
        let bearer = channel.bearer().cloned();
        let channel = NamedChannel::new(channel, connections.number.clone());
        let mut greeter = service(channel.clone());
        let Some(mut hello) = say_hello(&mut greeter, peer).await? else { return Ok(Greeting::NoService) };
        check_version(hello.version, peer)?;
        let key_slots = slots_from_wire(hello.shard.as_ref(), peer)?;
        if !or_other && connections.has_other(&place, &hello.server_id) {
            return Ok(Greeting::OtherServer);
        }
        if connections.is_suspect(&place, &hello.server_id) {
            let probed = probe(&greeter, peer, &hello.server_id).await;
            probed.inspect_err(|_| connections.set_split(&place))?;
        }
        let has = |capability| hello.capabilities.iter().any(|name| name == capability);
        let (knows_largest, knows_race, knows_sums) = (has(LARGEST_PRIORITY), has(RACE), has(SUMS));
        session.set_key_slots(key_slots);
        let link = connections.add(&place, &hello.server_id, bearer, has(VIEW_ONLY));
        let channel = channel.to_server(hex(&hello.server_id));
        let heartbeat = (hello.heartbeat_ms > 0).then(|| Duration::from_millis(hello.heartbeat_ms));
        let shared = Some(endpoint.max_shared_bytes).filter(|&bytes| bytes > 0 && has(SHARED_MEMORY));
        let shared = channel.passing().zip(shared);
        let shares_memory = shared.is_some();
        let staging = shared.clone().filter(|_| has(SHARED_INSERTS));
        let staging = staging.map(|(passing, bytes)| Staging::new(passing, bytes));
        let inserts = InsertLink::open(service(channel.clone()), peer, link.clone(), heartbeat, staging);
        let samples = SampleLink::open(&channel, peer, link.clone(), heartbeat, shared);
        link.note_shard(hello.shard.as_mut());
        Ok(Greeting::Connected(Arc::new(Self {
            peer: peer.to_owned(),
            transport,
            service: service(channel.clone()),
            channel,
            link,
            hello,
            heartbeat,
            knows_largest,
            knows_race,
            knows_sums,
            shares_memory,
            key_slots,
            inserts,
            samples,
        })))
    }

    /// Returns memory for the data of inserts, if the server finds it there.
    pub fn chunk_memory(&self) -> Option<Arc<dyn ChunkMemory>> {
        self.inserts.staging.clone().map(|staging| staging as Arc<dyn ChunkMemory>)
    }

    /// Makes the segments of a writer's stream, if the server finds data of chunks in shared memory.
    pub fn staging(&self) -> Option<Arc<Staging>> {
        self.inserts.staging.as_deref().map(Staging::beside)
    }

    /// Opens a stream for the items of a writer.
    pub async fn open_write(
        &self,
        requests: impl tokio_stream::Stream<Item = WriteRequest> + Send + 'static,
    ) -> Result<tonic::Streaming<WriteResponse>> {
        let mut service = self.service.clone();
        match service.write(requests).await {
            Ok(responses) => Ok(responses.into_inner()),
            Err(status) => Err(self.link.note(from_status(&status, &self.peer))),
        }
    }

    pub async fn insert(&self, insert: RowInsert, deadline: Option<Instant>) -> Result<ItemKeys> {
        check_size(insert.decoded_bytes(), self.hello.max_message_size)?;
        self.samples.send_receipts();
        let keys = insert.make_keys(self.key_slots);
        let request = InsertRequest {
            chunks: insert.chunks().map(|chunk| chunk_to_wire(chunk)).collect(),
            batches: self.item_batches(insert, &keys),
            timeout_ms: timeout_ms(deadline),
            ..InsertRequest::default()
        };
        self.within(deadline, self.inserts.call(request)).await?;
        Ok(keys)
    }

    /// Returns the items of an insert: one batch for each chunk and table, those of a table one after another.
    fn item_batches(&self, insert: RowInsert, keys: &[ItemKey]) -> Vec<ItemBatch> {
        let RowInsert { chunk, more, rows_per_item, tables } = insert;
        let batch = |table: String, keys: &[ItemKey], priorities, takes_largest, chunk: &Chunk| ItemBatch {
            others: self.others(&table, takes_largest),
            table,
            keys: keys.to_vec(),
            priorities,
            takes_largest,
            chunk_key: chunk.key,
            first_row: 0,
            rows_per_item,
            trajectories: Vec::new(),
        };
        let mut batches = Vec::with_capacity(tables.len() * (1 + more.len()));
        for (table, priorities) in tables {
            let priorities = self.filled_in(&table, priorities);
            if more.is_empty() {
                batches.push(batch(table, keys, priorities.values.into_vec(), priorities.take_largest, &chunk));
                continue;
            }
            for (index, chunk) in std::iter::once(&chunk).chain(&more).enumerate() {
                let (key, priority) = (&keys[index..=index], vec![priorities.of(index)]);
                batches.push(batch(table.clone(), key, priority, priorities.take_largest, chunk));
            }
        }
        batches
    }

    /// Returns the priorities of items for a table. For a server that does not know its largest priority, they are filled
    /// in as far as this process knows it.
    fn filled_in(&self, table: &str, priorities: Priorities) -> Priorities {
        if self.knows_largest {
            return priorities;
        }
        if priorities.take_largest {
            return largest::known(&self.peer, table).into();
        }
        largest::note(&self.peer, table, priorities.values.iter().copied());
        priorities
    }

    /// Returns what the client knows of the other shards of a cluster, for items that take the largest priority.
    pub fn others(&self, table: &str, takes_largest: bool) -> Option<OtherShards> {
        takes_largest.then(|| self.link.others(table)).flatten().map(others_to_wire)
    }

    /// Draws a batch and waits for it. Dropping the future withdraws the draw.
    pub async fn sample(&self, request: &BatchRequest, deadline: Option<Instant>) -> Result<(Batch, DrawCall)> {
        let drawn = async {
            let mut call = self.samples.begin(draw(request, deadline))?;
            Ok((call.result().await?, call))
        };
        self.within(deadline, drawn).await
    }

    /// Begins a draw, and sends the request.
    pub async fn begin_sample(&self, request: &BatchRequest, deadline: Option<Instant>) -> Result<DrawCall> {
        let call = self.samples.begin(draw(request, deadline))?;
        flush().await;
        Ok(call)
    }

    /// Begins a table's part in a race, and sends the request.
    ///
    /// # Errors
    /// [`Error::Unimplemented`] if the server does not know races.
    pub async fn begin_race(&self, request: &RaceRequest) -> Result<RaceCall> {
        if !self.knows_race {
            return Err(Error::Unimplemented(format!(
                "the server at {} lacks the capability `{RACE}`, so its tables cannot be sampled together with those of \
                 other servers; it needs a newer version of this package",
                self.peer
            )));
        }
        let call = self.samples.race(request)?;
        flush().await;
        Ok(call)
    }

    /// Begins to wait for a stock of a table, and sends the request.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the connection was lost.
    pub async fn begin_wait(&self, request: &StockRequest) -> Result<StockCall> {
        let call = self.samples.wait(request)?;
        flush().await;
        Ok(call)
    }

    /// Whether the server keeps the ratio of a table together with the other shards of its cluster.
    pub async fn keeps_ratio(&self, table: &str, deadline: Option<Instant>) -> Result<bool> {
        if !self.knows_sums {
            return Ok(false);
        }
        let ask = async |mut service: ReplayClient<_>| {
            let request = SumsRequest { table: table.to_owned(), ask: true, ..SumsRequest::default() };
            let mut stream = service.sums(tokio_stream::once(request)).await?.into_inner();
            let first = stream.message().await?.ok_or_else(|| Status::unavailable("the stream has ended"))?;
            Ok(Response::new(first.limiter.is_some()))
        };
        self.unary(deadline, ask).await
    }

    /// Opens a stream that attaches this client to a table. `None` if the server does not keep ratios together with others.
    pub async fn open_sums(
        &self,
        requests: impl tokio_stream::Stream<Item = SumsRequest> + Send + 'static,
    ) -> Result<Option<Streaming<SumsResponse>>> {
        if !self.knows_sums {
            return Ok(None);
        }
        let mut service = self.service.clone();
        match service.sums(requests).await {
            Ok(responses) => Ok(Some(responses.into_inner())),
            Err(status) => Err(self.link.note(from_status(&status, &self.peer))),
        }
    }

    /// Makes a table for measurements.
    pub async fn hold_bench(&self, deadline: Option<Instant>) -> Result<BenchHold> {
        let hold = async |mut service: ReplayClient<_>| {
            let mut stream = service.bench(BenchRequest {}).await?.into_inner();
            let first = stream.message().await?.ok_or_else(|| Status::unavailable("the stream has ended"))?;
            Ok(Response::new(BenchHold { table: first.table, _stream: stream }))
        };
        self.unary(deadline, hold).await
    }

    /// Makes a call with one request and one answer, which takes effect after the receipts of the client that are due.
    ///
    /// The connection has found our service before. If the server is lost, the channel may have opened another
    /// connection, to a server of dm-reverb that has taken its place.
    pub async fn unary<T>(
        &self,
        deadline: Option<Instant>,
        call: impl AsyncFnOnce(ReplayClient<NamedChannel>) -> std::result::Result<Response<T>, Status>,
    ) -> Result<T> {
        let receipts = self.link.receipts_of_client().into_iter();
        let sent = receipts.filter_map(|receipts| {
            let count = receipts.send_before_call(self.samples.is_driven())?;
            Some((receipts, count))
        });
        let sent: Vec<_> = sent.collect();
        let service = if sent.is_empty() {
            self.service.clone()
        } else {
            let counts = receipts_value(sent.iter().map(|(receipts, count)| (receipts.stream, *count)));
            service(self.channel.with_receipts(RECEIPTS, counts))
        };
        let call = async {
            match call(service).await {
                Ok(answer) => {
                    sent.iter().for_each(|(receipts, count)| receipts.processed(*count));
                    Ok(answer.into_inner())
                }
                Err(status) => Err(self.reason(from_status(&status, &self.peer)).await),
            }
        };
        match self.until(deadline, call).await {
            Err(Error::Unimplemented(_)) if self.link.is_broken() => Err(Error::Unavailable(format!(
                "the connection to the server at {} was lost; another server listens there, which the next call finds",
                self.peer
            ))),
            answer => answer,
        }
    }

    /// Returns the error of a call. If the connection was lost, its streams say whether the server was stopped for good.
    async fn reason(&self, error: Error) -> Error {
        let error = self.link.note(error);
        if !error.is_transient() {
            return error;
        }
        if self.link.views_only {
            // It has no streams that would notice the end of the connection.
            self.link.set_broken();
        }
        let ended_by = Instant::now() + STREAM_END_TIME;
        while !self.link.is_broken() && Instant::now() < ended_by {
            tokio::time::sleep(STREAM_END_PAUSE).await;
        }
        if self.link.is_over() { Error::ServerStopped(error.to_string()) } else { error }
    }

    /// Whether the server may not have processed all receipts of the client.
    pub fn is_unsettled(&self) -> bool {
        !self.link.is_broken() && self.link.receipts_of_client().iter().any(|receipts| receipts.is_unsettled())
    }

    /// Sends the receipts of the client that are due, and waits until the server has processed them.
    ///
    /// # Errors
    /// The connection is lost, or the server did not answer in time.
    pub async fn settle(&self, deadline: Instant) -> Result<()> {
        self.unary(Some(deadline), async |mut service| service.hello(hello()).await).await.map(drop)
    }

    /// Awaits a call whose deadline the server enforces, because the server knows what the call waited for. Gives up if
    /// the server does not answer [`GRACE`] after the deadline.
    fn within<T>(
        &self,
        deadline: Option<Instant>,
        call: impl Future<Output = Result<T>>,
    ) -> impl Future<Output = Result<T>> {
        self.until(deadline.and_then(|deadline| deadline.checked_add(GRACE)), call)
    }

    async fn until<T>(&self, limit: Option<Instant>, call: impl Future<Output = Result<T>>) -> Result<T> {
        let Some(limit) = limit else { return call.await };
        let late = |_| {
            Error::DeadlineExceeded(format!(
                "the server at {} did not answer in time; if a proxy is in between, it may have cut the stream (see \
             client_max_body_size of nginx)",
                self.peer
            ))
        };
        tokio::time::timeout_at(limit.into(), call).await.map_err(late)?
    }
}

fn service(channel: NamedChannel) -> ReplayClient<NamedChannel> {
    ReplayClient::new(channel).max_decoding_message_size(usize::MAX).max_encoding_message_size(usize::MAX)
}

/// Greets a server. Returns what it answers, or `None` if it does not serve this protocol.
async fn say_hello(greeter: &mut ReplayClient<NamedChannel>, peer: &str) -> Result<Option<HelloResponse>> {
    match tokio::time::timeout(ATTEMPT_TIME, greeter.hello(hello())).await {
        Ok(Ok(hello)) => Ok(Some(hello.into_inner())),
        Ok(Err(status)) if status.code() == Code::Unimplemented => Ok(None),
        Ok(Err(status)) => Err(from_status(&status, peer)),
        Err(_) => Err(Error::Unavailable(format!("the server at {peer} accepts connections, but does not answer"))),
    }
}

/// Checks that the server uses a version of the protocol that this client knows.
fn check_version(version: u32, peer: &str) -> Result<()> {
    if (1..=VERSION).contains(&version) {
        return Ok(());
    }
    Err(Error::Unimplemented(format!(
        "the server at {peer} uses version {version} of reverb.replay.v1; this client supports version {VERSION}"
    )))
}

fn hello() -> HelloRequest {
    let capabilities = CAPABILITIES.map(String::from).to_vec();
    HelloRequest { version: VERSION, client_name: process_name(), capabilities }
}

/// Says `Hello` again several times at once, to see whether all streams of the connection reach the same server.
async fn probe(service: &ReplayClient<NamedChannel>, peer: &str, server: &[u8]) -> Result<()> {
    let mut probes = JoinSet::new();
    for _ in 0..PROBES {
        let mut service = service.clone();
        probes.spawn(async move { tokio::time::timeout(ATTEMPT_TIME, service.hello(hello())).await });
    }
    let text = |id: &[u8]| shown(hex(id).to_str().unwrap_or_default());
    while let Some(probed) = probes.join_next().await {
        match probed {
            Ok(Ok(Ok(hello))) if hello.get_ref().server_id == server => {}
            Ok(Ok(Ok(hello))) => {
                return Err(Error::SplitClient { expected: text(server), reached: text(&hello.get_ref().server_id) });
            }
            Ok(Ok(Err(status))) => return Err(from_status(&status, peer)),
            _ => return Err(Error::Unavailable(format!("the server at {peer} does not answer"))),
        }
    }
    Ok(())
}

fn draw(request: &BatchRequest, deadline: Option<Instant>) -> Draw {
    Draw {
        table: request.table.clone(),
        at_least: request.draw.at_least as u64,
        at_most: request.draw.at_most as u64,
        ahead: request.draw.ahead as u64,
        timeout_ms: timeout_ms(deadline),
        squeeze_time: request.squeeze_time,
        is_ahead: request.draw.is_ahead,
    }
}

pub fn timeout_ms(deadline: Option<Instant>) -> Option<u64> {
    let left = deadline?.saturating_duration_since(Instant::now());
    // Rounded up: a deadline that has not passed yet is not "at once".
    Some(left.as_micros().div_ceil(1000) as u64)
}
