//! Converts the status of tables to messages and back.

use crate::grpc::table_info::{read_table_info, table_info};
use crate::replay_v1::proto as replay;
use prost::Message;
use reverb_core::{Error, RemovalCounts, Result};
use reverb_service::TableStatus;

/// Converts the status of a table to a message.
pub fn status_to_wire(status: &TableStatus) -> replay::TableStatus {
    replay::TableStatus {
        info: Some(table_info(status)),
        size_bytes: status.info.bytes,
        max_bytes: status.info.config.max_bytes.unwrap_or(0),
        waiting_inserts: status.waiting_inserts as u64,
        waiting_samples: status.waiting_samples as u64,
        insert_wait: status.insert_wait.clone().unwrap_or_default(),
        sample_wait: status.sample_wait.clone().unwrap_or_default(),
        insert_peer: status.insert_peer.clone().unwrap_or_default(),
        sample_peer: status.sample_peer.clone().unwrap_or_default(),
        undelivered_samples: status.undelivered,
        removed: Some(removed_to_wire(status.info.removed)),
        weight: status.info.weight,
    }
}

fn removed_to_wire(removed: RemovalCounts) -> replay::RemovalCounts {
    let RemovalCounts { max_size, max_bytes, max_times_sampled, deleted, reset } = removed;
    replay::RemovalCounts { max_size, max_bytes, max_times_sampled, deleted, reset }
}

fn removed_from_wire(removed: replay::RemovalCounts) -> RemovalCounts {
    let replay::RemovalCounts { max_size, max_bytes, max_times_sampled, deleted, reset } = removed;
    RemovalCounts { max_size, max_bytes, max_times_sampled, deleted, reset }
}

/// Reads the status of a table from a message.
///
/// # Errors
/// [`Error::DataLoss`] if the message does not describe a table.
pub fn status_from_wire(status: replay::TableStatus) -> Result<TableStatus> {
    let info = status.info.ok_or_else(|| Error::DataLoss("the status of a table has no description".into()))?;
    let (mut info, waited) = read_table_info(info)?;
    info.bytes = status.size_bytes;
    info.removed = removed_from_wire(status.removed.unwrap_or_default());
    info.weight = status.weight;
    info.config.max_bytes = Some(status.max_bytes).filter(|&limit| limit > 0);
    let text = |text: String| Some(text).filter(|text| !text.is_empty());
    Ok(TableStatus {
        waiting_inserts: status.waiting_inserts as usize,
        waiting_samples: status.waiting_samples as usize,
        insert_wait: text(status.insert_wait),
        sample_wait: text(status.sample_wait),
        insert_peer: text(status.insert_peer),
        sample_peer: text(status.sample_peer),
        undelivered: status.undelivered_samples,
        ..TableStatus::without_queues(info, waited)
    })
}

/// Returns the status of a table as a serialised message.
pub fn status_bytes(status: &TableStatus) -> Vec<u8> {
    status_to_wire(status).encode_to_vec()
}
