//! Items as a table draws them.

use reverb_core::gather::Gatherer;
use reverb_core::{Drawn, NewItem, SelectorKind, Table, Trajectory};

/// The items in this order.
pub fn drawn(trajectories: &[Trajectory]) -> Vec<Drawn> {
    let size = trajectories.len() as u64;
    let mut config = super::config(SelectorKind::Fifo, SelectorKind::Fifo, size.max(1));
    // So that each is drawn once.
    config.max_times_sampled = 1;
    let mut table = Table::new(config).unwrap();
    for (key, trajectory) in (0..).zip(trajectories) {
        let item = NewItem { key, priority: 1.0, times_sampled: 0, trajectory: trajectory.clone() };
        table.insert(item, 0, &mut Vec::new());
    }
    (0..size).filter_map(|_| table.sample(&mut Vec::new())).collect()
}

/// The bytes of the batch of these items, taken in pieces of this size; 0 for the whole.
pub fn gathered(trajectories: &[Trajectory], piece: usize) -> Vec<u8> {
    let mut gatherer = Gatherer::new(drawn(trajectories), false).unwrap();
    let mut bytes = Vec::new();
    while gatherer.remaining() > 0 {
        let now = if piece == 0 { gatherer.remaining() } else { piece.min(gatherer.remaining()) };
        bytes.reserve(now);
        gatherer.fill(&mut bytes.spare_capacity_mut()[..now]);
        // SAFETY: `fill` has written so many bytes.
        unsafe { bytes.set_len(bytes.len() + now) };
    }
    bytes
}
