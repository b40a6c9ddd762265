//! What turns do to a table, and the journal that hears of it before anybody else does.

use crate::write_ledger::Ledger;
use reverb_core::{Drawn, ItemKey, NewItem, Table, Trajectory};
use std::fmt::Debug;
use std::ops::Deref;
use std::sync::Arc;

/// What a caller did to a table. Its consequences, such as evictions, are not changes of their own.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// An item was inserted, or has set the priority of the item with its key.
    Inserted {
        /// Key of the item.
        key: ItemKey,
        /// The id of the writer and its number of the item, if the writer may send the item again.
        written: Option<(u64, u64)>,
    },
    /// An item was drawn.
    Drawn(ItemKey),
    /// A draw was undone, because it did not reach its caller.
    GivenBack(ItemKey),
    /// A draw that affects later ones has reached its caller.
    Delivered(ItemKey),
    /// A delete was asked for. The table may not have had the item. One that draws in flight have taken does not come
    /// back with them.
    Deleted(ItemKey),
    /// A priority was set. The table may not have had the item. One that draws in flight have taken comes back with it.
    Updated(ItemKey, f64),
    /// All items were removed.
    Reset,
    /// Options were changed.
    Configured,
    /// A restored table took the place of the table.
    Restored,
}

/// Keeps the changes of one table. No answer leaves before the changes that it tells of are committed.
pub trait Journal: Debug + Send + Sync {
    /// Notes a change. Called under the lock of the table, in the order of the changes.
    fn note(&self, change: Change);

    /// Returns once all changes that were noted before are kept. Called without the lock. Other threads may change the
    /// table meanwhile.
    fn commit(&self);
}

/// Gives one draw back: [`Table::give_back`] or [`Table::give_back_loser`].
pub type GiveBack = fn(&mut Table, Drawn, &mut Vec<Trajectory>) -> bool;

/// A table that anybody may read. Who changes it says what to note, so that nobody forgets the journal.
#[derive(Debug)]
pub struct JournaledTable {
    table: Table,
    pub journal: Option<Arc<dyn Journal>>,
}

impl Deref for JournaledTable {
    type Target = Table;

    #[inline]
    fn deref(&self) -> &Table {
        &self.table
    }
}

impl JournaledTable {
    pub fn new(table: Table) -> Self {
        Self { table, journal: None }
    }

    /// The table, for what no journal needs to know: caches, compaction, and the consequences of changes.
    #[inline]
    pub fn upkeep(&mut self) -> &mut Table {
        &mut self.table
    }

    /// Changes the table by `change`, and tells the journal what `note` makes of the table and the result of `change`.
    /// Without a journal, `note` is not called.
    #[inline]
    pub fn change<T>(
        &mut self,
        change: impl FnOnce(&mut Table) -> T,
        note: impl FnOnce(&Table, &T, &dyn Fn(Change)),
    ) -> T {
        let result = change(&mut self.table);
        if let Some(journal) = &self.journal {
            note(&self.table, &result, &|change| journal.note(change));
        }
        result
    }

    /// Inserts an item, and enters it in the ledger of its writer under the number that the writer gave it.
    #[inline]
    pub fn insert(&mut self, item: NewItem, by: Option<(&Ledger, u64)>, now: u64, removed: &mut Vec<Trajectory>) {
        let key = item.key;
        self.table.insert(item, now, removed);
        if by.is_some() || self.journal.is_some() {
            self.note_insert(key, by);
        }
    }

    #[inline(never)]
    fn note_insert(&self, key: ItemKey, by: Option<(&Ledger, u64)>) {
        if let Some((ledger, sequence)) = by {
            ledger.add(sequence);
        }
        if let Some(journal) = &self.journal {
            let written = by.map(|(ledger, sequence)| (ledger.writer_id(), sequence));
            journal.note(Change::Inserted { key, written });
        }
    }

    /// Gives back the last draws, at most `count` of them. In reverse order, so that each finds the table in the state
    /// after its draw.
    pub fn give_back(&mut self, drawn: &mut Vec<Drawn>, count: usize, removed: &mut Vec<Trajectory>, by: GiveBack) {
        let rest = drawn.len().saturating_sub(count);
        for draw in drawn.drain(rest..).rev() {
            let key = draw.key;
            let give_back = |table: &mut Table| by(table, draw, removed).then_some(key);
            self.change(give_back, |_, undone, note| undone.map(Change::GivenBack).into_iter().for_each(note));
        }
    }
}
