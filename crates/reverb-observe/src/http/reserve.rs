//! Places for connections beyond the limit, which may ask for health only.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::oneshot;

/// A fixed number of places. A newcomer displaces the oldest if all are taken.
#[derive(Debug)]
pub struct Reserve {
    size: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    entered: u64,
    /// Numbers of the places that are taken, oldest first, and what tells their owners to leave.
    places: VecDeque<(u64, oneshot::Sender<()>)>,
}

impl Reserve {
    /// Creates `size` places.
    pub fn new(size: usize) -> Self {
        Self { size, taken: Mutex::default() }
    }

    /// Takes a place until the returned value is dropped.
    pub fn enter(self: &Arc<Self>) -> Place {
        let mut taken = self.taken.lock();
        if taken.places.len() == self.size {
            taken.places.pop_front();
        }
        let (leave, displaced) = oneshot::channel();
        let number = taken.entered;
        taken.entered += 1;
        taken.places.push_back((number, leave));
        Place { reserve: self.clone(), number, displaced }
    }
}

/// A place that is taken.
#[derive(Debug)]
pub struct Place {
    reserve: Arc<Reserve>,
    number: u64,
    displaced: oneshot::Receiver<()>,
}

impl Place {
    /// Completes when another one needs the place.
    pub async fn displaced(&mut self) {
        let _dropped = (&mut self.displaced).await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.reserve.taken.lock().places.retain(|(number, _)| *number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_gives_way_and_places_that_were_left_are_free() {
        let reserve = Arc::new(Reserve::new(2));
        let is_displaced = |place: &mut Place| place.displaced.try_recv() == Err(oneshot::error::TryRecvError::Closed);
        let (mut first, mut second) = (reserve.enter(), reserve.enter());
        assert!(!is_displaced(&mut first));
        let mut third = reserve.enter();
        assert!(is_displaced(&mut first) && !is_displaced(&mut second));
        drop(first);
        drop(second);
        let mut fourth = reserve.enter();
        assert!(!is_displaced(&mut third) && !is_displaced(&mut fourth));
    }
}
