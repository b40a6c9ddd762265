//! The client side of the sample stream of a connection, which all callers share.

use super::named_channel::NamedChannel;
use super::sample_answers::Answers;
use super::session::Link;
use crate::replay_v1::heartbeat::spawn_heartbeat;
use crate::replay_v1::proto::{self as replay, Draw, SampleRequest, sample_request};
use crate::replay_v1::sample_response::{Kind, Payload, SampleResponse};
use crate::replay_v1::status::{from_failure, from_status};
use crate::replay_v1::wire::batch_from_wire;
use parking_lot::Mutex;
use reverb_core::{Buffer, CopiedBatch, Error, Result};
use reverb_service::Batch;
use reverb_service::warn;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// Sends draws, and delivers a batch to each caller.
#[derive(Debug)]
pub struct SampleLink {
    requests: mpsc::UnboundedSender<SampleRequest>,
    shared: Arc<Mutex<Calls>>,
    next_id: AtomicU64,
}

#[derive(Debug, Default)]
struct Calls {
    waiting: HashMap<u64, oneshot::Sender<Result<Batch>>>,
    /// The error that ended the stream. Nothing can be sent after it.
    broken: Option<Error>,
}

impl SampleLink {
    /// Opens the stream in the background.
    pub fn open(channel: NamedChannel, peer: &str, link: Arc<Link>, heartbeat: Option<Duration>) -> Self {
        // Each caller waits for its batch, so there are never more queued requests than callers.
        let (requests, to_send) = mpsc::unbounded_channel();
        let shared = Arc::<Mutex<Calls>>::default();
        let (reader, peer) = (shared.clone(), peer.to_owned());
        tokio::spawn(async move {
            let error = match Answers::open(channel, to_send).await {
                Ok(answers) => read(&reader, answers, &peer).await,
                Err(status) => from_status(&status, &peer),
            };
            let error = link.note(error);
            link.set_broken();
            fail(&reader, &error);
        });
        if let Some(interval) = heartbeat {
            let (shared, requests) = (Arc::downgrade(&shared), requests.downgrade());
            spawn_heartbeat(interval, move || {
                let (shared, requests) = (shared.upgrade()?, requests.upgrade()?);
                let waits = !shared.lock().waiting.is_empty();
                if waits { requests.send(SampleRequest::default()).ok() } else { Some(()) }
            });
        }
        Self { requests, shared, next_id: AtomicU64::new(1) }
    }

    /// Draws a batch and waits for it. Dropping the future withdraws the draw and returns its samples to the table.
    pub async fn call(&self, draw: Draw) -> Result<Batch> {
        let mut call = self.begin(draw)?;
        let batch = call.result().await?;
        call.received()?;
        Ok(batch)
    }

    /// Requests a batch without waiting for it.
    pub fn begin(&self, draw: Draw) -> Result<DrawCall> {
        let request_id = self.next_id.fetch_add(1, Relaxed);
        let (sender, receiver) = oneshot::channel();
        {
            let mut calls = self.shared.lock();
            if let Some(error) = &calls.broken {
                return Err(error.clone());
            }
            calls.waiting.insert(request_id, sender);
        }
        let (requests, shared) = (self.requests.clone(), self.shared.clone());
        let last = sample_request::Kind::Cancel(true);
        let call = DrawCall { requests, shared, request_id, receiver, last, receipt_is_due: false };
        // If the reader has ended, it has failed this call, and the receiver gets the reason.
        call.send(sample_request::Kind::Draw(draw));
        Ok(call)
    }
}

/// A draw in progress, or a batch that has arrived and is not acknowledged. Dropping it tells the server whether the
/// batch was received. Otherwise the samples go back to their table.
#[derive(Debug)]
pub struct DrawCall {
    requests: mpsc::UnboundedSender<SampleRequest>,
    shared: Arc<Mutex<Calls>>,
    request_id: u64,
    receiver: oneshot::Receiver<Result<Batch>>,
    last: sample_request::Kind,
    /// Whether samples without a receipt go back to the table.
    receipt_is_due: bool,
}

impl DrawCall {
    /// Waits for the batch, which can be taken once. Before that, the future may be dropped and the function called
    /// again.
    pub async fn result(&mut self) -> Result<Batch> {
        let answer = (&mut self.receiver).await;
        let batch = answer.unwrap_or_else(|_| Err(Error::Internal("a call ended without an answer".into())))?;
        self.receipt_is_due = !batch.receipt_may_wait;
        Ok(batch)
    }

    /// Whether the batch has arrived.
    pub fn is_ready(&self) -> bool {
        !self.receiver.is_empty()
    }

    /// Acknowledges the samples, so that they do not go back to their table.
    ///
    /// # Errors
    /// The error that ended the stream, if the samples went back with it.
    pub fn received(mut self) -> Result<()> {
        if self.receipt_is_due
            && let Some(error) = &self.shared.lock().broken
        {
            return Err(error.clone());
        }
        self.last = sample_request::Kind::Received(true);
        Ok(())
    }

    fn send(&self, kind: sample_request::Kind) {
        let _gone = self.requests.send(SampleRequest { request_id: self.request_id, kind: Some(kind) });
    }
}

impl Drop for DrawCall {
    fn drop(&mut self) {
        self.shared.lock().waiting.remove(&self.request_id);
        self.send(self.last.clone());
    }
}

fn fail(shared: &Mutex<Calls>, error: &Error) {
    let waiting = {
        let mut calls = shared.lock();
        calls.broken = Some(error.clone());
        std::mem::take(&mut calls.waiting)
    };
    for call in waiting.into_values() {
        let _withdrawn = call.send(Err(error.clone()));
    }
}

/// A batch of which a part has arrived.
struct Incoming {
    batch: Batch,
    filled: usize,
}

impl Incoming {
    fn new(header: replay::Batch) -> Result<Self> {
        let (receipt_may_wait, waited) = (header.receipt_may_wait, Duration::from_micros(header.waited_us));
        let (info, layout, signature_token) = batch_from_wire(header)?;
        let too_large =
            || Error::ResourceExhausted(format!("cannot allocate memory for a batch of {} bytes", layout.size_bytes));
        let buffer = Buffer::try_new(layout.size_bytes).ok_or_else(too_large)?;
        let batch = Batch::new(CopiedBatch { info, layout, buffer }, signature_token);
        let batch = Batch { receipt_may_wait, waited, ..batch };
        Ok(Self { batch, filled: 0 })
    }

    fn add(&mut self, bytes: &[u8]) -> Result<()> {
        let target = self.batch.buffer.as_uninit_mut().get_mut(self.filled..self.filled + bytes.len());
        let target =
            target.ok_or_else(|| Error::DataLoss("a batch has more bytes than its columns describe".into()))?;
        // SAFETY: both are `bytes.len()` long, and nobody else uses the buffer yet.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), target.as_mut_ptr().cast(), bytes.len()) };
        self.filled += bytes.len();
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.filled == self.batch.buffer.len()
    }
}

async fn read(shared: &Mutex<Calls>, mut answers: Answers, peer: &str) -> Error {
    let mut incoming = HashMap::new();
    loop {
        let response = match answers.next().await {
            Ok(Some(response)) => response,
            Ok(None) => {
                return Error::Unavailable(format!(
                    "the connection to the server at {peer} was lost before it sent the batch"
                ));
            }
            Err(status) => return from_status(&status, peer),
        };
        let request_id = response.request_id;
        if let Some(result) = take(&mut incoming, response) {
            incoming.remove(&request_id);
            let call = shared.lock().waiting.remove(&request_id);
            if let Some(call) = call {
                // A caller that does not wait any more has withdrawn the draw, and the server takes the samples back.
                let _withdrawn = call.send(result);
            }
        }
    }
}

/// Processes a message. Returns the result of the draw if this message completes it.
fn take(incoming: &mut HashMap<u64, Incoming>, response: SampleResponse) -> Option<Result<Batch>> {
    let SampleResponse { request_id, kind, payload } = response;
    match kind {
        Some(Kind::Failure(failure)) => return Some(Err(from_failure(failure))),
        Some(Kind::Notice(notice)) => {
            warn(&notice);
            return None;
        }
        Some(Kind::Batch(header)) => match Incoming::new(header) {
            Ok(begun) => {
                incoming.insert(request_id, begun);
            }
            Err(error) => return Some(Err(error)),
        },
        None => {}
    }
    let Payload::Bytes(bytes) = payload else { return None };
    let batch = incoming.get_mut(&request_id)?;
    if let Err(error) = batch.add(&bytes) {
        return Some(Err(error));
    }
    if !batch.is_complete() {
        return None;
    }
    incoming.remove(&request_id).map(|Incoming { batch, .. }| Ok(Batch { arrived: Instant::now(), ..batch }))
}
