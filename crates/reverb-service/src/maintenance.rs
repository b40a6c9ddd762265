//! Background maintenance of the memory of a table: compacts sparse chunks and returns freed memory to the system.
//!
//! When a table has dropped more than half of its data and more than 16 MiB, the others are searched for sparse chunks
//! too, because they may have shared them.
//!
//! Freed memory is returned by `malloc_trim`, at most once a second, after a compaction or after a table has dropped
//! more than half of its data and more than 16 MiB.

use crate::compaction::compact;
use crate::freed_memory::trim;
use crate::replay::Replay;
use crate::table_handle::TableHandle;
use reverb_core::Table;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};

/// Minimum time between two calls of `malloc_trim`. A call takes milliseconds, and memory that is needed again causes
/// page faults.
const TRIM_PERIOD: Duration = Duration::from_secs(1);

/// Runs the maintenance of a table until the service is closed.
pub async fn run_maintenance(handle: TableHandle, replay: Arc<Replay>) {
    let mut closed = std::pin::pin!(replay.closed());
    let mut next_trim = Instant::now();
    let mut freed = false;
    loop {
        tokio::select! {
            () = handle.compaction_due() => {}
            () = sleep_until(next_trim), if freed => {
                freed = false;
                next_trim = Instant::now() + TRIM_PERIOD;
                run(trim).await;
            }
            () = &mut closed => return,
        }
        if handle.take_shrink_notice() {
            freed = true;
            let others = replay.tables().iter().filter(|table| table.name() != handle.name());
            others.for_each(|table| table.with_table_mut(|table, _| table.expect_sparse_chunks()));
        }
        while handle.with_table(Table::wants_compaction) && !replay.is_closed() {
            let table = handle.clone();
            run(move || compact(&table)).await;
            freed = true;
        }
    }
}

async fn run(work: impl FnOnce() + Send + 'static) {
    if spawn_blocking(work).await.is_err() {
        tracing::error!("the maintenance of a table failed; memory may grow");
    }
}
