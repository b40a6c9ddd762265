//! Counts the calls that a server answers, by method and result.

use reverb_observe::Calls;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tonic::Code;
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, Request, Response};
use tonic::codegen::{BoxFuture, Service};
use tower::Layer;

include!(concat!(env!("OUT_DIR"), "/methods.rs"));

/// Counts the calls of the services behind it.
#[derive(Debug, Clone)]
pub struct CountCalls(pub Arc<Calls>);

impl<S> Layer<S> for CountCalls {
    type Service = Counted<S>;

    fn layer(&self, service: S) -> Counted<S> {
        Counted { service, calls: self.0.clone() }
    }
}

/// A service whose calls are counted.
#[derive(Debug, Clone)]
pub struct Counted<S> {
    service: S,
    calls: Arc<Calls>,
}

impl<S> Service<Request<Body>> for Counted<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<CountedBody>;
    type Error = Infallible;
    type Future = BoxFuture<Response<CountedBody>, Infallible>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let method = self.calls.find(request.uri().path());
        // Dropped without a result if the client withdraws the call.
        let mut call = Call { calls: self.calls.clone(), method, code: Code::Cancelled };
        let answer = self.service.call(request);
        Box::pin(async move {
            let response = answer.await?;
            // A call that fails at once has its result in the headers.
            if let Some(code) = code_of(response.headers()) {
                call.code = code;
            }
            Ok(response.map(|body| CountedBody { body, call }))
        })
    }
}

/// A call that is counted when it is dropped.
#[derive(Debug)]
struct Call {
    calls: Arc<Calls>,
    method: usize,
    code: Code,
}

impl Drop for Call {
    fn drop(&mut self) {
        self.calls.count(self.method, self.code as usize);
    }
}

/// The answers of a call, whose trailers have the result.
#[derive(Debug)]
pub struct CountedBody {
    body: Body,
    call: Call,
}

impl hyper::body::Body for CountedBody {
    type Data = bytes::Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Self::Data>, Self::Error>>> {
        let Self { body, call } = self.get_mut();
        let frame = std::task::ready!(Pin::new(body).poll_frame(context));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(trailers) = frame.trailers_ref() {
                    call.code = code_of(trailers).unwrap_or(Code::Unknown);
                }
            }
            Some(Err(status)) => call.code = status.code(),
            // Something that is not gRPC has no trailers.
            None if call.code == Code::Cancelled => call.code = Code::Unknown,
            None => {}
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}

fn code_of(headers: &HeaderMap) -> Option<Code> {
    headers.get("grpc-status").map(|value| Code::from_bytes(value.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_share_places() {
        let calls = Calls::new(&METHODS);
        let name = |path: &str| METHODS[calls.find(path)];
        assert_eq!(name("/reverb.replay.v1.Replay/Insert"), ("reverb.replay.v1.Replay", "Insert"));
        assert_eq!(name("/deepmind.reverb.ReverbService/Reset"), ("deepmind.reverb.ReverbService", "Reset"));
        assert_eq!(name("/grpc.health.v1.Health/Watch"), ("grpc.health.v1.Health", "Watch"));
        assert_eq!(name("/reverb.replay.v1.Replay/Nothing"), ("reverb.replay.v1.Replay", "other"));
        for path in ["/", "", "*", "/other", "/x/y", "/reverb.replay.v1/Insert", "/reverb.replay.v1.Replay"] {
            assert_eq!(name(path), ("other", "other"), "{path}");
        }
        assert!(METHODS.is_sorted());
    }

    #[test]
    fn each_code_has_a_name() {
        for (number, name) in reverb_observe::CODES.iter().enumerate() {
            let debug = format!("{:?}", Code::from(number as i32));
            assert_eq!(debug.replace("Cancelled", "Canceled").replace("Ok", "OK"), *name);
        }
    }
}
