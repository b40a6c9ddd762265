//! Sums of non-negative weights, to be changed one at a time and drawn from.

/// Children of a node: their sums fill one cache line.
const ARITY: usize = 8;
const ARITY_BITS: u32 = 3;

/// The sums of a node's children.
#[derive(Debug, Clone, Copy, Default)]
#[repr(align(64))]
struct Node([f64; ARITY]);

impl Node {
    /// Added in pairs: a shorter chain of additions, and a smaller error, than one after another.
    fn sum(&self) -> f64 {
        let [a, b, c, d, e, f, g, h] = self.0;
        ((a + b) + (c + d)) + ((e + f) + (g + h))
    }

    /// The child in which the running sum passes `target`, and what remains of the target there.
    ///
    /// Never a child of sum 0 while another has more: a running sum does not grow there, so it is not the first to
    /// pass anything; and a target that rounding put past the end falls to the last child of non-zero sum.
    #[inline]
    fn find(&self, target: f64) -> (usize, f64) {
        let mut before = [0.0; ARITY + 1];
        for i in 0..ARITY {
            before[i + 1] = before[i] + self.0[i];
        }
        let child = before[1..].iter().filter(|&&end| end <= target).count();
        if child < ARITY {
            return (child, target - before[child]);
        }
        let last = self.0.iter().rposition(|&sum| sum > 0.0).unwrap_or(0);
        (last, self.0[last])
    }
}

/// A tree with eight children a node, whose leaves are the weights of slots.
///
/// Each sum is computed from its children whenever one of them changes, never by adding a difference: an error made
/// once does not stay, and where all weights are 0 the sums are 0.
#[derive(Debug, Default)]
pub(super) struct SumTree {
    /// From the leaves to the root, which is one node. Empty until the first weight.
    levels: Vec<Vec<Node>>,
    total: f64,
}

impl SumTree {
    /// Sum of all weights.
    #[inline]
    pub(super) fn total(&self) -> f64 {
        self.total
    }

    /// Weight of a slot.
    pub(super) fn get(&self, slot: u32) -> f64 {
        let slot = slot as usize;
        let node = self
            .levels
            .first()
            .and_then(|leaves| leaves.get(slot / ARITY));
        node.map_or(0.0, |node| node.0[slot % ARITY])
    }

    /// Sets the weight of a slot and returns the one it had.
    pub(super) fn set(&mut self, slot: u32, weight: f64) -> f64 {
        let mut index = slot as usize;
        while index >= self.capacity() {
            self.grow();
        }
        let old = self.levels[0][index / ARITY].0[index % ARITY];
        let mut sum = weight;
        for level in &mut self.levels {
            let node = &mut level[index / ARITY];
            node.0[index % ARITY] = sum;
            sum = node.sum();
            index /= ARITY;
        }
        self.total = sum;
        old
    }

    /// The slot in which the running sum of weights passes `target`, in `[0, total)`, and its weight. The weight is
    /// not 0 if the total is not.
    #[inline]
    pub(super) fn find(&self, mut target: f64) -> (u32, f64) {
        let mut index = 0;
        let mut weight = 0.0;
        for level in self.levels.iter().rev() {
            let node = &level[index];
            let (child, rest) = node.find(target);
            index = index << ARITY_BITS | child;
            target = rest;
            weight = node.0[child];
        }
        (index as u32, weight)
    }

    fn capacity(&self) -> usize {
        self.levels.first().map_or(0, Vec::len) * ARITY
    }

    /// Doubles the number of leaves, and adds a level when the root has become two nodes.
    fn grow(&mut self) {
        if self.levels.is_empty() {
            self.levels.push(vec![Node::default()]);
            return;
        }
        let mut nodes = self.levels[0].len() * 2;
        for level in &mut self.levels {
            level.resize(nodes, Node::default());
            nodes = nodes.div_ceil(ARITY);
        }
        let top = self.levels.last().expect("there is a level");
        if top.len() > 1 {
            let mut root = Node::default();
            for (sum, node) in root.0.iter_mut().zip(top) {
                *sum = node.sum();
            }
            self.levels.push(vec![root]);
        }
    }
}
