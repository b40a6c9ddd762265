//! What looks at a table show, in its order and without one.

use super::model::Model;
use reverb_core::{PeekSearch, SelectorKind, Table};

impl Model {
    pub fn check_peeks(&self, table: &Table, by_age: &[u64]) {
        let keeps_order = [&self.config.sampler, &self.config.remover]
            .into_iter()
            .any(|kind| matches!(kind, SelectorKind::Fifo | SelectorKind::Lifo));
        for count in [0, 1, 3, 100] {
            let oldest: Vec<u64> = by_age.iter().copied().take(count).collect();
            let newest: Vec<u64> = by_age.iter().rev().copied().take(count).collect();
            for (want, is_newest) in [(oldest, false), (newest, true)] {
                let peeked = table.peek(count, is_newest);
                assert_eq!(peeked.is_some(), keeps_order);
                if let Some(items) = peeked {
                    assert!(items.iter().map(|item| item.key).eq(want.iter().copied()));
                }
                assert_eq!(search(table, count, is_newest), want);
            }
        }
    }
}

/// The items that a look at a table without order finds in one pass.
fn search(table: &Table, count: usize, newest: bool) -> Vec<u64> {
    let mut search = PeekSearch::new(count, newest);
    let mut page = Some(0);
    while let Some(from) = page {
        page = table.peek_pages(&mut search, from, 1);
    }
    table.peeked(search).into_iter().map(|item| item.key).collect()
}
