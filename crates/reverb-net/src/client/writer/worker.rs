//! The task of a writer: finds the server, and sends items until the writer is closed.

use crate::client::{Call, Client, Road, Started, Turn};
use crate::dm_reverb::client as dm_reverb;
use crate::replay_v1::client as replay_v1;
use crate::transport::back_off::BackOff;
use crate::writing::{Linger, Local, SharedSession};
use reverb_core::{Error, Result};
use reverb_service::Replay;
use reverb_service::write_queue::Done;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

/// Maximum time of one attempt to reach the server. The writer tries again after that.
pub const CONNECT_TIME: Duration = Duration::from_secs(5);
/// If a road lasted longer than this, the next search for the server begins with short pauses again.
const GOOD_ROAD: Duration = Duration::from_secs(2);
// limit (Writers): time for which a writer whose streams a balancer splits tries again | {}, or `reconnect_timeout` if
// that is less | `UnavailableError`
/// Time after which a writer gives up if a balancer spreads its connections over servers. While servers come and go, a
/// balancer may do so for a moment.
const SPLIT_TIME: Duration = Duration::from_secs(3);

/// Where a stream of a writer leads.
pub trait Way: Send {
    /// Whether the stream waits for the next item if its server was stopped for good and no item is unconfirmed: another
    /// server may be there by then.
    const OUTLIVES_SERVER: bool;

    /// Returns the road to the server, or waits for it until `connect_by`.
    fn road(&mut self, client: &Client, connect_by: Instant) -> impl Future<Output = Result<Road>> + Send;

    /// Returns the reason why a road was lost. It does not say that the server was stopped for good if the stream waits for
    /// another.
    fn settled(&self, client: &Client, error: Error) -> impl Future<Output = Error> + Send;

    /// Returns the time for which the stream waits for its server.
    fn patience(&self, shared: &SharedSession) -> Duration;

    /// Ends the stream, whose server is lost. Returns false if it waits a little more.
    fn end(&self, shared: &SharedSession, error: &Error, lost_for: Duration) -> bool;
}

/// The way to the server of the client, or to one of several: that with this address as long as it can be reached.
#[derive(Debug, Default)]
pub struct ToServer(Option<String>);

impl Way for ToServer {
    const OUTLIVES_SERVER: bool = true;

    async fn road(&mut self, client: &Client, connect_by: Instant) -> Result<Road> {
        let road = client.road(Turn::Write, self.0.as_deref(), Some(connect_by)).await?;
        self.0 = road.peer().map(str::to_owned);
        Ok(road)
    }

    async fn settled(&self, client: &Client, error: Error) -> Error {
        client.after_end(error, None).await
    }

    fn patience(&self, shared: &SharedSession) -> Duration {
        shared.options.reconnect_timeout
    }

    fn end(&self, shared: &SharedSession, error: &Error, lost_for: Duration) -> bool {
        give_up(shared, error, lost_for);
        true
    }
}

/// Runs until the writer is closed, or has given up.
pub async fn run<W: Way>(client: Arc<Client>, shared: Arc<SharedSession>, mut way: W) {
    let mut back_off = BackOff::default();
    let mut lost_at: Option<Instant> = None;
    let mut split_at: Option<Instant> = None;
    while !shared.is_over() {
        let started = Instant::now();
        let lost = match way.road(&client, started + CONNECT_TIME).await {
            Ok(road) => {
                match road.call(Sending { shared: &shared, client: client.id(), lost_at: &mut lost_at }, None).await {
                    Ok(()) => return,
                    Err(error) => way.settled(&client, error).await,
                }
            }
            Err(error) => error,
        };
        let now = Instant::now();
        let since = *lost_at.get_or_insert(now);
        shared.state.lock().outbox.return_all();
        if now - started > GOOD_ROAD {
            (back_off, split_at) = (BackOff::default(), None);
        }
        if W::OUTLIVES_SERVER && lost.is_for_good() && shared.state.lock().outbox.len() == 0 {
            // Another server may be there when the program has the next item.
            shared.note_lost(&lost);
            lost_at = None;
            has_items(&shared).await;
            continue;
        }
        let is_split = matches!(lost, Error::SplitClient { .. });
        // A balancer may lead the next connection to one server. The deadline is that of one search.
        let is_hopeless = match is_split {
            true => now - *split_at.get_or_insert(now) >= SPLIT_TIME,
            false => !lost.is_transient() && !matches!(lost, Error::DeadlineExceeded(_)),
        };
        let is_over = now - since >= way.patience(&shared) || is_hopeless;
        if is_over && way.end(&shared, &lost, now - split_at.filter(|_| is_split && is_hopeless).unwrap_or(since)) {
            return;
        }
        shared.note_lost(&lost);
        tokio::select! {
            () = tokio::time::sleep(back_off.pause()) => {}
            () = closed(&shared) => return,
        }
    }
}

/// Sends items over a road until the writer is closed. Sets `lost_at` to `None` when the server was reached.
///
/// Fails with the reason why the road was lost.
struct Sending<'a> {
    shared: &'a Arc<SharedSession>,
    /// The number of the client.
    client: u64,
    lost_at: &'a mut Option<Instant>,
}

impl Call for Sending<'_> {
    type Answer = ();

    fn here<'a>(self, replay: Arc<Replay>, _: Option<Instant>) -> Started<'a, ()>
    where
        Self: 'a,
    {
        self.shared.local.lock().get_or_insert_with(|| Local::new(replay, self.client));
        *self.lost_at = None;
        self.shared.state.lock().is_lost = false;
        Started::here(run_local(self.shared))
    }

    async fn replay_v1(self, connection: &replay_v1::Connection, _: Option<Instant>) -> Result<()> {
        let written = replay_v1::write(self.shared, connection, self.lost_at).await;
        written.map_err(|error| connection.link.note(error))
    }

    async fn dm_reverb(self, connection: &dm_reverb::Connection, _: Option<Instant>) -> Result<()> {
        dm_reverb::write(self.shared, connection, self.lost_at).await
    }
}

fn give_up(shared: &SharedSession, error: &Error, lost_for: Duration) {
    let lost_for = lost_for.as_secs_f64();
    if error.is_for_good() {
        return shared.fail(|items| Error::ServerStopped(format!("{error}; {items}")));
    }
    if error.is_refusal() {
        return shared.fail(|items| error.clone().with_remark(&format!("; {items}")));
    }
    shared.fail(|items| {
        Error::Unavailable(match error {
            Error::SplitClient { .. } => format!("{error}; the writer gave up after {lost_for:.0} s; {items}"),
            _ => format!("the writer gave up after {lost_for:.0} s without its server; {items}; {error}"),
        })
    });
}

/// Waits for the next item, or until the writer is closed.
async fn has_items(shared: &SharedSession) {
    while !shared.is_over() && shared.state.lock().outbox.len() == 0 {
        shared.wake.notified().await;
    }
}

async fn closed(shared: &SharedSession) {
    while !shared.is_over() {
        shared.wake.notified().await;
    }
}

/// Inserts items into tables of this process until the writer is closed.
///
/// # Errors
/// [`Error::Unavailable`] if the server was stopped.
async fn run_local(shared: &SharedSession) -> Result<()> {
    let mut linger = Linger::default();
    loop {
        if shared.is_over() {
            drop(shared.local.lock().take());
            return Ok(());
        }
        if let Some(stopped) = take_stopped(shared) {
            if let Some(local) = stopped {
                shared.settle(local.withdraw().await);
            }
            return Err(Error::Unavailable("the server of this process was stopped".into()));
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
