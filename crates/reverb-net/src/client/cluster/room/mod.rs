//! The client's side of a limiter that the shards of a cluster keep together (`published_room` of reverb-core): it takes
//! its samples from the room that the shards publish, and carries what they tell each other.
//!
//! All that runs on a thread of its own, `reverb-room`, with connections of its own: messages must go on between the calls
//! of a program, whose connections nobody drives then for longer than a publication lives.

mod ask;
mod link;
mod member;
mod rooms;
mod taken;

pub use member::RoomUse;
pub use rooms::Rooms;
pub use taken::{Ask, Taken};
