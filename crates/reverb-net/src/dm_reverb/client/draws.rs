//! Draws from the tables of a server of dm-reverb.

use super::chunk_cache::ChunkCache;
use super::sample_reader::SampleReader;
use super::sample_stream::SampleStream;
use super::tables::Tables;
use crate::dm_reverb::proto::{SampleStreamRequest, Timeout};
use crate::dm_reverb::rpc::reverb_service_client::ReverbServiceClient;
use crate::dm_reverb::status::from_status;
use parking_lot::Mutex;
use reverb_core::gather::Gatherer;
use reverb_core::{DType, Drawn, Error, Result, TableInfo};
use reverb_service::Batch;
use reverb_service::local::BatchRequest;
use std::sync::Arc;
use std::time::{Duration, Instant};
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

/// What all draws of a connection share.
#[derive(Debug)]
pub struct Draws {
    peer: String,
    service: ReverbServiceClient<Channel>,
    tables: Arc<Tables>,
    cache: Arc<ChunkCache>,
    idle: Mutex<Vec<SampleStream>>,
}

/// Samples that have arrived, and the time at which the first one did.
#[derive(Debug, Default)]
struct Arrived {
    drawn: Vec<Drawn>,
    first: Option<Instant>,
}

impl Draws {
    /// Makes the draws of a connection.
    pub fn new(peer: &str, service: ReverbServiceClient<Channel>, tables: Arc<Tables>) -> Self {
        let (cache, idle) = (Arc::default(), Mutex::default());
        Self { peer: peer.into(), service, tables, cache, idle }
    }

    /// Draws a batch. If the future is dropped, the samples are lost that the server has sent, or is about to send.
    ///
    /// # Errors
    /// [`Error::DeadlineExceeded`] if no sample arrives in time; [`Error::Unavailable`] if the server is lost;
    /// [`Error::DataLoss`] if it sends something else than samples; [`Error::InvalidArgument`] if too few samples fit
    /// together.
    pub async fn draw(&self, request: &BatchRequest, deadline: Option<Instant>) -> Result<Batch> {
        let begun = Instant::now();
        let table = self.tables.get(&request.table)?;
        let wanted = wanted(request, table)?;
        let mut arrived = Arrived::default();
        match self.receive(request, wanted, deadline, &mut arrived).await {
            Ok(()) => {}
            // The samples are not returned to the table, so the caller gets those that have come.
            Err(Error::DeadlineExceeded(_)) if !arrived.drawn.is_empty() => {}
            Err(error) => return Err(error),
        }
        let waits = arrived.drawn.first().is_some_and(|first| first.rate_limited);
        let waited = arrived.first.filter(|_| waits).map_or(Duration::ZERO, |first| first - begun);
        let token = table.config.signature.as_ref().map_or(0, |signature| signature.token());
        let (at_least, squeeze_time, name) = (request.draw.at_least, request.squeeze_time, request.table.clone());
        let size_bytes = arrived.drawn.iter().map(|item| item.trajectory.size_bytes()).sum::<u64>();
        let stack = move || {
            let mut gatherer = stack(&name, arrived.drawn, at_least, squeeze_time)?;
            Ok(Batch { waited, ..Batch::gather(&mut gatherer, token) })
        };
        if size_bytes <= LARGE_BATCH as u64 {
            return stack();
        }
        tokio::task::spawn_blocking(stack).await.unwrap_or_else(|error| Err(Error::Internal(error.to_string())))
    }

    /// Receives samples until there are `wanted`.
    async fn receive(
        &self,
        request: &BatchRequest,
        wanted: usize,
        deadline: Option<Instant>,
        arrived: &mut Arrived,
    ) -> Result<()> {
        let mut pause = PAUSES.0;
        let mut stream = self.idle_stream();
        loop {
            let before = arrived.drawn.len();
            let mut open = stream.take().unwrap_or_else(|| SampleStream::open(self.service.clone()));
            open.request(sample_request(&request.table, wanted - before, deadline));
            let limit = deadline.and_then(|deadline| deadline.checked_add(GRACE));
            let answered = self.answer(&mut open, wanted, arrived);
            let answered = match limit {
                None => answered.await,
                Some(limit) => tokio::time::timeout_at(limit.into(), answered).await.unwrap_or_else(|_| {
                    Err(Error::DeadlineExceeded(format!("the server at {} did not answer in time", self.peer)))
                }),
            };
            if answered? {
                self.keep(open);
                return Ok(());
            }
            if arrived.drawn.len() > before {
                pause = PAUSES.0;
                continue;
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(Error::DeadlineExceeded(format!("the server at {} ended the streams", self.peer)));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    /// Reads the answer to a request. Returns false if the server ended the stream before all samples had come.
    async fn answer(&self, stream: &mut SampleStream, wanted: usize, arrived: &mut Arrived) -> Result<bool> {
        let mut reader = SampleReader::new(self.cache.clone());
        while arrived.drawn.len() < wanted {
            let response = match stream.next().await {
                Ok(Some(response)) => response,
                Ok(None) => return Ok(false),
                Err(status) => return Err(self.error(&status)),
            };
            let read = reader.read(response, wanted, &mut arrived.drawn);
            read.map_err(|error| match error {
                Error::DataLoss(reason) | Error::InvalidArgument(reason) => {
                    Error::DataLoss(format!("the server at {} sent a sample that cannot be used: {reason}", self.peer))
                }
                error => error,
            })?;
            arrived.first.get_or_insert_with(Instant::now);
        }
        Ok(true)
    }

    fn error(&self, status: &Status) -> Error {
        match status.code() {
            Code::DeadlineExceeded => Error::DeadlineExceeded(format!(
                "Rate Limiter: Timeout exceeded before the right to sample was acquired; the server at {} does not say \
                 what the draw waited for",
                self.peer
            )),
            _ => from_status(status, &self.peer),
        }
    }

    fn idle_stream(&self) -> Option<SampleStream> {
        loop {
            let mut stream = self.idle.lock().pop()?;
            if stream.is_quiet() {
                return Some(stream);
            }
        }
    }

    fn keep(&self, mut stream: SampleStream) {
        let mut idle = self.idle.lock();
        if idle.len() < MAX_IDLE_STREAMS && stream.is_quiet() {
            idle.push(stream);
        }
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

/// Plans the batch of the longest prefix of samples that fits together and has at least `at_least` samples.
fn stack(table: &str, drawn: Vec<Drawn>, at_least: usize, squeeze_time: bool) -> Result<Gatherer> {
    let gatherer = Gatherer::new(drawn, squeeze_time).or_else(|mismatch| {
        let (mut items, index) = (mismatch.items, mismatch.index);
        if index < at_least.max(1) {
            return Err(Error::invalid(format!(
                "items of table `{table}` cannot be stacked into a batch: item {index} differs from earlier ones: {}",
                mismatch.reason
            )));
        }
        items.truncate(index);
        Gatherer::new(items, squeeze_time).map_err(|mismatch| {
            Error::invalid(format!("items of table `{table}` cannot be stacked: {}", mismatch.reason))
        })
    })?;
    let columns = &gatherer.layout().columns;
    let too_large = columns.iter().find(|c| c.dtype == DType::String && c.size_bytes > u32::MAX as usize);
    match too_large {
        None => Ok(gatherer),
        Some(column) => Err(Error::invalid(format!(
            "a batch of table `{table}` has a column of strings with {} bytes, more than the maximum of {}",
            column.size_bytes,
            u32::MAX
        ))),
    }
}
