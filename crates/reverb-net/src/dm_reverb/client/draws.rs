//! Draws from the tables of a server of dm-reverb.

use super::chunk_cache::ChunkCache;
use super::sample_reader::SampleReader;
use super::sample_stream::SampleStream;
use super::tables::Tables;
use crate::dm_reverb::proto::{SampleStreamRequest, SampleStreamResponse, Timeout};
use crate::dm_reverb::rpc::reverb_service_client::ReverbServiceClient;
use crate::dm_reverb::status::from_status;
use bytes::Bytes;
use parking_lot::Mutex;
use reverb_core::gather::{BatchColumn, Gatherer};
use reverb_core::{DType, Drawn, Error, Result, TableInfo};
use reverb_service::Batch;
use reverb_service::local::BatchRequest;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tonic::transport::Channel;
use tonic::{Code, Status};

/// Maximum number of samples of one draw.
const MAX_DRAWN: usize = 1 << 20;
/// Maximum number of streams that are kept for later draws.
const MAX_IDLE_STREAMS: usize = 16;
/// Time to wait, after the deadline of a draw, for the answer of the server that the deadline has passed.
const GRACE: Duration = Duration::from_secs(2);
/// The first and the longest pause before a stream is opened again that ended without a sample. The pause doubles.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(1));
/// Number of bytes from which a batch is copied by another thread, so that other calls go on.
const LARGE_BATCH: usize = 4 << 20;
/// Number of bytes from which the chunks of a response are decoded by another thread.
const LARGE_RESPONSE: usize = 1 << 20;

/// What all draws of a connection share.
#[derive(Debug)]
pub struct Draws {
    peer: String,
    service: ReverbServiceClient<Channel>,
    tables: Arc<Tables>,
    cache: Arc<ChunkCache>,
    idle: Mutex<Vec<SampleStream>>,
    /// By table, samples that have arrived but that no caller has got. The server does not take them back, so the next
    /// draws get them.
    left: Mutex<HashMap<String, VecDeque<Drawn>>>,
    /// By table, the end of the last draw that has begun.
    last: Mutex<HashMap<String, oneshot::Receiver<()>>>,
}

/// A draw that has begun, but not sent a request. Its order among the draws from its table is known.
#[derive(Debug)]
pub struct Draw {
    draws: Arc<Draws>,
    request: BatchRequest,
    deadline: Option<Instant>,
    /// Ends with the draw before, if that draws from the same table and the order matters.
    before: Option<oneshot::Receiver<()>>,
    /// Dropped at the end of this draw, which lets the next one begin.
    _end: oneshot::Sender<()>,
}

/// The state of a stream that answers a request.
struct Answering {
    stream: SampleStream,
    reader: SampleReader,
    drawn: Vec<Drawn>,
    wanted: usize,
    first: Option<Instant>,
}

/// How a stream has answered.
enum Answer {
    Complete,
    /// The server ended the stream before all samples had come.
    Ended,
    Late,
}

impl Draws {
    /// Makes the draws of a connection.
    pub fn new(peer: &str, service: ReverbServiceClient<Channel>, tables: Arc<Tables>) -> Self {
        Self {
            peer: peer.into(),
            service,
            tables,
            cache: Arc::default(),
            idle: Mutex::default(),
            left: Mutex::default(),
            last: Mutex::default(),
        }
    }

    /// Begins a draw. A draw from a table that gives each sample once, in an order, waits for the draws before.
    pub fn begin(self: &Arc<Self>, request: &BatchRequest, deadline: Option<Instant>) -> Draw {
        let (end, ended) = oneshot::channel();
        let is_ordered = |table: &TableInfo| table.config.counts_samples() && table.config.sampler.is_deterministic();
        let before = match self.tables.get(&request.table) {
            Ok(table) if is_ordered(table) => self.last.lock().insert(request.table.clone(), ended),
            _ => None,
        };
        Draw { draws: self.clone(), request: request.clone(), deadline, before, _end: end }
    }

    fn error(&self, status: &Status) -> Error {
        match status.code() {
            Code::DeadlineExceeded => self.late(),
            _ => from_status(status, &self.peer),
        }
    }

    fn late(&self) -> Error {
        Error::DeadlineExceeded(format!(
            "Rate Limiter: Timeout exceeded before the right to sample was acquired; the server at {} does not say what \
             the draw waited for",
            self.peer
        ))
    }

    fn idle_stream(&self) -> SampleStream {
        loop {
            let Some(mut stream) = self.idle.lock().pop() else { return SampleStream::open(self.service.clone()) };
            if stream.is_quiet() {
                return stream;
            }
        }
    }

    fn keep(&self, mut stream: SampleStream) {
        let mut idle = self.idle.lock();
        if idle.len() < MAX_IDLE_STREAMS && stream.is_quiet() {
            idle.push(stream);
        }
    }

    /// Returns up to `wanted` samples that no caller has got.
    fn take_left(&self, table: &str, wanted: usize) -> Vec<Drawn> {
        let mut left = self.left.lock();
        let Some(samples) = left.get_mut(table) else { return Vec::new() };
        let taken = samples.drain(..wanted.min(samples.len())).collect();
        if samples.is_empty() {
            left.remove(table);
        }
        taken
    }

    /// Keeps samples for the next draws, before others that are kept.
    fn leave(&self, table: &str, samples: Vec<Drawn>) {
        if !samples.is_empty() {
            let mut left = self.left.lock();
            let others = left.entry(table.into()).or_default();
            samples.into_iter().rev().for_each(|sample| others.push_front(sample));
        }
    }
}

impl Draw {
    /// Draws the batch. If the future is dropped, the samples are lost that the server has sent, or is about to send.
    ///
    /// # Errors
    /// [`Error::DeadlineExceeded`] if no sample arrives in time; [`Error::Unavailable`] if the server is lost;
    /// [`Error::DataLoss`] if it sends something else than samples; [`Error::InvalidArgument`] if too few samples fit
    /// together.
    pub async fn result(mut self) -> Result<Batch> {
        let begun = Instant::now();
        let draws = self.draws.clone();
        let table = draws.tables.get(&self.request.table)?;
        let wanted = wanted(&self.request, table)?;
        if let Some(before) = self.before.take() {
            let late = within(self.deadline, before).await.is_none();
            if late {
                return Err(draws.late());
            }
        }
        let (drawn, first) = self.receive(wanted, table).await?;
        let is_limited = drawn.first().is_some_and(|first| first.rate_limited);
        let waited =
            first.filter(|_| is_limited).map_or(Duration::ZERO, |first| first.saturating_duration_since(begun));
        let token = table.config.signature.as_ref().map_or(0, |signature| signature.token());
        let batch = self.stack(drawn, token, table.config.counts_samples()).await?;
        Ok(Batch { waited, ..batch })
    }

    /// Receives samples until there are `wanted`, or some at the deadline. Returns when the first one came from the
    /// server, too.
    async fn receive(&self, wanted: usize, table: &TableInfo) -> Result<(Vec<Drawn>, Option<Instant>)> {
        let draws = &self.draws;
        let name = &self.request.table;
        let mut drawn = draws.take_left(name, wanted);
        let (mut first, mut pause) = (None, PAUSES.0);
        while drawn.len() < wanted {
            let before = drawn.len();
            let (stream, reader) = (draws.idle_stream(), SampleReader::new(draws.cache.clone()));
            stream.request(sample_request(name, wanted - before, self.deadline));
            let mut answering = Answering { stream, reader, drawn, wanted, first };
            let answer = answering.read(draws, self.deadline).await;
            (drawn, first) = (std::mem::take(&mut answering.drawn), answering.first);
            match answer {
                Ok(Answer::Complete) => draws.keep(answering.stream),
                Ok(Answer::Late) => {
                    if table.config.counts_samples() {
                        self.read_on(answering, wanted - drawn.len());
                    }
                    return if drawn.is_empty() { Err(draws.late()) } else { Ok((drawn, first)) };
                }
                Ok(Answer::Ended) if drawn.len() > before => pause = PAUSES.0,
                Ok(Answer::Ended) => {
                    if within(self.deadline, tokio::time::sleep(pause)).await.is_none() {
                        return if drawn.is_empty() { Err(draws.late()) } else { Ok((drawn, first)) };
                    }
                    pause = (pause * 2).min(PAUSES.1);
                }
                // The server does not take the samples back, so the caller gets those that have come.
                Err(Error::DeadlineExceeded(_)) if !drawn.is_empty() => return Ok((drawn, first)),
                Err(error) => return Err(error),
            }
        }
        Ok((drawn, first))
    }

    /// Reads the rest of an answer for later draws. The server's clock begins again with each part of an answer, so it
    /// may still be about to send samples, which would be lost if the stream was cancelled.
    fn read_on(&self, mut answering: Answering, wanted: usize) {
        let (draws, name) = (self.draws.clone(), self.request.table.clone());
        answering.wanted = wanted;
        tokio::spawn(async move {
            let answer = answering.read(&draws, None).await;
            draws.leave(&name, answering.drawn);
            if let Ok(Answer::Complete) = answer {
                draws.keep(answering.stream);
            }
        });
    }

    /// Makes the batch. Samples that it does not take are left to later draws if `is_scarce`.
    async fn stack(&self, drawn: Vec<Drawn>, token: u64, is_scarce: bool) -> Result<Batch> {
        let size_bytes = drawn.iter().map(|item| item.trajectory.size_bytes()).sum::<u64>();
        let (at_least, squeeze_time, name) =
            (self.request.draw.at_least, self.request.squeeze_time, &self.request.table);
        let draws = is_scarce.then(|| self.draws.clone());
        let name = name.clone();
        let stack = move || {
            let leave = |samples| {
                if let Some(draws) = &draws {
                    draws.leave(&name, samples);
                }
            };
            let mut gatherer = stack(&name, drawn, at_least, squeeze_time, leave)?;
            Ok(Batch::gather(&mut gatherer, token))
        };
        if size_bytes <= LARGE_BATCH as u64 {
            return stack();
        }
        tokio::task::spawn_blocking(stack).await.unwrap_or_else(|error| Err(Error::Internal(error.to_string())))
    }
}

impl Answering {
    /// Reads until all samples have come.
    ///
    /// # Errors
    /// The status with which the stream ended, or [`Error::DataLoss`] if the server sends something else than samples.
    async fn read(&mut self, draws: &Draws, deadline: Option<Instant>) -> Result<Answer> {
        while self.drawn.len() < self.wanted {
            // The server says that the time is over unless a part of its answer has come.
            let grace = if self.drawn.is_empty() { GRACE } else { Duration::ZERO };
            let limit = deadline.and_then(|deadline| deadline.checked_add(grace));
            let response = match within(limit, self.stream.next()).await {
                None => return Ok(Answer::Late),
                Some(Ok(None)) => return Ok(Answer::Ended),
                Some(Ok(Some(response))) => response,
                Some(Err(status)) => return Err(draws.error(&status)),
            };
            self.read_response(response, draws).await.map_err(|error| {
                let reason = match error {
                    Error::DataLoss(reason) | Error::InvalidArgument(reason) => reason,
                    Error::MessageTooLarge { what, size_bytes, limit_bytes, .. } => {
                        format!("{what} has {size_bytes} bytes, more than the maximum of {limit_bytes}")
                    }
                    error => return error,
                };
                Error::DataLoss(format!("the server at {} sent a sample that cannot be used: {reason}", draws.peer))
            })?;
            if !self.drawn.is_empty() {
                self.first.get_or_insert_with(Instant::now);
            }
        }
        Ok(Answer::Complete)
    }

    async fn read_response(&mut self, response: SampleStreamResponse, draws: &Draws) -> Result<()> {
        let chunks = response.entries.iter().flat_map(|entry| &entry.data);
        if chunks.map(Bytes::len).sum::<usize>() <= LARGE_RESPONSE {
            return self.reader.read(response, self.wanted, &mut self.drawn);
        }
        let new = SampleReader::new(draws.cache.clone());
        let (mut reader, mut drawn) = (std::mem::replace(&mut self.reader, new), std::mem::take(&mut self.drawn));
        let wanted = self.wanted;
        let read = tokio::task::spawn_blocking(move || {
            let result = reader.read(response, wanted, &mut drawn);
            (reader, drawn, result)
        });
        let result;
        (self.reader, self.drawn, result) = read.await.map_err(|error| Error::Internal(error.to_string()))?;
        result
    }
}

/// Awaits a future until a limit. `None` if that passes first.
async fn within<T>(limit: Option<Instant>, future: impl Future<Output = T>) -> Option<T> {
    match limit {
        None => Some(future.await),
        Some(limit) => tokio::time::timeout_at(limit.into(), future).await.ok(),
    }
}

/// Returns the number of samples to ask for: more than the caller needs only if that takes nothing from others.
fn wanted(request: &BatchRequest, table: &TableInfo) -> Result<usize> {
    let draw = request.draw;
    if draw.at_most == 0 || draw.at_least > draw.at_most {
        return Err(Error::invalid(format!(
            "`num_samples` must be > 0 and at least the number that must be drawn (got {} and {})",
            draw.at_most, draw.at_least
        )));
    }
    if draw.at_least > MAX_DRAWN {
        return Err(Error::ResourceExhausted(format!(
            "a batch of {} items exceeds the maximum of {MAX_DRAWN} items",
            draw.at_least
        )));
    }
    Ok(match table.config.counts_samples() {
        true => draw.at_least.max(1),
        false => draw.at_most.saturating_add(draw.ahead).min(MAX_DRAWN),
    })
}

fn sample_request(table: &str, num_samples: usize, deadline: Option<Instant>) -> SampleStreamRequest {
    let milliseconds = match deadline {
        // Waits for ever.
        None => -1,
        // The server would wait for ever if it were 0.
        Some(deadline) => {
            let left = deadline.saturating_duration_since(Instant::now());
            i64::try_from(left.as_micros().div_ceil(1000)).unwrap_or(i64::MAX).max(1)
        }
    };
    SampleStreamRequest {
        table: table.into(),
        num_samples: num_samples as i64,
        rate_limiter_timeout: Some(Timeout { milliseconds }),
    }
}

/// Plans the batch of the longest prefix of samples that fits together and has at least `at_least` samples. Calls
/// `leave` with the others.
fn stack(
    table: &str,
    drawn: Vec<Drawn>,
    at_least: usize,
    squeeze_time: bool,
    leave: impl Fn(Vec<Drawn>),
) -> Result<Gatherer> {
    let gatherer = Gatherer::new(drawn, squeeze_time).or_else(|mismatch| {
        let (mut items, index) = (mismatch.items, mismatch.index);
        if index < at_least.max(1) {
            leave(items);
            return Err(Error::invalid(format!(
                "items of table `{table}` cannot be stacked into a batch: item {index} differs from earlier ones: {}",
                mismatch.reason
            )));
        }
        leave(items.split_off(index));
        Gatherer::new(items, squeeze_time).map_err(|mismatch| {
            leave(mismatch.items);
            Error::invalid(format!("items of table `{table}` cannot be stacked: {}", mismatch.reason))
        })
    })?;
    let columns = &gatherer.layout().columns;
    let too_large = |column: &&BatchColumn| column.dtype == DType::String && column.size_bytes > u32::MAX as usize;
    let Some(size_bytes) = columns.iter().find(too_large).map(|column| column.size_bytes) else { return Ok(gatherer) };
    leave(gatherer.into_items());
    Err(Error::invalid(format!(
        "a batch of table `{table}` has a column of strings with {size_bytes} bytes, more than the maximum of {}",
        u32::MAX
    )))
}
