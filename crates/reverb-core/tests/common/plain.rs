//! Selectors in their simplest form.

use reverb_core::SelectorKind;
use std::collections::BTreeMap;

/// The data that a selector has on a key.
#[derive(Debug, Clone, Copy)]
pub struct Plain {
    pub priority: f64,
    /// Time of the insert.
    pub inserted: u64,
    /// Time of the insert or of the last update.
    pub changed: u64,
}

/// The share of an item in the weight of its table.
pub fn weight(kind: &SelectorKind, plain: &Plain) -> f64 {
    match kind {
        SelectorKind::Prioritized { .. } if plain.priority == 0.0 => 0.0,
        SelectorKind::Prioritized { priority_exponent } => plain.priority.powf(*priority_exponent),
        _ => 1.0,
    }
}

/// The keys that can be drawn, each with its probability.
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
        SelectorKind::Prioritized { .. } => {
            let total: f64 = inside.values().map(|plain| weight(kind, plain)).sum();
            if total == 0.0 {
                return allowed(&SelectorKind::Uniform, inside);
            }
            let weights = inside.iter().map(|(&key, plain)| (key, weight(kind, plain) / total));
            weights.filter(|&(_, p)| p > 0.0).collect()
        }
    }
}
