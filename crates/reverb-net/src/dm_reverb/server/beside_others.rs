//! Long work on a thread of the runtime.

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

/// Does work that takes milliseconds. Another thread runs the other tasks of this one meanwhile, so that other clients
/// are served.
pub fn beside_others<T>(work: impl FnOnce() -> T) -> T {
    let can_move_tasks =
        Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread);
    if can_move_tasks { block_in_place(work) } else { work() }
}
