//! Waits of a draw: for items, and for shards that are missing.

use reverb_service::{Notice, Operation};
use std::time::{Duration, Instant};

// limit (Draws): pause of a draw of a cluster that waits for a shard, or that was woken in vain | {} to {LONGEST_PAUSE} |
/// The first and the longest pause.
const SHORTEST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// Time after which the program is told what a draw waits for.
const NOTICE_AFTER: Duration = Duration::from_secs(10);

/// The waits of one draw.
#[derive(Debug)]
pub struct Wait {
    begun: Instant,
    next_pause: Duration,
    paused: Duration,
    is_told: bool,
}

impl Default for Wait {
    fn default() -> Self {
        Self { begun: Instant::now(), next_pause: SHORTEST_PAUSE, paused: Duration::ZERO, is_told: false }
    }
}

impl Wait {
    /// Time of all pauses.
    pub fn paused(&self) -> Duration {
        self.paused
    }

    /// Time since the draw began.
    fn waited(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Waits a moment, until `deadline` at the latest. Pauses double, and have a random part: draws that have taken the
    /// last items from each other do not meet again. `reason` is the end of a sentence.
    pub async fn pause(&mut self, table: &str, deadline: Option<Instant>, reason: impl FnOnce() -> String) {
        let pause = self.next_pause.mul_f64(rand::random_range(0.5..1.0));
        self.next_pause = (self.next_pause * 2).min(LONGEST_PAUSE);
        self.during(table, deadline, reason, tokio::time::sleep(pause)).await;
    }

    /// Waits for an event, until `deadline` at the latest. `None` if that came first.
    pub async fn during<T>(
        &mut self,
        table: &str,
        deadline: Option<Instant>,
        reason: impl FnOnce() -> String,
        event: impl Future<Output = T>,
    ) -> Option<T> {
        let since = Instant::now();
        let notice_at = (!self.is_told).then(|| self.begun + NOTICE_AFTER);
        let mut event = std::pin::pin!(event);
        let mut ended = until([notice_at, deadline].into_iter().flatten().min(), event.as_mut()).await;
        let is_due = notice_at.is_some_and(|at| Instant::now() >= at);
        if ended.is_none() && is_due {
            self.is_told = true;
            self.tell(table, format!("sample of table `{table}` waits: {}", reason()));
            ended = until(deadline, event).await;
        }
        self.paused += since.elapsed();
        ended
    }

    /// Says that the draw goes on, if the program was told that it waits.
    pub fn end(&self, table: &str) {
        if self.is_told {
            let waited = self.waited().as_secs_f64();
            self.tell(table, format!("sample of table `{table}` goes on after {waited:.1} s"));
        }
    }

    fn tell(&self, table: &str, text: String) {
        Notice { text, table: table.to_owned(), operation: Operation::Sample, waited: self.waited() }.warn();
    }
}

async fn until<T>(limit: Option<Instant>, event: impl Future<Output = T>) -> Option<T> {
    match limit {
        Some(limit) => tokio::time::timeout_at(limit.into(), event).await.ok(),
        None => Some(event.await),
    }
}
