//! The client side of the insert stream of a connection, which all callers share.

use super::named_channel::NamedChannel;
use super::session::Link;
use crate::replay_v1::heartbeat::spawn_heartbeat;
use crate::replay_v1::proto::{InsertRequest, InsertResponse};
use crate::replay_v1::rpc::replay_client::ReplayClient;
use crate::replay_v1::status::{from_failure, from_status};
use parking_lot::Mutex;
use reverb_core::{Error, Result};
use reverb_service::warn;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::UnboundedReceiverStream;

/// Sends requests, and delivers an answer to each caller.
#[derive(Debug)]
pub struct InsertLink {
    requests: mpsc::UnboundedSender<InsertRequest>,
    shared: Arc<SharedCalls>,
    next_id: AtomicU64,
}

#[derive(Debug, Default)]
struct SharedCalls {
    calls: Mutex<Calls>,
}

#[derive(Debug, Default)]
struct Calls {
    waiting: HashMap<u64, oneshot::Sender<Result<()>>>,
    /// The error that ended the stream. Nothing can be sent after it.
    broken: Option<Error>,
}

impl InsertLink {
    /// Opens the stream in the background.
    pub fn open(
        mut service: ReplayClient<NamedChannel>,
        peer: &str,
        link: Arc<Link>,
        heartbeat: Option<Duration>,
    ) -> Self {
        // Each caller waits for its answer, so there are never more queued requests than callers.
        let (requests, stream) = mpsc::unbounded_channel();
        let shared = Arc::<SharedCalls>::default();
        let (reader, peer) = (shared.clone(), peer.to_owned());
        tokio::spawn(async move {
            let error = match service.insert(UnboundedReceiverStream::new(stream)).await {
                Ok(responses) => read(&reader, responses.into_inner(), &peer).await,
                Err(status) => from_status(&status, &peer),
            };
            let error = link.note(error);
            link.set_broken();
            reader.fail(&error);
        });
        if let Some(interval) = heartbeat {
            let (shared, requests) = (Arc::downgrade(&shared), requests.downgrade());
            spawn_heartbeat(interval, move || {
                let (shared, requests) = (shared.upgrade()?, requests.upgrade()?);
                let waits = !shared.calls.lock().waiting.is_empty();
                if waits { requests.send(InsertRequest::default()).ok() } else { Some(()) }
            });
        }
        Self { requests, shared, next_id: AtomicU64::new(1) }
    }

    /// Sends a request and waits for its answer. Dropping the future withdraws the request.
    ///
    /// # Errors
    /// The error of the server, [`Error::Unconfirmed`] if the stream ends before the answer, or the error that ended it
    /// before.
    pub async fn call(&self, mut request: InsertRequest) -> Result<()> {
        request.request_id = self.next_id.fetch_add(1, Relaxed);
        let (sender, receiver) = oneshot::channel();
        {
            let mut calls = self.shared.calls.lock();
            if let Some(error) = &calls.broken {
                return Err(error.clone());
            }
            calls.waiting.insert(request.request_id, sender);
        }
        let withdraw = Withdraw { link: self, request_id: request.request_id };
        // If the reader has ended, it has failed this call, and the receiver gets the reason.
        let _gone = self.requests.send(request);
        let result = receiver.await;
        std::mem::forget(withdraw);
        let result = result.unwrap_or_else(|_| Err(Error::Internal("a call ended without an answer".into())));
        result.map_err(Error::of_sent_insert)
    }
}

/// Withdraws a request on drop.
struct Withdraw<'a> {
    link: &'a InsertLink,
    request_id: u64,
}

impl Drop for Withdraw<'_> {
    fn drop(&mut self) {
        self.link.shared.calls.lock().waiting.remove(&self.request_id);
        let request = InsertRequest { request_id: self.request_id, cancel: true, ..InsertRequest::default() };
        let _gone = self.link.requests.send(request);
    }
}

impl SharedCalls {
    fn fail(&self, error: &Error) {
        let waiting = {
            let mut calls = self.calls.lock();
            calls.broken = Some(error.clone());
            std::mem::take(&mut calls.waiting)
        };
        for call in waiting.into_values() {
            let _withdrawn = call.send(Err(error.clone()));
        }
    }
}

async fn read(shared: &SharedCalls, mut responses: tonic::Streaming<InsertResponse>, peer: &str) -> Error {
    loop {
        match responses.message().await {
            Ok(Some(response)) if !response.notice.is_empty() => warn(&response.notice),
            Ok(Some(InsertResponse { request_id, failure, .. })) => {
                let call = shared.calls.lock().waiting.remove(&request_id);
                if let Some(call) = call {
                    let _withdrawn = call.send(failure.map_or(Ok(()), |failure| Err(from_failure(failure))));
                }
            }
            Ok(None) => {
                return Error::Unavailable(format!(
                    "the connection to the server at {peer} was lost before it confirmed the insert"
                ));
            }
            Err(status) => return from_status(&status, peer),
        }
    }
}
