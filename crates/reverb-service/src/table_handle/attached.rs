//! Clients of a cluster that are attached to a table of a shard, and the task that lets its room go on while there are any.

use super::handle::TableHandle;
use super::room::{Room, RoomDeliveries, RoomMessage};
use super::state::TableState;
use crate::shard::Shard;
use reverb_core::published_room::{Incarnation, PUBLISH_EVERY, Tally};
use reverb_core::{Error, LimiterKind, RateLimiterConfig, Result};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tokio::time::MissedTickBehavior;

/// The number of the next client that is attached.
static NEXT_MEMBER: AtomicU64 = AtomicU64::new(0);

/// A client that is attached to a room. It leaves when this is dropped.
#[derive(Debug)]
pub struct RoomLink {
    table: TableHandle,
    id: u64,
    /// The bounds of the room.
    pub limiter: RateLimiterConfig,
}

impl TableHandle {
    /// Returns the limiter of the table if it keeps a ratio, which the shards of a cluster then keep together.
    pub fn room_limiter(&self) -> Option<RateLimiterConfig> {
        self.with_table(|table| {
            let is_ratio = table.limiter_view().kind() == LimiterKind::Ratio;
            is_ratio.then(|| table.config().rate_limiter.clone())
        })
    }

    /// Attaches a client of the cluster that this table of a shard belongs to. It draws as the learner with this number,
    /// and knows shards with these ids. `None` if the limiter of the table keeps no ratio. From the first client on,
    /// inserts go by the room of the whole cluster. Must be called in the context of a runtime.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the bounds are too narrow for so many shards, with the figures; or if one of the ids is
    /// that of no shard of the cluster. [`Error::ResourceExhausted`] if the shards have started too often.
    pub fn attach_to_room(
        &self,
        shard: &Shard,
        learner: u64,
        shards: &[u32],
    ) -> Result<Option<(RoomLink, RoomDeliveries)>> {
        check_ids(shard, shards)?;
        let attached = self.change(|state, _| {
            if state.table.limiter_view().kind() != LimiterKind::Ratio {
                return Ok(None);
            }
            if state.room.is_none() {
                state.make_room(shard.id(), shards.iter().copied().chain([shard.id()]).collect())?;
            }
            let Some(room) = &mut state.room else { return Ok(None) };
            room.name_shards(shards)?;
            let id = NEXT_MEMBER.fetch_add(1, Relaxed);
            let (deliveries, is_first) = room.attach(id, learner);
            Ok(Some((id, room.limiter.clone(), deliveries, is_first.then_some(room.incarnation))))
        });
        let attached = attached.map_err(|error| match error {
            Error::InvalidArgument(text) => Error::invalid(format!("table `{}` of a cluster: {text}", self.name())),
            error => error,
        })?;
        Ok(attached.map(|(id, limiter, deliveries, undriven)| {
            if let Some(incarnation) = undriven {
                tokio::spawn(drive(self.clone(), incarnation));
            }
            (RoomLink { table: self.clone(), id, limiter }, deliveries)
        }))
    }

    /// Tells the room what a learner knows that is about to draw here, so that no sample becomes known without the inserts
    /// that allowed it.
    ///
    /// # Errors
    /// [`Error::ResourceExhausted`] if it knows of too many starts of shards.
    pub fn hear_learner(&self, tally: &Tally) -> Result<()> {
        self.upkeep(|state| state.room.as_mut().map_or(Ok(()), |room| room.hear_tally(tally)))
    }

    /// Tells a learner that `count` of its samples were counted here.
    pub fn tell_counted(&self, learner: u64, count: u64) {
        self.upkeep(|TableState { room, table, counts, .. }| {
            room.iter_mut().for_each(|room| room.tell_counted(counts.count(table), learner, count));
        });
    }

    /// Makes a tick of the room of this start. Returns whether there are others to come.
    fn tick_room(&self, of: Incarnation) -> bool {
        let (goes_on, waits) = self.upkeep(|TableState { room, table, counts, queues, closed, .. }| {
            let Some(room) = room.as_mut().filter(|room| room.incarnation == of) else { return (false, false) };
            let goes_on = room.tick(counts.count(table));
            (goes_on && !*closed, !queues.inserts.is_empty())
        });
        if waits {
            self.change(|_, _| ());
        }
        goes_on
    }
}

fn check_ids(shard: &Shard, ids: &[u32]) -> Result<()> {
    match ids.iter().find(|id| **id >= shard.max_shards()) {
        None => Ok(()),
        Some(id) => Err(Error::invalid(format!("expected ids of shards below {}, got {id}", shard.max_shards()))),
    }
}

async fn drive(table: TableHandle, of: Incarnation) {
    let mut ticks = tokio::time::interval(PUBLISH_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if !table.tick_room(of) {
            return;
        }
    }
}

impl RoomLink {
    /// Takes note of a message that the client has sent or carried.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the client may not send it, [`Error::ResourceExhausted`] if it tells of too many starts
    /// of shards.
    pub fn hear(&self, message: &RoomMessage) -> Result<()> {
        let heard = |room: &mut Box<Room>| room.hear(self.id, message);
        let waits = self.table.upkeep(|state| {
            state.room.as_mut().map_or(Ok(()), heard)?;
            Ok::<_, Error>(!state.queues.inserts.is_empty())
        })?;
        if waits && matches!(message, RoomMessage::Published(_)) {
            self.table.change(|_, _| ());
        }
        Ok(())
    }

    /// Takes over ids of shards that the client has found.
    ///
    /// # Errors
    /// Those of [`TableHandle::attach_to_room`].
    pub fn name_shards(&self, shard: &Shard, ids: &[u32]) -> Result<()> {
        check_ids(shard, ids)?;
        self.table.upkeep(|state| state.room.as_mut().map_or(Ok(()), |room| room.name_shards(ids)))
    }
}

impl Drop for RoomLink {
    fn drop(&mut self) {
        self.table.upkeep(|state| state.room.iter_mut().for_each(|room| room.leave(self.id)));
    }
}
