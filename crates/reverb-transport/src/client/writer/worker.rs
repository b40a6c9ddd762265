//! The task of a writer: finds the server, and keeps items moving.

use super::local::Local;
use super::outbox::is_ready;
use super::{Shared, remote};
use reverb_core::{Error, fork};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

/// An item waits so long for a chunk that may be closed early to fill.
const LINGER: Duration = Duration::from_millis(5);
/// Pauses between attempts to find the server: doubled from the first to the last, and a random half taken off.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));
/// A road that held for this long was a good one: the next search begins with short pauses.
const GOOD_ROAD: Duration = Duration::from_secs(2);

/// Runs until the writer is closed.
pub async fn run(shared: Arc<Shared>) {
    let mut pause = PAUSES.0;
    let mut lost_at: Option<Instant> = None;
    while !is_over(&shared) {
        let started = Instant::now();
        let lost = match shared.same_process() {
            Some(replay) => {
                shared.local.lock().get_or_insert_with(|| Local::new(replay));
                lost_at = None;
                shared.state.lock().is_lost = false;
                run_local(&shared).await;
                Error::Unavailable("the server of this process was stopped".into())
            }
            None => match remote::run(&shared, &mut lost_at).await {
                Ok(()) => return,
                Err(error) => error,
            },
        };
        let now = Instant::now();
        let since = *lost_at.get_or_insert(now);
        shared.state.lock().outbox.return_all();
        if now - since >= shared.options.reconnect_timeout || !is_passing(&lost) {
            fail(&shared, &lost, now - since);
            return;
        }
        {
            let mut state = shared.state.lock();
            state.reason = format!("The server is not there: {lost}");
            state.is_lost = true;
        }
        shared.tell();
        if now - started > GOOD_ROAD {
            pause = PAUSES.0;
        }
        tokio::select! {
            () = tokio::time::sleep(pause.mul_f64(rand::random_range(0.5..1.0))) => {}
            () = closed(&shared) => return,
        }
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// Whether an error may go away by itself.
fn is_passing(error: &Error) -> bool {
    matches!(error, Error::Unavailable(_) | Error::Cancelled(_) | Error::DeadlineExceeded(_) | Error::Internal(_))
}

fn fail(shared: &Shared, error: &Error, lost_for: Duration) {
    let lost = {
        let mut state = shared.state.lock();
        let names = state.outbox.describe();
        let count = state.outbox.len();
        state.failed = Some(Error::Unavailable(format!(
            "the writer gave up after {:.0} s without its server; {count} items were not confirmed ({names}); {error}",
            lost_for.as_secs_f64()
        )));
        state.outbox.take_all()
    };
    shared.tell();
    drop(lost);
}

pub fn is_over(shared: &Shared) -> bool {
    shared.generation != fork::generation() || shared.state.lock().closed
}

async fn closed(shared: &Shared) {
    while !is_over(shared) {
        shared.wake.notified().await;
    }
}

/// Looks after items of the same-process road until the server is stopped or the writer closed.
async fn run_local(shared: &Shared) {
    let mut linger = Linger::default();
    loop {
        if is_over(shared) {
            drop(shared.local.lock().take());
            return;
        }
        if let Some(stopped) = take_stopped(shared) {
            if let Some(local) = stopped {
                local.withdraw(shared).await;
            }
            return;
        }
        let progress = std::future::poll_fn(|context| {
            if let Some(local) = &mut *shared.local.lock() {
                local.poll(shared, context);
                if local.is_closed() {
                    return Poll::Ready(());
                }
            }
            Poll::<()>::Pending
        });
        tokio::select! {
            () = progress => {}
            () = shared.wake.notified() => {}
            () = linger.wait(shared) => {}
        }
    }
}

/// Inserts what can go, or takes the road away if its server was stopped.
fn take_stopped(shared: &Shared) -> Option<Option<Local>> {
    let mut local = shared.local.lock();
    match &mut *local {
        Some(local) if !local.is_closed() => {
            local.pump(shared);
            None
        }
        local => Some(local.take()),
    }
}

/// Closes chunks that the first item waits for, after a while.
#[derive(Debug, Default)]
pub struct Linger {
    /// The item, by number, and until when it waits.
    item: Option<(u64, Instant)>,
}

impl Linger {
    /// Completes when a chunk was closed; never, if the first item waits for none that may be closed early.
    pub async fn wait(&mut self, shared: &Shared) {
        let Some(sequence) = waiting_item(shared) else {
            self.item = None;
            return std::future::pending().await;
        };
        let until = match self.item {
            Some((item, until)) if item == sequence => until,
            _ => Instant::now() + LINGER,
        };
        self.item = Some((sequence, until));
        tokio::time::sleep_until(until.into()).await;
        let chunks = shared.state.lock().outbox.front().map(|item| item.chunks().cloned().collect::<Vec<_>>());
        for chunk in chunks.unwrap_or_default() {
            // What cannot be closed is reported when the item is sent.
            if chunk.closes_early() {
                let _reported_later = chunk.close();
            }
        }
    }
}

/// The first item, by number, if it waits for a chunk that may be closed early.
fn waiting_item(shared: &Shared) -> Option<u64> {
    let state = shared.state.lock();
    let item = state.outbox.front()?;
    let waits = !is_ready(item) && item.chunks().any(|chunk| chunk.closes_early());
    waits.then(|| state.outbox.next_sequence())
}
