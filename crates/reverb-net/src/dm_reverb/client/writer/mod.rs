//! The road of a writer to a server of dm-reverb: one insert stream for each writer.
//!
//! The server reads no further from a stream while a table that its items are for admits no more, and reports an error
//! by ending the stream. So items are checked before they are sent, and every item stays in the outbox until the server
//! has confirmed its key. After a lost connection, unconfirmed items are sent again with the same keys. The server
//! takes an item that is still in its table as an update of the priority. An item that was inserted and removed
//! meanwhile is inserted once more.

mod item_sender;
mod streamed_chunks;

use super::connection::Connection;
use super::insert_link::InsertLink;
use crate::dm_reverb::status::from_status;
use crate::writing::{Linger, SharedSession, is_ready};
use item_sender::ItemSender;
use reverb_core::{Error, Result};
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};
use tonic::{Code, Status};

/// A server that has not ended the stream by then counts as reached: it says nothing before its first confirmation.
const REACHED_TIME: Duration = Duration::from_secs(1);
/// Time without a confirmation after which the writer asks the server for the reason, the first time and later.
const ASK_DELAYS: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(5));

/// Sends items until the writer is closed. Sets `lost_at` to `None` when the server was reached.
///
/// Ends the session if the server says that it will not take the items.
///
/// # Errors
/// The reason why the connection was lost.
pub async fn write(shared: &SharedSession, connection: &Connection, lost_at: &mut Option<Instant>) -> Result<()> {
    // On the roads to other servers, chunks announce their end here. On this one, their references are counted.
    shared.chunks.take_dropped();
    let mut stream = connection.open_insert();
    let mut sender = ItemSender::new(connection);
    let mut linger = Linger::default();
    let mut reason = WaitReason::new();
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
            confirmed = stream.confirmed() => match confirmed {
                Ok(Some(keys)) => {
                    sender.confirm(shared, &keys);
                    reason.reset();
                    true
                }
                Ok(None) => return ended(shared, connection, None),
                Err(status) => return ended(shared, connection, Some(&status)),
            },
            permit = room, if has_next => match permit {
                Some(permit) => {
                    if sender.num_unconfirmed() == 0 {
                        reason.reset();
                    }
                    if let Some(request) = sender.message(shared).await? {
                        permit.send(request);
                    }
                    false
                }
                None => return last_word(stream, &mut sender, shared, connection).await,
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
            if std::mem::take(&mut state.is_lost) {
                state.reason.clear();
            }
        }
    }
}

/// Returns the reason why the stream takes no more messages. Items that are confirmed before it ends count as such.
async fn last_word(
    mut stream: InsertLink,
    sender: &mut ItemSender<'_>,
    shared: &SharedSession,
    connection: &Connection,
) -> Result<()> {
    loop {
        match stream.confirmed().await {
            Ok(Some(keys)) => sender.confirm(shared, &keys),
            Ok(None) => return ended(shared, connection, None),
            Err(status) => return ended(shared, connection, Some(&status)),
        }
    }
}

/// Ends the session if another stream would end in the same way.
///
/// # Errors
/// The reason why the stream has ended, if another one may not.
fn ended(shared: &SharedSession, connection: &Connection, status: Option<&Status>) -> Result<()> {
    use Code::{
        FailedPrecondition, InvalidArgument, NotFound, OutOfRange, PermissionDenied, ResourceExhausted, Unauthenticated,
    };
    let peer = &connection.peer;
    let Some(status) = status else {
        return Err(Error::Unavailable(format!("the server at {peer} ended the writer's stream")));
    };
    match status.code() {
        // The next server at the address may be one of this package.
        Code::Unimplemented => Err(Error::Unavailable(format!("the server at {peer} was replaced"))),
        PermissionDenied | Unauthenticated => {
            shared.fail(|items| from_status(status, peer).with_remark(&format!("; {items}")));
            Ok(())
        }
        NotFound | InvalidArgument | FailedPrecondition | OutOfRange | ResourceExhausted => {
            let text = status.message();
            shared.fail(|items| {
                Error::InvalidArgument(format!("the server at {peer} ended the writer: {text}; {items}"))
            });
            Ok(())
        }
        _ => Err(from_status(status, peer)),
    }
}

/// Asks the server at times why it does not confirm items.
struct WaitReason<'a> {
    /// Time of the last confirmation or question, or when an item was sent while none was unconfirmed.
    since: Instant,
    was_asked: bool,
    /// The question that is not answered yet.
    asking: Option<Pin<Box<dyn Future<Output = String> + Send + 'a>>>,
}

impl<'a> WaitReason<'a> {
    fn new() -> Self {
        Self { since: Instant::now(), was_asked: false, asking: None }
    }

    /// Begins to wait again.
    fn reset(&mut self) {
        *self = Self::new();
    }

    /// Completes when no item was confirmed for some time, with the text that says why. The future may be dropped.
    async fn next(&mut self, connection: &'a Connection, sender: &ItemSender<'_>) -> String {
        let asking = match &mut self.asking {
            Some(asking) => asking,
            None => {
                let delay = if self.was_asked { ASK_DELAYS.1 } else { ASK_DELAYS.0 };
                tokio::time::sleep_until((self.since + delay).into()).await;
                let tables = sender.unconfirmed_tables();
                self.asking.insert(Box::pin(async move {
                    let reason = connection.explain_insert(&tables).await;
                    reason.unwrap_or_else(|| "The server has not confirmed the items yet.".into())
                }))
            }
        };
        let text = asking.as_mut().await;
        *self = Self { was_asked: true, ..Self::new() };
        text
    }
}
