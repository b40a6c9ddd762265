//! The server side of a sample stream. It answers one request after another, each with as many samples as it asks for.
//!
//! The stream draws only when the connection has room for a response, so a slow client holds up neither memory nor
//! samples that others wait for. Samples count as delivered once the connection takes their response. If the client
//! disconnects before, they return to their table.

use super::client_names::NAME_OF_CLIENTS;
use super::encoded_chunks::EncodedChunks;
use super::sample_parts::SampleParts;
use crate::dm_reverb::proto::sample_stream_response::SampleEntry;
use crate::dm_reverb::proto::{SampleInfo, SampleStreamRequest, SampleStreamResponse};
use crate::dm_reverb::status::{stopped, to_status};
use bytes::Bytes;
use reverb_core::{Drawn, Error, Result};
use reverb_formats::item::ItemEncoder;
use reverb_service::lease::Lease;
use reverb_service::{Call, DrawRequest, OpenStream, Peer, Replay, StreamKind, TIMED_OUT, TableHandle, Waiting};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio_stream::{Stream, StreamExt};
use tonic::{Status, Streaming};

// limit (Beside dm-reverb): chunks of a response to dm-reverb's clients | {}, and one chunk; the rest of a larger
// sample follows in the next response |
/// Size in bytes of the chunks of a response above which it is complete.
const RESPONSE_BYTES: usize = 2 << 20;
// limit (Beside dm-reverb): samples of a response to dm-reverb's clients | {} in the first to a request, then twice as
// many as in the one before, up to {MAX_SAMPLES} | the next response
// limit (Beside dm-reverb): samples drawn ahead for a client of dm-reverb that does not read | those of one response |
// the stream draws no more
/// Number of samples of the first response to a request, and maximum number of samples of a response.
const FIRST_SAMPLES: usize = 128;
const MAX_SAMPLES: usize = 1024;

type Response = std::result::Result<SampleStreamResponse, Status>;

/// Serves the stream as it is polled, until it is dropped.
pub fn sample_stream(
    replay: Arc<Replay>,
    peer: Arc<Peer>,
    encoded: Arc<EncodedChunks>,
    requests: Streaming<SampleStreamRequest>,
) -> SampleResponses {
    peer.introduce(NAME_OF_CLIENTS);
    let (items, item) = (ItemEncoder::default(), Vec::new());
    let writer = EntryWriter { encoded, items, item };
    let mut responses = SampleResponses(None);
    let open = replay.connections.add_stream(&peer, StreamKind::Sample);
    responses.begin_step(SampleStreamState {
        replay,
        peer,
        requests,
        writer,
        current: None,
        bytes_per_sample: None,
        _open: open,
    });
    responses
}

/// A step that makes the next response. It owns the state of the stream meanwhile.
type Step = dyn Future<Output = (SampleStreamState, std::result::Result<Option<SampleStreamResponse>, Status>)> + Send;

/// The responses of a sample stream.
pub struct SampleResponses(Option<Pin<Box<Step>>>);

impl SampleResponses {
    fn begin_step(&mut self, mut state: SampleStreamState) {
        self.0 = Some(Box::pin(async move {
            let response = state.respond().await;
            (state, response)
        }));
    }
}

impl Stream for SampleResponses {
    type Item = Response;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Response>> {
        let Some(step) = self.0.as_mut() else { return Poll::Ready(None) };
        let (state, response) = std::task::ready!(step.as_mut().poll(context));
        self.0 = None;
        if let Ok(Some(_)) = &response {
            self.begin_step(state);
        }
        Poll::Ready(response.transpose())
    }
}

/// The state of one stream between two responses.
struct SampleStreamState {
    replay: Arc<Replay>,
    peer: Arc<Peer>,
    requests: Streaming<SampleStreamRequest>,
    writer: EntryWriter,
    current: Option<Answer>,
    /// Size in bytes of the chunks of a sample, on average over the last response.
    bytes_per_sample: Option<usize>,
    _open: OpenStream,
}

/// Writes samples into responses.
struct EntryWriter {
    encoded: Arc<EncodedChunks>,
    items: ItemEncoder,
    item: Vec<u8>,
}

/// A request that is being answered.
struct Answer {
    timeout: Option<Duration>,
    table: TableHandle,
    /// Number of samples that are not drawn yet.
    left: u64,
    /// Maximum number of samples of the next response.
    at_most: usize,
    /// A draw that waits for the table. It is not awaited while a response is sent.
    waiting: Option<Waiting<Vec<Drawn>>>,
    /// Samples that were drawn but not sent.
    lease: Lease,
    /// The rest of the first of them, if a part of it was sent.
    begun: Option<SampleParts>,
    /// What ends the stream after the response before it was sent.
    failed: Option<Error>,
}

/// A response that is being filled.
#[derive(Default)]
struct Filling {
    response: SampleStreamResponse,
    /// Size of its chunks.
    chunk_bytes: usize,
    /// Number of samples that end in it.
    samples: usize,
}

impl SampleStreamState {
    /// Returns the next response; `None` if all requests are answered and the client sends no more.
    async fn respond(&mut self) -> std::result::Result<Option<SampleStreamResponse>, Status> {
        loop {
            if let Some(answer) = self.current.as_mut().filter(|answer| !answer.is_complete()) {
                let response = answer.respond(&self.peer, &mut self.writer, &mut self.bytes_per_sample).await;
                return response.map(Some).map_err(|error| status_of(&error));
            }
            self.current = None;
            let request = tokio::select! {
                request = self.requests.next() => request.transpose()?,
                () = self.replay.closed() => return Err(stopped()),
            };
            let Some(request) = request else { return Ok(None) };
            self.current = Some(self.begin(&request).map_err(|error| status_of(&error))?);
        }
    }

    fn begin(&self, request: &SampleStreamRequest) -> Result<Answer> {
        let left = u64::try_from(request.num_samples).unwrap_or(0);
        if left == 0 {
            return Err(Error::invalid(format!("`num_samples` must be > 0 (got{}).", request.num_samples)));
        }
        let table = self.replay.table(&request.table)?.clone();
        let timeout_ms = request.rate_limiter_timeout.as_ref().map_or(0, |timeout| timeout.milliseconds);
        let timeout = u64::try_from(timeout_ms).ok().filter(|&ms| ms > 0).map(Duration::from_millis);
        let lease = Lease::drawn(table.clone(), Vec::new());
        Ok(Answer { timeout, table, left, at_most: FIRST_SAMPLES, waiting: None, lease, begun: None, failed: None })
    }
}

/// Returns the status with which a stream fails.
fn status_of(error: &Error) -> Status {
    match error {
        Error::DeadlineExceeded(_) => Status::deadline_exceeded(TIMED_OUT),
        error => to_status(error),
    }
}

impl Answer {
    fn is_complete(&self) -> bool {
        self.left == 0 && self.lease.items().is_empty() && self.failed.is_none()
    }

    /// Makes the next response: of the samples that can be drawn now, up to the limits, or of the first that it waits
    /// for. Does not wait for the table once the response has a sample.
    async fn respond(
        &mut self,
        peer: &Arc<Peer>,
        writer: &mut EntryWriter,
        bytes_per_sample: &mut Option<usize>,
    ) -> Result<SampleStreamResponse> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let mut filling = Filling::default();
        if self.lease.items().is_empty() && !self.draw(self.next_count(&filling, *bytes_per_sample), peer)? {
            self.wait(peer).await?;
        }
        loop {
            let filled = self.fill(&mut filling, writer).await;
            *bytes_per_sample = filling.chunk_bytes.checked_div(filling.samples).or(*bytes_per_sample);
            let has_room = filling.samples < self.at_most && filling.chunk_bytes <= RESPONSE_BYTES;
            let is_empty = self.lease.items().len() == filling.samples;
            let go_on = match filled {
                Ok(()) if is_empty && has_room && self.left > 0 => {
                    self.draw(self.next_count(&filling, *bytes_per_sample), peer)
                }
                Ok(()) => Ok(false),
                Err(error) => Err(error),
            };
            match go_on {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) if filling.samples == 0 => return Err(error),
                Err(error) => {
                    self.failed = Some(error);
                    break;
                }
            }
        }
        self.lease.received_first(filling.samples)?;
        self.at_most = (2 * self.at_most).min(MAX_SAMPLES);
        Ok(filling.response)
    }

    /// Returns how many samples to draw next: one, if their size is not known.
    fn next_count(&self, filling: &Filling, bytes_per_sample: Option<usize>) -> usize {
        let room = RESPONSE_BYTES.saturating_sub(filling.chunk_bytes);
        let fitting = bytes_per_sample.map_or(1, |size_bytes| room.checked_div(size_bytes).unwrap_or(MAX_SAMPLES));
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        fitting.max(1).min(self.at_most - filling.samples).min(left)
    }

    /// Draws up to `count` samples. Returns false if the draw must wait.
    fn draw(&mut self, count: usize, peer: &Arc<Peer>) -> Result<bool> {
        if self.waiting.is_some() {
            return Ok(false);
        }
        let request = DrawRequest { at_least: 1, at_most: count, ahead: 0, is_ahead: false };
        match self.table.sample(request, peer) {
            Call::Done(drawn) => self.add(drawn?),
            Call::Waiting(waiting) => {
                self.waiting = Some(waiting);
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Waits for a draw that has begun.
    async fn wait(&mut self, peer: &Arc<Peer>) -> Result<()> {
        let Some(waiting) = self.waiting.take() else { return Ok(()) };
        let deadline = self.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let drawn = waiting.result(deadline, |notice| notice.tell(peer)).await?;
        self.add(drawn);
        Ok(())
    }

    fn add(&mut self, drawn: Vec<Drawn>) {
        self.left = self.left.saturating_sub(drawn.len() as u64);
        self.lease.add(drawn);
    }

    /// Puts drawn samples into a response until it is complete.
    async fn fill(&mut self, filling: &mut Filling, writer: &mut EntryWriter) -> Result<()> {
        for drawn in &self.lease.items()[filling.samples..] {
            if filling.chunk_bytes > RESPONSE_BYTES {
                break;
            }
            let (mut parts, info) = match self.begun.take() {
                Some(parts) => (parts, None),
                None => {
                    let parts = SampleParts::new(&drawn.trajectory);
                    let info = writer.info(&parts, drawn, self.table.name())?;
                    (parts, Some(info))
                }
            };
            let mut entry = SampleEntry { info, ..SampleEntry::default() };
            while filling.chunk_bytes <= RESPONSE_BYTES
                && let Some(message) = parts.next_message(&writer.encoded).await?
            {
                filling.chunk_bytes += message.len();
                entry.data.push(message);
            }
            entry.end_of_sequence = parts.is_complete();
            if entry.end_of_sequence {
                filling.samples += 1;
            } else {
                self.begun = Some(parts);
            }
            filling.response.entries.push(entry);
        }
        Ok(())
    }
}

impl EntryWriter {
    fn info(&mut self, parts: &SampleParts, drawn: &Drawn, table: &str) -> Result<SampleInfo> {
        self.item.clear();
        parts.encode_item(drawn, table, &mut self.items, &mut self.item)?;
        Ok(SampleInfo {
            item: Bytes::copy_from_slice(&self.item),
            probability: drawn.probability,
            table_size: drawn.table_size,
            rate_limited: drawn.rate_limited,
        })
    }
}
