//! The idle driver: one thread of the process that drives the runtimes of all clients between their calls.
//!
//! Pings must be answered, lost connections noticed, and connections of dropped clients closed, while no call waits.
//! The driver visits each idle runtime in turn, and less often the longer it has been idle, so that a thousand clients
//! need no more than one thread that sleeps nearly all the time.

use super::driven_runtime::DrivenRuntime;
use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use reverb_core::fork;
use std::io::Result;
use std::sync::Arc;
use std::thread::Thread;
use std::time::{Duration, Instant};

// limit (Processes): time after the last call before the idle driver visits a client's runtime | {}; then again as
// long, at most {LONGEST_PAUSE} |
/// Time after a call before the idle driver first visits a runtime. Data of a server that arrives in between waits
/// until then.
const LINGER: Duration = Duration::from_millis(50);
/// Maximum time between two visits. A server waits for the answer to a ping for many times as long.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Time between two visits of a runtime whose connections are being closed.
const CLOSING_PAUSE: Duration = Duration::from_millis(1);
// limit (Processes): time for the connections of a dropped client to close | {} | cut
/// Maximum time for connections to close after a runtime has ended.
const CLOSE_TIME: Duration = Duration::from_secs(1);

static DRIVER: ArcSwapOption<IdleDriver> = ArcSwapOption::const_empty();

type Inbox = Mutex<Vec<Arc<DrivenRuntime>>>;

/// The thread of a process, and the runtimes that it does not know yet.
pub struct IdleDriver {
    /// The process that the thread belongs to.
    generation: u32,
    inbox: Arc<Inbox>,
    thread: Thread,
}

impl IdleDriver {
    /// Returns the driver of this process. The thread of a driver does not survive a fork, so a child process makes its
    /// own.
    ///
    /// # Errors
    /// The error of the system, which cannot start a thread.
    pub fn of_this_process() -> Result<Arc<Self>> {
        let current = DRIVER.load();
        if let Some(driver) = &*current
            && driver.generation == fork::generation()
        {
            return Ok(driver.clone());
        }
        let made = Arc::new(Self::start()?);
        let before = DRIVER.compare_and_swap(&current, Some(made.clone()));
        if before.as_ref().map(Arc::as_ptr) != current.as_ref().map(Arc::as_ptr) {
            // Another thread was faster.
            let thread = made.thread.clone();
            drop(made);
            thread.unpark();
            return Self::of_this_process();
        }
        // The old driver belongs to the parent process, and with it the runtimes that it drives there.
        std::mem::forget(before.clone());
        Ok(made)
    }

    fn start() -> Result<Self> {
        let inbox = Arc::<Inbox>::default();
        let runtimes = inbox.clone();
        let thread = std::thread::Builder::new().name("reverb-idle".into()).spawn(move || run(&runtimes))?;
        Ok(Self { generation: fork::generation(), inbox, thread: thread.thread().clone() })
    }

    /// Drives a runtime between its calls until it has ended, and then shuts it down.
    pub fn add(&self, runtime: Arc<DrivenRuntime>) {
        self.inbox.lock().push(runtime);
        self.thread.unpark();
    }

    /// Tells the driver that a runtime was idle for this time until now, or has ended. If it was idle for long, the
    /// driver does not look at it often.
    pub fn wake_after(&self, idle_time: Duration) {
        if idle_time > LINGER {
            self.thread.unpark();
        }
    }
}

/// A runtime, and when the driver visits it again.
struct Visited {
    runtime: Arc<DrivenRuntime>,
    next: Instant,
    /// The time at which open connections are given up, once the runtime has ended.
    closed_by: Option<Instant>,
}

/// The loop of the thread. It ends if its driver was dropped.
fn run(inbox: &Arc<Inbox>) {
    let mut all: Vec<Visited> = Vec::new();
    loop {
        let new = std::mem::take(&mut *inbox.lock());
        all.extend(new.into_iter().map(|runtime| Visited { runtime, next: Instant::now(), closed_by: None }));
        all = all.into_iter().filter_map(Visited::visit).collect();
        match all.iter().map(|visited| visited.next).min() {
            Some(next) => std::thread::park_timeout(next.saturating_duration_since(Instant::now())),
            None if Arc::strong_count(inbox) == 1 => return,
            None => std::thread::park(),
        }
    }
}

impl Visited {
    /// Drives the runtime if that is due. Returns `None` if it was shut down.
    fn visit(mut self) -> Option<Self> {
        let now = Instant::now();
        if self.runtime.has_ended() {
            return self.close(now);
        }
        let idle_time = self.runtime.idle_time();
        if idle_time < LINGER {
            self.next = now + (LINGER - idle_time);
        } else if self.next <= now {
            self.runtime.drive_idle();
            self.next = now + idle_time.min(LONGEST_PAUSE);
        }
        Some(self)
    }

    /// Closes connections in order, so that no data they have sent is lost.
    fn close(mut self, now: Instant) -> Option<Self> {
        let closed_by = *self.closed_by.get_or_insert(now + CLOSE_TIME);
        self.runtime.drive_idle();
        self.next = now + CLOSING_PAUSE;
        if self.runtime.is_done() || closed_by <= now {
            self.runtime = DrivenRuntime::shut_down(self.runtime)?;
        }
        Some(self)
    }
}
