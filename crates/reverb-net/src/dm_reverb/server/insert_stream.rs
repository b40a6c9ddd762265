//! The server side of an insert stream: inserts items in order, and confirms each by its key.

use super::client_names::NAME_OF_CLIENTS;
use super::held_chunks::{HeldChunks, as_invalid};
use crate::dm_reverb::proto::{InsertStreamRequest, InsertStreamResponse};
use crate::dm_reverb::status::{kept_fewer_chunks, lacks_chunks_and_items, message_error, stopped, to_status};
use bytes::Bytes;
use reverb_core::Error;
use reverb_formats::item::ItemMessage;
use reverb_service::write_queue::{Done, WriteQueue};
use reverb_service::{Arrival, Peer, Replay, StreamKind};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_stream::{StreamExt, wrappers::ReceiverStream};
use tonic::{Status, Streaming};

// limit (Beside dm-reverb): waiting items of an insert stream of dm-reverb's clients, and memory of its chunks and
// waiting items while an item waits | {}, {MAX_WAITING_BYTES} | the stream is not read
/// Limits of one stream: the number of waiting items, and the memory of chunks and waiting items while an item waits.
/// The stream is not read above either limit.
const MAX_WAITING_ITEMS: usize = 1024;
const MAX_WAITING_BYTES: usize = 64 << 20;
/// Number of keys to be confirmed above which the stream is not read: its client does not read, or messages arrive
/// faster than they are processed.
const MAX_UNCONFIRMED: usize = 4096;

type Answers = mpsc::Sender<Result<InsertStreamResponse, Status>>;

/// Serves the stream in a separate task, which ends when the client disconnects.
pub fn insert_stream(
    replay: Arc<Replay>,
    peer: Arc<Peer>,
    requests: Streaming<InsertStreamRequest>,
) -> ReceiverStream<Result<InsertStreamResponse, Status>> {
    peer.introduce(NAME_OF_CLIENTS);
    // Keys are gathered while answers wait to be sent, so few answers are enough.
    let (answers, stream) = mpsc::channel(2);
    let open = replay.connections.add_stream(&peer, StreamKind::Insert);
    tokio::spawn(async move {
        let _open = open;
        let task = InsertStreamTask {
            held: HeldChunks::new(replay.max_message_size()),
            queue: WriteQueue::new(&peer, None),
            rest: None,
            num_items: 0,
            inserted: Vec::new(),
            replay,
        };
        task.run(requests, answers).await;
    });
    ReceiverStream::new(stream)
}

/// The result of serving a stream. The error is the status for the client; `None` if it has disconnected.
type Ended = Result<(), Option<Status>>;

/// The items of a message that were not processed yet, and the chunks to keep after them.
struct Rest {
    items: std::vec::IntoIter<Bytes>,
    keep_keys: Vec<u64>,
}

/// The state of one stream.
struct InsertStreamTask {
    replay: Arc<Replay>,
    held: HeldChunks,
    queue: WriteQueue,
    /// What is left of the last message. The next one is read after it.
    rest: Option<Rest>,
    /// Number of items of the stream so far.
    num_items: u64,
    /// Keys of inserted items that are not confirmed yet.
    inserted: Vec<u64>,
}

impl InsertStreamTask {
    async fn run(mut self, requests: Streaming<InsertStreamRequest>, answers: Answers) {
        let ended = self.serve(requests, &answers).await;
        let Self { queue, mut held, mut inserted, .. } = self;
        let mut done = Done::new();
        queue.withdraw(&mut done).await;
        inserted.extend(done.into_iter().filter_map(|(number, result)| result.ok().and(held.memory.end_wait(number))));
        if !inserted.is_empty() {
            let _gone = answers.send(Ok(InsertStreamResponse { keys: inserted })).await;
        }
        if let Err(Some(status)) = ended {
            let _gone = answers.send(Err(status)).await;
        }
    }

    async fn serve(&mut self, mut requests: Streaming<InsertStreamRequest>, answers: &Answers) -> Ended {
        let replay = self.replay.clone();
        let mut closed = std::pin::pin!(replay.closed());
        let mut is_half_closed = false;
        loop {
            self.insert_rest()?;
            let is_idle = self.rest.is_none() && self.queue.num_waiting() == 0;
            if is_half_closed && is_idle && self.inserted.is_empty() {
                return Ok(());
            }
            let is_read = !is_half_closed && self.rest.is_none() && self.has_room();
            let has_inserted = !self.inserted.is_empty();
            let mut done = Done::new();
            let queue = &mut self.queue;
            // Messages that have arrived are processed first, so that one answer confirms the items of all.
            tokio::select! {
                biased;
                () = &mut closed => return Err(Some(stopped())),
                () = answers.closed() => return Err(None),
                request = requests.next(), if is_read => match request {
                    Some(request) => {
                        let limit = replay.max_message_size();
                        let request = request.map_err(|status| message_error(status, limit))?;
                        tokio::select! {
                            biased;
                            taken = self.take(request) => taken?,
                            () = answers.closed() => return Err(None),
                            () = &mut closed => return Err(Some(stopped())),
                        }
                    }
                    None => is_half_closed = true,
                },
                () = std::future::poll_fn(|context| queue.poll(context, &mut done)), if queue.num_waiting() > 0 => {
                    self.settle(done)?;
                }
                permit = answers.reserve(), if has_inserted => {
                    let keys = std::mem::take(&mut self.inserted);
                    permit.map_err(|_| None)?.send(Ok(InsertStreamResponse { keys }));
                }
            }
        }
    }

    fn has_room(&self) -> bool {
        let waiting = self.queue.num_waiting();
        let may_wait = waiting == 0 || waiting < MAX_WAITING_ITEMS && self.held.memory.bytes() < MAX_WAITING_BYTES;
        may_wait && self.inserted.len() < MAX_UNCONFIRMED
    }

    /// Takes the chunks of a message, and puts its items aside.
    async fn take(&mut self, request: InsertStreamRequest) -> Result<(), Status> {
        let InsertStreamRequest { chunks, items, keep_chunk_keys } = request;
        if chunks.is_empty() && items.is_empty() {
            return Err(lacks_chunks_and_items(&keep_chunk_keys));
        }
        self.held.add(chunks).await.map_err(|error| to_status(&error))?;
        if !items.is_empty() {
            self.rest = Some(Rest { items: items.into_iter(), keep_keys: keep_chunk_keys });
        }
        Ok(())
    }

    /// Inserts the items of the last message, or queues them, while there is room. Then drops the chunks that the client
    /// does not need any more.
    fn insert_rest(&mut self) -> Result<(), Status> {
        let Some(mut rest) = self.rest.take() else { return Ok(()) };
        while self.has_room() {
            let Some(item) = rest.items.next() else {
                let listed = rest.keep_keys.len();
                let left = self.held.keep_only(rest.keep_keys);
                return if left == listed { Ok(()) } else { Err(kept_fewer_chunks(left, listed)) };
            };
            self.insert(&item).map_err(|error| failure(&error))?;
        }
        self.rest = Some(rest);
        Ok(())
    }

    fn insert(&mut self, message: &[u8]) -> reverb_core::Result<()> {
        let message = ItemMessage::read(message).map_err(as_invalid)?;
        let item = message.resolve_inserted(&mut self.held)?;
        let table = self.replay.table(message.table)?;
        let (key, sequence, trajectory) = (item.key, self.num_items, item.trajectory.clone());
        self.num_items += 1;
        let mut done = Done::new();
        self.queue.push(table, Arrival { sequence, item, is_validated: true }, &mut done);
        match done.pop() {
            Some((_, result)) => {
                result?;
                self.inserted.push(key);
            }
            None => self.held.begin_wait(sequence, key, &trajectory),
        }
        Ok(())
    }

    /// Takes the results of items that have waited.
    fn settle(&mut self, done: Done) -> Result<(), Status> {
        let mut failed = None;
        for (number, result) in done {
            let key = self.held.memory.end_wait(number);
            match result {
                Ok(()) => self.inserted.extend(key),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(()), |error| Err(failure(&error)))
    }
}

/// Returns the status of a stream with an item that was not inserted.
fn failure(error: &Error) -> Status {
    match error {
        // The table was closed because the server is stopping.
        Error::Cancelled(_) => stopped(),
        error => to_status(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::{queue, strings};
    use reverb_formats::chunk::ChunkEncoder;
    use reverb_service::Transport;
    use reverb_service::decoding::turn;
    use std::time::Duration;

    #[tokio::test]
    async fn chunks_that_are_decoded_at_once_wait_for_their_turn() {
        let message = |texts: usize| {
            let (mut message, chunk) = (Vec::new(), strings(&vec!["text"; texts]));
            ChunkEncoder::default().encode(&chunk, texts as u64, false, &mut message).unwrap();
            InsertStreamRequest { chunks: vec![message.into()], ..InsertStreamRequest::default() }
        };
        let peer = Arc::new(Peer::new(Transport::Tcp, String::new()));
        let replay = Replay::new(vec![queue("queue", 10)], 64 << 20).unwrap();
        let mut task = InsertStreamTask {
            held: HeldChunks::new(64 << 20),
            queue: WriteQueue::new(&peer, None),
            rest: None,
            num_items: 0,
            inserted: Vec::new(),
            replay,
        };
        let others = turn(u64::MAX).await;
        let early = tokio::time::timeout(Duration::from_millis(200), task.take(message(100_000))).await;
        assert!(early.is_err(), "the strings were decoded without a turn");
        assert_eq!(task.held.memory.bytes(), 0);
        task.take(message(100)).await.unwrap();
        drop(others);
        task.take(message(100_000)).await.unwrap();
        assert!(task.held.memory.bytes() > 400_000);
    }
}
