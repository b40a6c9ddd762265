//! The road of a writer over a network: one stream for each writer.

use super::connection::Connection;
use super::staging::Staging;
use crate::grpc::largest;
use crate::replay_v1::heartbeat::spawn_heartbeat;
use crate::replay_v1::proto::{WriteFailure, WriteItem, WriteRequest, WriteResponse};
use crate::replay_v1::status::{from_failure, from_status};
use crate::replay_v1::wire::{chunk_to_wire, write_item_to_wire};
use crate::writing::{Linger, Outbox, SharedSession};
use reverb_core::writer::{ChunkMemory, StreamChunks, WriterItem};
use reverb_core::{Error, Result, fork};
use reverb_service::insert::check_size;
use reverb_service::write_queue::Done;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

/// A message is sent when its chunks have this many bytes, or when it has this many items.
const MESSAGE_BYTES: usize = 512 << 10;
const MESSAGE_ITEMS: usize = 1024;
/// A chunk in shared memory counts no more bytes of a message than this: the socket carries none of them.
const SHARED_BYTES: usize = 64 << 10;
/// Chunks of more than these bytes, decoded, do not travel together: the server decodes the chunks of a message at once.
const MESSAGE_DECODED_BYTES: u64 = 16 << 20;
/// Time to wait for the reason why the server ended a stream.
const LAST_WORD_TIME: Duration = Duration::from_secs(5);

/// Sends items until the writer is closed. Sets `lost_at` to `None` when the server was reached.
///
/// # Errors
/// The reason why the connection was lost.
pub async fn write(shared: &Arc<SharedSession>, connection: &Connection, lost_at: &mut Option<Instant>) -> Result<()> {
    // The channel has room for one message beside the one being sent. Further items wait in the outbox.
    let (messages, stream) = mpsc::channel(1);
    let opening = connection.open_write(ReceiverStream::new(stream));
    let staging = Staged::new(connection.staging(), &shared.chunks);
    let staging = staging.0.as_deref();
    let mut sender = Sender { messages, streamed: HashSet::new(), first: true, connection, staging };
    // The server accepts the call at once, and then waits for the first message.
    let mut responses = opening.await?;
    *lost_at = None;
    shared.state.lock().is_lost = false;
    if let Some(interval) = connection.heartbeat {
        beat_while_waiting(interval, shared, &sender.messages);
    }
    let mut linger = Linger::default();
    loop {
        if shared.is_over() {
            return Ok(());
        }
        if let Some(split) = connection.link.split() {
            return Err(split.clone());
        }
        let is_ready_to_send = shared.state.lock().next().is_some();
        tokio::select! {
            response = responses.message() => receive(shared, response, connection, staging)?,
            permit = sender.messages.clone().reserve_owned(), if is_ready_to_send => match permit {
                Ok(permit) => drop(permit.send(sender.message(shared)?)),
                Err(_) => return Err(last_word(responses, &connection.peer).await),
            },
            () = shared.wake.notified() => {}
            () = linger.wait(shared) => {}
        }
    }
}

/// Where the data of the writer's next chunks lies while a stream is open, if the server is of this host.
struct Staged<'a>(Option<Arc<Staging>>, &'a StreamChunks);

impl<'a> Staged<'a> {
    fn new(staging: Option<Arc<Staging>>, chunks: &'a StreamChunks) -> Self {
        chunks.set_memory(staging.clone().map(|staging| staging as Arc<dyn ChunkMemory>));
        Self(staging, chunks)
    }
}

impl Drop for Staged<'_> {
    fn drop(&mut self) {
        self.1.set_memory(None);
    }
}

/// Sends an empty message at each interval while items are unconfirmed, until the stream has ended.
fn beat_while_waiting(interval: Duration, shared: &Arc<SharedSession>, messages: &mpsc::Sender<WriteRequest>) {
    let (shared, messages) = (Arc::downgrade(shared), messages.downgrade());
    spawn_heartbeat(interval, move || {
        let (shared, messages) = (shared.upgrade()?, messages.upgrade()?);
        if shared.generation == fork::generation() && shared.state.lock().outbox.counts().1 > 0 {
            // A full channel means that items are on their way.
            let _full = messages.try_send(WriteRequest::default());
        }
        Some(())
    });
}

/// Waits for the reason why the stream ended.
async fn last_word(mut responses: Streaming<WriteResponse>, peer: &str) -> Error {
    match tokio::time::timeout(LAST_WORD_TIME, responses.message()).await {
        Ok(Err(status)) => from_status(&status, peer),
        _ => Error::Unavailable(format!("the server at {peer} ended the writer's stream")),
    }
}

fn receive(
    shared: &SharedSession,
    response: std::result::Result<Option<WriteResponse>, tonic::Status>,
    connection: &Connection,
    staging: Option<&Staging>,
) -> Result<()> {
    let peer = &connection.peer;
    let response = response.map_err(|status| from_status(&status, peer))?;
    let Some(WriteResponse { first, count, confirmed, failures, notice, load, freed }) = response else {
        return Err(Error::Unavailable(format!("the connection to the server at {peer} was lost")));
    };
    if !freed.is_empty() {
        staging.iter().for_each(|staging| staging.take_back(&freed));
        return Ok(());
    }
    connection.link.note_load(load);
    if !notice.is_empty() {
        shared.state.lock().reason = notice;
    }
    let last = first
        .checked_add(count)
        .ok_or_else(|| Error::DataLoss("a confirmation has invalid sequence numbers".into()))?;
    let mut done = Done::new();
    // A server cannot confirm more items than were sent, whatever numbers it names.
    let sent = shared.state.lock().outbox.counts().1 as u64;
    done.extend((first..last.min(first.saturating_add(sent))).map(|sequence| (sequence, Ok(()))));
    done.extend(confirmed.into_iter().map(|sequence| (sequence, Ok(()))));
    done.extend(
        failures
            .into_iter()
            .map(|WriteFailure { sequence, failure }| (sequence, Err(from_failure(failure.unwrap_or_default())))),
    );
    shared.settle(done);
    Ok(())
}

/// The size in bytes of the chunks of a message: as it counts, and decoded.
#[derive(Debug, Default)]
struct MessageSize {
    bytes: usize,
    decoded_bytes: u64,
}

struct Sender<'a> {
    messages: mpsc::Sender<WriteRequest>,
    /// Keys of the chunks that the server has on this stream.
    streamed: HashSet<u64>,
    first: bool,
    connection: &'a Connection,
    /// Where the server finds the data of chunks, if it is of this host.
    staging: Option<&'a Staging>,
}

impl Sender<'_> {
    /// Makes a message of the items that are ready, with the chunks that the server does not have.
    fn message(&mut self, shared: &SharedSession) -> Result<WriteRequest> {
        shared.compress();
        let mut request = WriteRequest::default();
        if std::mem::take(&mut self.first) {
            request.writer_id = shared.writer_id;
        }
        request.release = shared.chunks.take_dropped();
        request.release.retain(|key| self.streamed.remove(key));
        let mut refused = Done::new();
        let mut size = MessageSize::default();
        {
            let mut state = shared.state.lock();
            request.settled_through = state.outbox.settled_through();
            request.first_sequence = state.outbox.next_sequence();
            // The items of a message have consecutive numbers. Items confirmed before a connection was lost leave gaps.
            let counts_on = |request: &WriteRequest, outbox: &Outbox| {
                outbox.next_sequence() == request.first_sequence + request.items.len() as u64
            };
            while request.items.len() < MESSAGE_ITEMS
                && size.bytes < MESSAGE_BYTES
                && refused.is_empty()
                && counts_on(&request, &state.outbox)
            {
                let Some(item) = state.next() else { break };
                if item.chunks().any(|chunk| chunk.needs_compression()) {
                    // The item became ready after the chunks were compressed. It is sent with the next message.
                    break;
                }
                match self.add_chunks(item, &mut request, &mut size) {
                    // The rest of the chunks, and the item itself, are sent with the next message.
                    Ok(false) => break,
                    Ok(true) => drop(state.outbox.send_front(|_, item| request.items.push(self.item_message(item)))),
                    Err(error) => drop(state.outbox.send_front(|sequence, _| refused.push((sequence, Err(error))))),
                }
            }
        }
        shared.settle(refused);
        Ok(request)
    }

    /// Makes the message of an item, with what other shards have seen of its table. For a server that does not know its
    /// largest priority, that is filled in as far as this process knows it.
    fn item_message(&self, item: &WriterItem) -> WriteItem {
        let others = self.connection.others(&item.table, item.priority.takes_largest);
        let mut message = WriteItem { others, ..write_item_to_wire(item) };
        if !self.connection.knows_largest {
            message.priority = largest::filled_in(&self.connection.peer, &item.table, item.priority);
            message.takes_largest = false;
        }
        message
    }

    /// Adds the chunks of an item that the server does not have, up to the size of a message. Returns true if all of
    /// them were added.
    fn add_chunks(&mut self, item: &WriterItem, request: &mut WriteRequest, size: &mut MessageSize) -> Result<bool> {
        for chunk in item.chunks() {
            if self.streamed.contains(&chunk.key) {
                continue;
            }
            if size.bytes >= MESSAGE_BYTES {
                return Ok(false);
            }
            let closed = chunk.close()?;
            let limit_bytes = self.connection.hello.max_message_size;
            let decoded_bytes = closed.decoded_bytes() as u64;
            check_size(decoded_bytes, limit_bytes)?;
            if size.decoded_bytes > 0 && size.decoded_bytes + decoded_bytes > limit_bytes.min(MESSAGE_DECODED_BYTES) {
                return Ok(false);
            }
            size.decoded_bytes += decoded_bytes;
            chunk.set_sent();
            self.streamed.insert(chunk.key);
            let mut message = chunk_to_wire(&closed);
            self.staging.iter().for_each(|staging| staging.name(&mut message));
            let most_bytes = if message.segment.is_some() { SHARED_BYTES } else { usize::MAX };
            size.bytes += closed.size_bytes().min(most_bytes);
            request.chunks.push(message);
        }
        Ok(true)
    }
}
