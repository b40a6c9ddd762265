//! Items as a table draws them.

use reverb_core::gather::Gatherer;
use reverb_core::{Chunk, Drawn, NewItem, SelectorKind, Slice, Table, Trajectory, TrajectoryColumn};
use std::sync::Arc;

/// Items of rows of a chunk or, if `slices` is not 0, of this number of slices of each of its columns. Both numbers of
/// a pick, the first row and the number of further rows, are reduced to fit the chunk.
pub fn items(chunk: &Arc<Chunk>, picks: &[(u32, u32)], slices: usize) -> Vec<Trajectory> {
    let item = |&(first, more): &(u32, u32)| {
        let offset = first % chunk.rows();
        let length = 1 + more % (chunk.rows() - offset);
        if slices == 0 {
            return Trajectory::rows(chunk.clone(), offset, length).unwrap();
        }
        let column = |column| TrajectoryColumn {
            // The same rows repeatedly, so that slices are concatenated.
            slices: (0..slices).map(|_| Slice { chunk: chunk.clone(), column, offset, length }).collect(),
            squeeze: false,
        };
        Trajectory::columns((0..chunk.columns().len() as u32).map(column).collect()).unwrap()
    };
    picks.iter().map(item).collect()
}

/// The items in this order.
pub fn drawn(trajectories: &[Trajectory]) -> Vec<Drawn> {
    let size = trajectories.len() as u64;
    let mut config = super::config(SelectorKind::Fifo, SelectorKind::Fifo, size.max(1));
    // So that each is drawn once.
    config.max_times_sampled = 1;
    let mut table = Table::new(config).unwrap();
    for (key, trajectory) in (0..).zip(trajectories) {
        let item = NewItem {
            key,
            priority: 1.0,
            takes_largest: false,
            others: None,
            times_sampled: 0,
            trajectory: trajectory.clone(),
        };
        table.insert(item, 0, &mut Vec::new());
    }
    (0..size).filter_map(|_| table.sample(0)).collect()
}

/// The bytes of the batch of these items, filled in pieces of this size; 0 for one piece.
pub fn gathered(trajectories: &[Trajectory], piece: usize) -> Vec<u8> {
    let mut gatherer = Gatherer::new(drawn(trajectories), false).unwrap();
    let mut bytes = Vec::new();
    while gatherer.remaining() > 0 {
        let now = if piece == 0 { gatherer.remaining() } else { piece.min(gatherer.remaining()) };
        bytes.reserve(now);
        gatherer.fill(&mut bytes.spare_capacity_mut()[..now]);
        // SAFETY: `fill` has written this number of bytes.
        unsafe { bytes.set_len(bytes.len() + now) };
    }
    bytes
}
