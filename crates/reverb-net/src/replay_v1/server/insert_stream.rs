//! The server side of an insert stream. Requests are processed in order, and answered when they complete.

use super::last_word::end_stopped;
use super::staged::Staged;
use super::vanished::log_vanished;
use super::waiting_beats::beat_while_waiting;
use crate::grpc::held_memory::CHUNK_BYTES;
use crate::replay_v1::proto::{InsertRequest, InsertResponse, ItemBatch};
use crate::replay_v1::status::to_failure;
use crate::replay_v1::wire::{
    LayoutCache, decoded_bytes, insert_chunks_from_wire, items_bytes, items_from_wire, load_to_wire,
};
use crate::transport::passing::Passing;
use reverb_core::{Error, Result};
use reverb_service::Call;
use reverb_service::decoding::{decode, on_bytes, on_items};
use reverb_service::insert::{InsertGroup, wait_for_inserts};
use reverb_service::{Inserter, Notice, Peer, Replay, StreamKind, TableHandle};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio_stream::{StreamExt, wrappers::ReceiverStream};
use tonic::{Status, Streaming};

// limit (Writers): memory of a stream's waiting inserts: data and items | {}, and one insert | the stream is not read
/// Memory of the waiting requests of one stream in bytes, above which the stream is not read.
const MAX_WAITING_BYTES: usize = 64 << 20;
/// Bytes that a waiting request counts in addition to its chunks and items.
const REQUEST_BYTES: usize = 4096;

type Answers = mpsc::Sender<std::result::Result<InsertResponse, Status>>;

/// Serves the stream in a separate task, which ends when the client disconnects.
pub fn insert_stream(
    replay: Arc<Replay>,
    (peer, client): (Arc<Peer>, u64),
    heartbeat: Option<Duration>,
    passing: Option<Arc<Passing>>,
    requests: Streaming<InsertRequest>,
) -> ReceiverStream<std::result::Result<InsertResponse, Status>> {
    let (answers, stream) = mpsc::channel(64);
    let open = replay.connections.add_stream(&peer, StreamKind::Insert);
    tokio::spawn(async move {
        let _open = open;
        let task = InsertStreamTask {
            held: Arc::default(),
            layouts: LayoutCache::default(),
            staged: Staged::new(passing, &replay, &peer),
            waiting: JoinSet::new(),
            handles: HashMap::new(),
            replay,
            peer,
            client,
            answers,
        };
        beat_while_waiting(heartbeat, &task.held, &task.answers);
        task.run(requests).await;
    });
    ReceiverStream::new(stream)
}

/// The state of one stream.
struct InsertStreamTask {
    replay: Arc<Replay>,
    peer: Arc<Peer>,
    /// The number of the client.
    client: u64,
    answers: Answers,
    layouts: LayoutCache,
    staged: Staged,
    /// Requests that wait for a table. Dropping them withdraws them.
    waiting: JoinSet<u64>,
    handles: HashMap<u64, AbortHandle>,
    /// Memory of all waiting requests in bytes.
    held: Arc<AtomicUsize>,
}

/// The bytes that a waiting request holds. They are subtracted from the sum on drop.
struct HeldBytes {
    all: Arc<AtomicUsize>,
    bytes: usize,
}

impl HeldBytes {
    fn new(all: &Arc<AtomicUsize>, bytes: usize) -> Self {
        all.fetch_add(bytes, Relaxed);
        Self { all: all.clone(), bytes }
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Relaxed);
    }
}

impl InsertStreamTask {
    async fn run(mut self, mut requests: Streaming<InsertRequest>) {
        let replay = self.replay.clone();
        let mut closed = std::pin::pin!(replay.closed());
        loop {
            // The stream is read only while there is room, so flow control slows the client down. A request that
            // completes makes room and wakes this loop.
            let has_room = self.held.load(Relaxed) < MAX_WAITING_BYTES;
            tokio::select! {
                request = requests.next(), if has_room => match request {
                    Some(Ok(request)) => {
                        if self.take(request).await.is_err() {
                            return;
                        }
                    }
                    // The client has closed its side, but may wait for answers.
                    None => break,
                    // The client disconnected, or sent an unreadable message. Waiting requests are withdrawn.
                    Some(Err(status)) => {
                        self.log_vanished();
                        let Self { answers, waiting, .. } = self;
                        drop(waiting);
                        let _gone = answers.send(Err(status)).await;
                        return;
                    }
                },
                Some(done) = self.waiting.join_next() => self.forget(done),
                () = self.answers.closed() => return self.log_vanished(),
                // The waiting calls have just failed. Their answers are still sent.
                () = &mut closed => break,
            }
        }
        while !self.waiting.is_empty() {
            tokio::select! {
                Some(done) = self.waiting.join_next() => self.forget(done),
                () = self.answers.closed() => return self.log_vanished(),
            }
        }
        if replay.is_closed() {
            end_stopped(&replay, &self.answers).await;
        }
    }

    /// Logs that the client has gone, if it had inserts that waited.
    fn log_vanished(&self) {
        log_vanished(&self.replay, &self.peer, &[(self.handles.len(), "waiting inserts")]);
    }

    fn forget(&mut self, done: std::result::Result<u64, tokio::task::JoinError>) {
        if let Ok(request_id) = done {
            self.handles.remove(&request_id);
        }
    }

    /// Begins a request. An error means that the client does not read answers any more.
    async fn take(&mut self, mut request: InsertRequest) -> std::result::Result<(), ()> {
        let request_id = request.request_id;
        if request.cancel {
            if let Some(handle) = self.handles.remove(&request_id) {
                handle.abort();
            }
            return Ok(());
        }
        if request.batches.is_empty() && request == InsertRequest::default() {
            // A heartbeat of the client.
            return Ok(());
        }
        if self.handles.contains_key(&request_id) {
            let error = Error::invalid(format!("request id {request_id} is already in use"));
            return self.answer(request_id, &[], Err(error)).await;
        }
        let (freed, read) = self.staged.fetch(&mut request.chunks).await;
        if !freed.is_empty() {
            let told = InsertResponse { freed, ..InsertResponse::default() };
            self.answers.send(Ok(told)).await.map_err(|_| ())?;
        }
        if let Err(error) = read {
            return self.answer(request_id, &[], Err(error)).await;
        }
        let (size, tables) = (request_bytes(&request), self.told_tables(&request));
        let deadline = request.timeout_ms.and_then(|ms| Instant::now().checked_add(Duration::from_millis(ms)));
        match self.begin(request, size).await {
            Ok(calls) if calls.iter().all(|call| matches!(call, Call::Done(Ok(())))) => {
                self.answer(request_id, &tables, Ok(())).await
            }
            Ok(calls) => {
                let held = HeldBytes::new(&self.held, size);
                let (replay, peer) = (self.replay.clone(), self.peer.clone());
                let waits = wait((request_id, tables), (replay, peer), calls, deadline, self.answers.clone(), held);
                let handle = self.waiting.spawn(waits);
                self.handles.insert(request_id, handle);
                Ok(())
            }
            Err(error) => self.answer(request_id, &tables, Err(error)).await,
        }
    }

    /// Returns the tables of a request whose largest priorities the answer of a shard tells.
    fn told_tables(&self, request: &InsertRequest) -> Vec<TableHandle> {
        let mut tables: Vec<TableHandle> = Vec::new();
        if self.replay.shard().is_some() {
            for ItemBatch { table: name, .. } in &request.batches {
                if !tables.iter().any(|table| table.name() == name) {
                    tables.extend(self.replay.table(name).ok().cloned());
                }
            }
        }
        tables
    }

    /// Begins to insert the items of a request, whose memory is `size` bytes.
    async fn begin(&mut self, request: InsertRequest, size: usize) -> Result<Vec<Call<()>>> {
        if request.batches.is_empty() {
            return Err(Error::invalid("the request does not contain any items"));
        }
        let limit = self.replay.max_message_size();
        let decoded = request.chunks.iter().map(decoded_bytes).fold(0, u64::saturating_add);
        let layouts = &mut self.layouts;
        let chunks = tokio::select! {
            biased;
            chunks = decode(decoded, || insert_chunks_from_wire(request.chunks, layouts, limit)) => chunks?,
            () = self.answers.closed() => return Err(Error::Cancelled("the client has disconnected".into())),
        };
        let by = Inserter { peer: &self.peer, client: self.client };
        let items: usize = request.batches.iter().map(|batch| batch.keys.len()).sum();
        let insert = || {
            let mut groups: Vec<InsertGroup> = Vec::with_capacity(1);
            for batch in request.batches {
                match groups.last_mut() {
                    // Neighbours are one insert: rows of different shapes come in a chunk each.
                    Some(last) if last.table.name() == batch.table => {
                        last.items.extend(items_from_wire(batch, &chunks)?);
                    }
                    _ => {
                        let table = self.replay.served(&batch.table)?;
                        groups.push(InsertGroup { table, items: items_from_wire(batch, &chunks)? });
                    }
                }
            }
            self.replay.insert(groups, by)
        };
        // Also a few large items take a while: the memory of those that leave for them is freed.
        on_items(items, || on_bytes(size, insert))
    }

    async fn answer(&self, request_id: u64, tables: &[TableHandle], result: Result<()>) -> std::result::Result<(), ()> {
        let answer = answer(&self.replay, request_id, tables, result).await;
        self.answers.send(Ok(answer)).await.map_err(|_| ())
    }
}

/// Returns the memory that a request takes while it waits, in bytes.
fn request_bytes(request: &InsertRequest) -> usize {
    let chunks: usize = request.chunks.iter().map(|chunk| chunk.data.len() + CHUNK_BYTES).sum();
    // Each row of an insert is an item of its own, which can take more memory than its data.
    let items: usize = request.batches.iter().map(items_bytes).sum();
    REQUEST_BYTES + chunks + items
}

async fn wait(
    (request_id, tables): (u64, Vec<TableHandle>),
    (replay, peer): (Arc<Replay>, Arc<Peer>),
    calls: Vec<Call<()>>,
    deadline: Option<Instant>,
    answers: Answers,
    _held: HeldBytes,
) -> u64 {
    let notice = |notice: &Notice| {
        notice.tell(&peer);
        // If the channel is full, the client is busy with answers. The notice is only in the log then.
        let _full = answers.try_send(Ok(InsertResponse {
            request_id,
            notice: notice.text.clone(),
            ..InsertResponse::default()
        }));
    };
    let result = wait_for_inserts(calls, deadline, notice).await;
    let _gone = answers.send(Ok(answer(&replay, request_id, &tables, result).await)).await;
    request_id
}

async fn answer(replay: &Replay, request_id: u64, tables: &[TableHandle], result: Result<()>) -> InsertResponse {
    let failure = match result {
        Ok(()) => None,
        Err(error) => Some(to_failure(&replay.as_told(error).await)),
    };
    InsertResponse { request_id, failure, load: load_to_wire(replay, tables), ..InsertResponse::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay_v1::proto::{Chunk, ColumnSpec};
    use crate::tables::{Recorder, uniform};
    use reverb_core::DType;
    use reverb_service::Transport;
    use std::sync::mpsc::channel;

    const SOON: Duration = Duration::from_secs(20);

    /// An insert of this many rows.
    fn insert(rows: usize) -> InsertRequest {
        let column = ColumnSpec { dtype: DType::Int64 as u32, ..ColumnSpec::default() };
        let data = vec![0; 8 * rows].into();
        let chunk = Chunk { key: 1, rows: rows as u32, columns: vec![column], data, ..Chunk::default() };
        let (keys, priorities) = ((0..rows as u64).collect(), vec![1.0]);
        let batch = ItemBatch {
            table: "table".into(),
            keys,
            priorities,
            chunk_key: 1,
            rows_per_item: 1,
            ..ItemBatch::default()
        };
        InsertRequest { request_id: 1, chunks: vec![chunk], batches: vec![batch], ..InsertRequest::default() }
    }

    /// The only thread of the runtime serves other tasks while a large insert is under way.
    #[test]
    fn a_large_insert_is_made_beside_other_tasks() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let table = uniform("table");
        let (other, others) = channel();
        let (handle, mut is_first) = (runtime.handle().clone(), true);
        Recorder::of(&table).at_commit(move || {
            if std::mem::take(&mut is_first) {
                let (ran, runs) = channel();
                handle.spawn(async move { ran.send(()) });
                other.send(runs.recv_timeout(SOON).is_ok()).unwrap();
            }
        });
        let replay = Replay::new(vec![table.clone()], 1 << 30).unwrap();
        let (answers, mut answered) = mpsc::channel(4);
        let peer = Arc::new(Peer::new(Transport::Tcp, String::new()));
        let mut task = InsertStreamTask {
            held: Arc::default(),
            layouts: LayoutCache::default(),
            staged: Staged::new(None, &replay, &peer),
            waiting: JoinSet::new(),
            handles: HashMap::new(),
            replay,
            peer,
            client: 1,
            answers,
        };
        let rows = 50_000;
        let inserted = runtime.spawn(async move { task.take(insert(rows)).await });
        assert!(runtime.block_on(inserted).unwrap().is_ok());
        assert_eq!(answered.blocking_recv().unwrap().unwrap().failure, None);
        assert!(others.recv_timeout(SOON).unwrap(), "another task waited for the insert");
        assert_eq!(table.status().info.current_size, rows as u64);
    }
}
