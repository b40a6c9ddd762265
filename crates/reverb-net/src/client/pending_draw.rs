//! A draw in progress, for callers that do something else meanwhile.
//!
//! The samples count as undelivered in their table until the caller acknowledges them with [`PendingDraw::received`].
//! They go back to the table if the draw is dropped before. Over a network, the receipt leaves later, so that a program
//! that is killed while it gets the batch does not take the samples with it.

use super::cluster::Parts;
use crate::dm_reverb::client as dm_reverb;
use crate::replay_v1::client::DrawCall;
use reverb_core::{Error, Result, fork};
use reverb_service::Batch;
use reverb_service::local::{LocalDraw, taken};
use std::mem::ManuallyDrop;
use std::time::Instant;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

/// A batch, and the draw that gave it, which the caller acknowledges.
#[derive(Debug)]
pub struct Sampled {
    /// The batch.
    pub batch: Batch,
    /// Its draw. `None` if the samples do not go back to their table.
    pub draw: Option<PendingDraw>,
}

/// A draw that has begun. See the documentation of this module.
#[derive(Debug)]
pub struct PendingDraw {
    generation: u32,
    // After a fork, leased samples belong to the parent process. A child must not give them back a second time.
    draw: ManuallyDrop<Draw>,
    /// Time when the draw began.
    pub begun: Instant,
}

/// The draw of a [`PendingDraw`].
#[derive(Debug)]
pub(super) enum Draw {
    /// A draw from a table of this process.
    Local(LocalDraw),
    /// A draw from a server elsewhere.
    Remote(DrawCall),
    /// A draw from a server of dm-reverb, which takes no samples back.
    DmReverb(dm_reverb::DrawCall),
    /// A draw from all shards of a cluster, which a task makes.
    Begun(BegunDraw),
    /// The draws from shards of a cluster that gave one batch, which was taken.
    Parts(Parts),
    /// The draw was given up, or its batch was received.
    Over,
}

/// A draw that a task makes. Dropping it ends the task.
#[derive(Debug)]
pub(super) struct BegunDraw {
    task: AbortHandle,
    sampled: oneshot::Receiver<Result<Sampled>>,
}

impl BegunDraw {
    /// Begins a draw on the current runtime.
    pub fn spawn(draw: impl Future<Output = Result<Sampled>> + Send + 'static) -> Self {
        let (sender, sampled) = oneshot::channel();
        let task = tokio::spawn(async move {
            let _given_up = sender.send(draw.await);
        });
        Self { task: task.abort_handle(), sampled }
    }
}

impl Drop for BegunDraw {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl PendingDraw {
    pub(super) fn new(draw: Draw, begun: Instant) -> Self {
        Self { generation: fork::generation(), draw: ManuallyDrop::new(draw), begun }
    }

    /// Takes the draw out. Nothing is left to be given back.
    fn into_draw(mut self) -> Draw {
        std::mem::replace(&mut *self.draw, Draw::Over)
    }

    /// Whether [`PendingDraw::result`] returns without a wait.
    pub fn is_ready(&self) -> bool {
        match &*self.draw {
            Draw::Local(draw) => draw.is_ready(),
            Draw::Remote(call) => call.is_ready(),
            Draw::DmReverb(call) => call.is_ready(),
            Draw::Begun(draw) => !draw.sampled.is_empty(),
            Draw::Parts(_) | Draw::Over => true,
        }
    }

    /// Takes the batch if it is here already. It can be taken once.
    pub fn try_result(&mut self) -> Option<Result<Batch>> {
        let Draw::Local(draw) = &mut *self.draw else { return None };
        draw.try_result()
    }

    /// Waits for the batch and takes it. The future may be dropped, and the function called again.
    ///
    /// # Errors
    /// The error of the draw, or [`Error::Cancelled`] if the batch was taken before.
    pub async fn result(&mut self) -> Result<Batch> {
        if self.generation != fork::generation() {
            return Err(Error::Cancelled("the draw belongs to the process from which this one was forked".into()));
        }
        match &mut *self.draw {
            Draw::Local(draw) => draw.result().await,
            // The next draw finds out whether another server has taken the place of one that was stopped for good.
            Draw::Remote(call) => call.result().await.map_err(Error::with_successor),
            Draw::DmReverb(call) => call.result().await,
            Draw::Begun(draw) => {
                let ended = |_| Err(Error::Cancelled("the draw ended with its runtime".into()));
                let Sampled { batch, draw } = (&mut draw.sampled).await.unwrap_or_else(ended)?;
                *self.draw = draw.map_or(Draw::Over, PendingDraw::into_draw);
                Ok(batch)
            }
            Draw::Parts(_) | Draw::Over => Err(taken()),
        }
    }

    /// Acknowledges the samples, so that they do not go back. With `waits`, a receipt does not leave with the next draw. Gives the draw up if the batch was not taken yet.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the samples went back because the connection was lost, or [`Error::Cancelled`] because
    /// the server of this process was stopped. Later draws from the table may get them again.
    pub fn received(&mut self, waits: bool) -> Result<()> {
        if self.generation != fork::generation() {
            return Ok(());
        }
        // Until its receipt has left, a draw from a server elsewhere can still be given back.
        if let Draw::Remote(call) = &mut *self.draw {
            return call.received(waits);
        }
        if let Draw::Parts(parts) = &mut *self.draw {
            return parts.received(waits);
        }
        match std::mem::replace(&mut *self.draw, Draw::Over) {
            Draw::Local(draw) => draw.received(),
            Draw::DmReverb(call) => {
                call.received();
                Ok(())
            }
            Draw::Remote(_) | Draw::Begun(_) | Draw::Parts(_) | Draw::Over => Ok(()),
        }
    }

    /// Whether the samples of a batch that has arrived went back, because the server was lost or is about to stop.
    pub fn is_lost(&self) -> bool {
        let is_own = self.generation == fork::generation();
        is_own
            && match &*self.draw {
                Draw::Remote(call) => call.is_lost(),
                Draw::Parts(parts) => parts.is_lost(),
                _ => false,
            }
    }

    /// Whether the table is in this process.
    pub fn is_local(&self) -> bool {
        matches!(&*self.draw, Draw::Local(_))
    }

    /// Whether [`PendingDraw::received`] would be over at once: a draw of at most so many items from a quiet table of this
    /// process.
    pub fn is_brief(&self, most_items: usize) -> bool {
        if let Draw::Local(draw) = &*self.draw { draw.is_brief(most_items) } else { false }
    }

    /// Gives the draw up, also after it was acknowledged, as long as that cannot be known elsewhere. On return, the samples
    /// are back in a table of this process, or the server has been notified.
    pub async fn give_back(mut self) {
        if self.generation != fork::generation() {
            return;
        }
        match std::mem::replace(&mut *self.draw, Draw::Over) {
            Draw::Local(draw) => draw.give_back().await,
            Draw::Remote(call) => call.give_back(),
            Draw::Parts(parts) => parts.give_back(),
            other => drop(other),
        }
    }
}

impl Drop for PendingDraw {
    fn drop(&mut self) {
        if self.generation != fork::generation() {
            return;
        }
        // SAFETY: the draw is dropped only here, and is not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.draw) };
    }
}
