//! Lets calls in, or refuses them before a message is read: by the role that their method needs.

mod guarded;
mod needs;
mod refusals;

use super::count_calls::METHODS;
use crate::grpc::caller::Caller;
use crate::transport::socket::Introduced;
use guarded::Guarded;
use needs::Needs;
use refusals::status_of;
use reverb_observe::Calls;
use reverb_secure::{Access, AuditValue, Origin, Reason, Refusal, Role};
use reverb_service::{Peer, Transport};
use std::convert::Infallible;
use std::future::ready;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::header::AUTHORIZATION;
use tonic::codegen::http::{Request, Response};
use tonic::codegen::{BoxFuture, Service};
use tower::Layer;

/// Checks the calls of the services behind it.
#[derive(Debug, Clone)]
pub struct CheckCalls {
    access: Arc<Access>,
    /// Finds methods.
    calls: Arc<Calls>,
    needs: Arc<[Needs]>,
}

impl CheckCalls {
    /// Checks calls by what `access` says.
    pub fn new(access: Arc<Access>, calls: Arc<Calls>) -> Self {
        Self { access, calls, needs: needs::of_methods().into() }
    }

    /// Lets a call in. `None` means a caller that needs not be known.
    fn admit(&self, request: &Request<Body>) -> Result<Option<Caller>, Refusal> {
        let method = self.calls.find(request.uri().path());
        let peer = request.extensions().get().map(|introduced: &Introduced| &introduced.peer);
        let values = request.headers().get_all(AUTHORIZATION).into_iter().map(|value| value.as_bytes());
        let admit = |needs| self.access.admit(values, origin_of(peer), needs, METHODS[method].1);
        let guest = match self.needs[method] {
            Needs::Nothing => return Ok(None),
            Needs::Role(role) => admit(role)?,
            Needs::Unsaid => {
                let guest = admit(Role::Admin)?;
                return Err(self.access.refuse_unsaid(&guest, METHODS[method].1));
            }
        };
        let is_new = peer.is_some_and(|peer| peer.identify(guest.token(), guest.proof.kind(), guest.role.name()));
        let caller = Caller::new(guest, peer.cloned(), self.access.clone());
        if is_new {
            let road = peer.map_or("", |peer| peer.road.name());
            caller.note("connect", &[("road", AuditValue::Text(road)), ("result", AuditValue::Text("ok"))]);
        }
        Ok(Some(caller))
    }
}

impl<S> Layer<S> for CheckCalls {
    type Service = Checked<S>;

    fn layer(&self, service: S) -> Checked<S> {
        Checked { service, check: self.clone() }
    }
}

/// A service whose callers are checked.
#[derive(Debug, Clone)]
pub struct Checked<S> {
    service: S,
    check: CheckCalls,
}

impl<S> Service<Request<Body>> for Checked<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Response<Body>, Infallible>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let caller = match self.check.admit(&request) {
            Ok(None) => return Box::pin(self.service.call(request)),
            Ok(Some(caller)) => caller,
            Err(refusal) => {
                self.note_refusal(&request, &refusal);
                return Box::pin(ready(Ok(status_of(refusal).into_http())));
            }
        };
        // A stream of either direction ends when its caller may no longer do what it does.
        request = request.map(|body| Guarded::request(body, caller.clone()));
        request.extensions_mut().insert(caller.clone());
        let answer = self.service.call(request);
        Box::pin(async move {
            tokio::select! {
                biased;
                response = answer => Ok(response?.map(|body| Guarded::answer(body, caller))),
                status = ended(&caller) => Ok(status.into_http()),
            }
        })
    }
}

impl<S> Checked<S> {
    fn note_refusal(&self, request: &Request<Body>, refusal: &Refusal) {
        // A flood is only counted.
        if refusal.reason == Reason::TooMany {
            return;
        }
        let peer = request.extensions().get().map(|introduced: &Introduced| &introduced.peer);
        let (service, method) = METHODS[self.check.calls.find(request.uri().path())];
        let method = format!("{service}/{method}");
        self.check.access.audit().write(
            "refuse",
            &[
                ("reason", AuditValue::Text(refusal.reason.name())),
                ("who", AuditValue::Text(refusal.guest.as_deref().unwrap_or_default())),
                ("address", AuditValue::Text(peer.map_or("", |peer| peer.address.as_str()))),
                ("method", AuditValue::Text(&method)),
            ],
        );
    }
}

/// Waits until a caller may no longer do what it does.
async fn ended(caller: &Caller) -> Status {
    caller.guest.ended().await;
    status_of(caller.access.end(&caller.guest))
}

fn origin_of(peer: Option<&Arc<Peer>>) -> Origin {
    match peer {
        Some(peer) if peer.road == Transport::Unix => Origin::UnixSocket,
        peer => {
            let address = peer.and_then(|peer| peer.address.parse::<SocketAddr>().ok());
            Origin::Network(address.map(|address| address.ip()))
        }
    }
}
