//! Calls of our service with arbitrary bytes as messages, and a server that answers with arbitrary bytes.

use bytes::{Buf, BufMut, Bytes};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::{Service, http};
use tonic::server::NamedService;
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};

const SERVICE: &str = "reverb.replay.v1.Replay";

/// Passes bytes on as they are.
#[derive(Debug, Clone, Copy)]
pub struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, target: &mut EncodeBuf<'_>) -> Result<(), Status> {
        target.put(message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, source: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(source.copy_to_bytes(source.remaining())))
    }
}

/// Calls a method with a stream of messages, and returns the answers. A method of another service is a path.
pub async fn call(
    channel: &Channel,
    method: &str,
    messages: impl Stream<Item = Bytes> + Send + 'static,
) -> Result<Streaming<Bytes>, Status> {
    let mut client = Grpc::new(channel.clone()).max_decoding_message_size(usize::MAX);
    client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let path = if method.starts_with('/') { method.to_owned() } else { format!("/{SERVICE}/{method}") };
    let path = PathAndQuery::try_from(path).unwrap();
    client.streaming(Request::new(messages), path, Raw).await.map(Response::into_inner)
}

/// Answers each call with the messages for its method. The stream ends after them.
#[derive(Debug, Clone, Default)]
pub struct FakeServer {
    pub answers: Arc<Mutex<Answers>>,
}

/// A fake server that has the service of dm-reverb only.
#[derive(Debug, Clone, Default)]
pub struct FakeDmServer(pub FakeServer);

/// The messages that a fake server sends.
#[derive(Debug, Clone, Default)]
pub struct Answers {
    /// The answer to the first call of a client.
    pub hello: Bytes,
    /// The method of the other messages.
    pub method: &'static str,
    pub messages: Vec<Bytes>,
}

impl NamedService for FakeServer {
    const NAME: &'static str = SERVICE;
}

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl Service<http::Request<Body>> for FakeServer {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Boxed<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let Answers { hello, method, messages } = self.answers.lock().unwrap().clone();
        let called = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        let (messages, waits) = match &*called {
            "Hello" => (vec![hello], false),
            called if called == method => (messages, !matches!(called, "Peek" | "Get" | "Info" | "ServerInfo")),
            "ServerInfo" => (vec![hello], false),
            _ => (Vec::new(), true),
        };
        let talk = Talk { messages, waits };
        Box::pin(async move { Ok(tonic::server::Grpc::new(Raw).streaming(talk, request).await) })
    }
}

impl NamedService for FakeDmServer {
    const NAME: &'static str = "deepmind.reverb.ReverbService";
}

impl Service<http::Request<Body>> for FakeDmServer {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Boxed<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        self.0.call(request)
    }
}

/// One call of a fake server.
struct Talk {
    messages: Vec<Bytes>,
    /// Whether the answers follow the first request.
    waits: bool,
}

impl Service<Request<Streaming<Bytes>>> for Talk {
    type Response = Response<ReceiverStream<Result<Bytes, Status>>>;
    type Error = Status;
    type Future = Boxed<Result<Self::Response, Status>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Streaming<Bytes>>) -> Self::Future {
        let messages = std::mem::take(&mut self.messages);
        let waits = self.waits;
        let (answers, stream) = mpsc::channel(1);
        tokio::spawn(async move {
            let mut requests = request.into_inner();
            if waits {
                let _first = requests.message().await;
            }
            for message in messages {
                if answers.send(Ok(message)).await.is_err() {
                    return;
                }
            }
        });
        // The client waits for the beginning of the answer before it sends a request.
        Box::pin(std::future::ready(Ok(Response::new(ReceiverStream::new(stream)))))
    }
}
