//! The road of a writer to a server of dm-reverb: one insert stream for each writer.
//!
//! The server reads no further from a stream while a table that its items are for admits no more, and reports an error
//! by ending the stream. So items are checked before they are sent, and every item stays in the outbox until the server
//! has confirmed its key. After a lost connection, unconfirmed items are sent again with the same keys. The server
//! takes an item that is still in its table as an update of the priority. An item that was inserted and removed
//! meanwhile is inserted once more.

use super::item_sender::ItemSender;
use super::linger::Linger;
use super::outbox::is_ready;
use super::session_state::SharedSession;
use crate::dm_reverb::client::{Connection, InsertStream};
use crate::dm_reverb::status::from_status;
use reverb_core::{Error, Result};
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};
use tonic::{Code, Status};

/// A server that has not ended the stream by then counts as reached: it says nothing before its first confirmation.
const REACHED_TIME: Duration = Duration::from_secs(2);
/// Time without a confirmation after which the writer asks the server for the reason, the first time and later.
const ASK_DELAYS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

/// Sends items until the writer is closed. Sets `lost_at` to `None` when the server was reached.
///
/// # Errors
/// The reason why the connection was lost, or why the server ended the stream.
pub async fn run(shared: &SharedSession, connection: &Connection, lost_at: &mut Option<Instant>) -> Result<()> {
    // On the roads to other servers, chunks announce their end here. On this one, their references are counted.
    shared.dropped.lock().clear();
    let mut stream = connection.open_insert();
    let mut sender = ItemSender::new(connection);
    let mut linger = Linger::default();
    let mut reason = WaitReason::default();
    let reached = tokio::time::sleep(REACHED_TIME);
    tokio::pin!(reached);
    let mut is_reached = false;
    loop {
        if shared.is_over() {
            return Ok(());
        }
        let has_next = sender.has_next() || shared.state.lock().outbox.front().is_some_and(is_ready);
        let room = stream.room();
        let found = tokio::select! {
            confirmed = stream.confirmed() => {
                let keys = confirmed.map_err(|status| ended(connection, Some(&status)))?;
                sender.confirm(shared, &keys.ok_or_else(|| ended(connection, None))?);
                reason.reset();
                true
            }
            permit = room, if has_next => match permit {
                Some(permit) => {
                    if let Some(request) = sender.message(shared).await? {
                        permit.send(request);
                    }
                    false
                }
                None => return Err(last_word(stream, &mut sender, shared, connection).await),
            },
            () = shared.wake.notified() => false,
            () = linger.wait(shared) => false,
            text = reason.next(connection, &sender), if sender.num_unconfirmed() > 0 => {
                shared.state.lock().reason = text;
                false
            }
            () = &mut reached, if !is_reached => true,
        };
        if found && !std::mem::replace(&mut is_reached, true) {
            *lost_at = None;
            let mut state = shared.state.lock();
            state.is_lost = false;
            state.reason.clear();
        }
    }
}

/// Returns the reason why the stream takes no more messages. Items that are confirmed before it ends count as such.
async fn last_word(
    mut stream: InsertStream,
    sender: &mut ItemSender<'_>,
    shared: &SharedSession,
    connection: &Connection,
) -> Error {
    loop {
        match stream.confirmed().await {
            Ok(Some(keys)) => sender.confirm(shared, &keys),
            Ok(None) => return ended(connection, None),
            Err(status) => return ended(connection, Some(&status)),
        }
    }
}

/// Returns the error of a stream that the server has ended.
fn ended(connection: &Connection, status: Option<&Status>) -> Error {
    let peer = connection.peer();
    match status {
        None => Error::Unavailable(format!("the server at {peer} ended the writer's stream")),
        // The next server at the address may be one of this package.
        Some(status) if status.code() == Code::Unimplemented => {
            Error::Unavailable(format!("the server at {peer} was replaced: {}", status.message()))
        }
        Some(status) if matches!(status.code(), Code::NotFound) => {
            Error::InvalidArgument(format!("{peer}: {}", status.message()))
        }
        Some(status) => from_status(status, peer),
    }
}

/// Asks the server at times why it does not confirm items.
#[derive(Default)]
struct WaitReason<'a> {
    /// The end of the current wait, and the answer after it.
    asking: Option<Pin<Box<dyn Future<Output = String> + Send + 'a>>>,
    since: Option<Instant>,
    was_asked: bool,
}

impl<'a> WaitReason<'a> {
    /// Begins to wait again after a confirmation.
    fn reset(&mut self) {
        self.since = Some(Instant::now());
        self.was_asked = false;
    }

    /// Completes when no item was confirmed for some time, with the text that says why. The future may be dropped.
    async fn next(&mut self, connection: &'a Connection, sender: &ItemSender<'_>) -> String {
        loop {
            let delay = if self.was_asked { ASK_DELAYS.1 } else { ASK_DELAYS.0 };
            let asking = self.asking.get_or_insert_with(|| {
                let tables = sender.unconfirmed_tables();
                Box::pin(async move {
                    tokio::time::sleep(delay).await;
                    let reason = connection.explain_insert(&tables).await;
                    reason.unwrap_or_else(|| "The server has not confirmed the items yet.".into())
                })
            });
            let text = asking.as_mut().await;
            self.asking = None;
            // Confirmations that came meanwhile begin another wait.
            if self.since.is_none_or(|since| since.elapsed() >= delay) {
                self.was_asked = true;
                return text;
            }
        }
    }
}
