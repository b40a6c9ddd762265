//! Places for connections. If all are taken, the connection that has been idle the longest leaves for a new one.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use tokio::sync::oneshot;

/// A fixed number of places.
#[derive(Debug)]
pub struct Places {
    size: usize,
    taken: Mutex<Vec<Taken>>,
    /// Counts what the connections do.
    clock: Arc<AtomicU64>,
}

/// A place that is taken, and what tells its owner to leave.
#[derive(Debug)]
struct Taken {
    activity: Arc<Activity>,
    _leave: oneshot::Sender<()>,
}

/// What the owner of a place does.
#[derive(Debug)]
pub struct Activity {
    clock: Arc<AtomicU64>,
    /// The clock's count when it last received or sent something.
    last: AtomicU64,
    /// Number of requests that are being answered.
    answers: AtomicUsize,
}

impl Activity {
    /// Notes that something was received or sent.
    pub fn note(&self) {
        self.last.store(self.clock.fetch_add(1, Relaxed), Relaxed);
    }

    /// Notes that a request is being answered, until the returned value is dropped. The place stays meanwhile.
    pub fn answer(self: &Arc<Self>) -> Answering {
        self.answers.fetch_add(1, Relaxed);
        Answering(self.clone())
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub struct Answering(Arc<Activity>);

impl Drop for Answering {
    fn drop(&mut self) {
        // Idle only from now on.
        self.0.note();
        self.0.answers.fetch_sub(1, Relaxed);
    }
}

impl Places {
    /// Creates `size` places.
    pub fn new(size: usize) -> Self {
        Self { size, taken: Mutex::default(), clock: Arc::default() }
    }

    /// Takes a place until the returned value is dropped. `None` if all are taken by connections whose requests are
    /// being answered.
    pub fn enter(self: &Arc<Self>) -> Option<Place> {
        let mut taken = self.taken.lock();
        if taken.len() == self.size {
            let idle = taken.iter().enumerate().filter(|(_, taken)| taken.activity.answers.load(Relaxed) == 0);
            let (longest, _) = idle.min_by_key(|(_, taken)| taken.activity.last.load(Relaxed))?;
            taken.swap_remove(longest);
        }
        let activity = Arc::new(Activity {
            clock: self.clock.clone(),
            last: AtomicU64::new(self.clock.fetch_add(1, Relaxed)),
            answers: AtomicUsize::new(0),
        });
        let (leave, displaced) = oneshot::channel();
        taken.push(Taken { activity: activity.clone(), _leave: leave });
        Some(Place { places: self.clone(), activity, displaced })
    }
}

/// A place that is taken.
#[derive(Debug)]
pub struct Place {
    places: Arc<Places>,
    /// What its owner does.
    pub activity: Arc<Activity>,
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
        self.places.taken.lock().retain(|taken| !Arc::ptr_eq(&taken.activity, &self.activity));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_idle_gives_way_and_places_that_were_left_are_free() {
        let places = Arc::new(Places::new(2));
        let is_displaced = |place: &mut Place| place.displaced.try_recv() == Err(oneshot::error::TryRecvError::Closed);
        let (mut first, mut second) = (places.enter().unwrap(), places.enter().unwrap());
        assert!(!is_displaced(&mut first));
        first.activity.note();
        let mut third = places.enter().unwrap();
        assert!(is_displaced(&mut second) && !is_displaced(&mut first));
        drop(first);
        drop(second);
        let mut fourth = places.enter().unwrap();
        assert!(!is_displaced(&mut third) && !is_displaced(&mut fourth));
    }

    #[test]
    fn nobody_gives_way_while_a_request_is_answered() {
        let places = Arc::new(Places::new(2));
        let (first, second) = (places.enter().unwrap(), places.enter().unwrap());
        let (answer, other) = (first.activity.answer(), second.activity.answer());
        assert!(places.enter().is_none());
        drop(other);
        drop(answer);
        // The first one has been idle for less time.
        let _third = places.enter().unwrap();
        assert_eq!(places.taken.lock().iter().filter(|taken| Arc::ptr_eq(&taken.activity, &first.activity)).count(), 1);
    }
}
