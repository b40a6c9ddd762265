//! Looks at the oldest or newest items of a table, or at those with the highest priority. Changes nothing.

use super::contents::Table;
use crate::slab::Item;
use crate::{ItemKey, ItemView};

/// The search for the first items of a table in an order that its selectors do not keep.
///
/// It visits the items in pages, so that the owner of the table can unlock it in between, and keeps at most twice as
/// many candidates as it looks for. Items that enter or leave the table during the search may be missed.
#[derive(Debug)]
pub struct PeekSearch {
    count: usize,
    order: Order,
    candidates: Vec<Candidate>,
    /// The rank that a candidate must not reach, once `count` better ones are known.
    bound: Option<Rank>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Oldest,
    Newest,
    Highest,
}

/// The time stamp and the position of an item, inverted in a search for the newest items. Restored items can have equal
/// stamps, and their positions are in the order of their inserts. In a search for the highest priorities, the first
/// number falls as the priority rises.
type Rank = (u64, u64);
type Candidate = (Rank, ItemKey);

impl PeekSearch {
    /// Begins a search for up to `count` items: the oldest, or the newest.
    pub fn new(count: usize, newest: bool) -> Self {
        Self::in_order(count, if newest { Order::Newest } else { Order::Oldest })
    }

    /// Begins a search for up to `count` items with the highest priorities.
    pub fn by_priority(count: usize) -> Self {
        Self::in_order(count, Order::Highest)
    }

    fn in_order(count: usize, order: Order) -> Self {
        Self { count, order, candidates: Vec::new(), bound: None }
    }

    fn add(&mut self, item: &Item, position: u64) {
        let Item { key, priority, inserted_at, .. } = *item;
        let rank = match self.order {
            Order::Oldest => (inserted_at, position),
            Order::Newest => (!inserted_at, !position),
            Order::Highest => (!rising_bits(priority), position),
        };
        if self.count == 0 || self.bound.is_some_and(|bound| rank >= bound) {
            return;
        }
        self.candidates.push((rank, key));
        if self.candidates.len() == 2 * self.count {
            let (_, last, _) = self.candidates.select_nth_unstable(self.count - 1);
            self.bound = Some(last.0);
            self.candidates.truncate(self.count);
        }
    }
}

impl Table {
    /// Returns up to `count` items: the oldest in the order of their inserts, or the newest in reverse order. O(count).
    /// `None` if neither selector keeps that order.
    pub fn peek(&self, count: usize, newest: bool) -> Option<Vec<ItemView>> {
        let queue = self.sampler.queue().or(self.remover.queue())?;
        Some(queue.in_order(newest).take(count).map(|slot| self.slab.get(slot).into()).collect())
    }

    /// Continues a search in at most `max_pages` pages of slots from `from_page` on. Returns the page at which to
    /// continue. A search starts at page 0.
    pub fn peek_pages(&self, search: &mut PeekSearch, from_page: usize, max_pages: usize) -> Option<usize> {
        let pages = self.slab.pages();
        let end = from_page.saturating_add(max_pages.max(1)).min(pages.len());
        let mut position = 0;
        for (number, page) in (from_page as u64..).zip(pages.get(from_page..end).unwrap_or_default()) {
            for item in page.items() {
                position += 1;
                search.add(item, number << 32 | position);
            }
        }
        (end < pages.len()).then_some(end)
    }

    /// Returns the items that a search has found: the oldest in the order of their inserts, the newest in reverse
    /// order, or those with the highest priorities, highest first. Items that have left the table are left out.
    pub fn peeked(&self, search: PeekSearch) -> Vec<ItemView> {
        let PeekSearch { count, order, mut candidates, .. } = search;
        candidates.sort_unstable();
        let is_same = |rank: Rank, item: &ItemView| match order {
            Order::Oldest => item.inserted_at == rank.0,
            Order::Newest => item.inserted_at == !rank.0,
            Order::Highest => true,
        };
        let found = candidates.into_iter().take(count);
        found.filter_map(|(rank, key)| self.get(key).filter(|item| is_same(rank, item))).collect()
    }
}

/// Converts a number to one that rises with it.
fn rising_bits(number: f64) -> u64 {
    let bits = number.to_bits();
    if number.is_sign_negative() { !bits } else { bits | 1 << 63 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_rise_with_the_number() {
        let numbers = [f64::NEG_INFINITY, -2.5, -1e-300, 0.0, 1e-300, 1.0, 2.5, f64::INFINITY];
        assert!(numbers.is_sorted_by(|a, b| rising_bits(*a) < rising_bits(*b)));
    }
}
