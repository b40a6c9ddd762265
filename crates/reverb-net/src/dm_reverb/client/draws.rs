//! Draws from the tables of a server of dm-reverb.

use super::answering::{Answer, Answering, late, within};
use super::chunk_cache::ChunkCache;
use super::idle_streams::IdleStreams;
use super::left::{Left, Unconfirmed};
use super::sample_link::SampleLink;
use super::tables::{Tables, statuses};
use crate::dm_reverb::proto::{SampleStreamRequest, ServerInfoRequest, Timeout};
use crate::dm_reverb::rpc::reverb_service_client::ReverbServiceClient;
use crate::transport::authorized::Channel;
use parking_lot::Mutex;
use reverb_core::{Drawn, Error, Result, TableInfo};
use reverb_service::local::BatchRequest;
use reverb_service::{Batch, MAX_DRAWN, stack, warn};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// The first and the longest pause before a stream is opened again that ended without a sample. The pause doubles.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(1));
/// Number of bytes from which a batch is copied by another thread, so that other calls go on.
const LARGE_BATCH: usize = 4 << 20;

/// Time after which a wait is reported.
const REPORT_DELAY: Duration = Duration::from_secs(10);
/// Maximum time to ask the server what a draw waits for.
const ASK_TIME: Duration = Duration::from_secs(2);

/// What all draws of a connection share.
#[derive(Debug)]
pub struct Draws {
    peer: String,
    service: ReverbServiceClient<Channel>,
    tables: Arc<Tables>,
    cache: Arc<ChunkCache>,
    idle: IdleStreams<SampleLink>,
    left: Arc<Left>,
    /// By table, the turn after the last draw that has begun.
    last: Mutex<HashMap<String, Turn>>,
    /// The tables from which a draw waits whose long wait was reported.
    reported: Mutex<HashSet<String>>,
}

/// A long wait that was reported. While it lasts, no other one at the same table is.
struct Reported<'a> {
    draws: &'a Draws,
    table: &'a str,
}

/// The turn of a draw. Resolves when the previous draw has ended; a dropped draw passes on its own wait.
#[derive(Debug)]
struct Turn(oneshot::Receiver<Turn>);

/// A draw that has begun, but not sent a request. Its order among the draws from its table is known.
#[derive(Debug)]
pub struct Draw {
    draws: Arc<Draws>,
    request: BatchRequest,
    deadline: Option<Instant>,
    /// Comes after the draw before, if that draws from the same table and the order matters.
    turn: Option<Turn>,
    /// Gives the turn to the next draw when it is dropped.
    end: Option<oneshot::Sender<Turn>>,
}

/// The samples of a draw so far, and its open request. If the draw ends before they are a batch, they are left to the
/// next draws from a table that counts its samples.
struct Collecting<'a> {
    left: &'a Left,
    table: &'a str,
    is_scarce: bool,
    drawn: Vec<Drawn>,
    request: Option<Answering>,
}

impl Draws {
    /// Makes the draws of a connection.
    pub fn new(peer: &str, service: ReverbServiceClient<Channel>, tables: Arc<Tables>) -> Self {
        Self {
            peer: peer.into(),
            service,
            tables,
            cache: Arc::default(),
            idle: IdleStreams::default(),
            left: Arc::default(),
            last: Mutex::default(),
            reported: Mutex::default(),
        }
    }

    /// Begins a draw. A draw from a table that gives each sample once, in an order, waits for the draws before.
    pub fn begin(self: &Arc<Self>, request: &BatchRequest, deadline: Option<Instant>) -> Draw {
        let (end, ended) = oneshot::channel();
        let is_ordered = |table: &TableInfo| table.config.counts_samples() && table.config.sampler.is_deterministic();
        let turn = match self.tables.get(&request.table) {
            Ok(table) if is_ordered(table) => self.last.lock().insert(request.table.clone(), Turn(ended)),
            _ => None,
        };
        Draw { draws: self.clone(), request: request.clone(), deadline, turn, end: Some(end) }
    }

    /// Asks the server whether a table allows no sample now, and says why. `None` if it seems to allow one.
    async fn explain(&self, table: &str) -> Option<String> {
        let response = self.service.clone().server_info(ServerInfoRequest {}).await.ok()?.into_inner();
        let status = statuses(response).ok()?.into_iter().find(|status| status.info.config.name == table)?;
        let limiter = status.info.limiter();
        (!limiter.can_sample(1)).then(|| status.info.view(&limiter).sample_waits_for(1))
    }

    fn idle_stream(&self) -> SampleLink {
        self.idle.take(SampleLink::is_quiet).unwrap_or_else(|| SampleLink::open(self.service.clone()))
    }

    fn keep(&self, mut stream: SampleLink) {
        if stream.is_quiet() {
            self.idle.give_back(stream);
        }
    }
}

impl Draw {
    /// Draws the batch. If the future is dropped, the next draws from a table that counts its samples get those that the
    /// server has sent, or is about to send.
    ///
    /// # Errors
    /// [`Error::DeadlineExceeded`] if no sample arrives in time; [`Error::Unavailable`] if the server is lost;
    /// [`Error::DataLoss`] if it sends something else than samples; [`Error::InvalidArgument`] if too few samples fit
    /// together.
    pub async fn result(mut self) -> Result<(Batch, Unconfirmed)> {
        let begun = Instant::now();
        let draws = self.draws.clone();
        let table = draws.tables.get(&self.request.table)?;
        let wanted = wanted(&self.request, table)?;
        let (drawn, first) = match within(self.deadline, self.wait_for_turn()).await {
            Some(()) => self.receive_and_report(wanted, table).await?,
            None => (draws.left.take(&self.request.table, wanted), None),
        };
        if drawn.is_empty() {
            return Err(late(&draws.peer));
        }
        let is_limited = drawn.first().is_some_and(|first| first.rate_limited);
        let waited =
            first.filter(|_| is_limited).map_or(Duration::ZERO, |first| first.saturating_duration_since(begun));
        let token = table.config.signature.as_ref().map_or(0, |signature| signature.token());
        let (batch, unconfirmed) = self.stack(drawn, token, table.config.counts_samples()).await?;
        Ok((Batch { waited, ..batch }, unconfirmed))
    }

    /// Waits until the draws before have ended. The future may be dropped.
    async fn wait_for_turn(&mut self) {
        while let Some(Turn(turn)) = &mut self.turn {
            self.turn = turn.await.ok();
        }
    }

    /// As [`Draw::receive`]. Logs a long wait, and its end.
    async fn receive_and_report(&self, wanted: usize, table: &TableInfo) -> Result<(Vec<Drawn>, Option<Instant>)> {
        let (begun, mut reported) = (Instant::now(), None);
        let received = tokio::select! {
            received = self.receive(wanted, table) => received,
            () = self.report_wait(&mut reported) => unreachable!("a report does not end the wait"),
        };
        if reported.is_some() && received.as_ref().is_ok_and(|(drawn, _)| !drawn.is_empty()) {
            let (table, waited) = (&self.request.table, begun.elapsed().as_secs_f64());
            warn(&format!("sample of table `{table}` goes on after {waited:.1} s"));
        }
        received
    }

    /// Logs once why the draw waits for a long time, unless another draw of the connection waits there and has. Never
    /// completes.
    async fn report_wait<'a>(&'a self, reported: &mut Option<Reported<'a>>) {
        tokio::time::sleep(REPORT_DELAY).await;
        let (draws, table) = (&*self.draws, self.request.table.as_str());
        if draws.reported.lock().insert(table.to_owned()) {
            *reported = Some(Reported { draws, table });
            let reason = within(Instant::now().checked_add(ASK_TIME), draws.explain(table)).await.flatten();
            let reason = reason.unwrap_or_else(|| format!("the server at {} has sent no sample", draws.peer));
            warn(&format!("sample of table `{table}` waits: {reason}"));
        }
        std::future::pending().await
    }

    /// Receives samples until there are `wanted`, or until the deadline. Returns when the first one arrived
    /// from the server, too.
    async fn receive(&self, wanted: usize, table: &TableInfo) -> Result<(Vec<Drawn>, Option<Instant>)> {
        let (draws, name, is_scarce) = (&self.draws, &self.request.table, table.config.counts_samples());
        let drawn = draws.left.take(name, wanted);
        let mut collecting = Collecting { left: &draws.left, table: name, is_scarce, drawn, request: None };
        let (mut first, mut pause, mut is_fruitless) = (None, PAUSES.0, true);
        while collecting.drawn.len() < wanted {
            let before = collecting.drawn.len();
            let request = collecting.request.get_or_insert_with(|| {
                is_fruitless = true;
                draws.left.take_request(name).unwrap_or_else(|| {
                    let request = sample_request(name, wanted - before, self.deadline);
                    Answering::send(draws.idle_stream(), request, draws.cache.clone())
                })
            });
            let answer = request.read(&draws.peer, self.deadline, before > 0).await;
            let is_resumed = request.is_resumed();
            collecting.drawn.extend(request.take(wanted - before));
            if collecting.drawn.len() > before {
                first.get_or_insert_with(Instant::now);
                (is_fruitless, pause) = (false, PAUSES.0);
            }
            match answer {
                Ok(Answer::Part) => collecting.keep_stream(draws),
                Ok(Answer::Late) => break,
                // What this draw asks for itself says what is wrong.
                Ok(Answer::End) | Err(_) if is_resumed => collecting.leave_request(),
                Ok(Answer::End) => {
                    collecting.leave_request();
                    if is_fruitless && within(self.deadline, tokio::time::sleep(pause)).await.is_none() {
                        break;
                    }
                    pause = if is_fruitless { (pause * 2).min(PAUSES.1) } else { PAUSES.0 };
                }
                // The server does not take the samples back, so the caller gets those that have arrived.
                Err(Error::DeadlineExceeded(_)) if !collecting.drawn.is_empty() => {
                    collecting.leave_request();
                    break;
                }
                Err(error) => {
                    collecting.leave_request();
                    return Err(error);
                }
            }
        }
        Ok((std::mem::take(&mut collecting.drawn), first))
    }

    /// Makes the batch. Samples that it does not take are left to later draws if `is_scarce`.
    async fn stack(&self, drawn: Vec<Drawn>, token: u64, is_scarce: bool) -> Result<(Batch, Unconfirmed)> {
        let size_bytes = drawn.iter().map(|item| item.trajectory.size_bytes()).sum::<u64>();
        let (at_least, squeeze_time, name) =
            (self.request.draw.at_least, self.request.squeeze_time, self.request.table.clone());
        let left = self.draws.left.clone();
        let make = move || {
            let leave = |samples| {
                if is_scarce {
                    left.keep(&name, samples, None);
                }
            };
            let mut gatherer = stack(&name, drawn, at_least, squeeze_time, leave)?;
            let batch = Batch::gather(&mut gatherer, token);
            let samples = if is_scarce { gatherer.into_items() } else { Vec::new() };
            Ok((batch, Unconfirmed::new(&left, &name, samples)))
        };
        if size_bytes <= LARGE_BATCH as u64 {
            return make();
        }
        tokio::task::spawn_blocking(make).await.unwrap_or_else(|error| Err(Error::Internal(error.to_string())))
    }
}

impl Drop for Draw {
    fn drop(&mut self) {
        // The next draw must not begin before those for which this one waits.
        if let (Some(turn), Some(end)) = (self.turn.take(), self.end.take()) {
            let _is_last = end.send(turn);
        }
    }
}

impl Drop for Reported<'_> {
    fn drop(&mut self) {
        self.draws.reported.lock().remove(self.table);
    }
}

impl Collecting<'_> {
    /// Keeps the stream for later requests once all samples have arrived.
    fn keep_stream(&mut self, draws: &Draws) {
        if let Some(request) = self.request.take_if(|request| request.is_complete()) {
            draws.keep(request.into_stream());
        }
    }

    /// Gives the request up.
    fn leave_request(&mut self) {
        if let Some(request) = self.request.take().filter(|_| self.is_scarce) {
            self.left.keep(self.table, Vec::new(), Some(request));
        }
    }
}

impl Drop for Collecting<'_> {
    fn drop(&mut self) {
        if self.is_scarce {
            self.left.keep(self.table, std::mem::take(&mut self.drawn), self.request.take());
        }
    }
}

/// Returns the number of samples to ask for: more than the caller needs only if that takes nothing from others.
fn wanted(request: &BatchRequest, table: &TableInfo) -> Result<usize> {
    let draw = request.draw;
    draw.check()?;
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
