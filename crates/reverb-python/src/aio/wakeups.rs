//! `reverb._rust.Wakeups`: tells an event loop which calls have ended.

use parking_lot::Mutex;
use pyo3::prelude::*;
use reverb_service::warn;
use std::collections::VecDeque;
use std::io::{Read, Result, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time between two reports of writers that wait.
const REPORT_PERIOD: Duration = Duration::from_secs(10);

/// The calls of one event loop that have ended, and a socket that is readable while there are any.
#[pyclass(frozen, module = "reverb._rust")]
pub struct Wakeups {
    ended: Arc<Ended>,
    bytes: UnixStream,
}

/// The end at which calls add themselves, from any thread.
pub struct Ended {
    numbers: Mutex<VecDeque<u64>>,
    bytes: UnixStream,
    reported: Mutex<Option<Instant>>,
}

impl Ended {
    /// Adds a call that has ended.
    pub fn add(&self, number: u64) {
        let was_empty = {
            let mut numbers = self.numbers.lock();
            numbers.push_back(number);
            numbers.len() == 1
        };
        if was_empty {
            self.wake();
        }
    }

    /// Makes the socket readable.
    fn wake(&self) {
        // If the socket is full, it is readable already. If its other end is closed, so is the loop.
        let _full_or_closed = (&self.bytes).write(&[0]);
    }

    /// Logs why a writer waits; of all that wait at the same time, one.
    pub fn report(&self, text: &str) {
        let now = Instant::now();
        let is_due = {
            let mut reported = self.reported.lock();
            let is_due = reported.is_none_or(|before| now - before >= REPORT_PERIOD);
            if is_due {
                *reported = Some(now);
            }
            is_due
        };
        if is_due {
            warn(text);
        }
    }
}

impl Wakeups {
    /// The end at which calls add themselves.
    pub fn ended(&self) -> &Arc<Ended> {
        &self.ended
    }
}

#[pymethods]
impl Wakeups {
    #[new]
    fn new() -> Result<Self> {
        let (reader, writer) = UnixStream::pair()?;
        reader.set_nonblocking(true)?;
        writer.set_nonblocking(true)?;
        let ended = Ended { numbers: Mutex::default(), bytes: writer, reported: Mutex::default() };
        Ok(Self { ended: Arc::new(ended), bytes: reader })
    }

    fn fileno(&self) -> i32 {
        self.bytes.as_raw_fd()
    }

    /// Takes the numbers of up to `most` calls that have ended. While others are left, the socket stays readable.
    fn take(&self, most: usize) -> Vec<u64> {
        // A byte that comes after this leads to another call, which may find nothing.
        while matches!((&self.bytes).read(&mut [0; 64]), Ok(1..)) {}
        let (numbers, is_empty) = {
            let mut numbers = self.ended.numbers.lock();
            let count = most.min(numbers.len());
            (numbers.drain(..count).collect(), numbers.is_empty())
        };
        if !is_empty {
            self.ended.wake();
        }
        numbers
    }
}
