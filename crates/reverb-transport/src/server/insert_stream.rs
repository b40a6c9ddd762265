//! A stream of inserts: requests are taken in order, and answered as they complete.

use crate::convert::{LayoutCache, groups_from_wire};
use crate::proto::replay::{InsertRequest, InsertResponse};
use crate::replay::{Replay, wait_for_inserts};
use crate::status::to_failure;
use crate::table_handle::Call;
use reverb_core::{Error, Result};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio_stream::{StreamExt, wrappers::ReceiverStream};
use tonic::{Status, Streaming};

/// Bytes of data that requests of one stream may hold while they wait; past it the stream is not read.
const MAX_WAITING_BYTES: usize = 64 << 20;
/// What a waiting request counts at least.
const REQUEST_BYTES: usize = 4096;

type Answers = mpsc::Sender<std::result::Result<InsertResponse, Status>>;

/// Serves the stream in a task of its own, which ends when the client does.
pub fn insert_stream(
    replay: Arc<Replay>,
    requests: Streaming<InsertRequest>,
) -> ReceiverStream<std::result::Result<InsertResponse, Status>> {
    let (answers, stream) = mpsc::channel(64);
    tokio::spawn(async move {
        let pump = Pump {
            held: Arc::default(),
            layouts: LayoutCache::default(),
            waiting: JoinSet::new(),
            handles: HashMap::new(),
            replay,
            answers,
        };
        pump.run(requests).await;
    });
    ReceiverStream::new(stream)
}

struct Pump {
    replay: Arc<Replay>,
    answers: Answers,
    layouts: LayoutCache,
    /// Requests that wait for a table; dropped with the pump, which withdraws them.
    waiting: JoinSet<u64>,
    handles: HashMap<u64, AbortHandle>,
    /// Bytes of the requests that wait.
    held: Arc<AtomicUsize>,
}

/// The bytes that a waiting request holds.
struct Held {
    all: Arc<AtomicUsize>,
    bytes: usize,
}

impl Held {
    fn new(all: &Arc<AtomicUsize>, bytes: usize) -> Self {
        all.fetch_add(bytes, Relaxed);
        Self { all: all.clone(), bytes }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Relaxed);
    }
}

impl Pump {
    async fn run(mut self, mut requests: Streaming<InsertRequest>) {
        let replay = self.replay.clone();
        let mut closed = std::pin::pin!(replay.closed());
        loop {
            // Reading goes on only when there is room: the client feels it as flow control. A request that ends makes
            // room, and wakes this loop.
            let has_room = self.held.load(Relaxed) < MAX_WAITING_BYTES;
            tokio::select! {
                request = requests.next(), if has_room => match request {
                    Some(Ok(request)) => {
                        if self.take(request).await.is_err() {
                            return;
                        }
                    }
                    // The client has closed its side, and may wait for answers still to come.
                    None => break,
                    // It is gone, or sent what cannot be read. Whatever waits is withdrawn.
                    Some(Err(status)) => {
                        let Self { answers, waiting, .. } = self;
                        drop(waiting);
                        let _gone = answers.send(Err(status)).await;
                        return;
                    }
                },
                Some(done) = self.waiting.join_next() => self.forget(done),
                () = self.answers.closed() => return,
                // What waits has failed in this moment; the answers still go out.
                () = &mut closed => break,
            }
        }
        while !self.waiting.is_empty() {
            tokio::select! {
                Some(done) = self.waiting.join_next() => self.forget(done),
                () = self.answers.closed() => return,
            }
        }
    }

    fn forget(&mut self, done: std::result::Result<u64, tokio::task::JoinError>) {
        if let Ok(request_id) = done {
            self.handles.remove(&request_id);
        }
    }

    /// Begins a request. An error says that nobody listens any more.
    async fn take(&mut self, request: InsertRequest) -> std::result::Result<(), ()> {
        let request_id = request.request_id;
        if request.cancel {
            if let Some(handle) = self.handles.remove(&request_id) {
                handle.abort();
            }
            return Ok(());
        }
        if self.handles.contains_key(&request_id) {
            let error = Error::invalid(format!("request {request_id} is under way already"));
            return self.answer(request_id, Err(error)).await;
        }
        let size = request.chunks.iter().map(|chunk| chunk.data.len()).sum::<usize>() + REQUEST_BYTES;
        let deadline = request.timeout_ms.and_then(|ms| Instant::now().checked_add(Duration::from_millis(ms)));
        match self.begin(request) {
            Ok(calls) if calls.iter().all(|call| matches!(call, Call::Done(Ok(())))) => {
                self.answer(request_id, Ok(())).await
            }
            Ok(calls) => {
                let held = Held::new(&self.held, size);
                let handle = self.waiting.spawn(wait(request_id, calls, deadline, self.answers.clone(), held));
                self.handles.insert(request_id, handle);
                Ok(())
            }
            Err(error) => self.answer(request_id, Err(error)).await,
        }
    }

    fn begin(&mut self, request: InsertRequest) -> Result<Vec<Call<()>>> {
        if request.batches.is_empty() {
            return Err(Error::invalid("the request inserts no item"));
        }
        let groups = groups_from_wire(&self.replay, request, &mut self.layouts)?;
        self.replay.insert(groups)
    }

    async fn answer(&self, request_id: u64, result: Result<()>) -> std::result::Result<(), ()> {
        self.answers.send(Ok(answer(request_id, result))).await.map_err(|_| ())
    }
}

async fn wait(request_id: u64, calls: Vec<Call<()>>, deadline: Option<Instant>, answers: Answers, _held: Held) -> u64 {
    let notice = |text: &str| {
        // The client logs it where its people look; here it is for whoever follows the server closely.
        tracing::info!("{text}");
        // If the channel is full the client is busy with answers, and hears of this from the log.
        let _full =
            answers.try_send(Ok(InsertResponse { request_id, notice: text.into(), ..InsertResponse::default() }));
    };
    let result = wait_for_inserts(calls, deadline, notice).await;
    let _gone = answers.send(Ok(answer(request_id, result))).await;
    request_id
}

fn answer(request_id: u64, result: Result<()>) -> InsertResponse {
    InsertResponse { request_id, failure: result.err().map(|error| to_failure(&error)), ..InsertResponse::default() }
}
