//! The choices of selectors: every selector against a plain one, and the guarantees of each.

use crate::common::plain::{Plain, allowed};
use crate::common::{chi_square, chi_square_bound, prioritized};
use proptest::prelude::*;
use rand::{Rng, SeedableRng, rngs::SmallRng};
use reverb_core::selector::{AnySelector, Prioritized, Selector, check_priority};
use reverb_core::{Error, SelectorKind};
use std::collections::BTreeMap;

#[derive(Debug, Clone)]
enum Op {
    Insert(u32, f64),
    Update(u32, f64),
    Remove(u32),
    RemoveAndPutBack(u32),
    Clear,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    // Few priorities, so that there are ties; few slots, so that they are reused.
    let slot = 0..24_u32;
    let priority = prop_oneof![Just(0.0), Just(1.0), Just(2.5), Just(1e-300), Just(1e12), 0.0..5.0];
    let op = prop_oneof![
        8 => (slot.clone(), priority.clone()).prop_map(|(slot, priority)| Op::Insert(slot, priority)),
        6 => (slot.clone(), priority).prop_map(|(slot, priority)| Op::Update(slot, priority)),
        6 => slot.clone().prop_map(Op::Remove),
        4 => slot.prop_map(Op::RemoveAndPutBack),
        1 => Just(Op::Clear),
    ];
    prop::collection::vec(op, 0..200)
}

fn keeps_contract(kind: &SelectorKind, ops: &[Op]) {
    let mut selector = AnySelector::new(kind);
    let mut inside = BTreeMap::<u64, Plain>::new();
    let mut rng = SmallRng::seed_from_u64(1);
    for (now, op) in ops.iter().enumerate() {
        let now = now as u64;
        match *op {
            Op::Insert(slot, priority) if !inside.contains_key(&u64::from(slot)) => {
                selector.insert(slot, priority);
                inside.insert(u64::from(slot), Plain { priority, inserted: now, changed: now });
            }
            Op::Update(slot, priority) | Op::Insert(slot, priority) => {
                if let Some(plain) = inside.get_mut(&u64::from(slot)) {
                    selector.update(slot, priority);
                    (plain.priority, plain.changed) = (priority, now);
                }
            }
            Op::Remove(slot) => {
                if inside.remove(&u64::from(slot)).is_some() {
                    selector.remove(slot);
                }
            }
            Op::RemoveAndPutBack(slot) => {
                if let Some(plain) = inside.get(&u64::from(slot)) {
                    let place = selector.place(slot);
                    selector.remove(slot);
                    selector.insert_at(slot, plain.priority, place);
                }
            }
            Op::Clear => {
                drop(selector.take());
                inside.clear();
            }
        }
        if inside.is_empty() {
            continue;
        }
        let allowed = allowed(kind, &inside);
        for _ in 0..3 {
            let (slot, probability) = selector.sample(&mut rng);
            let want = allowed.get(&u64::from(slot)).unwrap_or_else(|| panic!("{kind:?} drew {slot} of {allowed:?}"));
            assert!((probability / want - 1.0).abs() < 1e-12, "{probability} instead of {want}");
        }
    }
}

proptest! {
    #[test]
    fn every_selector_draws_what_a_plain_one_may_draw(ops in ops()) {
        use SelectorKind::*;
        for kind in [Fifo, Lifo, MinHeap, MaxHeap, Uniform, prioritized(1.0), prioritized(0.5), prioritized(0.0), prioritized(0.7)] {
            keeps_contract(&kind, &ops);
        }
    }
}

#[test]
fn draws_of_a_batch_are_those_of_consecutive_calls() {
    for kind in [SelectorKind::Uniform, prioritized(1.0), prioritized(0.6)] {
        // Trees of one to five levels.
        for slots in [1, 2, 16, 17, 300, 5000, 100_000] {
            for zeros in [0.0, 0.5, 0.999, 1.0] {
                let mut rng = SmallRng::seed_from_u64(u64::from(slots));
                let mut selector = AnySelector::new(&kind);
                for slot in 0..slots {
                    let priority = if rng.random_bool(zeros) { 0.0 } else { rng.random_range(0.0..9.0) };
                    selector.insert(slot, priority);
                }
                let mut draws = vec![(7, 7.0); 100];
                let mut same = rng.clone();
                selector.sample_many(&mut rng, &mut draws);
                let one_by_one: Vec<_> = (0..100).map(|_| selector.sample(&mut same)).collect();
                assert_eq!(draws, one_by_one, "{kind:?} of {slots} with {zeros} zeros");
                assert_eq!(rng, same);
            }
        }
    }
}

#[test]
fn items_put_back_in_any_order_stand_where_they_stood() {
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]] {
        let mut fifo = AnySelector::new(&SelectorKind::Fifo);
        (0..8).for_each(|slot| fifo.insert(slot, 0.0));
        let taken = [0, 3, 4, 7].map(|slot| (slot, fifo.place(slot)));
        taken.iter().for_each(|&(slot, _)| fifo.remove(slot));
        for i in order {
            fifo.insert_at(taken[i].0, 0.0, taken[i].1);
        }
        let mut rng = SmallRng::seed_from_u64(1);
        for want in 0..8 {
            assert_eq!(fifo.sample(&mut rng).0, want);
            fifo.remove(want);
        }
    }
}

#[test]
fn heaps_draw_the_least_recently_changed_of_equals() {
    let mut rng = SmallRng::seed_from_u64(1);
    for kind in [SelectorKind::MinHeap, SelectorKind::MaxHeap] {
        let mut heap = AnySelector::new(&kind);
        (0..4).for_each(|slot| heap.insert(slot, 7.0));
        heap.update(0, 7.0);
        heap.update(2, 7.0);
        for want in [1, 3, 0, 2] {
            assert_eq!(heap.sample(&mut rng), (want, 1.0), "{kind:?}");
            heap.remove(want);
        }
    }
}

#[test]
fn probabilities_are_exact_after_ten_million_updates() {
    const SLOTS: u32 = 1000;
    let mut rng = SmallRng::seed_from_u64(3);
    let mut selector = Prioritized::new(1.0);
    let mut priorities = vec![1.0; SLOTS as usize];
    (0..SLOTS).for_each(|slot| selector.insert(slot, 1.0));
    for _ in 0..10_000_000 {
        let slot = rng.random_range(0..SLOTS);
        // Sixty orders of magnitude: sums that were updated by differences would consist of rounding errors.
        let priority = 10_f64.powi(rng.random_range(-30..30));
        priorities[slot as usize] = priority;
        selector.update(slot, priority);
    }
    for slot in 0..SLOTS {
        priorities[slot as usize] *= 1e-30;
        selector.update(slot, priorities[slot as usize]);
    }
    let total: f64 = priorities.iter().sum();
    for slot in 0..SLOTS {
        let want = priorities[slot as usize] / total;
        assert!((selector.probability(slot) / want - 1.0).abs() < 1e-9);
    }
}

#[test]
fn priority_zero_is_never_drawn_while_another_is_not_zero() {
    let mut rng = SmallRng::seed_from_u64(4);
    for (weighted, priority) in [(0, 5e-324), (77, 1e-300), (511, 0.1), (300, 1e290)] {
        let mut selector = Prioritized::new(1.0);
        for slot in 0..512 {
            selector.insert(slot, if slot == weighted { priority } else { 0.0 });
        }
        for _ in 0..20_000 {
            assert_eq!(selector.sample(&mut rng), (weighted, 1.0));
        }
    }
}

#[test]
fn priorities_that_all_become_zero_leave_a_uniform_draw() {
    let mut rng = SmallRng::seed_from_u64(5);
    let mut selector = Prioritized::new(1.0);
    for slot in 0..50 {
        selector.insert(slot, 1000.0 * rng.random::<f64>());
    }
    (0..50).for_each(|slot| selector.update(slot, 0.0));
    selector.remove(49);
    let mut counts = vec![0; 49];
    for _ in 0..49_000 {
        let (slot, probability) = selector.sample(&mut rng);
        assert_eq!(probability, 1.0 / 49.0);
        counts[slot as usize] += 1;
    }
    assert!(chi_square(&counts, &[1.0 / 49.0; 49]) < chi_square_bound(48));
}

#[test]
fn draws_fit_their_probabilities_after_churn() {
    for kind in [SelectorKind::Uniform, prioritized(1.0), prioritized(0.6)] {
        let mut rng = SmallRng::seed_from_u64(6);
        let mut selector = AnySelector::new(&kind);
        let mut priorities = vec![None; 200];
        for _ in 0..20_000 {
            let slot = rng.random_range(0..200_u32);
            let new = rng.random_range(0.1..3.0);
            match &mut priorities[slot as usize] {
                empty @ None => {
                    selector.insert(slot, new);
                    *empty = Some(new);
                }
                full if rng.random_bool(0.3) => {
                    selector.remove(slot);
                    *full = None;
                }
                full => {
                    selector.update(slot, new);
                    *full = Some(new);
                }
            }
        }
        let weight = |p: f64| match kind {
            SelectorKind::Prioritized { priority_exponent } => p.powf(priority_exponent),
            _ => 1.0,
        };
        let inside: Vec<_> = (0..200).filter_map(|slot| priorities[slot].map(|p| (slot, weight(p)))).collect();
        let total: f64 = inside.iter().map(|(_, weight)| weight).sum();
        let mut counts = vec![0; 200];
        for _ in 0..400_000 {
            counts[selector.sample(&mut rng).0 as usize] += 1;
        }
        let drawn: Vec<_> = inside.iter().map(|&(slot, _)| counts[slot]).collect();
        let want: Vec<_> = inside.iter().map(|(_, weight)| weight / total).collect();
        assert_eq!(drawn.iter().sum::<u64>(), 400_000, "only slots inside are drawn");
        let value = chi_square(&drawn, &want);
        assert!(value < chi_square_bound(inside.len() - 1), "{kind:?}: {value}");
    }
}

#[test]
fn priorities_that_a_selector_cannot_hold_are_refused() {
    let text = |kind: &SelectorKind, priority| match check_priority(kind, priority) {
        Err(Error::InvalidPriority(text)) => text,
        other => panic!("{kind:?} {priority}: {other:?}"),
    };
    use SelectorKind::*;
    for kind in [Fifo, Lifo, Uniform, MinHeap, MaxHeap] {
        assert_eq!(text(&kind, f64::NAN), "Priority must not be NaN.");
        for priority in [-1.0, f64::INFINITY, f64::NEG_INFINITY, 0.0] {
            assert_eq!(check_priority(&kind, priority), Ok(priority));
        }
    }
    let squared = prioritized(2.0);
    assert_eq!(text(&squared, f64::NAN), "Priority must not be NaN.");
    assert_eq!(text(&squared, -1e-9), "Priority must not be negative.");
    assert_eq!(text(&squared, f64::NEG_INFINITY), "Priority must not be negative.");
    assert_eq!(text(&squared, f64::INFINITY), "Priority must be finite for a Prioritized selector, got inf.");
    assert!(text(&squared, 1e200).contains("weight inf"));
    assert!(text(&prioritized(1.0), f64::MAX).contains("must not be above"));
    assert_eq!(check_priority(&squared, 3.0), Ok(9.0));
    assert_eq!(check_priority(&prioritized(0.0), 0.0), Ok(0.0));
    for exponent in [f64::NAN, f64::INFINITY] {
        assert!(prioritized(exponent).validate().is_err());
    }
}
