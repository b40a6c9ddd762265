//! A stream of a writer's items.

use crate::convert::{LayoutCache, chunks_from_wire, write_item_from_wire};
use crate::proto::replay::{WriteFailure, WriteRequest, WriteResponse};
use crate::replay::Replay;
use crate::status::{to_failure, to_status};
use crate::table_handle::Arrival;
use crate::write_ledger::Held;
use crate::write_queue::{Done, WriteQueue};
use reverb_core::{Chunk, Error, Result};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_stream::{StreamExt, wrappers::ReceiverStream};
use tonic::{Status, Streaming};

/// Items of one stream that wait, and bytes of chunks while any does; past either the stream is not read.
const MAX_WAITING_ITEMS: usize = 1024;
const MAX_WAITING_BYTES: usize = 64 << 20;
/// The writer is told why its items wait, so that it can say so if its caller asks: after this time, once a wait.
const LONG_WAIT: Duration = Duration::from_millis(100);

type Answers = mpsc::Sender<std::result::Result<WriteResponse, Status>>;

/// Serves the stream in a task of its own, which ends when the client does.
pub fn write_stream(
    replay: Arc<Replay>,
    requests: Streaming<WriteRequest>,
) -> ReceiverStream<std::result::Result<WriteResponse, Status>> {
    let (answers, stream) = mpsc::channel(64);
    tokio::spawn(serve(replay, requests, answers));
    ReceiverStream::new(stream)
}

async fn serve(replay: Arc<Replay>, mut requests: Streaming<WriteRequest>, answers: Answers) {
    let first = match requests.next().await {
        Some(Ok(first)) => first,
        // It is gone before it began, or sent what cannot be read.
        Some(Err(status)) => return drop(answers.send(Err(status)).await),
        None => return,
    };
    let writer_id = first.writer_id;
    if writer_id == 0 {
        let error = Error::invalid("the first message of a writer's stream must name its writer_id");
        return drop(answers.send(Err(to_status(&error))).await);
    }
    let held = replay.ledgers().take(writer_id).await;
    let mut pump = Pump {
        chunks: HashMap::new(),
        chunk_bytes: 0,
        layouts: LayoutCache::default(),
        queue: WriteQueue::default(),
        replay: replay.clone(),
        held,
    };
    let complete = pump.run(first, &mut requests, &answers).await;
    let Pump { queue, mut held, .. } = pump;
    let mut done = Done::new();
    queue.withdraw(&mut done).await;
    done.iter().filter(|(_, result)| result.is_ok()).for_each(|(sequence, _)| held.ledger.add(*sequence));
    if complete {
        replay.ledgers().forget(writer_id);
    }
}

fn stopped() -> Error {
    Error::Unavailable("the server was stopped".into())
}

struct Pump {
    replay: Arc<Replay>,
    held: Held,
    chunks: HashMap<u64, Arc<Chunk>>,
    /// Bytes of the chunks.
    chunk_bytes: usize,
    layouts: LayoutCache,
    queue: WriteQueue,
}

impl Pump {
    /// True if the writer has ended its stream and all its items are done.
    async fn run(&mut self, first: WriteRequest, requests: &mut Streaming<WriteRequest>, answers: &Answers) -> bool {
        let replay = self.replay.clone();
        let mut closed = std::pin::pin!(replay.closed());
        let mut request = Some(first);
        let mut ended = false;
        let mut notice_at = Instant::now() + LONG_WAIT;
        loop {
            let mut done = Done::new();
            if let Some(request) = request.take()
                && let Err(error) = self.take(request, &mut done)
            {
                let _gone = answers.send(Err(to_status(&error))).await;
                return false;
            }
            if done.is_empty() {
                if ended && self.queue.len() == 0 {
                    return true;
                }
                let queue = &mut self.queue;
                let has_room =
                    queue.len() == 0 || queue.len() < MAX_WAITING_ITEMS && self.chunk_bytes < MAX_WAITING_BYTES;
                tokio::select! {
                    next = requests.next(), if !ended && has_room => match next {
                        Some(Ok(next)) => request = Some(next),
                        Some(Err(status)) => {
                            let _gone = answers.send(Err(status)).await;
                            return false;
                        }
                        None => ended = true,
                    },
                    () = std::future::poll_fn(|context| queue.poll(context, &mut done)), if queue.len() > 0 => {}
                    () = sleep_until(notice_at), if queue.len() > 0 => {
                        notice_at = Instant::now() + LONG_WAIT * 36_000;
                        let notice = queue.explain().unwrap_or_default();
                        // If the channel is full the client is busy with answers.
                        let _full = answers.try_send(Ok(WriteResponse { notice, ..WriteResponse::default() }));
                    }
                    () = self.held.taken_over() => {
                        let error = Error::Cancelled("a newer stream of the same writer was opened".into());
                        let _gone = answers.send(Err(to_status(&error))).await;
                        return false;
                    }
                    () = answers.closed() => return false,
                    () = &mut closed => {
                        let _gone = answers.send(Err(to_status(&stopped()))).await;
                        return false;
                    }
                }
            }
            if !done.is_empty() {
                notice_at = Instant::now() + LONG_WAIT;
                // The server is stopping: those items are not done, and the writer may bring them to the next one.
                let before = done.len();
                done.retain(|(_, result)| !matches!(result, Err(Error::Cancelled(_))));
                let stopping = done.len() < before;
                if answers.send(Ok(self.answer(done))).await.is_err() {
                    return false;
                }
                if stopping {
                    let _gone = answers.send(Err(to_status(&stopped()))).await;
                    return false;
                }
            } else if self.queue.len() == 0 {
                notice_at = Instant::now() + LONG_WAIT;
            }
        }
    }

    /// Takes a message's chunks and items. An error ends the stream: the client is broken.
    fn take(&mut self, request: WriteRequest, done: &mut Done) -> Result<()> {
        self.replay.check_size(request.chunks.iter().map(|chunk| chunk.data.len() as u64).max().unwrap_or(0))?;
        let replay = &self.replay;
        let mut total = request.chunks.iter().map(|chunk| chunk.data.len() as u64).sum();
        let mut check_growth = |bytes| {
            total += bytes;
            replay.check_size(total)
        };
        self.chunk_bytes += chunks_from_wire(request.chunks, &mut self.layouts, &mut self.chunks, &mut check_growth)?;
        // Counting goes one further than the last item.
        if request.first_sequence.checked_add(request.items.len() as u64 + 1).is_none() {
            return Err(Error::invalid(format!("{} is no sequence number", request.first_sequence)));
        }
        self.held.ledger.settle(request.settled_through);
        for (sequence, item) in (request.first_sequence..).zip(request.items) {
            if self.held.ledger.has(sequence) {
                done.push((sequence, Ok(())));
                continue;
            }
            let (table, is_validated) = (item.table.clone(), !item.not_validated);
            let item =
                self.replay.table(&table).and_then(|table| Ok((table, write_item_from_wire(item, &self.chunks)?)));
            match item {
                Ok((table, item)) => self.queue.push(table, Arrival { sequence, item, is_validated }, done),
                Err(error) => done.push((sequence, Err(error))),
            }
        }
        for key in request.release {
            self.chunk_bytes -= self.chunks.remove(&key).map_or(0, |chunk| chunk.size_bytes());
        }
        Ok(())
    }

    /// Notes what is done, and says so.
    fn answer(&mut self, done: Done) -> WriteResponse {
        let mut response = WriteResponse::default();
        for (sequence, result) in done {
            match result {
                Ok(()) => {
                    self.held.ledger.add(sequence);
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
                    // It is not tried again, so the numbers behind it need not wait for it.
                    self.held.ledger.add(sequence);
                    response.failures.push(WriteFailure { sequence, failure: Some(to_failure(&error)) });
                }
            }
        }
        response
    }
}
