//! The server side of a sample stream. Each draw is answered with one batch, which is gathered as it is sent.

use super::held_races::{Chosen, HeldRaces};
use super::last_word::end_stopped;
use super::segments::{PIECE_BYTES, Segments};
use super::vanished::log_vanished;
use super::waiting_beats::beat_while_waiting;
use super::woken::{Begun, Waited, Woken, wants_answer};
use crate::grpc::service::stopped;
use crate::replay_v1::proto::{self as replay, Choice, Draw, SampleRequest, sample_request};
use crate::replay_v1::sample_response::{Kind, Payload, SampleResponse};
use crate::replay_v1::status::to_failure;
use crate::replay_v1::wire::{batch_to_wire, race_from_wire, report_of_server, stock_from_wire, tally_from_wire};
use parking_lot::Mutex;
use reverb_core::gather::decoded_bytes;
use reverb_core::{Drawn, Error, Result};
use reverb_service::decoding::{decode, on_items};
use reverb_service::lease::Lease;
use reverb_service::{Call, DrawRequest, Notice, TableHandle};
use reverb_service::{Peer, Replay, StreamKind, StreamReceipts};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio_stream::{Stream, StreamExt, wrappers::ReceiverStream};
use tonic::Status;

// limit (Draws): draws of a stream that wait or are not yet received | {} | `ResourceExhaustedError`
/// Maximum number of draws of one stream that wait or are undelivered, with the races that await a choice.
const MAX_DRAWS: usize = 4096;
// limit (Draws): samples of a stream that are not yet received | {}; new draws fail beyond it |
// `ResourceExhaustedError`
/// Number of undelivered samples of one stream at which further draws are refused.
const MAX_UNDELIVERED: usize = 4 << 20;

type Requested = std::result::Result<SampleRequest, Status>;
type Answers = mpsc::Sender<std::result::Result<SampleResponse, Status>>;

/// Serves the stream in a separate task, which ends when the client disconnects. A client that answers for its receipts
/// has chosen a number for the stream.
pub fn sample_stream(
    replay: Arc<Replay>,
    peer: Arc<Peer>,
    heartbeat: Option<Duration>,
    number: Option<u64>,
    segments: Option<Segments>,
    requests: impl Stream<Item = Requested> + Send + Unpin + 'static,
) -> ReceiverStream<std::result::Result<SampleResponse, Status>> {
    // A short queue is enough to keep the socket busy. A longer one would only hold memory.
    let (answers, stream) = mpsc::channel(4);
    let open = replay.connections.add_stream(&peer, StreamKind::Sample);
    let receipts = number.map(|number| replay.receipts.add_stream(number));
    tokio::spawn(async move {
        let _open = open;
        let (waiting, handles, leases) = (JoinSet::new(), HashMap::new(), HashMap::new());
        let waits = Arc::new(());
        beat_while_waiting(heartbeat, &waits, &answers);
        let task = SampleStreamTask {
            replay,
            peer,
            answers,
            waiting,
            waits,
            handles,
            leases,
            undelivered: 0,
            held: HeldRaces::default(),
            receipts,
            segments,
            is_settling: false,
            refused: Vec::new(),
        };
        task.run(requests).await;
    });
    ReceiverStream::new(stream)
}

/// The state of one stream.
struct SampleStreamTask {
    replay: Arc<Replay>,
    peer: Arc<Peer>,
    answers: Answers,
    /// Draws that wait for a table, and waits for stocks. Dropping them withdraws them.
    waiting: JoinSet<Woken>,
    /// Held by each of them.
    waits: Arc<()>,
    handles: HashMap<u64, AbortHandle>,
    leases: HashMap<u64, Lease>,
    /// Number of samples in all leases.
    undelivered: usize,
    /// Races whose winners the client has not chosen.
    held: HeldRaces,
    /// Counts the receipts, if the client answers for them.
    receipts: Option<StreamReceipts>,
    /// Where the data of batches lies, if the client is of this host.
    segments: Option<Segments>,
    /// Whether the server is about to stop, and has asked for the last receipts.
    is_settling: bool,
    /// The draws since then. They fail when the server stops, which can then tell whether it will be back.
    refused: Vec<u64>,
}

impl SampleStreamTask {
    async fn run(mut self, mut requests: impl Stream<Item = Requested> + Unpin) {
        let mut open = true;
        let replay = self.replay.clone();
        let mut closed = std::pin::pin!(replay.closed());
        let mut asked = std::pin::pin!(replay.receipts.asked());
        let answers = self.answers.clone();
        let mut gone = std::pin::pin!(answers.closed());
        while open || !self.waiting.is_empty() {
            let go_on = tokio::select! {
                request = requests.next(), if open => match request {
                    Some(Ok(request)) => self.take(request).await,
                    // The client disconnected, or sent an unreadable message. Samples that it has not received go back.
                    Some(Err(status)) => {
                        let draws = self.handles.len();
                        self.withdraw().await;
                        self.log_vanished(draws);
                        let Self { answers, leases, held, .. } = self;
                        drop((leases, held));
                        let _gone = answers.send(Err(status)).await;
                        return;
                    }
                    None => {
                        open = false;
                        Ok(())
                    }
                },
                Some(waited) = self.waiting.join_next() => self.resume(waited).await,
                () = self.held.overdue() => {
                    self.held.free_overdue();
                    Ok(())
                }
                () = &mut gone => Err(()),
                () = &mut asked, if !self.is_settling => self.settle().await,
                // The waiting calls have just failed. Their answers are still sent.
                () = &mut closed, if open => {
                    open = false;
                    Ok(())
                }
            };
            if go_on.is_err() {
                return self.disconnected(requests).await;
            }
        }
        if replay.is_closed() {
            for request_id in std::mem::take(&mut self.refused) {
                let _gone = self.fail(request_id, &stopped()).await;
            }
            let Self { answers, leases, held, .. } = self;
            drop((leases, held));
            end_stopped(&replay, &answers).await;
        }
    }

    /// Asks the client for the receipts that are due, before the server stops. No batch is sent after that.
    async fn settle(&mut self) -> std::result::Result<(), ()> {
        self.is_settling = true;
        match &mut self.receipts {
            Some(_) if self.leases.values().any(Lease::is_tracked) => self.answer(0, Kind::Settle(true)).await,
            Some(receipts) => {
                receipts.settle();
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Withdraws what waits. The leases end after that: a draw that still waits would draw their items for nobody.
    async fn withdraw(&mut self) {
        self.waiting.shutdown().await;
    }

    /// Withdraws what waits, and processes the receipts that the client sent before it disconnected.
    async fn disconnected(mut self, mut requests: impl Stream<Item = Requested> + Unpin) {
        let draws = self.handles.len();
        self.withdraw().await;
        while let Some(Ok(request)) = requests.next().await {
            if let Some(sample_request::Kind::Received(_)) = request.kind {
                self.received(request.request_id);
            }
        }
        self.log_vanished(draws);
    }

    /// Logs that the client has gone, if it had samples that it has not received, or draws that waited.
    fn log_vanished(&self, draws: usize) {
        let undelivered = self.undelivered + self.held.samples();
        let in_flight = [(undelivered, "undelivered samples, which go back,"), (draws, "waiting draws")];
        log_vanished(&self.replay, &self.peer, &in_flight);
    }

    async fn take(&mut self, request: SampleRequest) -> std::result::Result<(), ()> {
        let request_id = request.request_id;
        match request.kind {
            Some(kind) if self.is_settling && wants_answer(&kind) && self.refused.len() < MAX_DRAWS => {
                self.refused.push(request_id);
                Ok(())
            }
            Some(sample_request::Kind::Draw(draw)) => match self.begin(request_id, draw) {
                Ok(Begun::Waits) => Ok(()),
                Ok(Begun::Drawn(table, draw, drawn)) => {
                    self.send_draw(request_id, table, &draw, drawn, Duration::ZERO).await
                }
                Err(error) => self.fail(request_id, &error).await,
            },
            Some(sample_request::Kind::Race(race)) => match self.begin_race(request_id, &race) {
                Ok(report) => self.answer(request_id, Kind::RaceReport(report)).await,
                Err(error) => self.fail(request_id, &error).await,
            },
            Some(sample_request::Kind::Choice(choice)) => self.choose(request_id, &choice).await,
            Some(sample_request::Kind::Wait(wait)) => match self.begin_wait(request_id, &wait) {
                Ok(()) => Ok(()),
                Err(error) => self.fail(request_id, &error).await,
            },
            Some(sample_request::Kind::Received(_)) => {
                self.received(request_id);
                Ok(())
            }
            Some(sample_request::Kind::Cancel(_)) => {
                drop(self.end_lease(request_id));
                self.segments.iter_mut().for_each(|segments| segments.given_up(request_id));
                self.held.free(request_id);
                if let Some(handle) = self.handles.remove(&request_id) {
                    handle.abort();
                    // The samples go back before the next request is read, because that may draw them again.
                    while !handle.is_finished() {
                        tokio::task::yield_now().await;
                    }
                }
                Ok(())
            }
            Some(sample_request::Kind::Settled(_)) => {
                self.receipts.iter_mut().for_each(StreamReceipts::settle);
                Ok(())
            }
            Some(sample_request::Kind::Freed(freed)) => {
                self.segments.iter_mut().for_each(|segments| segments.take_back(&freed));
                Ok(())
            }
            // A heartbeat of the client.
            None if request_id == 0 => Ok(()),
            None => {
                self.fail(
                    request_id,
                    &Error::invalid(
                        "expected a request to draw, race, choose, wait, acknowledge or cancel, got none of them",
                    ),
                )
                .await
            }
        }
    }

    fn received(&mut self, request_id: u64) {
        self.segments.iter_mut().for_each(|segments| segments.received(request_id));
        if let Some(lease) = self.end_lease(request_id) {
            // After a stop of the server they go back.
            let _closed = on_items(lease.samples(), || lease.received());
        }
        self.receipts.iter().for_each(StreamReceipts::count);
    }

    fn end_lease(&mut self, request_id: u64) -> Option<Lease> {
        let lease = self.leases.remove(&request_id)?;
        self.undelivered -= lease.samples();
        Some(lease)
    }

    /// Checks that the stream may draw more under an id.
    fn check_new(&self, request_id: u64) -> Result<()> {
        if self.is_settling {
            return Err(stopped());
        }
        if self.leases.len() + self.handles.len() + self.held.len() >= MAX_DRAWS {
            return Err(Error::ResourceExhausted(format!(
                "{MAX_DRAWS} draws of this stream wait or are not acknowledged; wait for batches first"
            )));
        }
        let undelivered = self.undelivered + self.held.samples();
        if undelivered >= MAX_UNDELIVERED {
            return Err(Error::ResourceExhausted(format!(
                "{undelivered} samples of this stream are not acknowledged; acknowledge them first"
            )));
        }
        let (leases, handles) = (&self.leases, &self.handles);
        if leases.contains_key(&request_id) || handles.contains_key(&request_id) || self.held.contains(request_id) {
            return Err(Error::invalid(format!("request id {request_id} is already in use")));
        }
        Ok(())
    }

    /// Makes a table's part in a race, and holds its draws until the client chooses.
    fn begin_race(&mut self, request_id: u64, race: &replay::Race) -> Result<replay::RaceReport> {
        self.check_new(request_id)?;
        let table = self.replay.served(&race.table)?;
        let (asked, hold) = race_from_wire(race)?;
        let learner =
            race.known.as_ref().map(|known| table.hear_learner(&tally_from_wire(Some(known))?)).transpose()?;
        let learner = learner.map(|()| race.learner);
        let (report, lease) = table.race(asked)?;
        let report = report_of_server(&self.replay, &table, &report);
        self.held.add(request_id, table, lease, race.squeeze_time, hold, learner);
        Ok(report)
    }

    /// Sends the winners of a race as a batch. If the choice is not one, the race goes on.
    async fn choose(&mut self, request_id: u64, choice: &Choice) -> std::result::Result<(), ()> {
        if choice.winners.is_empty() {
            self.held.free(request_id);
            return Ok(());
        }
        match self.held.choose(request_id, choice, &self.peer) {
            Ok(Chosen { table, winners, squeeze_time }) => {
                let at_least = winners.len();
                self.send(request_id, table, at_least, squeeze_time, winners, Duration::ZERO).await
            }
            Err(error) => self.fail(request_id, &error).await,
        }
    }

    /// Draws at once if possible, and lets the draw wait otherwise.
    fn begin(&mut self, request_id: u64, draw: Draw) -> Result<Begun> {
        self.check_new(request_id)?;
        let table = self.replay.served(&draw.table)?;
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let request = DrawRequest {
            at_least: count(draw.at_least),
            at_most: count(draw.at_most),
            ahead: count(draw.ahead),
            is_ahead: draw.is_ahead,
        };
        match on_items(request.at_least, || table.sample(request, &self.peer)) {
            Call::Done(drawn) => Ok(Begun::Drawn(table, draw, drawn?)),
            Call::Waiting(waiting) => {
                let deadline = draw.timeout_ms.and_then(|ms| Instant::now().checked_add(Duration::from_millis(ms)));
                let (answers, peer, begun) = (self.answers.clone(), self.peer.clone(), Instant::now());
                let waits = self.waits.clone();
                let handle = self.waiting.spawn(async move {
                    let _waits = waits;
                    let notice = |notice: &Notice| {
                        notice.tell(&peer);
                        let kind = Some(Kind::Notice(notice.text.clone()));
                        let _full =
                            answers.try_send(Ok(SampleResponse { request_id, kind, payload: Payload::default() }));
                    };
                    let result = waiting.result(deadline, notice).await;
                    Woken::Draw(Waited { request_id, table, draw, begun, result: Some(result) })
                });
                self.handles.insert(request_id, handle);
                Ok(Begun::Waits)
            }
        }
    }

    /// Lets a client wait until a table has what it lacks for a draw from several servers.
    fn begin_wait(&mut self, request_id: u64, wait: &replay::Wait) -> Result<()> {
        self.check_new(request_id)?;
        let table = self.replay.served(&wait.table)?;
        let (stock, is_ahead, peer) = (stock_from_wire(wait), wait.is_ahead, self.peer.clone());
        let waits = self.waits.clone();
        let handle = self.waiting.spawn(async move {
            let _waits = waits;
            Woken::Stock(request_id, table.stocked(stock, is_ahead, peer).await)
        });
        self.handles.insert(request_id, handle);
        Ok(())
    }

    async fn resume(&mut self, woken: std::result::Result<Woken, JoinError>) -> std::result::Result<(), ()> {
        // An error means that the draw was cancelled. A draw without a handle was cancelled just when it completed.
        let Ok(woken) = woken else { return Ok(()) };
        let request_id = woken.request_id();
        if self.handles.remove(&request_id).is_none() {
            return Ok(());
        }
        if self.is_settling {
            self.refused.push(request_id);
            return Ok(());
        }
        let mut waited = match woken {
            Woken::Draw(waited) => waited,
            Woken::Stock(_, Ok(())) => return self.answer(request_id, Kind::Stocked(true)).await,
            Woken::Stock(_, Err(error)) => return self.fail(request_id, &error).await,
        };
        let table = waited.table.clone();
        match waited.result.take() {
            Some(Ok(drawn)) => {
                let time = waited.begun.elapsed();
                self.send_draw(request_id, table, &waited.draw, drawn, time).await
            }
            Some(Err(error)) => self.fail(request_id, &error).await,
            None => Ok(()),
        }
    }

    async fn send_draw(
        &mut self,
        request_id: u64,
        table: TableHandle,
        draw: &Draw,
        drawn: Vec<Drawn>,
        waited: Duration,
    ) -> std::result::Result<(), ()> {
        let at_least = usize::try_from(draw.at_least).unwrap_or(usize::MAX);
        self.send(request_id, table, at_least, draw.squeeze_time, drawn, waited).await
    }

    /// Sends a batch of at least so many items, and leases its samples until the client acknowledges them.
    async fn send(
        &mut self,
        request_id: u64,
        table: TableHandle,
        at_least: usize,
        squeeze_time: bool,
        drawn: Vec<Drawn>,
        waited: Duration,
    ) -> std::result::Result<(), ()> {
        let decoded = decoded_bytes(drawn.iter().map(|drawn| &drawn.trajectory));
        let stack = || {
            on_items(drawn.len(), || {
                let gatherer = table.stack(drawn, at_least, squeeze_time)?;
                let header = batch_to_wire(&gatherer, &table, waited);
                Ok((gatherer, header))
            })
        };
        // Nothing may withdraw this wait, since the samples have no lease yet.
        let stacked = self.held.free_during(decode(decoded, stack)).await;
        let (gatherer, mut header) = match stacked {
            Ok(stacked) => stacked,
            Err(error) => return self.fail(request_id, &error).await,
        };
        let mut remaining = gatherer.remaining();
        let has_strings = gatherer.layout().has_strings();
        let gatherer = Arc::new(Mutex::new(gatherer));
        let lease = Lease::new(table, gatherer.clone());
        self.undelivered += lease.samples();
        self.leases.insert(request_id, lease);
        if let Some(segments) = self.segments.as_mut().filter(|_| !has_strings) {
            header.segment = self.held.free_during(segments.gather(request_id, &gatherer, remaining)).await;
        }
        if header.segment.is_some() {
            return self.answer(request_id, Kind::Batch(header)).await;
        }
        let mut kind = Some(Kind::Batch(header));
        loop {
            let piece = remaining.min(PIECE_BYTES);
            let payload = Payload::Gather(gatherer.clone(), piece);
            self.put(SampleResponse { request_id, kind: kind.take(), payload }).await?;
            remaining -= piece;
            if remaining == 0 {
                return Ok(());
            }
        }
    }

    async fn fail(&mut self, request_id: u64, error: &Error) -> std::result::Result<(), ()> {
        let error = self.replay.as_told(error.clone()).await;
        self.answer(request_id, Kind::Failure(to_failure(&error))).await
    }

    /// Sends an answer without data.
    async fn answer(&mut self, request_id: u64, kind: Kind) -> std::result::Result<(), ()> {
        self.put(SampleResponse { request_id, kind: Some(kind), payload: Payload::default() }).await
    }

    async fn put(&mut self, response: SampleResponse) -> std::result::Result<(), ()> {
        self.held.free_during(self.answers.send(Ok(response))).await.map_err(|_| ())
    }
}

#[cfg(test)]
mod tests;
