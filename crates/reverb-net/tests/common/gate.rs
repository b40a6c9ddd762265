//! A gate before a server without tokens, which asks each call for one, and ends streams when it is revoked.

use super::splitter::pump;
use bytes::Bytes;
use h2::server::SendResponse;
use h2::{RecvStream, client, server};
use std::sync::{Arc, Mutex};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tonic::Code;
use tonic::codegen::http::{HeaderMap, Request, Response};

const OURS: &str = "/reverb.replay.v1.Replay/";

/// What a call has shown.
#[derive(Debug, Clone)]
pub struct Shown {
    pub path: String,
    /// The header with the token, if there was one.
    pub bearer: Option<String>,
}

/// A listening gate.
#[derive(Clone)]
pub struct Gate {
    pub port: u16,
    /// Whom it lets in, and what it answers others.
    state: watch::Sender<(Option<&'static str>, Code)>,
    calls: Arc<Mutex<Vec<Shown>>>,
    server: u16,
    /// Whether the server seems to be one of dm-reverb.
    hides_ours: bool,
}

impl Gate {
    /// Listens on a free port, before a server on this one.
    pub async fn before(server: u16, hides_ours: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let gate = Self {
            port,
            state: watch::Sender::new((None, Code::Unauthenticated)),
            calls: Arc::default(),
            server,
            hides_ours,
        };
        let accepting = gate.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let gate = accepting.clone();
                tokio::spawn(async move {
                    let Ok(mut streams) = server::handshake(socket).await else { return };
                    while let Some(Ok((request, answer))) = streams.accept().await {
                        tokio::spawn(gate.clone().pass(request, answer));
                    }
                });
            }
        });
        gate
    }

    pub fn let_in(&self, token: &'static str) {
        self.state.send_replace((Some(token), Code::Unauthenticated));
    }

    /// Ends all streams, and refuses all calls from now on.
    pub fn refuse(&self, code: Code) {
        self.state.send_replace((None, code));
    }

    pub fn calls(&self) -> Vec<Shown> {
        self.calls.lock().unwrap().clone()
    }

    async fn pass(self, request: Request<RecvStream>, mut answer: SendResponse<Bytes>) -> Option<()> {
        let path = request.uri().path().to_owned();
        let header = request.headers().get("authorization");
        let bearer = header.and_then(|value| value.to_str().ok()).map(str::to_owned);
        self.calls.lock().unwrap().push(Shown { path: path.clone(), bearer: bearer.clone() });
        let (token, code) = *self.state.borrow();
        if token.is_none_or(|token| bearer != Some(format!("Bearer {token}"))) {
            return end(&mut answer, code);
        }
        if self.hides_ours && path.starts_with(OURS) {
            return end(&mut answer, Code::Unimplemented);
        }
        self.forward(request, answer).await
    }

    /// Ends without a word if either side has gone.
    async fn forward(self, request: Request<RecvStream>, mut answer: SendResponse<Bytes>) -> Option<()> {
        let mut state = self.state.subscribe();
        let socket = TcpStream::connect(("127.0.0.1", self.server)).await.ok()?;
        let (server, connection) = client::handshake(socket).await.ok()?;
        tokio::spawn(connection);
        let (head, body) = request.into_parts();
        let (response, mut to_server) =
            server.ready().await.ok()?.send_request(Request::from_parts(head, ()), false).ok()?;
        tokio::spawn(async move { pump(body, &mut to_server).await });
        let response = tokio::select! {
            response = response => response.ok()?,
            _ = state.changed() => return end(&mut answer, state.borrow().1),
        };
        let (head, body) = response.into_parts();
        let mut to_client = answer.send_response(Response::from_parts(head, ()), false).ok()?;
        tokio::select! {
            pumped = pump(body, &mut to_client) => pumped,
            _ = state.changed() => to_client.send_trailers(status(state.borrow().1)).ok(),
        }
    }
}

fn status(code: Code) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("grpc-status", (code as i32).into());
    headers.insert("grpc-message", "the gate is closed".parse().unwrap());
    headers
}

fn end(answer: &mut SendResponse<Bytes>, code: Code) -> Option<()> {
    let mut response = Response::new(());
    *response.headers_mut() = status(code);
    response.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
    answer.send_response(response, true).ok().map(drop)
}
