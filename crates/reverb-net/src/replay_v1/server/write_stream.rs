//! The server side of the stream of a writer: inserts items in order, and confirms them.

use super::last_word::stopped;
use super::staged::Staged;
use super::vanished::log_vanished;
use crate::grpc::held_memory::HeldMemory;
use crate::replay_v1::proto::{WriteFailure, WriteItem, WriteRequest, WriteResponse};
use crate::replay_v1::status::{to_failure, to_status};
use crate::replay_v1::wire::{
    LayoutCache, chunks_from_wire, decoded_bytes, load_to_wire, write_item_bytes, write_item_from_wire,
};
use crate::transport::passing::Passing;
use reverb_core::{Chunk, Error, Result};
use reverb_service::Arrival;
use reverb_service::decoding::decode;
use reverb_service::insert::check_size_of;
use reverb_service::write_ledger::LedgerGuard;
use reverb_service::write_queue::{Done, WriteQueue};
use reverb_service::{Inserter, Peer, Replay, StreamKind, TableHandle};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};
use tokio_stream::{Stream, StreamExt, wrappers::ReceiverStream};
use tonic::{Status, Streaming};

// limit (Writers): waiting items of a writer's stream, and memory of its chunks and waiting items while an item waits |
// {}, {MAX_WAITING_BYTES} | the stream is not read
/// Limits of one stream: the number of waiting items, and the memory of chunks and waiting items while an item waits. The stream is not
/// read above either limit.
const MAX_WAITING_ITEMS: usize = 1024;
const MAX_WAITING_BYTES: usize = 64 << 20;
// limit (Writers): gaps in the numbers of the items that a writer has inserted | {} | the stream ends
/// Maximum number of gaps in the sequence numbers of the items that a writer has inserted. A writer leaves gaps only for
/// items that wait.
const MAX_GAPS: usize = 16_384;
/// Number of items of a message that are decoded before others are served. Messages may come without a pause, and tokio
/// would take 128 of them first.
const ITEMS_BEFORE_OTHERS: usize = 64;
/// Time after which the writer is told why its items wait. It is told again after twice the time each, and with each
/// heartbeat, since the reason changes. The writer puts it into its own error texts.
const NOTICE_DELAY: Duration = Duration::from_millis(100);

/// Time between heartbeats to clients of earlier editions, which expect none.
const NO_HEARTBEAT: Duration = Duration::from_secs(3600);

type Answers = mpsc::Sender<std::result::Result<WriteResponse, Status>>;

/// Serves the stream in a separate task, which ends when the client disconnects. `owner` is the token of the writer.
pub fn write_stream(
    replay: Arc<Replay>,
    (peer, client): (Arc<Peer>, u64),
    owner: Option<String>,
    heartbeat: Option<Duration>,
    passing: Option<Arc<Passing>>,
    requests: Streaming<WriteRequest>,
) -> ReceiverStream<std::result::Result<WriteResponse, Status>> {
    let (answers, stream) = mpsc::channel(64);
    let open = replay.connections.add_stream(&peer, StreamKind::Write);
    tokio::spawn(async move {
        let _open = open;
        let staged = Staged::new(passing, &replay, &peer);
        serve(replay, (peer, client), owner, (heartbeat, staged), requests, answers).await;
    });
    ReceiverStream::new(stream)
}

async fn serve(
    replay: Arc<Replay>,
    (peer, client): (Arc<Peer>, u64),
    owner: Option<String>,
    (heartbeat, staged): (Option<Duration>, Staged),
    mut requests: Streaming<WriteRequest>,
    answers: Answers,
) {
    let first = match requests.next().await {
        Some(Ok(first)) => first,
        // The client disconnected before its first message, or sent an unreadable one.
        Some(Err(status)) => return drop(answers.send(Err(status)).await),
        None => return,
    };
    let writer_id = first.writer_id;
    if writer_id == 0 {
        let error = Error::invalid("the first message of the stream of a writer must contain its writer_id");
        return drop(answers.send(Err(to_status(&error))).await);
    }
    let guard = replay.ledgers.take(owner.as_deref(), writer_id).await;
    let mut task = WriteStreamTask::new(replay.clone(), Inserter { peer: &peer, client }, heartbeat, guard, staged);
    let ended = task.serve(first, &mut requests, &answers).await;
    let is_complete = ended.is_ok();
    // The streams that the server ends have details.
    if matches!(&ended, Err(reason) if reason.as_ref().is_none_or(|status| status.details().is_empty())) {
        log_vanished(&replay, &peer, &[(task.queue.num_waiting(), "waiting items of a writer")]);
    }
    if let Err(Some(reason)) = ended {
        let _gone = answers.send(Err(reason)).await;
    }
    let WriteStreamTask { queue, guard, .. } = task;
    // Before another stream of the writer looks at the ledger, each item is either there or withdrawn.
    drop(queue);
    if is_complete {
        guard.forget();
    } else if replay.is_closed() {
        // The connection has taken the last word then.
        answers.closed().await;
    }
}

/// The result of serving a stream. The error is the reason for the writer; `None` if the client has disconnected.
type Ended = std::result::Result<(), Option<Status>>;

fn taken_over() -> Error {
    Error::Cancelled("a newer stream of the same writer was opened".into())
}

/// The state of one stream.
struct WriteStreamTask {
    replay: Arc<Replay>,
    /// The chunks that the writer has not released, by their keys.
    known: HashMap<u64, Arc<Chunk>>,
    held: HeldMemory,
    layouts: LayoutCache,
    staged: Staged,
    queue: WriteQueue,
    guard: LedgerGuard,
    /// The tables of the items so far, whose largest priorities a shard tells.
    told_tables: Vec<TableHandle>,
    /// Longest time without a message while items wait.
    beat_after: Duration,
}

/// The items of a message for one table, and the parts of the message that they come from. They share a lock and a commit.
struct ItemsOf<'a> {
    table: TableHandle,
    arrivals: Vec<Arrival>,
    messages: Vec<(u64, &'a WriteItem)>,
}

impl WriteStreamTask {
    fn new(
        replay: Arc<Replay>,
        from: Inserter<'_>,
        heartbeat: Option<Duration>,
        guard: LedgerGuard,
        staged: Staged,
    ) -> Self {
        Self {
            known: HashMap::new(),
            held: HeldMemory::default(),
            layouts: LayoutCache::default(),
            staged,
            queue: WriteQueue::new(from, Some(Arc::clone(&guard.ledger))),
            told_tables: Vec::new(),
            beat_after: heartbeat.unwrap_or(NO_HEARTBEAT),
            replay,
            guard,
        }
    }

    /// Serves the stream until the writer has ended it and all items have a result.
    async fn serve(
        &mut self,
        first: WriteRequest,
        requests: &mut (impl Stream<Item = std::result::Result<WriteRequest, Status>> + Unpin),
        answers: &Answers,
    ) -> Ended {
        let replay = self.replay.clone();
        let mut closed = std::pin::pin!(replay.closed());
        let mut request = Some(first);
        let mut ended = false;
        let (mut pause, mut notice_at) = (NOTICE_DELAY, Instant::now() + NOTICE_DELAY);
        loop {
            let mut done = Done::new();
            if let Some(mut request) = request.take() {
                self.fetch(&mut request, answers).await?;
                tokio::select! {
                    biased;
                    taken = self.take(request, &mut done) => taken.map_err(|error| to_status(&error))?,
                    () = answers.closed() => return Err(None),
                    () = &mut closed => return Err(Some(to_status(&stopped(&replay).await))),
                }
            }
            if done.is_empty() {
                if ended && self.queue.num_waiting() == 0 {
                    return Ok(());
                }
                let has_room = self.has_room();
                let queue = &mut self.queue;
                tokio::select! {
                    next = requests.next(), if !ended && has_room => match next {
                        Some(next) => request = Some(next?),
                        None => ended = true,
                    },
                    () = std::future::poll_fn(|context| queue.poll(context, &mut done)), if queue.num_waiting() > 0 => {}
                    () = sleep_until(notice_at), if queue.num_waiting() > 0 => {
                        pause = (2 * pause).min(self.beat_after);
                        notice_at = Instant::now() + pause;
                        let notice = queue.explain().unwrap_or_default();
                        // A full channel means that answers are on their way.
                        let _full = answers.try_send(Ok(WriteResponse { notice, ..WriteResponse::default() }));
                    }
                    () = self.guard.taken_over() => return Err(Some(to_status(&taken_over()))),
                    () = answers.closed() => return Err(None),
                    () = &mut closed => return Err(Some(to_status(&stopped(&replay).await))),
                }
            }
            if !done.is_empty() || self.queue.num_waiting() == 0 {
                (pause, notice_at) = (NOTICE_DELAY, Instant::now() + NOTICE_DELAY);
            }
            self.confirm(done, answers).await?;
        }
    }

    fn has_room(&self) -> bool {
        let waiting = self.queue.num_waiting();
        waiting == 0 || waiting < MAX_WAITING_ITEMS && self.held.bytes() < MAX_WAITING_BYTES
    }

    /// Sends the results of items to the writer.
    async fn confirm(&mut self, mut done: Done, answers: &Answers) -> Ended {
        if done.is_empty() {
            return Ok(());
        }
        for (sequence, _) in &done {
            self.held.end_wait(*sequence);
        }
        // Cancelled items were not inserted because the server is stopping. The writer may send them to the next
        // server.
        let before = done.len();
        done.retain(|(_, result)| !matches!(result, Err(Error::Cancelled(_))));
        let stopping = done.len() < before;
        answers.send(Ok(self.answer(done))).await.map_err(|_| None)?;
        if stopping { Err(Some(to_status(&stopped(&self.replay).await))) } else { Ok(()) }
    }

    /// Reads the data of a message that lies in shared memory, and tells the writer that it may use that again.
    async fn fetch(&mut self, request: &mut WriteRequest, answers: &Answers) -> Ended {
        let (freed, read) = self.staged.fetch(&mut request.chunks).await;
        // The stream ends, and the writer's segments with it.
        read.map_err(|error| to_status(&error))?;
        if !freed.is_empty() {
            let told = WriteResponse { freed, ..WriteResponse::default() };
            answers.send(Ok(told)).await.map_err(|_| None)?;
        }
        Ok(())
    }

    /// Processes the chunks and items of a message. An error ends the stream, because the client is faulty.
    async fn take(&mut self, request: WriteRequest, done: &mut Done) -> Result<()> {
        let limit = self.replay.max_message_size();
        let decoded = request.chunks.iter().map(decoded_bytes).fold(0, u64::saturating_add);
        check_size_of("the decoded data of this message of a writer", decoded, limit)?;
        let (before, chunks) = (self.known.len(), request.chunks);
        let (layouts, known) = (&mut self.layouts, &mut self.known);
        let bytes = decode(decoded, || chunks_from_wire(chunks, layouts, known, limit)).await?;
        self.held.add(self.known.len() - before, bytes)?;
        // The loop below also computes the number after that of the last item, which must not overflow.
        if request.first_sequence.checked_add(request.items.len() as u64 + 1).is_none() {
            return Err(Error::invalid(format!("{} is not a valid sequence number", request.first_sequence)));
        }
        let count = request.items.len() as u64;
        let (inserted, gaps) = self.guard.ledger.settle(request.settled_through, request.first_sequence, count)?;
        if gaps > MAX_GAPS {
            return Err(Error::invalid(format!("more than {MAX_GAPS} sequence numbers of items are missing")));
        }
        if !inserted.is_empty() {
            // The stream before may have ended while they were being committed, or because they could not be.
            self.replay.commit()?;
        }
        let mut by_table: Vec<ItemsOf<'_>> = Vec::new();
        for (index, (sequence, item)) in (request.first_sequence..).zip(&request.items).enumerate() {
            if index % ITEMS_BEFORE_OTHERS == ITEMS_BEFORE_OTHERS - 1 {
                yield_now().await;
            }
            if self.held.is_waiting(sequence) {
                return Err(Error::invalid(format!("item {sequence} was sent again while it waits")));
            } else if inserted.binary_search(&sequence).is_ok() {
                done.push((sequence, Ok(())));
                continue;
            }
            match self.arrival(sequence, item) {
                Ok((table, arrival)) => {
                    let items = match by_table.iter().position(|items| items.table.name() == table.name()) {
                        Some(index) => &mut by_table[index],
                        None => {
                            by_table.push(ItemsOf { table, arrivals: Vec::new(), messages: Vec::new() });
                            by_table.last_mut().expect("just added")
                        }
                    };
                    items.arrivals.push(arrival);
                    items.messages.push((sequence, item));
                }
                Err(error) => done.push((sequence, Err(error))),
            }
        }
        let before = done.len();
        by_table.into_iter().for_each(|items| self.push(items, done));
        // The answer names ranges of numbers.
        done[before..].sort_unstable_by_key(|(sequence, _)| *sequence);
        let released = request.release.iter().filter_map(|key| self.known.remove(key));
        released.for_each(|chunk| self.held.release(&chunk));
        Ok(())
    }

    /// Returns an item, and its table. Fails if its message is not valid.
    fn arrival(&mut self, sequence: u64, message: &WriteItem) -> Result<(TableHandle, Arrival)> {
        let table = self.replay.table(&message.table)?;
        if self.replay.shard().is_some() && !self.told_tables.iter().any(|told| told.name() == message.table) {
            self.told_tables.push(table.clone());
        }
        let item = write_item_from_wire(message, &self.known)?;
        Ok((table.clone(), Arrival { sequence, item, is_validated: !message.not_validated }))
    }

    /// Inserts items, or queues them.
    fn push(&mut self, ItemsOf { table, arrivals, messages }: ItemsOf<'_>, done: &mut Done) {
        let before = done.len();
        self.queue.push_all(&table, arrivals, done);
        // Results come in the order of the items. The others wait.
        let mut results = done[before..].iter().map(|(sequence, _)| *sequence).peekable();
        for (sequence, message) in messages {
            if results.next_if_eq(&sequence).is_some() {
                continue;
            }
            let columns = message.trajectory.iter().flat_map(|trajectory| &trajectory.columns);
            let named = columns.flat_map(|column| &column.slices).map(|slice| slice.chunk_key);
            let of_rows = message.trajectory.is_none().then_some(message.chunk_key);
            let chunks = named.chain(of_rows).filter_map(|key| self.known.get(&key)).cloned().collect();
            self.held.begin_wait(sequence, message.key, chunks, write_item_bytes(message));
        }
    }

    /// Makes the message that reports the results of items.
    fn answer(&mut self, done: Done) -> WriteResponse {
        let mut response =
            WriteResponse { load: load_to_wire(&self.replay, &self.told_tables), ..WriteResponse::default() };
        for (sequence, result) in done {
            match result {
                Ok(()) => {
                    if response.count == 0 {
                        response.first = sequence;
                    }
                    if sequence == response.first + response.count {
                        response.count += 1;
                    } else {
                        response.confirmed.push(sequence);
                    }
                }
                Err(error) => {
                    // The item is not sent again, so the ledger counts its number as done. One that was only refused
                    // for a while is sent again by a writer that does not hear of it.
                    if !matches!(error, Error::Storage(_)) {
                        self.guard.ledger.add(sequence);
                    }
                    response.failures.push(WriteFailure { sequence, failure: Some(to_failure(&error)) });
                }
            }
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay_v1::wire::chunk_to_wire;
    use crate::tables::{chunk_of, queue};
    use reverb_core::{Codec, DType, Layout};
    use reverb_service::Transport;
    use reverb_service::decoding::turn;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    async fn task() -> WriteStreamTask {
        let replay = Replay::new(vec![queue("queue", 10)], 256 << 20).unwrap();
        let peer = Arc::new(Peer::new(Transport::Tcp, String::new()));
        let guard = replay.ledgers.take(None, 7).await;
        let staged = Staged::new(None, &replay, &peer);
        WriteStreamTask::new(replay, Inserter { peer: &peer, client: 1 }, None, guard, staged)
    }

    #[tokio::test]
    async fn chunks_that_no_item_names_and_nobody_releases_end_the_stream() {
        let mut task = task().await;
        let layout = Layout::new(1024, [(DType::UInt8, smallvec::smallvec![128 << 10], 0)]).unwrap();
        let chunk = chunk_to_wire(&chunk_of(layout, vec![0; 128 << 20]));
        let mut send = async |key: u64, release: Vec<u64>| {
            let chunks = vec![crate::replay_v1::proto::Chunk { key, ..chunk.clone() }];
            task.take(WriteRequest { chunks, release, ..WriteRequest::default() }, &mut Done::new()).await
        };
        for key in 1..200 {
            send(key, vec![key]).await.unwrap();
        }
        // Those of one item may have 4 GiB.
        for key in 200..240 {
            send(key, Vec::new()).await.unwrap();
        }
        let mut all = Ok(());
        for key in 240..300 {
            all = all.and(send(key, Vec::new()).await);
        }
        assert!(matches!(all, Err(Error::InvalidArgument(reason)) if reason.contains("not released")));
    }

    #[tokio::test]
    async fn a_message_of_large_compressed_chunks_waits_for_its_turn() {
        let message = |rows: usize| {
            let layout = Layout::new(rows, [(DType::UInt8, smallvec::smallvec![1024], 0)]).unwrap();
            let chunk = chunk_of(layout, vec![1; rows << 10]).compress(Codec::Lz4, &[]);
            let chunk = crate::replay_v1::proto::Chunk { key: rows as u64, ..chunk_to_wire(&chunk) };
            WriteRequest { chunks: vec![chunk], ..WriteRequest::default() }
        };
        let mut task = task().await;
        let mut done = Done::new();
        let room = turn(u64::MAX).await;
        let early = tokio::time::timeout(Duration::from_millis(200), task.take(message(2048), &mut done)).await;
        assert!(early.is_err(), "the chunk was decoded without room");
        assert!(task.known.is_empty());
        task.take(message(64), &mut done).await.unwrap();
        drop(room);
        task.take(message(2048), &mut done).await.unwrap();
        assert_eq!(task.known.len(), 2);
    }

    #[tokio::test]
    async fn others_are_served_between_the_items_of_large_messages() {
        let mut task = task().await;
        let item = |key| WriteItem { table: "nowhere".into(), key, priority: 1.0, rows: 1, ..WriteItem::default() };
        let message = |number: u64| {
            let items: Vec<_> = (0..100).map(item).collect();
            WriteRequest { first_sequence: 1 + number * 100, items, ..WriteRequest::default() }
        };
        let (answers, mut stream) = mpsc::channel(1000);
        let served = Arc::new(AtomicUsize::new(0));
        let counted = served.clone();
        let others = tokio::spawn(async move {
            loop {
                counted.fetch_add(1, Relaxed);
                yield_now().await;
            }
        });
        let mut messages = tokio_stream::iter((1..200).map(|number| Ok(message(number))));
        task.serve(message(0), &mut messages, &answers).await.unwrap();
        others.abort();
        assert!(served.load(Relaxed) >= 200, "others were served {} times", served.load(Relaxed));
        stream.close();
        let mut results = 0;
        while let Some(answer) = stream.recv().await {
            results += answer.unwrap().failures.len();
        }
        assert_eq!(results, 20_000);
    }
}
