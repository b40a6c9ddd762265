//! Converts types of the core and the service to messages of our protocol, and checks and converts messages back.

mod batches;
mod changes;
mod chunks;
mod items;
mod races;
mod shapes;
mod shards;
mod status;
mod sums;

pub use batches::{
    batch_from_wire, batch_to_wire, got_from_wire, got_to_wire, newer_from_wire, newer_to_wire, peeked_from_wire,
    peeked_to_wire,
};
pub use changes::{changes_from_wire, changes_to_wire, limiter_from_wire, limiter_to_wire};
pub use chunks::{LayoutCache, chunk_to_wire, chunks_from_wire, decoded_bytes};
pub use items::{
    insert_chunks_from_wire, items_bytes, items_from_wire, write_item_bytes, write_item_from_wire, write_item_to_wire,
};
pub use races::{
    race_from_wire, race_to_wire, report_from_wire, stock_from_wire, wait_to_wire, winners_from_wire, winners_to_wire,
};
pub use shards::{
    largest_from_wire, largest_to_wire, load_from_wire, load_to_wire, others_to_wire, report_of_server, shard_to_wire,
    slots_from_wire,
};
pub use status::{status_bytes, status_from_wire, status_to_wire};
pub use sums::{room_message_from_wire, room_message_to_wire, tally_from_wire};
