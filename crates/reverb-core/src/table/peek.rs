//! Looks at the oldest or newest items of a table, which change nothing.

use super::contents::Table;
use crate::{ItemKey, ItemView};

/// The search for the oldest or newest items of a table whose selectors do not keep the order of inserts.
///
/// It visits the items in pages, so that the owner of the table can unlock it in between, and keeps at most twice as
/// many candidates as it looks for. Items that enter or leave the table during the search may be missed.
#[derive(Debug)]
pub struct PeekSearch {
    count: usize,
    newest: bool,
    candidates: Vec<Candidate>,
    /// The rank that a candidate must not reach, once `count` better ones are known.
    bound: Option<Rank>,
}

/// The time stamp and the position of an item, inverted in a search for the newest items. Restored items can have equal
/// stamps, and their positions are in the order of their inserts.
type Rank = (u64, u64);
type Candidate = (Rank, ItemKey);

impl PeekSearch {
    /// Begins a search for up to `count` items: the oldest, or the newest.
    pub fn new(count: usize, newest: bool) -> Self {
        Self { count, newest, candidates: Vec::new(), bound: None }
    }

    fn add(&mut self, inserted_at: u64, position: u64, key: ItemKey) {
        let rank = if self.newest { (!inserted_at, !position) } else { (inserted_at, position) };
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
                search.add(item.inserted_at, number << 32 | position, item.key);
            }
        }
        (end < pages.len()).then_some(end)
    }

    /// Returns the items that a search has found: the oldest in the order of their inserts, or the newest in reverse
    /// order. Items that have left the table are left out.
    pub fn peeked(&self, search: PeekSearch) -> Vec<ItemView> {
        let PeekSearch { count, newest, mut candidates, .. } = search;
        candidates.sort_unstable();
        let inserted_at = |rank: Rank| if newest { !rank.0 } else { rank.0 };
        let found = candidates.into_iter().take(count);
        found.filter_map(|(rank, key)| self.get(key).filter(|item| item.inserted_at == inserted_at(rank))).collect()
    }
}
