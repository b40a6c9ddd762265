//! Work that takes long, beside the tasks of other clients; and how much of the decoding of chunks all streams do at once.

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Number of items up to which work on all of them takes a few milliseconds at most, and is done at once.
pub const ITEMS_AT_ONCE: usize = 16 << 10;
/// Size in bytes up to which the data of a message can be taken, and older data be freed for it, at once.
const BYTES_AT_ONCE: usize = 4 << 20;
/// Size in bytes up to which decoding takes about a millisecond at most, and is done at once.
const DECODED_AT_ONCE_BYTES: u64 = 1 << 20;
// limit (Chunks and messages): compressed chunks that a process decodes at one time, and their messages and draws |
// {:bytes}, {DECODING_TASKS}; those of up to {DECODED_AT_ONCE_BYTES:bytes} do not count | the others wait in turn
/// Size in bytes of the chunks that are decoded at one time, except those of small messages.
const DECODING_BYTES: u32 = 256 << 20;
/// Number of messages and draws whose chunks are decoded at one time. Each takes a thread of the blocking pool.
const DECODING_TASKS: u32 = 4;

/// Bytes that may be decoded now. Those who wait get them in order.
static ROOM: Semaphore = Semaphore::const_new(DECODING_BYTES as usize);

/// The turn of somebody who decodes many bytes. It ends when this is dropped.
#[derive(Debug)]
pub struct DecodingTurn(#[expect(dead_code, reason = "held, not read")] SemaphorePermit<'static>);

/// Whether so few bytes are decoded without a turn.
pub fn is_decoded_at_once(decoded_bytes: u64) -> bool {
    decoded_bytes <= DECODED_AT_ONCE_BYTES
}

/// Waits for a turn to decode this number of bytes. `None`, without a wait, if they are few. Who has a turn must not wait
/// for anybody.
pub async fn turn(decoded_bytes: u64) -> Option<DecodingTurn> {
    if is_decoded_at_once(decoded_bytes) {
        return None;
    }
    // What exceeds all the room takes all of it.
    let bytes = u32::try_from(decoded_bytes).unwrap_or(u32::MAX);
    let room = ROOM.acquire_many(bytes.clamp(DECODING_BYTES / DECODING_TASKS, DECODING_BYTES)).await;
    Some(DecodingTurn(room.expect("the semaphore is never closed")))
}

/// Does work that decodes this number of bytes. If they are many, it waits for its turn, and another thread runs the
/// other tasks of this one meanwhile. The work must not wait for anybody.
pub async fn decode<T>(decoded_bytes: u64, work: impl FnOnce() -> T) -> T {
    let turn = turn(decoded_bytes).await;
    if turn.is_some() { beside_others(work) } else { work() }
}

/// Does work on a number of items, beside other tasks if they are many.
pub fn on_items<T>(items: usize, work: impl FnOnce() -> T) -> T {
    if items > ITEMS_AT_ONCE { beside_others(work) } else { work() }
}

/// Does work on a message of this size, beside other tasks if it is large.
#[inline]
pub fn on_bytes<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    if bytes > BYTES_AT_ONCE { beside_others(work) } else { work() }
}

/// Does work while another thread runs the other tasks of this one, so that other clients are served.
pub fn beside_others<T>(work: impl FnOnce() -> T) -> T {
    let can_move_tasks =
        Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread);
    if can_move_tasks { tokio::task::block_in_place(work) } else { work() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    const SOON: Duration = Duration::from_secs(20);

    /// The only thread of the runtime serves small messages while large ones are decoded, and large ones take turns.
    #[test]
    fn large_messages_take_turns_and_small_ones_pass_them() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let (begun, begins) = channel();
        let start = |number: u32, bytes: u64| {
            let (begun, (open, gate)) = (begun.clone(), channel::<()>());
            let work = move || {
                begun.send(number).unwrap();
                gate.recv()
            };
            (open, runtime.spawn(async move { decode(bytes, work).await }))
        };
        let large: Vec<_> = (0..DECODING_TASKS + 2).map(|number| start(number, 2 << 20)).collect();
        let mut first: Vec<_> = (0..DECODING_TASKS).map(|_| begins.recv_timeout(SOON).unwrap()).collect();
        first.sort_unstable();
        assert_eq!(first, (0..DECODING_TASKS).collect::<Vec<_>>());
        let (open, _small) = start(99, DECODED_AT_ONCE_BYTES);
        assert_eq!(begins.recv_timeout(SOON), Ok(99));
        assert!(begins.try_recv().is_err(), "more than {DECODING_TASKS} are decoded at one time");
        drop(open);
        for (next, (open, _)) in (DECODING_TASKS..DECODING_TASKS + 2).zip(large) {
            drop(open);
            assert_eq!(begins.recv_timeout(SOON), Ok(next));
        }
    }
}
