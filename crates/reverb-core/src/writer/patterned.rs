//! Items that patterns create from a writer's steps.

use super::chunk::CellData;
use super::item::WriterItem;
use super::selection::Selection;
use super::steps::StepBuffer;
use crate::pattern::{AgeRange, Cell, Evaluator, Pass, StepId, Steps};
use crate::{Error, KeySlots, Result};
use std::borrow::Cow;
use std::sync::Arc;

/// Patterns identify columns by their place in a flattened step, which is the writer's number of the column.
impl Steps for StepBuffer {
    fn newest(&self) -> Option<StepId> {
        self.newest_step()
    }

    fn num_rows(&self) -> u64 {
        StepBuffer::num_rows(self)
    }

    fn has(&self, source: usize, age: u32) -> bool {
        self.row(age).is_some_and(|row| self.has_cell(source as u32, row))
    }

    fn cell(&self, source: usize, age: u32) -> Option<Cell<'_>> {
        let run = StepBuffer::cell(self, source as u32, self.row(age)?)?;
        let bytes = match run.read().ok()? {
            CellData::Numbers(bytes) => Cow::Owned(bytes),
            CellData::Strings(_) => Cow::Borrowed(&[][..]),
        };
        Some(Cell { dtype: run.column.dtype, elements: run.shape().iter().product(), bytes })
    }
}

impl StepBuffer {
    fn row(&self, age: u32) -> Option<u64> {
        StepBuffer::num_rows(self).checked_sub(u64::from(age))
    }

    fn select_ages(&self, ages: &AgeRange) -> Result<Selection> {
        let rows = ages.ages().map(|age| StepBuffer::num_rows(self) - u64::from(age));
        self.select(ages.source as u32, rows, ages.squeeze).map_err(|row| {
            Error::Internal(format!(
                "row {row} of column {} is missing, although its pattern has checked it",
                ages.source
            ))
        })
    }

    /// Creates the items that are due now: after an append or, with `end_of_episode`, before an episode ends, for a
    /// server that owns these slots of keys. `table` returns the shared name of a table.
    ///
    /// # Errors
    /// If a condition or a TD error reads a column that it does not support, or a priority is NaN. The items created
    /// before the error are in `items`; the remaining patterns are not evaluated.
    pub fn make_items(
        &self,
        evaluator: &mut Evaluator,
        end_of_episode: bool,
        slots: KeySlots,
        mut table: impl FnMut(&str) -> Arc<str>,
        items: &mut Vec<WriterItem>,
    ) -> Result<()> {
        let mut pass = Pass::new(end_of_episode);
        while let Some(due) = evaluator.next_item(&mut pass, self)? {
            let mut columns = Vec::with_capacity(due.pattern.columns.len());
            for ages in &due.pattern.columns {
                columns.push(self.select_ages(ages)?);
            }
            items.push(WriterItem::selected(table(&due.pattern.table), due.priority, columns.into(), slots)?);
        }
        Ok(())
    }
}
