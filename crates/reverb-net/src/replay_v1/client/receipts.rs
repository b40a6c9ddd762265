//! The receipts of a sample stream whose batches the program has.
//!
//! A receipt does not leave while the call that hands its batch over has yet to return: a program that is killed then
//! would take the batch with it. It leaves with the next draw or call of the client, or [`DELAY`] later.

use crate::replay_v1::proto::{SampleRequest, sample_request};
use parking_lot::Mutex;
use reverb_core::{Error, Result, fork, random_key};
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

// limit (Draws): time after which the receipt of a batch that a program has leaves without another call | {}, or when
// `reverb-idle` looks after the connection |
/// Time after which a receipt leaves that nothing else has taken along. It is a little shorter than the time after which
/// the idle driver looks after a connection, so that it finds the receipt due.
const DELAY: Duration = Duration::from_millis(40);

/// Time between two looks at streams that end.
const LOOK: Duration = Duration::from_millis(1);

/// The streams whose clients were dropped with receipts on their way: for each the process that it belongs to, and what
/// its task holds.
static ENDING: Mutex<Vec<(u32, Weak<()>)>> = Mutex::new(Vec::new());

/// Waits for the end of streams whose clients were dropped: their servers have then processed all their receipts. For a
/// process that ends.
pub fn wait_for_streams(deadline: Instant) {
    let is_open = |(generation, task): &(u32, Weak<()>)| *generation == fork::generation() && task.strong_count() > 0;
    // After a fork, nobody may ever unlock it.
    while ENDING.try_lock().is_some_and(|ending| ending.iter().any(is_open)) && Instant::now() < deadline {
        std::thread::sleep(LOOK);
    }
}

/// The receipts of one stream. See the documentation of this module.
#[derive(Debug)]
pub struct Receipts {
    /// The number by which the server knows the stream.
    pub stream: u64,
    /// Whether the connection lives on a runtime that nobody drives between the calls of its client.
    is_driven: bool,
    requests: UnboundedSender<SampleRequest>,
    state: Mutex<State>,
    /// Starts the timer. Its drop ends the task of the timer.
    timer: UnboundedSender<()>,
    /// What the task of the stream holds.
    task: Weak<()>,
}

/// A receipt that is due.
#[derive(Debug)]
struct Due {
    request_id: u64,
    since: Instant,
    /// Whether the next draw does not take it along, since it may begin before the program has the batch.
    waits: bool,
}

#[derive(Debug, Default)]
struct State {
    due: VecDeque<Due>,
    /// Number of receipts that were sent.
    sent: u64,
    /// Number of receipts that the server has processed, as far as is known.
    processed: u64,
    /// Whether the timer runs.
    is_timed: bool,
    /// Whether a receipt has become due since the timer last looked.
    is_used: bool,
    /// Whether the client has let go of the stream, so that no later call takes a receipt along.
    is_closed: bool,
    /// Why the samples of all further batches go back.
    ended: Option<Error>,
}

impl State {
    fn send(&mut self, requests: &UnboundedSender<SampleRequest>, is_meant: impl Fn(&Due) -> bool) {
        self.due.retain(|due| {
            let is_meant = is_meant(due);
            if is_meant {
                let kind = Some(sample_request::Kind::Received(true));
                let _gone = requests.send(SampleRequest { request_id: due.request_id, kind });
                self.sent += 1;
            }
            !is_meant
        });
    }
}

impl Receipts {
    /// Makes the receipts of a stream that lives on the current runtime. The second part is for the task of the stream to
    /// hold.
    pub fn new(requests: UnboundedSender<SampleRequest>) -> (Arc<Self>, Arc<()>) {
        let task = Arc::new(());
        let is_driven = Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread;
        let (timer, started) = mpsc::unbounded_channel();
        let (stream, state, of_task) = (random_key(), Mutex::default(), Arc::downgrade(&task));
        let receipts = Arc::new(Self { stream, is_driven, requests, state, timer, task: of_task });
        tokio::spawn(send_in_time(started, Arc::downgrade(&receipts)));
        (receipts, task)
    }

    /// Sends another request of the stream.
    pub fn send_request(&self, request_id: u64, kind: sample_request::Kind) {
        let _gone = self.requests.send(SampleRequest { request_id, kind: Some(kind) });
    }

    /// Notes that the program has the batch of a request, or will have it in a moment: then the receipt `waits`, also if a
    /// draw begins.
    ///
    /// # Errors
    /// The error of [`Receipts::end`], after that was called.
    pub fn add(&self, request_id: u64, waits: bool) -> Result<()> {
        let mut state = self.state.lock();
        if let Some(error) = &state.ended {
            return Err(error.clone());
        }
        state.due.push_back(Due { request_id, since: Instant::now(), waits });
        state.is_used = true;
        if state.is_closed {
            drop(state);
            self.close();
        } else if !std::mem::replace(&mut state.is_timed, true) {
            let _ended = self.timer.send(());
        }
        Ok(())
    }

    /// Whether [`Receipts::end`] was called.
    pub fn have_ended(&self) -> bool {
        self.state.lock().ended.is_some()
    }

    /// Undoes [`Receipts::add`]. Returns whether the receipt had not been sent yet.
    pub fn revoke(&self, request_id: u64) -> bool {
        let mut state = self.state.lock();
        let place = state.due.iter().position(|due| due.request_id == request_id);
        place.and_then(|place| state.due.remove(place)).is_some()
    }

    /// Sends all receipts that are due.
    pub fn send(&self) {
        self.state.lock().send(&self.requests, |_| true);
    }

    /// Sends the receipts that go out with the next draw or insert.
    pub fn send_with_call(&self) {
        self.state.lock().send(&self.requests, |due| !due.waits);
    }

    /// Sends the receipts that are due, because the client lets go of the stream. Further ones leave at once: batches may
    /// have arrived whose calls are about to hand them over.
    pub fn close(&self) {
        self.state.lock().is_closed = true;
        if self.is_unsettled()
            && let Some(mut ending) = ENDING.try_lock_for(fork::LOCK_TIME)
        {
            ending.retain(|(_, task)| task.strong_count() > 0);
            ending.push((fork::generation(), self.task.clone()));
        }
        self.send();
    }

    /// Sends all receipts that are due before a call on a connection of the client. Returns the number of receipts that
    /// the call must wait for; `None` if the server has processed all. A connection that is not on a driven runtime
    /// cannot wait for those of one that is.
    pub fn send_before_call(&self, from_driven: bool) -> Option<u64> {
        if self.is_driven && !from_driven {
            return None;
        }
        self.send();
        let state = self.state.lock();
        (state.sent > state.processed).then_some(state.sent)
    }

    /// Whether the server may not have processed all receipts.
    pub fn is_unsettled(&self) -> bool {
        let state = self.state.lock();
        !state.due.is_empty() || state.sent > state.processed
    }

    /// Whether the connection lives on a runtime that nobody drives between the calls of its client.
    pub fn is_driven(&self) -> bool {
        self.is_driven
    }

    /// Notes that the server has processed that many receipts.
    pub fn processed(&self, count: u64) {
        let mut state = self.state.lock();
        state.processed = state.processed.max(count);
    }

    /// Sends the last receipts, because the server is about to stop. The samples of all further batches go back.
    pub fn end(&self, error: Error) {
        let mut state = self.state.lock();
        state.send(&self.requests, |_| true);
        state.ended = Some(error);
        self.send_request(0, sample_request::Kind::Settled(true));
    }

    /// Sends the receipts whose time has come. Returns when to look again: when the next one is due. If there is none, the
    /// timer goes on as long as the stream is in use, because its start wakes the runtime; else it has ended.
    fn send_overdue(&self) -> Option<Instant> {
        let mut state = self.state.lock();
        let now = Instant::now();
        state.send(&self.requests, |due| due.since + DELAY <= now);
        let is_used = std::mem::take(&mut state.is_used);
        let next = state.due.front().map(|due| due.since).or(is_used.then_some(now)).map(|since| since + DELAY);
        state.is_timed = next.is_some();
        next
    }
}

/// The task of the timer.
async fn send_in_time(mut started: UnboundedReceiver<()>, receipts: Weak<Receipts>) {
    while started.recv().await.is_some() {
        while let Some(next) = receipts.upgrade().and_then(|receipts| receipts.send_overdue()) {
            tokio::time::sleep_until(next.into()).await;
        }
    }
}
