//! Pauses between attempts to reach a server.

use std::time::Duration;

/// The first and the longest pause.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));

/// Pauses that double. Each is shortened by a random part, up to half, so that clients do not come back together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackOff {
    next: Duration,
}

impl Default for BackOff {
    fn default() -> Self {
        Self { next: PAUSES.0 }
    }
}

impl BackOff {
    /// The first pause, before it is shortened.
    pub const SHORTEST: Duration = PAUSES.0;

    /// Returns the next pause.
    pub fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(PAUSES.1);
        pause.mul_f64(rand::random_range(0.5..1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut back_off = BackOff::default();
        let mut whole = BackOff::SHORTEST;
        for _ in 0..20 {
            let pause = back_off.pause();
            assert!(pause >= whole / 2 && pause <= whole, "{pause:?} of {whole:?}");
            whole = (whole * 2).min(PAUSES.1);
        }
        assert_eq!(whole, PAUSES.1);
    }
}
