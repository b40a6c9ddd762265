//! Looks after the memory of a server's tables, in the background.

use crate::compaction::compact;
use crate::replay::Replay;
use crate::table_handle::TableHandle;
use reverb_core::Table;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};

/// Least time between two returns of freed memory to the system: each takes milliseconds, and what is returned is
/// faulted in again if it is needed again.
const TRIM_PERIOD: Duration = Duration::from_secs(1);

/// Compacts a table's chunks, and returns what is freed in bulk, until the service is closed.
pub async fn keep_house(handle: TableHandle, replay: Arc<Replay>) {
    let mut closed = std::pin::pin!(replay.closed());
    let mut next_trim = Instant::now();
    let mut freed = false;
    loop {
        tokio::select! {
            () = handle.wasteful() => {}
            () = sleep_until(next_trim), if freed => {
                freed = false;
                next_trim = Instant::now() + TRIM_PERIOD;
                run(trim).await;
            }
            () = &mut closed => return,
        }
        freed |= handle.take_shrunk();
        while handle.with_table(Table::wants_compaction) && !replay.is_closed() {
            let table = handle.clone();
            run(move || compact(&table)).await;
            freed = true;
        }
    }
}

async fn run(work: impl FnOnce() + Send + 'static) {
    if spawn_blocking(work).await.is_err() {
        tracing::error!("housekeeping failed; memory may grow");
    }
}

/// Returns freed memory to the system. glibc's allocator keeps what lies between blocks in use until it is asked;
/// other allocators return it by themselves.
fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the call may be made at any time, from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}
