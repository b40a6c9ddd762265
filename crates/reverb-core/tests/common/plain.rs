//! Selectors as plain as can be.

use reverb_core::SelectorKind;
use std::collections::BTreeMap;

/// What a selector knows of a key.
#[derive(Debug, Clone, Copy)]
pub struct Plain {
    pub priority: f64,
    /// When it came.
    pub inserted: u64,
    /// When it came, or was updated last.
    pub changed: u64,
}

/// The keys that may be drawn, each with its probability.
pub fn allowed(kind: &SelectorKind, inside: &BTreeMap<u64, Plain>) -> BTreeMap<u64, f64> {
    let first = |rank: &dyn Fn(&Plain) -> (f64, u64)| {
        let best = inside.iter().min_by(|(_, a), (_, b)| rank(a).partial_cmp(&rank(b)).unwrap());
        BTreeMap::from([(*best.unwrap().0, 1.0)])
    };
    match kind {
        SelectorKind::Fifo => first(&|plain| (plain.inserted as f64, 0)),
        SelectorKind::Lifo => first(&|plain| (-(plain.inserted as f64), 0)),
        SelectorKind::MinHeap => first(&|plain| (plain.priority, plain.changed)),
        SelectorKind::MaxHeap => first(&|plain| (-plain.priority, plain.changed)),
        SelectorKind::Uniform => inside.keys().map(|&key| (key, 1.0 / inside.len() as f64)).collect(),
        SelectorKind::Prioritized { priority_exponent } => {
            let weight = |p: f64| if p == 0.0 { 0.0 } else { p.powf(*priority_exponent) };
            let total: f64 = inside.values().map(|plain| weight(plain.priority)).sum();
            if total == 0.0 {
                return allowed(&SelectorKind::Uniform, inside);
            }
            let weights = inside.iter().map(|(&key, plain)| (key, weight(plain.priority) / total));
            weights.filter(|&(_, p)| p > 0.0).collect()
        }
    }
}
