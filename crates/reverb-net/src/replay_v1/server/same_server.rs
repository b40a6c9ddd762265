//! Refuses calls and streams that a balancer has separated from the rest of their client, and lets calls wait for the
//! receipts that their client has sent before.
//!
//! A client says `Hello`, and opens its streams afterwards. A balancer of HTTP/2 may send each of them to another server,
//! where a change of priorities would miss its items without an error. So a client names the server that it means, and
//! the others refuse before they read a message.

use crate::replay_v1::headers::{RECEIPTS, SERVER, hex, receipts_of, shown};
use crate::replay_v1::status::to_status;
use reverb_core::Error;
use reverb_service::Receipts;
use std::convert::Infallible;
use std::future::ready;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tonic::body::Body;
use tonic::codegen::http::{HeaderValue, Request, Response};
use tonic::codegen::{BoxFuture, Service};
use tonic::server::NamedService;

// limit (Draws): time for which a call waits for receipts that its client has sent before it | {:time} | it is served
/// Maximum time for which a call waits for receipts that its client has sent before it.
const RECEIPT_TIME: Duration = Duration::from_secs(1);

/// A service that serves only calls for this server, and calls of clients that do not name one.
#[derive(Debug, Clone)]
pub struct SameServer<S> {
    service: S,
    id: HeaderValue,
    receipts: Arc<Receipts>,
}

impl<S> SameServer<S> {
    /// Wraps the service of the server with this id.
    pub fn new(service: S, id: &[u8], receipts: Arc<Receipts>) -> Self {
        Self { service, id: hex(id), receipts }
    }

    fn refusal(&self, expected: &HeaderValue) -> Error {
        let text = |id: &HeaderValue| shown(id.to_str().unwrap_or("?"));
        Error::SplitClient { expected: text(expected), reached: text(&self.id) }
    }
}

impl<S: NamedService> NamedService for SameServer<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for SameServer<S>
where
    S: Service<
            Request<Body>,
            Response = Response<Body>,
            Error = Infallible,
            Future = BoxFuture<Response<Body>, Infallible>,
        > + Clone
        + Send
        + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Response<Body>, Infallible>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        match request.headers().get(SERVER) {
            Some(expected) if *expected != self.id => {
                let status = to_status(&self.refusal(expected));
                tracing::info!("refused a call of {}: {}", request.uri().path(), status.message());
                Box::pin(ready(Ok(status.into_http())))
            }
            _ => match request.headers().get(RECEIPTS).map(receipts_of) {
                None => self.service.call(request),
                Some(counts) => {
                    let (mut service, receipts) = (self.service.clone(), self.receipts.clone());
                    Box::pin(async move {
                        let processed = async {
                            for (number, count) in counts {
                                receipts.wait_for(number, count).await;
                            }
                        };
                        let _late = tokio::time::timeout(RECEIPT_TIME, processed).await;
                        service.call(request).await
                    })
                }
            },
        }
    }
}
