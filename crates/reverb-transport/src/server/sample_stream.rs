//! A stream of batches: each draw is answered with one, gathered as it goes out.

use crate::convert::batch_to_wire;
use crate::lease::Lease;
use crate::proto::replay::{Draw, SampleRequest, sample_request};
use crate::replay::Replay;
use crate::sample_response::{Kind, Payload, SampleResponse};
use crate::status::to_failure;
use crate::table_handle::{Call, DrawRequest, TableHandle};
use parking_lot::Mutex;
use reverb_core::{Drawn, Error, Result};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio_stream::{StreamExt, wrappers::ReceiverStream};
use tonic::{Status, Streaming};

/// Bytes of a batch in one message.
const PIECE_BYTES: usize = 512 << 10;
/// Draws of one stream that may wait or be undelivered.
const MAX_DRAWS: usize = 4096;
/// Samples of one stream that may be undelivered before it draws more.
const MAX_UNDELIVERED: usize = 4 << 20;

type Answers = mpsc::Sender<std::result::Result<SampleResponse, Status>>;

/// Serves the stream in a task of its own, which ends when the client does.
pub fn sample_stream(
    replay: Arc<Replay>,
    requests: Streaming<SampleRequest>,
) -> ReceiverStream<std::result::Result<SampleResponse, Status>> {
    // Pieces are encoded one ahead of the socket; more would only hold memory.
    let (answers, stream) = mpsc::channel(4);
    tokio::spawn(async move {
        let (waiting, handles, leases) = (JoinSet::new(), HashMap::new(), HashMap::new());
        let pump = Pump { replay, answers, waiting, handles, leases, undelivered: 0 };
        pump.run(requests).await;
    });
    ReceiverStream::new(stream)
}

/// A draw that waited, and how it ended.
struct Waited {
    request_id: u64,
    table: TableHandle,
    draw: Draw,
    begun: Instant,
    /// Taken when it is sent; left here, the samples go back.
    result: Option<Result<Vec<Drawn>>>,
}

impl Drop for Waited {
    fn drop(&mut self) {
        if let Some(Ok(drawn)) = self.result.take() {
            self.table.give_back(drawn);
        }
    }
}

struct Pump {
    replay: Arc<Replay>,
    answers: Answers,
    /// Draws that wait for a table; dropped with the pump, which withdraws them.
    waiting: JoinSet<Waited>,
    handles: HashMap<u64, AbortHandle>,
    leases: HashMap<u64, Lease>,
    /// Samples of all leases.
    undelivered: usize,
}

impl Pump {
    async fn run(mut self, mut requests: Streaming<SampleRequest>) {
        let mut open = true;
        let replay = self.replay.clone();
        let mut closed = std::pin::pin!(replay.closed());
        while open || !self.waiting.is_empty() {
            let go_on = tokio::select! {
                request = requests.next(), if open => match request {
                    Some(Ok(request)) => self.take(request).await,
                    // It is gone, or sent what cannot be read. What it has not received goes back.
                    Some(Err(status)) => {
                        let Self { answers, waiting, leases, .. } = self;
                        drop((waiting, leases));
                        let _gone = answers.send(Err(status)).await;
                        return;
                    }
                    None => {
                        open = false;
                        Ok(())
                    }
                },
                Some(waited) = self.waiting.join_next() => self.resume(waited).await,
                () = self.answers.closed() => return,
                // What waits has failed in this moment; the answers still go out.
                () = &mut closed, if open => {
                    open = false;
                    Ok(())
                }
            };
            if go_on.is_err() {
                return;
            }
        }
    }

    async fn take(&mut self, request: SampleRequest) -> std::result::Result<(), ()> {
        let request_id = request.request_id;
        match request.kind {
            Some(sample_request::Kind::Draw(draw)) => match self.begin(request_id, draw) {
                Ok(()) => Ok(()),
                Err(Begun::Failed(error)) => self.fail(request_id, &error).await,
                Err(Begun::Drawn(table, draw, drawn)) => {
                    self.send(request_id, table, &draw, drawn, Duration::ZERO).await
                }
            },
            Some(sample_request::Kind::Received(_)) => {
                if let Some(lease) = self.end_lease(request_id) {
                    lease.received();
                }
                Ok(())
            }
            Some(sample_request::Kind::Cancel(_)) => {
                drop(self.end_lease(request_id));
                if let Some(handle) = self.handles.remove(&request_id) {
                    handle.abort();
                    // What it had drawn is back before the next request is looked at, which may be for just that.
                    while !handle.is_finished() {
                        tokio::task::yield_now().await;
                    }
                }
                Ok(())
            }
            None => {
                self.fail(request_id, &Error::invalid("the request neither draws nor acknowledges nor cancels")).await
            }
        }
    }

    fn end_lease(&mut self, request_id: u64) -> Option<Lease> {
        let lease = self.leases.remove(&request_id)?;
        self.undelivered -= lease.samples();
        Some(lease)
    }

    /// Draws at once, or leaves the draw waiting.
    fn begin(&mut self, request_id: u64, draw: Draw) -> std::result::Result<(), Begun> {
        if self.leases.len() + self.handles.len() >= MAX_DRAWS {
            return Err(Begun::Failed(Error::ResourceExhausted(format!(
                "{MAX_DRAWS} draws of this stream are not received yet"
            ))));
        }
        if self.undelivered >= MAX_UNDELIVERED {
            return Err(Begun::Failed(Error::ResourceExhausted(format!(
                "{} samples of this stream are not received yet",
                self.undelivered
            ))));
        }
        if self.leases.contains_key(&request_id) || self.handles.contains_key(&request_id) {
            return Err(Begun::Failed(Error::invalid(format!("request {request_id} is under way already"))));
        }
        let table = self.replay.table(&draw.table).map_err(Begun::Failed)?.clone();
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let request =
            DrawRequest { at_least: count(draw.at_least), at_most: count(draw.at_most), ahead: count(draw.ahead) };
        match table.sample(request) {
            Call::Done(Ok(drawn)) => Err(Begun::Drawn(table, draw, drawn)),
            Call::Done(Err(error)) => Err(Begun::Failed(error)),
            Call::Waiting(waiting) => {
                let deadline = draw.timeout_ms.and_then(|ms| Instant::now().checked_add(Duration::from_millis(ms)));
                let (answers, begun) = (self.answers.clone(), Instant::now());
                let handle = self.waiting.spawn(async move {
                    let notice = |text: &str| {
                        tracing::info!("{text}");
                        let kind = Some(Kind::Notice(text.into()));
                        let _full =
                            answers.try_send(Ok(SampleResponse { request_id, kind, payload: Payload::default() }));
                    };
                    let result = waiting.result(deadline, notice).await;
                    Waited { request_id, table, draw, begun, result: Some(result) }
                });
                self.handles.insert(request_id, handle);
                Ok(())
            }
        }
    }

    async fn resume(&mut self, waited: std::result::Result<Waited, JoinError>) -> std::result::Result<(), ()> {
        // An error is a draw that was cancelled; so is one that ended in the moment it was cancelled.
        let Ok(mut waited) = waited else { return Ok(()) };
        if self.handles.remove(&waited.request_id).is_none() {
            return Ok(());
        }
        let (request_id, table) = (waited.request_id, waited.table.clone());
        match waited.result.take() {
            Some(Ok(drawn)) => {
                let time = waited.begun.elapsed();
                self.send(request_id, table, &waited.draw, drawn, time).await
            }
            Some(Err(error)) => self.fail(request_id, &error).await,
            None => Ok(()),
        }
    }

    /// Sends a batch, and keeps its samples until the client says that it has them.
    async fn send(
        &mut self,
        request_id: u64,
        table: TableHandle,
        draw: &Draw,
        drawn: Vec<Drawn>,
        waited: Duration,
    ) -> std::result::Result<(), ()> {
        let at_least = usize::try_from(draw.at_least).unwrap_or(usize::MAX);
        let gatherer = match table.stack(drawn, at_least, draw.squeeze_time) {
            Ok(gatherer) => gatherer,
            Err(error) => return self.fail(request_id, &error).await,
        };
        let header = batch_to_wire(&gatherer, &table, waited);
        let mut remaining = gatherer.remaining();
        let gatherer = Arc::new(Mutex::new(gatherer));
        let lease = Lease::new(table, gatherer.clone());
        self.undelivered += lease.samples();
        self.leases.insert(request_id, lease);
        let mut kind = Some(Kind::Batch(header));
        loop {
            let piece = remaining.min(PIECE_BYTES);
            let payload = Payload::Gather(gatherer.clone(), piece);
            self.answers.send(Ok(SampleResponse { request_id, kind: kind.take(), payload })).await.map_err(|_| ())?;
            remaining -= piece;
            if remaining == 0 {
                return Ok(());
            }
        }
    }

    async fn fail(&self, request_id: u64, error: &Error) -> std::result::Result<(), ()> {
        let kind = Some(Kind::Failure(to_failure(error)));
        let response = SampleResponse { request_id, kind, payload: Payload::default() };
        self.answers.send(Ok(response)).await.map_err(|_| ())
    }
}

/// Why a draw does not wait.
enum Begun {
    Drawn(TableHandle, Draw, Vec<Drawn>),
    Failed(Error),
}
