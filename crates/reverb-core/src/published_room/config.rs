//! The limiter of the whole buffer, and the times of the protocol.

use crate::{Error, RateLimiterConfig, Result};
use std::time::Duration;

/// How often the home publishes and members report.
pub const PUBLISH_EVERY: Duration = Duration::from_millis(10);
/// How long a publication may be used after it has arrived.
pub const LIFE: Duration = Duration::from_millis(100);
/// How long a member may be silent and yet have a share.
pub const SILENT_AFTER: Duration = Duration::from_millis(200);
/// How long a member is counted before and after it has a share: the life of a publication, and as long on the way.
pub const SETTLE: Duration = Duration::from_millis(200);
/// How long the first shard is without a home before it becomes the home.
pub const TAKEOVER_AFTER: Duration = Duration::from_millis(300);
/// By how much longer each shard waits than the one before it.
pub const STAGGER: Duration = Duration::from_millis(50);
/// By how much a generation may be above the newest that a shard has seen: more often than in the life of a room, and too
/// little for one message to use up the numbers.
pub const MAX_JUMP: u64 = 1 << 20;
/// A learner that goes on waiting gets every fifth publication.
pub const HEARTBEAT: u64 = 5;

/// The limiter of the whole buffer, and how many use it.
#[derive(Debug, Clone, PartialEq)]
pub struct RoomConfig {
    /// The bounds, as of one table.
    pub limiter: RateLimiterConfig,
    /// Number of shards, at least 1.
    pub shards: u64,
    /// Number of learners, at least 1.
    pub learners: u64,
    /// Number of samples of the greatest batch, at least 1.
    pub batch: u64,
}

impl RoomConfig {
    /// Checks that a shard's insert or a learner's batch can always go.
    ///
    /// Somebody may go if the room of both sides, which add up to the window, is not split into shares that are all too
    /// small: if `max_diff - min_diff >= shards × samples_per_insert + learners × batch`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] with the figures if the window is smaller, if a number is 0, or if the limiter is not
    /// valid by itself.
    pub fn validate(&self) -> Result<()> {
        self.limiter.validate()?;
        let Self { shards, learners, batch, .. } = *self;
        if shards == 0 || learners == 0 || batch == 0 {
            return Err(Error::invalid(format!(
                "shards, learners and batch must be at least 1, got {shards}, {learners} and {batch}"
            )));
        }
        let RateLimiterConfig { samples_per_insert, min_diff, max_diff, .. } = self.limiter;
        let needed = shards as f64 * samples_per_insert + learners as f64 * batch as f64;
        if self.window() < needed {
            return Err(Error::invalid(format!(
                "max_diff - min_diff must be at least shards × samples_per_insert + learners × batch = \
                 {shards} × {samples_per_insert} + {learners} × {batch} = {needed}, got {max_diff} - {min_diff} = {}",
                self.window()
            )));
        }
        Ok(())
    }

    /// How far apart the bounds are.
    pub fn window(&self) -> f64 {
        self.limiter.max_diff - self.limiter.min_diff
    }

    pub(super) fn min_items(&self) -> u64 {
        u64::try_from(self.limiter.min_size_to_sample).unwrap_or(0)
    }
}
