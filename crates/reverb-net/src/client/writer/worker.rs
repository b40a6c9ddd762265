//! The task of a writer: finds the server, and sends items until the writer is closed.

use super::linger::Linger;
use super::local::Local;
use super::remote;
use super::remote_dm_reverb;
use super::session_state::SharedSession;
use crate::client::Road;
use reverb_core::Error;
use reverb_service::write_queue::Done;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

/// Maximum time of one attempt to reach the server. The writer tries again after that.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// The first and the longest pause between attempts to reach the server. The pause doubles each time, and is then
/// shortened by a random part, up to half.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));
/// If a road lasted longer than this, the next search for the server begins with short pauses again.
const GOOD_ROAD: Duration = Duration::from_secs(2);
// limit (Writers): time for which a writer whose streams a balancer splits tries again | {}, or `reconnect_timeout` if
// that is less | `UnavailableError`
/// Time after which a writer gives up if a balancer spreads its connections over servers. While servers come and go, a
/// balancer may do so for a moment.
const SPLIT_TIME: Duration = Duration::from_secs(3);

/// Runs until the writer is closed.
pub async fn run(shared: Arc<SharedSession>) {
    let mut pause = PAUSES.0;
    let mut lost_at: Option<Instant> = None;
    let mut home: Option<String> = None;
    let mut split_at: Option<Instant> = None;
    while !shared.is_over() {
        let started = Instant::now();
        let road = shared.client.writer_road(home.as_deref(), Instant::now().checked_add(CONNECT_TIME)).await;
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
            Ok(Road::ReplayV1(connection)) => match remote::run(&shared, &connection, &mut lost_at).await {
                Ok(()) => return,
                Err(error) => error,
            },
            Ok(Road::DmReverb(connection)) => match remote_dm_reverb::run(&shared, &connection, &mut lost_at).await {
                Ok(()) => return,
                Err(error) => error,
            },
            Err(error) => error,
        };
        let now = Instant::now();
        let since = *lost_at.get_or_insert(now);
        shared.state.lock().outbox.return_all();
        if now - started > GOOD_ROAD {
            (pause, split_at) = (PAUSES.0, None);
        }
        let is_split = matches!(lost, Error::SplitClient { .. });
        let is_hopeless = is_split && now - *split_at.get_or_insert(now) >= SPLIT_TIME;
        if now - since >= shared.options.reconnect_timeout || is_hopeless || !is_passing(&lost) {
            fail(&shared, &lost, now - split_at.filter(|_| is_hopeless).unwrap_or(since));
            return;
        }
        shared.note_lost(&lost);
        tokio::select! {
            () = tokio::time::sleep(pause.mul_f64(rand::random_range(0.5..1.0))) => {}
            () = closed(&shared) => return,
        }
        pause = (pause * 2).min(PAUSES.1);
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

fn fail(shared: &SharedSession, error: &Error, lost_for: Duration) {
    let lost = {
        let mut state = shared.state.lock();
        let names = state.outbox.describe();
        let count = state.outbox.len();
        let (lost_for, items) = (lost_for.as_secs_f64(), format!("{count} items were not confirmed ({names})"));
        state.failed = Some(Error::Unavailable(match error {
            Error::SplitClient { .. } => format!("{error}; the writer gave up after {lost_for:.0} s; {items}"),
            _ => format!("the writer gave up after {lost_for:.0} s without its server; {items}; {error}"),
        }));
        let lost = state.outbox.take_all();
        state.count(&shared.all);
        lost
    };
    shared.tell();
    drop(lost);
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
