//! Long waits at a table, by program: one notice tells a program why its calls wait, however many of them do.

use crate::peer::Peer;
use parking_lot::Mutex;
use std::any::TypeId;
use std::collections::HashMap;
use std::sync::Arc;

/// A kind of answer and the program that waits for it: its name and the address from which it calls.
type Caller = (TypeId, String, String);

/// The number of long waits of each caller at one table.
#[derive(Debug, Default, Clone)]
pub struct LongWaits(Arc<Mutex<HashMap<Caller, usize>>>);

/// A long wait. The next one of the same caller is its first again once all of them have been dropped.
#[derive(Debug)]
pub struct LongWait {
    waits: LongWaits,
    caller: Caller,
    /// Whether no other long wait of the caller was there before.
    pub is_first: bool,
}

impl LongWaits {
    /// Counts a wait for an answer of type `T` as long. `None` if the peer has not said its name.
    pub fn begin<T: 'static>(&self, peer: &Peer) -> Option<LongWait> {
        if peer.name().is_empty() {
            return None;
        }
        // Programs on several machines may have the same name. Each connection has a port of its own.
        let machine = peer.address.rsplit_once(':').map_or("", |(ip, _)| ip);
        let caller = (TypeId::of::<T>(), peer.name().to_owned(), machine.to_owned());
        let mut waits = self.0.lock();
        let count = waits.entry(caller.clone()).or_default();
        *count += 1;
        Some(LongWait { waits: self.clone(), caller, is_first: *count == 1 })
    }
}

impl Drop for LongWait {
    fn drop(&mut self) {
        let mut waits = self.waits.0.lock();
        if let Some(count) = waits.get_mut(&self.caller) {
            *count -= 1;
            if *count == 0 {
                waits.remove(&self.caller);
            }
        }
    }
}
