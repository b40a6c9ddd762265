//! A stream of samples from a server of dm-reverb, which answers one request at a time.

use super::responses::Responses;
use crate::dm_reverb::proto::{SampleStreamRequest, SampleStreamResponse};
use crate::dm_reverb::rpc::reverb_service_client::ReverbServiceClient;
use crate::transport::authorized::Channel;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Status;

/// An open stream. Dropping it cancels it.
#[derive(Debug)]
pub struct SampleLink {
    requests: mpsc::UnboundedSender<SampleStreamRequest>,
    responses: Responses<SampleStreamResponse>,
}

impl SampleLink {
    /// Opens a stream with its first request.
    pub fn open(mut service: ReverbServiceClient<Channel>) -> Self {
        // A stream has at most one request that is not answered.
        let (requests, to_send) = mpsc::unbounded_channel();
        let opening = async move { service.sample_stream(UnboundedReceiverStream::new(to_send)).await };
        Self { requests, responses: Responses::Opening(Box::pin(opening)) }
    }

    /// Sends a request. All responses to the one before must have been received.
    pub fn request(&self, request: SampleStreamRequest) {
        // If the stream has ended, the next response says so.
        let _ended = self.requests.send(request);
    }

    /// Waits for the next response. `None` if the server has ended the stream.
    ///
    /// # Errors
    /// The status with which the stream ended.
    pub async fn next(&mut self) -> Result<Option<SampleStreamResponse>, Status> {
        self.responses.next().await
    }

    /// Whether nothing has arrived since the last response that was expected: not even the end of the stream.
    pub fn is_quiet(&mut self) -> bool {
        self.responses.are_quiet()
    }
}
