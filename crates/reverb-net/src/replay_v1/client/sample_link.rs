//! The client side of the sample stream of a connection, which all callers share.

use super::calls::{Calls, SharedStream, answer};
use super::named_channel::NamedChannel;
use super::receipts::Receipts;
use super::sample_answers::Answers;
use super::session::Link;
use crate::replay_v1::headers::{SAMPLE_STREAM, hex};
use crate::replay_v1::proto::{self as replay, Draw, SampleRequest, sample_request};
use crate::replay_v1::sample_response::{Kind, Payload, SampleResponse};
use crate::replay_v1::status::{from_failure, from_status};
use crate::replay_v1::wire::batch_from_wire;
use reverb_core::{Buffer, CopiedBatch, Error, Result};
use reverb_service::Batch;
use reverb_service::warn;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// Sends draws, and delivers a batch to each caller.
#[derive(Debug)]
pub struct SampleLink {
    stream: SharedStream<SampleRequest, Batch>,
    receipts: Arc<Receipts>,
}

impl SampleLink {
    /// Opens the stream in the background.
    pub fn open(channel: &NamedChannel, peer: &str, link: Arc<Link>, heartbeat: Option<Duration>) -> Self {
        let (peer, of_failures) = (peer.to_owned(), link.clone());
        let (requests, to_send) = mpsc::unbounded_channel();
        let (receipts, task) = Receipts::new(requests.clone());
        link.set_receipts(&receipts);
        let channel = channel.with_receipts(SAMPLE_STREAM, hex(&receipts.stream.to_be_bytes()));
        let of_stream = Arc::downgrade(&receipts);
        let stream = SharedStream::open(link, heartbeat, (requests, to_send), |requests, calls| async move {
            let _task = task;
            match Answers::open(channel, requests).await {
                Ok(answers) => read(&calls, answers, &peer, &of_failures, &of_stream).await,
                Err(status) => from_status(&status, &peer),
            }
        });
        Self { stream, receipts }
    }

    /// Requests a batch without waiting for it. The receipts that are due go out with the request.
    pub fn begin(&self, draw: Draw) -> Result<DrawCall> {
        let (request_id, receiver) = self.stream.begin()?;
        let (receipts, calls) = (self.receipts.clone(), self.stream.calls.clone());
        receipts.send_with_call();
        receipts.send_request(request_id, sample_request::Kind::Draw(draw));
        Ok(DrawCall { receipts, calls, request_id, receiver, receipt_is_due: false, is_received: false })
    }

    /// Sends the receipts that go out with another call.
    pub fn send_receipts(&self) {
        self.receipts.send_with_call();
    }

    /// Whether the connection lives on a runtime that its callers drive.
    pub fn is_driven(&self) -> bool {
        self.receipts.is_driven()
    }
}

impl Drop for SampleLink {
    fn drop(&mut self) {
        self.receipts.close();
    }
}

/// A draw in progress, or a batch that has arrived. Dropping it withdraws the draw unless it was acknowledged: its
/// samples go back to their table.
#[derive(Debug)]
pub struct DrawCall {
    receipts: Arc<Receipts>,
    calls: Arc<Calls<Batch>>,
    request_id: u64,
    receiver: oneshot::Receiver<Result<Batch>>,
    /// Whether samples without a receipt go back to the table.
    receipt_is_due: bool,
    is_received: bool,
}

impl DrawCall {
    /// Waits for the batch, which can be taken once. Before that, the future may be dropped and the function called
    /// again.
    pub async fn result(&mut self) -> Result<Batch> {
        let batch = answer(&mut self.receiver).await?;
        self.receipt_is_due = !batch.receipt_may_wait;
        Ok(batch)
    }

    /// Whether the batch has arrived.
    pub fn is_ready(&self) -> bool {
        !self.receiver.is_empty()
    }

    /// Acknowledges the samples, so that they do not go back to their table. The receipt leaves later; with
    /// `waits`, not with the next draw. See [`Receipts`].
    ///
    /// # Errors
    /// The error that ended the stream, if the samples went back with it.
    pub fn received(&mut self, waits: bool) -> Result<()> {
        if self.is_received {
            return Ok(());
        }
        match self.calls.broken().map_or_else(|| self.receipts.add(self.request_id, waits), Err) {
            Err(error) if self.receipt_is_due => return Err(error),
            _ => self.is_received = true,
        }
        Ok(())
    }

    /// Whether the samples went back with the stream.
    pub fn is_lost(&self) -> bool {
        self.receipt_is_due && !self.is_received && (self.calls.broken().is_some() || self.receipts.have_ended())
    }

    /// Gives the samples back, also after they were acknowledged, as long as the receipt has not left.
    pub fn give_back(mut self) {
        self.is_received = self.is_received && !self.receipts.revoke(self.request_id);
    }
}

impl Drop for DrawCall {
    fn drop(&mut self) {
        self.calls.withdraw(self.request_id);
        if !self.is_received {
            self.receipts.send_request(self.request_id, sample_request::Kind::Cancel(true));
        }
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

async fn read(calls: &Calls<Batch>, mut answers: Answers, peer: &str, link: &Link, receipts: &Weak<Receipts>) -> Error {
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
        if let Some(Kind::Settle(_)) = response.kind {
            let stops =
                || Error::Unavailable(format!("the server at {peer} stops; the samples are back in their table"));
            receipts.upgrade().inspect(|receipts| receipts.end(stops()));
            continue;
        }
        if let Some(result) = take(&mut incoming, response) {
            incoming.remove(&request_id);
            // The server takes the samples of a draw back that was withdrawn.
            calls.answer(request_id, result.map_err(|error| link.note(error)));
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
        Some(Kind::Settle(_)) | None => {}
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
