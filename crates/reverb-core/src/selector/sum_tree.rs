//! Sums of non-negative weights that change one at a time and are drawn from.

use crate::prefetch::prefetch;

/// Number of children of a node.
const ARITY: usize = 16;
const ARITY_BITS: u32 = 4;
/// Levels of at most this number of nodes are usually cached.
const CACHED_NODES: usize = 512;

/// The sums of the children of a node, or the weights in a leaf.
#[derive(Debug, Clone, Copy, Default)]
#[repr(align(64))]
struct Sums([f64; ARITY]);

impl Sums {
    /// Returns the sum before each child, and the sum of all.
    ///
    /// Sums are added in groups of four, for a shorter chain of additions. The running sums still never decrease, and
    /// do not increase at a child of sum 0: `x + 0` is `x`, and rounding preserves order.
    #[inline]
    fn running(&self) -> (Sums, f64) {
        let mut starts = [0.0; ARITY];
        let mut before = 0.0;
        for (group, starts) in self.0.chunks_exact(4).zip(starts.chunks_exact_mut(4)) {
            let two = group[0] + group[1];
            starts[0] = before;
            starts[1] = before + group[0];
            starts[2] = before + two;
            starts[3] = before + (two + group[2]);
            before += two + (group[2] + group[3]);
        }
        (Sums(starts), before)
    }

    /// Returns the child in which the running sum passes `target`, and the rest of the target in that child. `starts` has
    /// the sum before each child. The total is read only for the last child, and the sums for a target beyond it.
    ///
    /// This is never a child of sum 0 while another child has more: the next child starts at the same running sum, so
    /// it is chosen instead, and a target that rounding moved past the end falls to the last child whose sum is not 0.
    #[inline]
    fn find(starts: &Self, target: f64, total: impl Fn() -> f64, sums: impl Fn() -> Self) -> (usize, f64) {
        // The starts ascend, so those that the target has reached form a run of ones. A mask instead of a loop that
        // ends early, because that end would be mispredicted at every level.
        let mut reached = 0_u32;
        for (index, &start) in starts.0.iter().enumerate() {
            reached |= u32::from(start <= target) << index;
        }
        let child = (reached.trailing_ones() as usize).saturating_sub(1) % ARITY;
        if child == ARITY - 1 && target >= total() {
            return sums().last_weighted();
        }
        (child, target - starts.0[child])
    }

    #[cold]
    fn last_weighted(&self) -> (usize, f64) {
        let last = self.0.iter().rposition(|&sum| sum > 0.0).unwrap_or(0);
        (last, self.0[last])
    }
}

/// The nodes of a level. What draws look up lies apart from what only changes need, since it is read from memory that is often
/// not cached.
#[derive(Debug, Default)]
struct Level {
    /// The sum before each child.
    starts: Vec<Sums>,
    totals: Vec<f64>,
    sums: Vec<Sums>,
}

impl Level {
    fn resize(&mut self, nodes: usize) {
        self.starts.resize(nodes, Sums::default());
        self.totals.resize(nodes, 0.0);
        self.sums.resize(nodes, Sums::default());
    }

    /// Computes what follows from the sums of a node.
    fn refresh(&mut self, index: usize) {
        (self.starts[index], self.totals[index]) = self.sums[index].running();
    }

    #[inline]
    fn find(&self, index: usize, target: f64) -> (usize, f64) {
        Sums::find(&self.starts[index], target, || self.totals[index], || self.sums[index])
    }
}

/// A tree with sixteen children for each node, whose leaves hold the weights of sixteen slots each.
///
/// Each sum is computed from its children when one of them changes, never by adding a difference. So an error does not
/// persist, and where all weights are 0 the sums are 0. Sums are brought up to date when they are next needed, because
/// the changes of a batch share most of their path to the root.
#[derive(Debug, Default)]
pub(super) struct SumTree {
    leaves: Vec<Sums>,
    /// The levels from the nodes above the leaves to the root, which is one node. Empty while there is only one leaf.
    levels: Vec<Level>,
    total: f64,
    /// Leaves with a weight that the nodes above do not include yet; and for each leaf, whether it is among them.
    changed: Vec<u32>,
    is_changed: Vec<bool>,
}

/// Prefetches the nodes of one level that draws will read next.
fn prefetch_all(level: &[Sums], draws: &[(u32, f64)]) {
    if level.len() <= CACHED_NODES {
        return;
    }
    for &(index, _) in draws {
        let node = (&raw const level[index as usize]).cast::<u8>();
        (0..size_of::<Sums>()).step_by(64).for_each(|byte| prefetch(node.wrapping_add(byte)));
    }
}

impl SumTree {
    /// Sum of all weights.
    #[inline]
    pub(super) fn total(&mut self) -> f64 {
        if !self.changed.is_empty() {
            self.refresh();
        }
        self.total
    }

    /// The weight of a slot.
    pub(super) fn get(&self, slot: u32) -> f64 {
        let leaf = self.leaves.get(slot as usize / ARITY);
        leaf.map_or(0.0, |leaf| leaf.0[slot as usize % ARITY])
    }

    /// Sets the weight of a slot and returns the old one.
    pub(super) fn set(&mut self, slot: u32, weight: f64) -> f64 {
        let slot = slot as usize;
        while slot >= self.leaves.len() * ARITY {
            self.grow();
        }
        let index = slot / ARITY;
        if !self.is_changed[index] {
            self.is_changed[index] = true;
            self.changed.push(index as u32);
        }
        std::mem::replace(&mut self.leaves[index].0[slot % ARITY], weight)
    }

    /// Computes the sums above changed leaves, once for each node.
    fn refresh(&mut self) {
        let mut changed = std::mem::take(&mut self.changed);
        // Sorted, so that children of one node are consecutive.
        changed.sort_unstable();
        changed.iter().for_each(|&leaf| self.is_changed[leaf as usize] = false);
        self.total = self.leaves[0].running().1;
        for level in 0..self.levels.len() {
            let (below, above) = self.levels.split_at_mut(level);
            let nodes = &mut above[0];
            for &child in &changed {
                let child = child as usize;
                let sum = below.last().map_or_else(|| self.leaves[child].running().1, |nodes| nodes.totals[child]);
                nodes.sums[child / ARITY].0[child % ARITY] = sum;
            }
            changed.iter_mut().for_each(|index| *index /= ARITY as u32);
            changed.dedup();
            changed.iter().for_each(|&index| nodes.refresh(index as usize));
            self.total = nodes.totals[0];
        }
        changed.clear();
        self.changed = changed;
    }

    /// Returns the slot in which the running sum of weights passes `target`, in `[0, total)`, and its weight. The
    /// weight is not 0 unless the total is 0. The caller has read the total, so the sums are up to date.
    #[inline]
    pub(super) fn find(&self, mut target: f64) -> (u32, f64) {
        let mut index = 0;
        for level in self.levels.iter().rev() {
            let (child, rest) = level.find(index, target);
            index = index << ARITY_BITS | child;
            target = rest;
        }
        self.find_slot(index, target)
    }

    #[inline]
    fn find_slot(&self, index: usize, target: f64) -> (u32, f64) {
        let leaf = &self.leaves[index];
        let (starts, total) = leaf.running();
        let (child, _) = Sums::find(&starts, target, || total, || *leaf);
        ((index << ARITY_BITS | child) as u32, leaf.0[child])
    }

    /// For each draw, replaces a target by the slot and the weight that [`SumTree::find`] returns.
    ///
    /// All draws go down one level together. Most nodes of a large tree are not cached, so each draw prefetches the node
    /// that it will read at the next level.
    pub(super) fn find_many(&self, draws: &mut [(u32, f64)]) {
        draws.iter_mut().for_each(|(index, _)| *index = 0);
        for number in (0..self.levels.len()).rev() {
            for (index, target) in &mut *draws {
                let (child, rest) = self.levels[number].find(*index as usize, *target);
                *index = *index << ARITY_BITS | child as u32;
                *target = rest;
            }
            match number.checked_sub(1) {
                Some(below) => prefetch_all(&self.levels[below].starts, draws),
                None => prefetch_all(&self.leaves, draws),
            }
        }
        for draw in draws {
            *draw = self.find_slot(draw.0 as usize, draw.1);
        }
    }

    /// Size in bytes of the memory that the tree holds.
    pub(super) fn held_bytes(&self) -> usize {
        let nodes: usize = self.levels.iter().map(|level| level.sums.capacity()).sum();
        let changes = self.is_changed.capacity() + self.changed.capacity() * size_of::<u32>();
        self.leaves.capacity() * size_of::<Sums>() + nodes * (2 * size_of::<Sums>() + size_of::<f64>()) + changes
    }

    /// Doubles the number of leaves, and adds a level when the root has become two nodes.
    fn grow(&mut self) {
        let num_leaves = (self.leaves.len() * 2).max(1);
        self.leaves.resize(num_leaves, Sums::default());
        self.is_changed.resize(num_leaves, false);
        let mut nodes = num_leaves.div_ceil(ARITY);
        for level in &mut self.levels {
            level.resize(nodes);
            nodes = nodes.div_ceil(ARITY);
        }
        let below = match self.levels.last() {
            Some(top) => top.sums.len(),
            None => num_leaves,
        };
        if below > 1 {
            // All existing leaves lie below the first child.
            let mut root = Level::default();
            root.resize(1);
            root.sums[0].0[0] = self.total;
            root.refresh(0);
            self.levels.push(root);
        }
    }
}
