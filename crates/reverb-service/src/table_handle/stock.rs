//! Waits of draws from several tables together, until one of the tables has more.

use super::handle::{TableHandle, closed};
use super::requests::WaitKind;
use crate::peer::Peer;
use reverb_core::{Result, Table};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Least time between two looks at a table that changes all the time.
const PAUSE: Duration = Duration::from_millis(2);

/// What a draw from several tables waits for at one of them. It is an amount and not a change, so that no change is missed
/// that comes before the wait, and so that draws which hold items for a moment and give them back do not wake each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stock {
    /// The amount at which the wait ends.
    pub at_least: u64,
    /// Whether that is a number of draws ([`Table::draws_left`]) instead of items.
    pub of_draws: bool,
    /// The `min_size_to_sample` that the draw has seen. The wait also ends if it is another.
    pub min_size: i64,
}

impl Stock {
    fn is_there(&self, table: &Table) -> bool {
        let size = table.len() as u64;
        let amount = if self.of_draws { table.draws_left().unwrap_or(u64::MAX) } else { size };
        amount >= self.at_least || table.limiter().config.min_size_to_sample != self.min_size
    }
}

impl TableHandle {
    /// Waits until the table has a stock. The waits of the table show the peer meanwhile. `is_ahead` is as in
    /// [`super::DrawRequest`].
    ///
    /// # Errors
    /// [`reverb_core::Error::Cancelled`] if the table is closed.
    pub async fn stocked(&self, stock: Stock, is_ahead: bool, peer: Arc<Peer>) -> Result<()> {
        let kind = if is_ahead { WaitKind::Ahead } else { WaitKind::Call };
        let watch = self.watchers().watch(kind, peer, Instant::now());
        loop {
            let mut changed = pin!(watch.changed());
            // From here on no change is missed.
            changed.as_mut().enable();
            let is_there =
                self.upkeep(|state| if state.closed { Err(closed()) } else { Ok(stock.is_there(&state.table)) });
            if is_there? {
                return Ok(());
            }
            let next_look = Instant::now() + PAUSE;
            changed.await;
            tokio::time::sleep_until(next_look.into()).await;
        }
    }
}
