//! The insert streams that no call uses.

use super::insert_link::InsertLink;
use parking_lot::Mutex;
use reverb_core::fork;

// limit (Beside dm-reverb): open insert streams without a call, to a server of dm-reverb | {} | closed
/// Maximum number of streams that stay open for later calls.
const MAX_IDLE: usize = 16;

/// The streams that no call uses. A stream serves one call at a time, since the server reads no further from a stream
/// whose items wait for their table.
#[derive(Debug)]
pub struct IdleInserts {
    generation: u32,
    idle: Mutex<Vec<InsertLink>>,
}

impl Default for IdleInserts {
    fn default() -> Self {
        Self { generation: fork::generation(), idle: Mutex::default() }
    }
}

impl Drop for IdleInserts {
    fn drop(&mut self) {
        if self.generation != fork::generation() {
            // The streams belong to the parent process. A thread that exists only there may have locked their connection.
            std::mem::forget(std::mem::take(self.idle.get_mut()));
        }
    }
}

impl IdleInserts {
    /// Takes a stream that has not ended.
    pub fn take(&self) -> Option<InsertLink> {
        loop {
            let mut stream = self.idle.lock().pop()?;
            if stream.is_idle() {
                return Some(stream);
            }
        }
    }

    /// Keeps a stream whose call is complete.
    pub fn give_back(&self, stream: InsertLink) {
        let mut idle = self.idle.lock();
        if idle.len() < MAX_IDLE {
            idle.push(stream);
        }
    }
}
