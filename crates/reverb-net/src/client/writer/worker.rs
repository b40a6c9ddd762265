//! The task of a writer: finds the server, and sends items until the writer is closed.

use crate::client::{Client, Road};
use crate::dm_reverb::client as dm_reverb;
use crate::replay_v1::client as replay_v1;
use crate::transport::back_off::BackOff;
use crate::writing::{Linger, Local, SharedSession};
use reverb_core::Error;
use reverb_service::write_queue::Done;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

/// Maximum time of one attempt to reach the server. The writer tries again after that.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// If a road lasted longer than this, the next search for the server begins with short pauses again.
const GOOD_ROAD: Duration = Duration::from_secs(2);
// limit (Writers): time for which a writer whose streams a balancer splits tries again | {}, or `reconnect_timeout` if
// that is less | `UnavailableError`
/// Time after which a writer gives up if a balancer spreads its connections over servers. While servers come and go, a
/// balancer may do so for a moment.
const SPLIT_TIME: Duration = Duration::from_secs(3);

/// Runs until the writer is closed.
pub async fn run(client: Arc<Client>, shared: Arc<SharedSession>) {
    let mut back_off = BackOff::default();
    let mut lost_at: Option<Instant> = None;
    let mut home: Option<String> = None;
    let mut split_at: Option<Instant> = None;
    while !shared.is_over() {
        let started = Instant::now();
        let road = client.writer_road(home.as_deref(), Instant::now().checked_add(CONNECT_TIME)).await;
        if let Ok(road) = &road {
            home = road.peer().map(str::to_owned);
        }
        let lost = match road {
            Ok(Road::SameProcess(replay)) => {
                shared.local.lock().get_or_insert_with(|| Local::new(replay));
                lost_at = None;
                shared.state.lock().is_lost = false;
                run_local(&shared).await;
                Error::Unavailable("the server of this process was stopped".into())
            }
            Ok(Road::ReplayV1(connection)) => match replay_v1::write(&shared, &connection, &mut lost_at).await {
                Ok(()) => return,
                Err(error) => error,
            },
            Ok(Road::DmReverb(connection)) => match dm_reverb::write(&shared, &connection, &mut lost_at).await {
                Ok(()) => return,
                Err(error) => error,
            },
            Err(error) => error,
        };
        let now = Instant::now();
        let since = *lost_at.get_or_insert(now);
        shared.state.lock().outbox.return_all();
        if now - started > GOOD_ROAD {
            (back_off, split_at) = (BackOff::default(), None);
        }
        let is_split = matches!(lost, Error::SplitClient { .. });
        let is_hopeless = is_split && now - *split_at.get_or_insert(now) >= SPLIT_TIME;
        if now - since >= shared.options.reconnect_timeout || is_hopeless || !is_passing(&lost) {
            give_up(&shared, &lost, now - split_at.filter(|_| is_hopeless).unwrap_or(since));
            return;
        }
        shared.note_lost(&lost);
        tokio::select! {
            () = tokio::time::sleep(back_off.pause()) => {}
            () = closed(&shared) => return,
        }
    }
}

/// Whether an error may be temporary.
fn is_passing(error: &Error) -> bool {
    matches!(
        error,
        Error::Unavailable(_)
            | Error::SplitClient { .. }
            | Error::Unreached(_)
            | Error::Cancelled(_)
            | Error::DeadlineExceeded(_)
            | Error::Internal(_)
    )
}

fn give_up(shared: &SharedSession, error: &Error, lost_for: Duration) {
    let lost_for = lost_for.as_secs_f64();
    shared.fail(|items| {
        Error::Unavailable(match error {
            Error::SplitClient { .. } => format!("{error}; the writer gave up after {lost_for:.0} s; {items}"),
            _ => format!("the writer gave up after {lost_for:.0} s without its server; {items}; {error}"),
        })
    });
}

async fn closed(shared: &SharedSession) {
    while !shared.is_over() {
        shared.wake.notified().await;
    }
}

/// Inserts items into tables of this process until the server is stopped or the writer closed.
async fn run_local(shared: &SharedSession) {
    let mut linger = Linger::default();
    loop {
        if shared.is_over() {
            drop(shared.local.lock().take());
            return;
        }
        if let Some(stopped) = take_stopped(shared) {
            if let Some(local) = stopped {
                shared.settle(local.withdraw().await);
            }
            return;
        }
        let progress = std::future::poll_fn(|context| {
            if let Some(local) = &mut *shared.local.lock() {
                let mut done = Done::new();
                local.poll(context, &mut done);
                shared.settle(done);
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

/// Inserts the items that are ready. If the server was stopped, removes the road and returns it.
fn take_stopped(shared: &SharedSession) -> Option<Option<Local>> {
    let mut local = shared.local.lock();
    match &mut *local {
        Some(local) if !local.is_closed() => {
            shared.pump(local);
            None
        }
        local => Some(local.take()),
    }
}
