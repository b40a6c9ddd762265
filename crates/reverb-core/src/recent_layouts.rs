//! The layouts of the last chunks of one origin.

use crate::writer::AUTO_CHUNK_ROWS;
use crate::{DType, Layout};
use std::sync::Arc;

/// Number of layouts that are kept: as many as a writer's chunks have, which are closed early for an item.
const KEPT_LAYOUTS: usize = AUTO_CHUNK_ROWS;
/// The same once the newest has strings. Their sizes are part of a layout, so each chunk may have another one, and looks
/// through all that are kept.
const KEPT_WITH_STRINGS: usize = 8;

/// The layouts of the last chunks of a writer, a stream or a file. Chunks of one layout share it, which takes less memory,
/// and batches of them are copied faster.
///
/// `M` is what a layout is made from, as far as that does not show in the layout itself.
#[derive(Debug)]
pub struct RecentLayouts<M = ()> {
    kept: Vec<(M, Arc<Layout>)>,
}

impl<M> Default for RecentLayouts<M> {
    fn default() -> Self {
        Self { kept: Vec::new() }
    }
}

impl<M> RecentLayouts<M> {
    /// Returns the newest layout that fits.
    pub fn find(&self, fits: impl Fn(&M, &Layout) -> bool) -> Option<Arc<Layout>> {
        let found = self.kept.iter().rev().find(|(made_from, layout)| fits(made_from, layout));
        found.map(|(_, layout)| layout.clone())
    }

    /// Keeps a new layout, and forgets the oldest of too many.
    pub fn keep(&mut self, made_from: M, layout: Layout) -> Arc<Layout> {
        let has_strings = layout.columns.iter().any(|column| column.dtype == DType::String);
        let most = if has_strings { KEPT_WITH_STRINGS } else { KEPT_LAYOUTS };
        let surplus = (self.kept.len() + 1).saturating_sub(most);
        self.kept.drain(..surplus);
        let layout = Arc::new(layout);
        self.kept.push((made_from, layout.clone()));
        layout
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use smallvec::smallvec;

    #[test]
    fn a_layout_is_found_until_a_full_number_of_newer_ones_is_kept() {
        let mut layouts = RecentLayouts::default();
        let of_rows = |rows| Layout::new(rows, [(DType::Int8, smallvec![], 0)]).unwrap();
        let found = |layouts: &RecentLayouts<&str>, rows, made_from| {
            layouts.find(|from, layout| layout.rows == rows && *from == made_from)
        };
        let first = layouts.keep("a stream", of_rows(1));
        for rows in 2..=KEPT_LAYOUTS {
            layouts.keep("a stream", of_rows(rows));
        }
        assert!(Arc::ptr_eq(&found(&layouts, 1, "a stream").unwrap(), &first));
        assert!(found(&layouts, 1, "another").is_none());
        layouts.keep("a stream", of_rows(KEPT_LAYOUTS + 1));
        assert!(found(&layouts, 1, "a stream").is_none());
        assert!(found(&layouts, 2, "a stream").is_some());
    }

    #[test]
    fn few_layouts_with_strings_are_kept() {
        let mut layouts = RecentLayouts::default();
        let of_bytes = |bytes| Layout::new(1, [(DType::String, smallvec![], bytes)]).unwrap();
        for bytes in 8..60 {
            layouts.keep((), of_bytes(bytes));
        }
        let found: Vec<_> =
            (8..60).filter(|&bytes| layouts.find(|(), layout| layout.size_bytes == bytes).is_some()).collect();
        assert_eq!(found, Vec::from_iter(60 - KEPT_WITH_STRINGS..60));
    }
}
