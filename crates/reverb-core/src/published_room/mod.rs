//! The rate limiter of one buffer that lies on several shards, by published room.
//!
//! A state machine: it is given the time of its own clock and the messages of others, and never waits, sends or draws
//! lots. Nothing is leased, returned or recovered.
//!
//! # Roles
//! - A [`Shard`] counts the inserts and samples that happen at it, reports them, and inserts by its share of the room.
//! - A [`Learner`] samples by its share. The shards count its samples; it passes on what they tell it.
//! - The *home* is one of the shards. Every [`PUBLISH_EVERY`] it adds up all that it has heard and publishes the sums,
//!   the room that is left to either side, and by how many it is divided: a [`Publication`].
//!
//! A member that the publication lists may use `room / holders`, less its own use that the sums do not contain yet.
//! [`LIFE`] after it has heard the last publication it stands still. It goes by the publications of the newest
//! [`Generation`] it has seen, never by two at once.
//!
//! # Counts
//! All messages carry the [`Tally`] of their sender: the counts of each incarnation of each shard. Counts only grow and
//! are merged by the greater, so a message may be lost, late, out of order, or told by a third. A shard that comes
//! back, with whatever older counts, counts on in a new incarnation; what was last heard of its earlier ones stays in
//! the sums, also when it is removed. No sample becomes known without the inserts that allowed it: where a learner
//! samples on both sides of a cut, the sides know of each other by it. Otherwise one sample would let an insert go on
//! each side.
//!
//! # Who is the home
//! A shard becomes the home when it has heard none for [`TAKEOVER_AFTER`], and [`STAGGER`] longer for each smaller id:
//! of those alive the smallest is first. It must also have heard a report of somebody without a home: who can send but
//! not hear would stop all others. The home gives up when it hears of a newer one, or hears nobody for
//! [`TAKEOVER_AFTER`]. It stays the home when a smaller id comes back, since each change costs a standstill of
//! [`SETTLE`]. So a shard that is alone, of several by the map, stands still under a ratio until a learner or another
//! shard reports to it.
//!
//! A new home lists a member only [`SETTLE`] after it first heard it. By then the publications of the home before are
//! dead, and all who were heard have told what they had used.
//!
//! # Bounds
//! Let `diff = inserts × samples_per_insert - samples`, over all that has really happened, `W = max_diff - min_diff`,
//! and `R` the greatest room of a publication under which somebody's use is not in the sums yet; `R <= W`.
//! - *Without cuts*, also through deaths of any member: `min_diff - R <= diff <= max_diff + R`. For each shard has
//!   inserted no more than its last publication contained plus its share, the newest of these publications contains
//!   what all the older ones did, and the shares add up to at most the greatest room. With prompt reports these are the
//!   publications of the last 0.2 s, so that near a bound, where rooms are small, the error is small.
//! - *Under a cut into `k` sides*, each with a home of its own: one window more for each further side, `(k - 1) W`, and
//!   `R` at most `2 k - 1` times: each side may err by `R` before the cut and after it. A member without a home on its
//!   side stands still. A cut in one direction makes no second side. A process that was stopped for longer than
//!   [`LIFE`], and messages that take longer than [`SETTLE`] - [`LIFE`], are cuts for as long. After the cut nobody
//!   goes on in the direction that is exceeded until the other side has caught up.
//! - *The death of a shard* hides those of its events that it had told nobody: at most the room of one publication on
//!   either side.
//! - *Refill*: as in one table, inserts up to `min_size_to_sample` items may always go, here up to one item more for
//!   each shard, and one publication's refill. Items are those of all shards of the map, silent ones included.
//!
//! In 10,000 simulated runs with such faults `diff` was outside by 0.64 `W` at most, and by 1.0 `W` under cuts.
//!
//! # Waits
//! A waiting insert ends with a publication, which its shard gets every [`PUBLISH_EVERY`] anyway. A waiting learner
//! needs no polling: its [`Report`] says for how many samples it waits, and the home sends it the first publication
//! whose share is enough. Until then it gets one in [`HEARTBEAT`], by which it knows that the home lives, and can say
//! what it waits for: [`Learner::wait`], [`Shard::wait`].
//!
//! Where the window is some 8 times the least that [`RoomConfig::validate`] accepts, simulated inserts go as fast as
//! without bounds; with the least window itself, at some 0.6 of that on average.
//!
//! # Cost
//! A publication and a report have some 40 bytes for each incarnation of each shard. The wire may send changed counts
//! only.

mod config;
mod holder;
mod home;
mod learner;
mod messages;
mod shard;
mod tally;
mod wait;

pub use config::{HEARTBEAT, LIFE, MAX_JUMP, PUBLISH_EVERY, RoomConfig, SETTLE, SILENT_AFTER, STAGGER, TAKEOVER_AFTER};
pub use learner::Learner;
pub use messages::{Counted, Generation, Holders, MemberId, Publication, Report};
pub use shard::Shard;
pub use tally::{Counts, Incarnation, MAX_COUNT, MAX_STARTS, Sums, Tally};
pub use wait::{Wait, WaitReason};
