//! The client side of the insert stream of a connection, which all callers share.

use super::calls::{Calls, SharedStream, answer};
use super::named_channel::NamedChannel;
use super::session::Link;
use super::staging::Staging;
use crate::replay_v1::proto::{InsertRequest, InsertResponse};
use crate::replay_v1::rpc::replay_client::ReplayClient;
use crate::replay_v1::status::{from_failure, from_status};
use reverb_core::{Error, Result};
use reverb_service::warn;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;

/// Sends requests, and delivers an answer to each caller.
#[derive(Debug)]
pub struct InsertLink {
    stream: SharedStream<InsertRequest, ()>,
    /// Where the server finds the data of chunks, if it is of this host.
    pub staging: Option<Arc<Staging>>,
}

impl InsertLink {
    /// Opens the stream in the background.
    pub fn open(
        mut service: ReplayClient<NamedChannel>,
        peer: &str,
        link: Arc<Link>,
        heartbeat: Option<Duration>,
        staging: Option<Arc<Staging>>,
    ) -> Self {
        let (peer, of_failures) = (peer.to_owned(), link.clone());
        // Each caller waits for its answer, so there are never more queued requests than callers.
        let channel = mpsc::unbounded_channel();
        let of_task = staging.clone();
        let stream = SharedStream::open(link, heartbeat, channel, |requests, calls| async move {
            match service.insert(UnboundedReceiverStream::new(requests)).await {
                Ok(responses) => read(&calls, responses.into_inner(), &peer, &of_failures, of_task.as_deref()).await,
                Err(status) => from_status(&status, &peer),
            }
        });
        Self { stream, staging }
    }

    /// Sends a request and waits for its answer. Dropping the future withdraws the request.
    ///
    /// # Errors
    /// The error of the server, [`Error::Unconfirmed`] if the stream ends before the answer, or the error that ended it
    /// before.
    pub async fn call(&self, mut request: InsertRequest) -> Result<()> {
        if let Some(staging) = &self.staging {
            request.chunks.iter_mut().for_each(|chunk| staging.name(chunk));
        }
        let (request_id, mut receiver) = self.stream.begin()?;
        request.request_id = request_id;
        let withdraw = Withdraw { link: self, request_id };
        let _gone = self.stream.requests.send(request);
        let result = answer(&mut receiver).await;
        std::mem::forget(withdraw);
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
        self.link.stream.calls.withdraw(self.request_id);
        let request = InsertRequest { request_id: self.request_id, cancel: true, ..InsertRequest::default() };
        let _gone = self.link.stream.requests.send(request);
    }
}

async fn read(
    calls: &Calls<()>,
    mut responses: tonic::Streaming<InsertResponse>,
    peer: &str,
    link: &Link,
    staging: Option<&Staging>,
) -> Error {
    loop {
        match responses.message().await {
            Ok(Some(response)) if !response.notice.is_empty() => warn(&response.notice),
            Ok(Some(InsertResponse { freed, .. })) if !freed.is_empty() => {
                staging.iter().for_each(|staging| staging.take_back(&freed));
            }
            Ok(Some(InsertResponse { request_id, failure, load, .. })) => {
                link.note_load(load);
                let failed = |failure| Err(link.note(from_failure(failure)));
                calls.answer(request_id, failure.map_or(Ok(()), failed));
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
