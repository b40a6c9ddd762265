//! The samples that a draw has taken from the room of its cluster.

use super::super::wait::Wait;
use super::member::RoomUse;
use reverb_core::published_room::Tally;
use reverb_core::{Error, Result};
use reverb_service::TIMED_OUT;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// What a draw wants.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// The name of the table.
    pub table: &'a str,
    /// Number of samples that it has.
    pub drawn: u64,
    /// Number of samples with which the batch is complete, if no more may go.
    pub at_least: u64,
    /// Number of samples that it wants.
    pub wanted: u64,
    /// Until when it waits.
    pub deadline: Option<Instant>,
}

/// Samples that were taken. Those that were not chosen when this is dropped are given up.
#[derive(Debug)]
pub struct Taken {
    used: RoomUse,
    /// Number of samples that were taken and not chosen.
    left: AtomicU64,
}

impl Taken {
    /// Begins with none.
    pub fn new(used: RoomUse) -> Self {
        Self { used, left: AtomicU64::new(0) }
    }

    /// Takes what a batch lacks, and waits for it. Returns the size of the batch, which is less than wanted if no more may
    /// go now.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the bounds of the limiter are too narrow for the batch.
    /// [`Error::DeadlineExceeded`] with what the draw has waited for.
    pub async fn fill(&self, ask: Ask<'_>, wait: &mut Wait) -> Result<u64> {
        let Ask { table, drawn, at_least, wanted, deadline } = ask;
        let (room, left) = (self.used.room(), self.left.load(Relaxed));
        let has = drawn + left;
        if has >= wanted {
            return Ok(wanted);
        }
        let begun = Instant::now();
        let least = at_least.saturating_sub(has).max(1);
        loop {
            let mut changed = std::pin::pin!(room.changed());
            changed.as_mut().enable();
            if let Some(count) = room.take(least, wanted - has) {
                self.left.fetch_add(count, Relaxed);
                return Ok(has + count);
            }
            room.check(least, begun.elapsed())?;
            if has >= at_least {
                return Ok(has);
            }
            let reason = || room.waits_for(least);
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                let reason = reason();
                return Err(Error::DeadlineExceeded(format!("sample of table `{table}` waits: {reason}\n{TIMED_OUT}")));
            }
            wait.during(table, deadline, reason, changed).await;
        }
    }

    /// The number of the client as a learner and what it knows, for the shards that are asked.
    pub fn claim(&self) -> (u64, Tally) {
        (self.used.room().learner, self.used.room().tally())
    }

    /// Notes that samples were chosen at a shard.
    pub fn choose(&self, shard: u32, count: u64) {
        self.left.fetch_update(Relaxed, Relaxed, |left| Some(left.saturating_sub(count))).ok();
        self.used.room().choose(shard, count);
    }

    /// Notes that a shard has refused a choice, and so has not counted its samples.
    pub fn lose(&self, shard: u32, count: u64) {
        self.used.room().lose(shard, count);
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let left = *self.left.get_mut();
        if left > 0 {
            self.used.room().give_up(left);
        }
    }
}
