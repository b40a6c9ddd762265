//! Looks at the items on some pages of a table, without its lock.

use super::contents::Table;
use crate::ItemKey;
use crate::slab::Page;
use std::sync::Arc;

/// Some pages of a table as they were at one moment, of up to 256 items each.
#[derive(Debug)]
pub struct ItemPages(Vec<Arc<Page>>);

/// The numbers of an item.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ItemNumbers {
    /// Priority, from which the selectors choose.
    pub priority: f64,
    /// Number of draws of the item.
    pub times_sampled: i32,
    /// Time of the insert in nanoseconds since the Unix epoch.
    pub inserted_at: u64,
}

impl ItemPages {
    /// Returns the numbers of the items.
    pub fn items(&self) -> impl Iterator<Item = ItemNumbers> {
        let numbers = |item: &crate::slab::Item| ItemNumbers {
            priority: item.priority,
            times_sampled: item.times_sampled,
            inserted_at: item.inserted_at,
        };
        self.0.iter().flat_map(|page| page.items()).map(numbers)
    }
}

impl Table {
    /// Returns the keys of all items.
    pub fn keys(&self) -> impl Iterator<Item = ItemKey> {
        self.slab.items().map(|item| item.key)
    }

    /// Returns the number of pages.
    pub fn num_pages(&self) -> usize {
        self.slab.pages().len()
    }

    /// Returns some pages as they are now, whatever changes later. Copies only pointers. The first change of such a page
    /// while the result lives copies the page, so the result should be dropped soon, and without the lock of the table.
    pub fn pages(&self, numbers: impl IntoIterator<Item = usize>) -> ItemPages {
        ItemPages(numbers.into_iter().filter_map(|number| self.slab.share_page(number)).collect())
    }
}
