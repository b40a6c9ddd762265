//! A request for samples, and the part of its answer received so far.

use super::chunk_cache::ChunkCache;
use super::sample_link::SampleLink;
use super::sample_reader::SampleReader;
use crate::dm_reverb::proto::{SampleStreamRequest, SampleStreamResponse};
use crate::dm_reverb::status::from_status;
use bytes::Bytes;
use reverb_core::{Drawn, Error, Result};
use reverb_service::TIMED_OUT;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tonic::{Code, Status};

/// Time to wait, after the deadline of a draw, for the answer of the server that the deadline has passed.
const GRACE: Duration = Duration::from_secs(2);
/// Number of bytes from which the chunks of a response are decoded by another thread.
const LARGE_RESPONSE: usize = 1 << 20;

/// A request for samples on a stream of its own, and the samples received but not yet taken.
#[derive(Debug)]
pub struct Answering {
    stream: SampleLink,
    /// `None` while another thread decodes.
    reader: Option<SampleReader>,
    decoding: Option<Decoding>,
    samples: VecDeque<Drawn>,
    /// Number of samples that have not arrived.
    missing: usize,
    /// Whether the draw that sent the request was given up. The server may know another deadline than the present one.
    is_resumed: bool,
    /// Whether nothing more will arrive.
    is_over: bool,
}

#[derive(Debug)]
enum Decoding {
    Elsewhere(JoinHandle<Decoded>),
    Done(Box<Decoded>),
}

#[derive(Debug)]
struct Decoded {
    reader: SampleReader,
    samples: Vec<Drawn>,
    result: Result<()>,
}

/// What has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// A part of the answer.
    Part,
    /// The end of the stream, before all samples had arrived.
    End,
    /// Nothing until the deadline.
    Late,
}

impl Answering {
    /// Sends a request.
    pub fn send(stream: SampleLink, request: SampleStreamRequest, cache: Arc<ChunkCache>) -> Self {
        let missing = usize::try_from(request.num_samples).unwrap_or_default();
        stream.request(request);
        Self {
            stream,
            reader: Some(SampleReader::new(cache)),
            decoding: None,
            samples: VecDeque::new(),
            missing,
            is_resumed: false,
            is_over: false,
        }
    }

    /// Whether another draw sent the request.
    pub fn is_resumed(&self) -> bool {
        self.is_resumed
    }

    /// Whether all samples have arrived and were taken.
    pub fn is_complete(&self) -> bool {
        self.missing == 0 && self.samples.is_empty()
    }

    /// Returns the stream, for the next request, if the answer is complete.
    pub fn into_stream(self) -> SampleLink {
        self.stream
    }

    /// Takes up to `wanted` samples that have arrived.
    pub fn take(&mut self, wanted: usize) -> impl Iterator<Item = Drawn> {
        self.samples.drain(..wanted.min(self.samples.len()))
    }

    /// Returns the samples that have arrived, and the rest of the answer if more may arrive.
    pub fn give_up(mut self) -> (VecDeque<Drawn>, Option<Self>) {
        self.is_resumed = true;
        let samples = std::mem::take(&mut self.samples);
        (samples, (self.missing > 0 && !self.is_over).then_some(self))
    }

    /// Waits for the next part of the answer. The future may be dropped, and the function called again.
    ///
    /// # Errors
    /// The status with which the stream ended, or [`Error::DataLoss`] if the server sends something else than samples.
    pub async fn read(&mut self, peer: &str, deadline: Option<Instant>, has_samples: bool) -> Result<Answer> {
        let answer = self.read_part(peer, deadline, has_samples).await;
        self.is_over = !matches!(answer, Ok(Answer::Part | Answer::Late));
        answer
    }

    async fn read_part(&mut self, peer: &str, deadline: Option<Instant>, has_samples: bool) -> Result<Answer> {
        if self.decoding.is_none() {
            // The server says that the time is over, unless it knows another deadline or has sent a part.
            let grace = if has_samples || self.is_resumed { Duration::ZERO } else { GRACE };
            let limit = deadline.and_then(|deadline| deadline.checked_add(grace));
            match within(limit, self.stream.next()).await {
                None => return Ok(Answer::Late),
                Some(Ok(None)) => return Ok(Answer::End),
                Some(Ok(Some(response))) => self.decode(response),
                Some(Err(status)) => return Err(error_of(&status, peer)),
            }
        }
        self.decoded().await.map_err(|error| {
            let reason = match error {
                Error::DataLoss(reason) | Error::InvalidArgument(reason) => reason,
                Error::MessageTooLarge { what, size_bytes, limit_bytes, .. } => {
                    format!("{what} has {size_bytes} bytes, more than the maximum of {limit_bytes}")
                }
                error => return error,
            };
            Error::DataLoss(format!("the server at {peer} sent a sample that cannot be used: {reason}"))
        })?;
        Ok(Answer::Part)
    }

    /// Decodes a response on another thread, if it is large, so that other calls go on.
    fn decode(&mut self, response: SampleStreamResponse) {
        let Some(mut reader) = self.reader.take() else { return };
        let chunks = response.entries.iter().flat_map(|entry| &entry.data);
        let is_large = chunks.map(Bytes::len).sum::<usize>() > LARGE_RESPONSE;
        let missing = self.missing;
        let decode = move || {
            let mut samples = Vec::new();
            let result = reader.read(response, missing, &mut samples);
            Decoded { reader, samples, result }
        };
        self.decoding = Some(match is_large {
            true => Decoding::Elsewhere(tokio::task::spawn_blocking(decode)),
            false => Decoding::Done(Box::new(decode())),
        });
    }

    /// Waits for the samples of a response, and keeps them. The future may be dropped.
    async fn decoded(&mut self) -> Result<()> {
        if let Some(Decoding::Elsewhere(task)) = &mut self.decoding {
            let decoded = task.await.map_err(|error| Error::Internal(error.to_string()))?;
            self.decoding = Some(Decoding::Done(Box::new(decoded)));
        }
        let Some(Decoding::Done(decoded)) = self.decoding.take() else { return Ok(()) };
        self.reader = Some(decoded.reader);
        self.missing -= decoded.samples.len();
        self.samples.extend(decoded.samples);
        decoded.result
    }
}

/// Returns the error with which a stream ended.
fn error_of(status: &Status, peer: &str) -> Error {
    match status.code() {
        Code::DeadlineExceeded => late(peer),
        _ => from_status(status, peer),
    }
}

/// Returns the error of a draw that got nothing in time.
pub fn late(peer: &str) -> Error {
    Error::DeadlineExceeded(format!("the draw waited, and the server at {peer} does not say for what\n{TIMED_OUT}"))
}

/// Awaits a future until a limit. `None` if that passes first.
pub async fn within<T>(limit: Option<Instant>, future: impl Future<Output = T>) -> Option<T> {
    match limit {
        None => Some(future.await),
        Some(limit) => tokio::time::timeout_at(limit.into(), future).await.ok(),
    }
}
