//! What servers tell the clients of other processes at their end: whether they will be back.
//!
//! A program that ends says so by its exit status, which is known only after the interpreter has gone. So a server whose
//! program is ending closes its tables, and lets its streams wait; a handler of the C library, which gets the status,
//! then has the last word.

use parking_lot::Mutex;
use reverb_core::fork;
use reverb_service::Replay;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Once, Weak};
use std::time::{Duration, Instant};

/// How a server ends, as far as that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// For good. Clients do not look for it any more.
    ForGood,
    /// It, or another in its place, will be back at its address.
    Returns,
    /// With the program, whose exit status says it: 0 is for good.
    WithProgram,
    /// It was collected, maybe because its program is ending. If the program goes on, the server will be back.
    Collected,
}

/// Maximum time to wait until the clients have been told, which usually takes milliseconds.
const TELL_TIME: Duration = Duration::from_secs(1);
/// Time that connections have to send the last word of their streams.
const SEND_TIME: Duration = Duration::from_millis(20);
/// Time between two looks whether the clients have been told.
const PAUSE: Duration = Duration::from_millis(1);

/// The servers of this process that have not told their clients how they end.
static SERVERS: Mutex<Vec<(u32, Weak<Replay>)>> = Mutex::new(Vec::new());
/// Whether the end of the program is for good whatever its exit status.
static IS_LAST: AtomicBool = AtomicBool::new(false);

/// Makes the end of the program tell the clients of a server how that ends.
pub fn register(replay: &Arc<Replay>) {
    static HANDLER: Once = Once::new();
    HANDLER.call_once(at_exit);
    let Some(mut servers) = SERVERS.try_lock_for(fork::LOCK_TIME) else { return };
    servers.retain(|(_, server)| server.strong_count() > 0);
    servers.push((fork::generation(), Arc::downgrade(replay)));
}

/// Says whether the end of this program is for good whatever its exit status.
pub fn set_last(is_last: bool) {
    IS_LAST.store(is_last, Relaxed);
}

/// Waits until all streams of a server that has ended for good have told so.
pub fn wait_told(replay: &Replay) {
    let limit = Instant::now() + TELL_TIME;
    if !replay.connections.has_streams() {
        return;
    }
    while replay.connections.has_streams() && Instant::now() < limit {
        std::thread::sleep(PAUSE);
    }
    std::thread::sleep(SEND_TIME);
}

/// Ends all servers of this process.
extern "C" fn end_all(status: c_int, _: *mut c_void) {
    /// Nothing may be freed any more while other threads still run.
    static LEFT: Mutex<Vec<Arc<Replay>>> = Mutex::new(Vec::new());
    let is_for_good = status == 0 || IS_LAST.load(Relaxed);
    // Threads that have held the lock may be gone.
    let Some(mut servers) = SERVERS.try_lock_for(TELL_TIME) else { return };
    let of_process = servers.drain(..).filter(|(generation, _)| *generation == fork::generation());
    let open: Vec<_> = of_process.filter_map(|(_, server)| server.upgrade()).collect();
    for server in &open {
        server.set_returns(!is_for_good);
        server.close();
    }
    if is_for_good {
        open.iter().for_each(|server| wait_told(server));
    }
    *LEFT.lock() = open;
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn at_exit() {
    unsafe extern "C" {
        fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
    }
    // SAFETY: the function lives as long as the process, and ignores its argument.
    let _without = unsafe { on_exit(end_all, std::ptr::null_mut()) };
}

/// Without the exit status, nobody knows whether the server will be back.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn at_exit() {
    let _unused = end_all;
}
