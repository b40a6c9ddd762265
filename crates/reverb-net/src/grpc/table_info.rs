//! Converts the status of tables to the messages of the reference, and back.

use prost::Message;
use reverb_core::{Result, TableInfo};
use reverb_formats::definitions;
use reverb_formats::proto::schema::{self, TableWorkerTime};
use reverb_service::{TableStatus, WaitTimes};

/// Returns the description of a table as a message of the reference.
pub fn table_info(status: &TableStatus) -> schema::TableInfo {
    let waited = status.waited;
    let worker_time = TableWorkerTime {
        // There is no worker thread, because callers serve the table themselves. Only the wait times remain.
        sleeping_ms: waited.alive_ms as i64,
        waiting_for_sampling_ms: waited.inserts_ms as i64,
        waiting_for_inserts_ms: waited.samples_ms as i64,
        ..TableWorkerTime::default()
    };
    definitions::table_info(&status.info, worker_time)
}

/// Reads a table from its description, and the times that calls have waited for it.
///
/// # Errors
/// [`reverb_core::Error::DataLoss`] if the message does not describe a table.
pub fn read_table_info(info: schema::TableInfo) -> Result<(TableInfo, WaitTimes)> {
    let times = info.table_worker_time.unwrap_or_default();
    let waited = WaitTimes {
        alive_ms: times.sleeping_ms as u64,
        inserts_ms: times.waiting_for_sampling_ms as u64,
        samples_ms: times.waiting_for_inserts_ms as u64,
    };
    Ok((definitions::read_table_info(info)?, waited))
}

/// Returns the description of a table as a serialised message of the reference.
pub fn info_bytes(status: &TableStatus) -> Vec<u8> {
    table_info(status).encode_to_vec()
}
