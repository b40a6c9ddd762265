//! Inserts into several tables: their items, their size limit, and the wait for their completion.

use crate::notice::Notice;
use crate::table_handle::{Call, TableHandle};
use reverb_core::{Error, NewItem, Result};
use std::time::Instant;

/// Items for one table, in the order of insertion.
#[derive(Debug)]
pub struct InsertGroup {
    /// The table that gets the items.
    pub table: TableHandle,
    /// The items to insert.
    pub items: Vec<NewItem>,
}

/// Checks that the data of one insert does not exceed a limit. Both sizes are in bytes.
///
/// # Errors
/// [`Error::MessageTooLarge`] with the option and both sizes.
#[inline]
pub fn check_size(size_bytes: u64, limit_bytes: u64) -> Result<()> {
    check_size_of("the data of this insert", size_bytes, limit_bytes)
}

/// As [`check_size`], for data that the error calls `what`.
///
/// # Errors
/// Those of [`check_size`].
#[inline]
pub fn check_size_of(what: &str, size_bytes: u64, limit_bytes: u64) -> Result<()> {
    if size_bytes <= limit_bytes {
        return Ok(());
    }
    Err(Error::MessageTooLarge {
        what: what.into(),
        option: "max_message_size (an argument of reverb.Server)".into(),
        size_bytes,
        limit_bytes,
    })
}

/// Waits until all items of an insert are in their tables, or until `deadline`. Passes a long wait to `notice`.
///
/// # Errors
/// The first error of a call. The calls after it are withdrawn.
pub async fn wait_for_inserts(calls: Vec<Call<()>>, deadline: Option<Instant>, notice: impl Fn(&Notice)) -> Result<()> {
    for call in calls {
        match call {
            Call::Done(result) => result?,
            Call::Waiting(waiting) => waiting.result(deadline, &notice).await?,
        }
    }
    Ok(())
}

/// Adds the number of the row to an error about one row of a batch.
pub fn name_row(row: usize, rows: usize, error: Error) -> Error {
    match error {
        Error::InvalidPriority(reason) if rows > 1 => Error::InvalidRow { row, reason },
        error => error,
    }
}
