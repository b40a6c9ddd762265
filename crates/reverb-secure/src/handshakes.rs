//! Handshakes with strangers, which may take as long as they like, and hold nobody up.

use std::collections::VecDeque;
use tokio::task::{AbortHandle, JoinSet};

// limit (Connections and calls): handshakes of TLS that a listener makes at the same time | {} | the oldest is given up
/// Maximum number of handshakes at the same time.
const MAX_HANDSHAKES: usize = 1024;

/// The handshakes of a listener. If there are too many, the oldest gives way to a new one. The drop ends all.
#[derive(Debug, Default)]
pub struct Handshakes {
    tasks: JoinSet<()>,
    /// The oldest first. Some have ended.
    order: VecDeque<AbortHandle>,
}

impl Handshakes {
    /// Makes a handshake in a task of its own. Must be called in the context of a runtime.
    pub fn begin(&mut self, handshake: impl Future<Output = ()> + Send + 'static) {
        while self.tasks.try_join_next().is_some() {}
        if self.order.len() >= MAX_HANDSHAKES {
            self.order.retain(|task| !task.is_finished());
        }
        if self.order.len() >= MAX_HANDSHAKES
            && let Some(oldest) = self.order.pop_front()
        {
            oldest.abort();
        }
        self.order.push_back(self.tasks.spawn(handshake));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tokio::sync::mpsc;

    #[tokio::test]
    async fn the_oldest_handshake_gives_way() {
        let mut handshakes = Handshakes::default();
        let (ended, mut ends) = mpsc::unbounded_channel();
        for number in 0..MAX_HANDSHAKES + 2 {
            let ended = Arc::new(ended.clone());
            handshakes.begin(async move {
                let _told = Told(number, ended);
                std::future::pending().await
            });
            tokio::task::yield_now().await;
        }
        assert_eq!((ends.recv().await, ends.recv().await), (Some(0), Some(1)));
        assert!(ends.try_recv().is_err());
        drop(handshakes);
        assert_eq!(ends.recv().await, Some(2));
    }

    /// Tells its number when it is dropped.
    struct Told(usize, Arc<mpsc::UnboundedSender<usize>>);

    impl Drop for Told {
        fn drop(&mut self) {
            let _told = self.1.send(self.0);
        }
    }
}
