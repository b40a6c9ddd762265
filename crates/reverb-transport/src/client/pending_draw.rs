//! A draw that is under way while its caller does something else.
//!
//! Its samples are the caller's only when the caller says so: until then they count as undelivered in their table, and
//! go back there when the draw is dropped.

use super::sample_link::DrawCall;
use super::{Batch, BatchRequest, copied, gather_leased, warn};
use crate::lease::Lease;
use crate::replay::Replay;
use crate::table_handle::Call;
use reverb_core::{Error, Result, fork};
use std::mem::ManuallyDrop;
use std::time::Instant;
use tokio::task::JoinHandle;

/// Batches of up to so many bytes are gathered by whoever begins the draw: a task would cost more than the copy.
const GATHER_AT_ONCE_BYTES: usize = 128 << 10;

/// A draw that was begun; see the module.
#[derive(Debug)]
pub struct PendingDraw {
    generation: u32,
    // Leased samples of a process that was forked are its parent's: they must not be given back twice.
    road: ManuallyDrop<Draw>,
    /// When it was begun.
    pub begun: Instant,
}

type Leased = (Batch, Lease);

#[derive(Debug)]
enum Draw {
    /// In this process, and decided.
    Here(Option<Result<Leased>>),
    /// In this process; waits for the table, or copies.
    Task(JoinHandle<Result<Leased>>),
    /// In this process; the batch was taken, its samples are not received.
    Taken(Lease),
    /// On its way from a server.
    Remote(DrawCall),
    /// Failed, or received.
    Over,
}

impl PendingDraw {
    fn new(road: Draw, begun: Instant) -> Self {
        Self { generation: fork::generation(), road: ManuallyDrop::new(road), begun }
    }

    pub(super) fn remote(call: DrawCall) -> Self {
        Self::new(Draw::Remote(call), Instant::now())
    }

    /// Begins a draw from a server of this process, in the context of a runtime. With `at_once` a batch of any size is
    /// copied here, if its items can be had: for who waits for it next.
    ///
    /// # Errors
    /// If there is no such table.
    pub fn local(replay: &Replay, request: &BatchRequest, deadline: Option<Instant>, at_once: bool) -> Result<Self> {
        let table = replay.table(&request.table)?.clone();
        let begun = Instant::now();
        if let Some((batch, draws)) = table.sample_copied_leased(request.draw, request.squeeze_time) {
            let samples = batch.info.len();
            let leased = (copied(&table, batch), Lease::copied(table, draws, samples));
            return Ok(Self::new(Draw::Here(Some(Ok(leased))), begun));
        }
        let road = match table.sample(request.draw) {
            Call::Done(Err(error)) => Draw::Here(Some(Err(error))),
            Call::Done(Ok(drawn)) => match table.stack(drawn, request.draw.at_least, request.squeeze_time) {
                Err(error) => Draw::Here(Some(Err(error))),
                Ok(gatherer) if at_once || gatherer.remaining() <= GATHER_AT_ONCE_BYTES => {
                    Draw::Here(Some(Ok(gather_leased(table, gatherer, begun))))
                }
                Ok(gatherer) => Draw::Task(tokio::spawn(async move { Ok(gather_leased(table, gatherer, begun)) })),
            },
            Call::Waiting(waiting) => {
                let (at_least, squeeze_time) = (request.draw.at_least, request.squeeze_time);
                Draw::Task(tokio::spawn(async move {
                    let drawn = waiting.result(deadline, warn).await?;
                    Ok(gather_leased(table.clone(), table.stack(drawn, at_least, squeeze_time)?, begun))
                }))
            }
        };
        Ok(Self::new(road, begun))
    }

    /// Whether [`PendingDraw::result`] would not wait.
    pub fn is_ready(&self) -> bool {
        match &*self.road {
            Draw::Task(task) => task.is_finished(),
            Draw::Remote(call) => call.is_ready(),
            Draw::Here(_) | Draw::Taken(_) | Draw::Over => true,
        }
    }

    /// The batch, if it is here already. It can be had once.
    pub fn try_result(&mut self) -> Option<Result<Batch>> {
        let Draw::Here(result) = &mut *self.road else { return None };
        let result = result.take()?;
        Some(self.take(result))
    }

    /// Waits for the batch. The future may be dropped, and the batch waited for again.
    ///
    /// # Errors
    /// Those of the draw; [`Error::Cancelled`] once the batch was taken.
    pub async fn result(&mut self) -> Result<Batch> {
        if self.generation != fork::generation() {
            return Err(Error::Cancelled("the draw belongs to the process from which this one was forked".into()));
        }
        let result = match &mut *self.road {
            Draw::Here(result) => result.take().unwrap_or_else(|| Err(taken())),
            Draw::Task(task) => match task.await {
                Ok(result) => result,
                Err(error) => Err(Error::Cancelled(format!("the draw was given up: {error}"))),
            },
            Draw::Remote(call) => return call.result().await,
            Draw::Taken(_) | Draw::Over => return Err(taken()),
        };
        self.take(result)
    }

    fn take(&mut self, result: Result<Leased>) -> Result<Batch> {
        let (batch, next) = match result {
            Ok((batch, lease)) => (Ok(batch), Draw::Taken(lease)),
            Err(error) => (Err(error), Draw::Over),
        };
        *self.road = next;
        batch
    }

    /// The samples are the caller's now. Before the batch was taken this gives the draw up.
    pub fn received(&mut self) {
        if self.generation != fork::generation() {
            return;
        }
        match std::mem::replace(&mut *self.road, Draw::Over) {
            Draw::Taken(lease) => lease.received(),
            Draw::Remote(call) => call.received(),
            other => drop(other),
        }
    }

    /// Gives the draw up. On return its samples are back in a table of this process; a server was told.
    pub async fn give_back(mut self) {
        if self.generation != fork::generation() {
            return;
        }
        match std::mem::replace(&mut *self.road, Draw::Over) {
            Draw::Task(task) => {
                task.abort();
                drop(task.await);
            }
            other => drop(other),
        }
    }
}

impl Drop for PendingDraw {
    fn drop(&mut self) {
        if self.generation != fork::generation() {
            return;
        }
        if let Draw::Task(task) = &*self.road {
            task.abort();
        }
        // SAFETY: it is dropped once, here, and not used again.
        unsafe { ManuallyDrop::drop(&mut self.road) };
    }
}

fn taken() -> Error {
    Error::Cancelled("the batch of this draw was taken before".into())
}
