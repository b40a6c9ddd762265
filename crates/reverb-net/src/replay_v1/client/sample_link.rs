//! The client side of the sample stream of a connection, which all callers share.

use super::calls::{Calls, SharedStream};
use super::draw_call::{Answer, Asked, DrawCall};
use super::named_channel::NamedChannel;
use super::race_call::{RaceCall, RaceRequest};
use super::receipts::Receipts;
use super::sample_answers::Answers;
use super::segments::Segments;
use super::session::Link;
use super::stock_call::{StockCall, StockRequest};
use crate::replay_v1::headers::{SAMPLE_STREAM, hex};
use crate::replay_v1::proto::{self as replay, Draw, SampleRequest, sample_request};
use crate::replay_v1::sample_response::{Kind, Payload, SampleResponse};
use crate::replay_v1::status::{from_failure, from_status};
use crate::replay_v1::wire::batch_from_wire;
use crate::transport::passing::Passing;
use reverb_core::{Buffer, CopiedBatch, Error, Result};
use reverb_service::Batch;
use reverb_service::warn;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Sends draws, and delivers a batch to each caller.
#[derive(Debug)]
pub struct SampleLink {
    stream: SharedStream<SampleRequest, Answer>,
    receipts: Arc<Receipts>,
}

impl SampleLink {
    /// Opens the stream in the background. With `shared`, the data of batches may lie in so many bytes of shared memory at
    /// most, whose descriptors come with the connection.
    pub fn open(
        channel: &NamedChannel,
        peer: &str,
        link: Arc<Link>,
        heartbeat: Option<Duration>,
        shared: Option<(Arc<Passing>, u64)>,
    ) -> Self {
        let (peer, of_failures) = (peer.to_owned(), link.clone());
        let (requests, to_send) = mpsc::unbounded_channel();
        let (receipts, task) = Receipts::new(requests.clone());
        link.set_receipts(&receipts);
        let channel = channel.with_receipts(SAMPLE_STREAM, hex(&receipts.stream.to_be_bytes()));
        let channel = channel.with_shared(shared.as_ref().map(|(_, bytes)| *bytes));
        let segments = shared.map(|(passing, bytes)| Segments::new(passing, bytes, &requests));
        let of_stream = Arc::downgrade(&receipts);
        let stream = SharedStream::open(link, heartbeat, (requests, to_send), |requests, calls| async move {
            let _task = task;
            match Answers::open(channel, requests).await {
                Ok(answers) => read(&calls, answers, &peer, &of_failures, &of_stream, segments.as_ref()).await,
                Err(status) => from_status(&status, &peer),
            }
        });
        Self { stream, receipts }
    }

    /// Requests a batch without waiting for it. The receipts that are due go out with the request.
    pub fn begin(&self, draw: Draw) -> Result<DrawCall> {
        self.ask(sample_request::Kind::Draw(draw)).map(DrawCall::of)
    }

    /// Asks for a table's part in a race without waiting for it, as [`SampleLink::begin`] does for a batch.
    pub fn race(&self, request: &RaceRequest) -> Result<RaceCall> {
        let call = self.ask(sample_request::Kind::Race(request.to_wire()))?;
        Ok(RaceCall::new(call, request.race))
    }

    /// Begins to wait for a stock of a table.
    pub fn wait(&self, request: &StockRequest) -> Result<StockCall> {
        self.ask(sample_request::Kind::Wait(request.to_wire())).map(StockCall::new)
    }

    fn ask(&self, kind: sample_request::Kind) -> Result<Asked> {
        let (request_id, receiver) = self.stream.begin()?;
        let (receipts, calls) = (self.receipts.clone(), self.stream.calls.clone());
        receipts.send_with_call();
        receipts.send_request(request_id, kind);
        Ok(Asked { receipts, calls, request_id, receiver })
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

/// A batch of which a part has arrived.
struct Incoming {
    batch: Batch,
    filled: usize,
}

impl Incoming {
    fn new(mut header: replay::Batch, segments: Option<&Arc<Segments>>) -> Result<Self> {
        let segment = header.segment.take();
        let (receipt_may_wait, waited) = (header.receipt_may_wait, Duration::from_micros(header.waited_us));
        let (info, layout, signature_token) = batch_from_wire(header)?;
        let too_large =
            || Error::ResourceExhausted(format!("cannot allocate memory for a batch of {} bytes", layout.size_bytes));
        let (buffer, filled) = match (segment, segments) {
            (None, _) => (Buffer::try_new(layout.size_bytes).ok_or_else(too_large)?, 0),
            (Some(_), Some(_)) if layout.has_strings() => {
                return Err(Error::DataLoss("text lies in shared memory, where its lengths might change".into()));
            }
            (Some(segment), Some(segments)) => (segments.open(&segment, layout.size_bytes)?, layout.size_bytes),
            (Some(_), None) => {
                return Err(Error::DataLoss("a batch lies in shared memory that was not asked for".into()));
            }
        };
        let batch = Batch::new(CopiedBatch { info, layout, buffer }, signature_token);
        let batch = Batch { receipt_may_wait, waited, ..batch };
        Ok(Self { batch, filled })
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

async fn read(
    calls: &Calls<Answer>,
    mut answers: Answers,
    peer: &str,
    link: &Link,
    receipts: &Weak<Receipts>,
    segments: Option<&Arc<Segments>>,
) -> Error {
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
        if let Some(Kind::RaceReport(report)) = &response.kind {
            link.note_foreign_keys(report.has_foreign_keys);
            link.note_largest(&report.largest);
        }
        if let Some(result) = take(&mut incoming, response, segments) {
            incoming.remove(&request_id);
            // The server takes the samples of a draw back that was withdrawn.
            calls.answer(request_id, result.map_err(|error| link.note(error)));
        }
    }
}

/// Processes a message. Returns the answer to a request if this message completes it.
fn take(
    incoming: &mut HashMap<u64, Incoming>,
    response: SampleResponse,
    segments: Option<&Arc<Segments>>,
) -> Option<Result<Answer>> {
    let SampleResponse { request_id, kind, payload } = response;
    match kind {
        Some(Kind::Failure(failure)) => return Some(Err(from_failure(failure))),
        Some(Kind::Notice(notice)) => {
            warn(&notice);
            return None;
        }
        Some(Kind::RaceReport(report)) => return Some(Ok(Answer::Report(report))),
        Some(Kind::Stocked(_)) => return Some(Ok(Answer::Stocked)),
        Some(Kind::Batch(header)) => match Incoming::new(header, segments) {
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
    let Incoming { batch, .. } = incoming.remove(&request_id)?;
    Some(Ok(Answer::Batch(Batch { arrived: Instant::now(), ..batch })))
}
