//! The road over a network: one stream a writer.

use super::Shared;
use super::local::settle;
use super::outbox::{Outbox, is_ready};
use super::worker::{Linger, is_over};
use crate::convert::{chunk_to_wire, write_item_to_wire};
use crate::proto::replay::{WriteFailure, WriteRequest, WriteResponse};
use crate::status::{from_failure, from_status};
use crate::write_queue::Done;
use reverb_core::writer::WriterItem;
use reverb_core::{Error, Result};
use std::collections::HashSet;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

/// A message goes out when its chunks have this many bytes, or it has this many items.
const MESSAGE_BYTES: usize = 512 << 10;
const MESSAGE_ITEMS: usize = 1024;
/// One search for the server; the writer goes on searching after it.
const CONNECT_TIME: Duration = Duration::from_secs(5);

/// Sends items until the writer is closed. `lost_at` is cleared when the server was reached.
///
/// # Errors
/// Why the road was lost.
pub async fn run(shared: &Shared, lost_at: &mut Option<Instant>) -> Result<()> {
    let connection = shared.client.connection(Instant::now().checked_add(CONNECT_TIME)).await?;
    // Room for one message beside the one under way: past that, items wait in the outbox.
    let (messages, stream) = mpsc::channel(1);
    let opening = connection.open_write(ReceiverStream::new(stream));
    let mut sender =
        Sender { messages, streamed: HashSet::new(), first: true, max_chunk: connection.max_message_size() };
    // The server answers the call at once, but reads nothing before the first message.
    let mut responses = opening.await?;
    *lost_at = None;
    shared.state.lock().is_lost = false;
    let mut linger = Linger::default();
    loop {
        if is_over(shared) {
            return Ok(());
        }
        let is_ready_to_send = shared.state.lock().outbox.front().is_some_and(is_ready);
        tokio::select! {
            response = responses.message() => receive(shared, response, &connection.peer)?,
            permit = sender.messages.clone().reserve_owned(), if is_ready_to_send => match permit {
                Ok(permit) => drop(permit.send(sender.message(shared)?)),
                Err(_) => return Err(last_word(responses, &connection.peer).await),
            },
            () = shared.wake.notified() => {}
            () = linger.wait(shared) => {}
        }
    }
}

/// Why the stream ended.
async fn last_word(mut responses: Streaming<WriteResponse>, peer: &str) -> Error {
    match tokio::time::timeout(CONNECT_TIME, responses.message()).await {
        Ok(Err(status)) => from_status(&status, peer),
        _ => Error::Unavailable(format!("the server at {peer} ended the writer's stream")),
    }
}

fn receive(
    shared: &Shared,
    response: std::result::Result<Option<WriteResponse>, tonic::Status>,
    peer: &str,
) -> Result<()> {
    let response = response.map_err(|status| from_status(&status, peer))?;
    let Some(WriteResponse { first, count, confirmed, failures, notice }) = response else {
        return Err(Error::Unavailable(format!("the server at {peer} went away")));
    };
    if !notice.is_empty() {
        shared.state.lock().reason = notice;
    }
    let last = first.checked_add(count).ok_or_else(|| Error::DataLoss("a confirmation that cannot be".into()))?;
    let mut done = Done::new();
    // No more than was sent is looked for, whatever the server says.
    let sent = shared.state.lock().outbox.counts().1 as u64;
    done.extend((first..last.min(first.saturating_add(sent))).map(|sequence| (sequence, Ok(()))));
    done.extend(confirmed.into_iter().map(|sequence| (sequence, Ok(()))));
    done.extend(
        failures
            .into_iter()
            .map(|WriteFailure { sequence, failure }| (sequence, Err(from_failure(failure.unwrap_or_default())))),
    );
    settle(shared, done);
    Ok(())
}

struct Sender {
    messages: mpsc::Sender<WriteRequest>,
    /// Chunks that the server has on this stream.
    streamed: HashSet<u64>,
    first: bool,
    max_chunk: u64,
}

impl Sender {
    /// The items that are ready, with the chunks that the server does not have.
    fn message(&mut self, shared: &Shared) -> Result<WriteRequest> {
        shared.compress();
        let mut request = WriteRequest::default();
        if std::mem::take(&mut self.first) {
            request.writer_id = shared.writer_id;
        }
        request.release = std::mem::take(&mut *shared.dropped.lock());
        request.release.retain(|key| self.streamed.remove(key));
        let mut refused = Done::new();
        let mut bytes = 0;
        {
            let mut state = shared.state.lock();
            request.settled_through = state.outbox.settled_through();
            request.first_sequence = state.outbox.next_sequence();
            // Items count on from the first of their message. What was confirmed before a road was lost leaves gaps.
            let counts_on = |request: &WriteRequest, outbox: &Outbox| {
                outbox.next_sequence() == request.first_sequence + request.items.len() as u64
            };
            while request.items.len() < MESSAGE_ITEMS
                && bytes < MESSAGE_BYTES
                && refused.is_empty()
                && counts_on(&request, &state.outbox)
            {
                let Some(item) = state.outbox.front().filter(|item| is_ready(item)) else { break };
                if item.chunks().any(|chunk| chunk.needs_compression()) {
                    // More were made ready meanwhile; they come with the next message.
                    break;
                }
                match self.add_chunks(item, &mut request, &mut bytes) {
                    // The rest of its chunks, and the item itself, come with the next message.
                    Ok(false) => break,
                    Ok(true) => drop(state.outbox.send_front(|_, item| request.items.push(write_item_to_wire(item)))),
                    Err(error) => drop(state.outbox.send_front(|sequence, _| refused.push((sequence, Err(error))))),
                }
            }
        }
        settle(shared, refused);
        Ok(request)
    }

    /// Adds the chunks of an item that the server does not have, as many as a message takes. Whether that is all.
    fn add_chunks(&mut self, item: &WriterItem, request: &mut WriteRequest, bytes: &mut usize) -> Result<bool> {
        for chunk in item.chunks() {
            if self.streamed.contains(&chunk.key) {
                continue;
            }
            if *bytes >= MESSAGE_BYTES {
                return Ok(false);
            }
            let chunk = chunk.close()?;
            crate::replay::check_size(chunk.decoded_bytes() as u64, self.max_chunk)?;
            *bytes += chunk.size_bytes();
            self.streamed.insert(chunk.key);
            request.chunks.push(chunk_to_wire(&chunk));
        }
        Ok(true)
    }
}
