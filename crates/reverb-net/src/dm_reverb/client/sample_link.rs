//! A stream of samples from a server of dm-reverb, which answers one request at a time.

use crate::dm_reverb::proto::{SampleStreamRequest, SampleStreamResponse};
use crate::dm_reverb::rpc::reverb_service_client::ReverbServiceClient;
use std::fmt::{self, Debug, Formatter};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Channel;
use tonic::{Response, Status, Streaming};

type Opened = Result<Response<Streaming<SampleStreamResponse>>, Status>;

/// An open stream. Dropping it cancels it.
pub struct SampleLink {
    requests: mpsc::UnboundedSender<SampleStreamRequest>,
    responses: Responses,
}

enum Responses {
    /// The server sends its headers with its first response.
    Opening(Pin<Box<dyn Future<Output = Opened> + Send>>),
    Open(Box<Streaming<SampleStreamResponse>>),
    Ended,
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
        loop {
            match &mut self.responses {
                Responses::Opening(opening) => match opening.await {
                    Ok(opened) => self.responses = Responses::Open(Box::new(opened.into_inner())),
                    Err(status) => {
                        self.responses = Responses::Ended;
                        return Err(status);
                    }
                },
                Responses::Open(responses) => return responses.message().await,
                Responses::Ended => return Ok(None),
            }
        }
    }

    /// Whether nothing has arrived since the last response that was expected: not even the end of the stream.
    pub fn is_quiet(&mut self) -> bool {
        let Responses::Open(responses) = &mut self.responses else { return false };
        let mut next = std::pin::pin!(responses.message());
        matches!(next.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Pending)
    }
}

impl Debug for SampleLink {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SampleLink").finish_non_exhaustive()
    }
}
