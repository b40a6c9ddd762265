//! Who may read what over HTTP, where the server has tokens. Each path says so beside its handler.

use super::answer::text;
use super::api::Failure;
use super::state::HttpState;
use super::visitors::Visitor;
use crate::documents::RoleDocument;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{AUTHORIZATION, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{Request, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use reverb_secure::{Access, AuditEntry, AuditValue, Guest, Origin, Reason, Refusal, Role};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

/// The start of the paths whose answers are JSON.
pub const API: &str = "/api/v1";

const NO_TOKEN: &str = "this server needs a token: send the header `Authorization: Bearer TOKEN`. In a browser, open the \
    page at `/`, which asks for one; for Prometheus, set `authorization` with `credentials_file`";

/// A path: who may read it, and what answers.
#[derive(Debug)]
pub struct Route {
    path: String,
    /// The role that a caller needs. `None` stands for everyone, also without a token: nothing there is data.
    needs: Option<Role>,
    answer: MethodRouter<Arc<HttpState>>,
}

impl Route {
    /// A path for those with at least this role.
    pub fn new(path: impl Into<String>, needs: Role, answer: MethodRouter<Arc<HttpState>>) -> Self {
        Self { path: path.into(), needs: Some(needs), answer }
    }

    /// A path for everyone, whose answer is the same for all servers.
    pub fn open(path: impl Into<String>, answer: MethodRouter<Arc<HttpState>>) -> Self {
        Self { path: path.into(), needs: None, answer }
    }

    /// Returns the path, and the role that a caller needs.
    #[cfg(test)]
    pub fn needs(&self) -> (&str, Option<Role>) {
        (&self.path, self.needs)
    }

    /// Returns the path, and what answers those that may read it.
    pub fn checked(self, state: &Arc<HttpState>) -> (String, MethodRouter<Arc<HttpState>>) {
        let Self { path, needs, answer } = self;
        let Some(needs) = needs else { return (path, answer) };
        let check = Check { state: state.clone(), needs, path: path.as_str().into() };
        (path, answer.layer(from_fn_with_state(check, Check::answer)))
    }
}

/// What the requests for a path need.
#[derive(Debug, Clone)]
struct Check {
    state: Arc<HttpState>,
    needs: Role,
    path: Arc<str>,
}

impl Check {
    /// Answers a request, unless its caller may not make it, or may no longer do so before the answer is there.
    async fn answer(State(check): State<Self>, mut request: Request<Body>, next: Next) -> Response {
        let address = request.extensions().get().copied();
        let Some(access) = check.state.security.access.clone() else {
            request.extensions_mut().insert(Caller { guest: None, access: None, address, path: check.path });
            return next.run(request).await;
        };
        let guest = match check.admit(&access, &request, address) {
            Ok(guest) => guest,
            Err(refusal) => {
                check.note(&access, &refusal, address);
                return refused(request.uri().path(), &refusal);
            }
        };
        let asked = request.uri().path().to_owned();
        let caller = Caller { guest: guest.clone(), access: Some(access.clone()), address, path: check.path };
        if caller.visitor().is_some_and(|visitor| check.state.visitors.note(visitor, Instant::now())) {
            caller.note("connect", &[("road", AuditValue::Text("http")), ("result", AuditValue::Text("ok"))]);
        }
        request.extensions_mut().insert(caller);
        let Some(guest) = guest else { return next.run(request).await };
        tokio::select! {
            biased;
            response = next.run(request) => response,
            () = guest.ended() => refused(&asked, &access.end(&guest)),
        }
    }

    /// Lets a request in. `None` means a caller that needs not be known.
    fn admit(
        &self,
        access: &Access,
        request: &Request<Body>,
        address: Option<PeerAddress>,
    ) -> Result<Option<Arc<Guest>>, Refusal> {
        if !access.has_tokens() {
            return Ok(None);
        }
        let values = request.headers().get_all(AUTHORIZATION).into_iter().map(|value| value.as_bytes());
        let origin = Origin::Network(address.map(|PeerAddress(address)| address.ip()));
        access.admit(values, origin, self.needs, &self.path).map(Some)
    }

    fn note(&self, access: &Access, refusal: &Refusal, address: Option<PeerAddress>) {
        // A flood is only counted.
        if refusal.reason == Reason::TooMany {
            return;
        }
        access.audit().write(
            "refuse",
            &[
                ("reason", AuditValue::Text(refusal.reason.name())),
                ("who", AuditValue::Text(refusal.guest.as_deref().unwrap_or_default())),
                ("address", AuditValue::Text(&text_of(address))),
                ("method", AuditValue::Text(&self.path)),
            ],
        );
    }
}

/// Where a request comes from, attached to it.
#[derive(Debug, Clone, Copy)]
pub struct PeerAddress(pub SocketAddr);

fn text_of(address: Option<PeerAddress>) -> String {
    address.map(|PeerAddress(address)| address.to_string()).unwrap_or_default()
}

/// Who makes a request that was let in, attached to it.
#[derive(Debug, Clone)]
pub struct Caller {
    /// `None` where the server has no tokens: everyone may do everything.
    guest: Option<Arc<Guest>>,
    access: Option<Arc<Access>>,
    address: Option<PeerAddress>,
    path: Arc<str>,
}

impl Caller {
    /// Describes the caller.
    pub fn document(&self) -> RoleDocument {
        let Some(guest) = &self.guest else { return RoleDocument { token: None, role: Role::Admin.name() } };
        RoleDocument { token: guest.token().map(str::to_owned), role: guest.role.name() }
    }

    /// Returns who it is, if it has shown a token.
    fn visitor(&self) -> Option<Visitor> {
        let guest = self.guest.as_deref()?;
        let address = self.address.map(|PeerAddress(address)| address.ip());
        Some(Visitor { token: guest.token()?.to_owned(), role: guest.role, address })
    }

    /// Writes into the audit, if the server has one, that the caller is shown so many items of a table.
    pub fn note_shown(&self, event: &'static str, table: &str, count: usize) {
        let text = AuditValue::Text;
        let count = AuditValue::Number(count as u64);
        let what = [("method", text(&self.path)), ("table", text(table)), ("count", count), ("result", text("ok"))];
        self.note(event, &what);
    }

    /// Writes into the audit, if the server has one, what the caller does.
    fn note(&self, event: &'static str, what: &[AuditEntry<'_>]) {
        let (Some(access), text) = (&self.access, AuditValue::Text) else { return };
        let (guest, address) = (self.guest.as_deref(), text_of(self.address));
        let mut entries = vec![
            ("who", text(guest.and_then(Guest::token).unwrap_or_default())),
            ("proof", text(guest.map_or("none", |guest| guest.proof.kind()))),
            ("role", text(self.document().role)),
            ("address", text(&address)),
        ];
        entries.extend_from_slice(what);
        access.audit().write(event, &entries);
    }
}

/// Makes the answer to a request that is refused: JSON where all answers are.
fn refused(path: &str, refusal: &Refusal) -> Response {
    let (status, header) = match refusal.reason {
        Reason::NoToken => (StatusCode::UNAUTHORIZED, Some((WWW_AUTHENTICATE, "Bearer"))),
        Reason::UnknownToken | Reason::EndedToken => {
            (StatusCode::UNAUTHORIZED, Some((WWW_AUTHENTICATE, "Bearer error=\"invalid_token\"")))
        }
        Reason::Role => (StatusCode::FORBIDDEN, None),
        Reason::TooMany => (StatusCode::TOO_MANY_REQUESTS, Some((RETRY_AFTER, "1"))),
    };
    let reason = if refusal.reason == Reason::NoToken { NO_TOKEN } else { &refusal.text };
    let answer =
        if path.starts_with(API) { Failure::new(status, reason).into_response() } else { text(status, reason) };
    (header.map(|header| [header]), answer).into_response()
}
