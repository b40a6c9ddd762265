//! The server side of a sample stream.

use crate::dm_reverb::proto::{SampleStreamRequest, SampleStreamResponse};
use crate::dm_reverb::status::to_status;
use reverb_core::Error;
use reverb_service::{Peer, Replay};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

/// Serves the stream in a separate task, which ends when the client disconnects.
pub fn sample_stream(
    _replay: Arc<Replay>,
    _peer: Arc<Peer>,
    _requests: Streaming<SampleStreamRequest>,
) -> ReceiverStream<Result<SampleStreamResponse, Status>> {
    let (answers, stream) = mpsc::channel(1);
    let _full = answers.try_send(Err(to_status(&Error::Unimplemented("samples of dm-reverb".into()))));
    ReceiverStream::new(stream)
}
