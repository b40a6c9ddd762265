//! A client of dm-reverb's service that sends arbitrary messages.

use prost::Message;
use reverb_net::dm_reverb::proto::{SampleStreamRequest, Timeout};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

pub async fn channel(port: u16) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{port}")).unwrap();
    endpoint.initial_stream_window_size(8 << 20).initial_connection_window_size(16 << 20).connect().await.unwrap()
}

/// A stream of a method. Dropping it resets it.
pub struct Conversation<Q, A> {
    pub requests: mpsc::UnboundedSender<Q>,
    pub responses: Streaming<A>,
}

impl<Q: Message + 'static, A: Message + Default + 'static> Conversation<Q, A> {
    /// Opens a stream of a method of the service.
    pub async fn open(channel: &Channel, method: &'static str) -> Self {
        let (requests, stream) = mpsc::unbounded_channel();
        let mut grpc = tonic::client::Grpc::new(channel.clone()).max_decoding_message_size(usize::MAX);
        grpc.ready().await.unwrap();
        let path = PathAndQuery::from_static(method);
        let stream = Request::new(UnboundedReceiverStream::new(stream));
        let responses = grpc.streaming(stream, path, ProstCodec::<Q, A>::default()).await.unwrap().into_inner();
        Self { requests, responses }
    }

    pub fn send(&self, request: Q) {
        self.requests.send(request).unwrap();
    }

    pub async fn answer(&mut self) -> Result<A, Status> {
        self.responses.message().await.map(|response| response.expect("the stream has ended without a word"))
    }
}

/// A sample stream. `A` is the type of its responses.
pub type Samples<A> = Conversation<SampleStreamRequest, A>;

pub async fn samples<A: Message + Default + 'static>(channel: &Channel) -> Samples<A> {
    Conversation::open(channel, "/deepmind.reverb.ReverbService/SampleStream").await
}

/// Asks for samples. A timeout of `None` is a missing field.
pub fn sample(table: &str, num_samples: i64, timeout_ms: Option<i64>) -> SampleStreamRequest {
    let rate_limiter_timeout = timeout_ms.map(|milliseconds| Timeout { milliseconds });
    SampleStreamRequest { table: table.into(), num_samples, rate_limiter_timeout }
}
