//! Items that a writer has created, before they are in a table.

use super::chunk::WriterChunk;
use super::selection::Selection;
use crate::{
    Chunk, Error, ItemKey, KeySlots, NewPriority, Result, Signature, Slice, Trajectory, TrajectoryColumn, item_key_in,
};
use smallvec::SmallVec;
use std::sync::Arc;

/// An item whose chunks may still be open.
#[derive(Debug)]
pub struct WriterItem {
    /// Name of the item's table.
    pub table: Arc<str>,
    /// Key of the item.
    pub key: ItemKey,
    /// Priority of the item.
    pub priority: NewPriority,
    /// Columns of the item.
    pub columns: Box<[Selection]>,
    /// Whether the table checks the item against its signature.
    pub is_validated: bool,
}

impl WriterItem {
    /// Creates an item of cells of `writer`, for a server that owns these slots of keys.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there are no columns, or one is not valid, whose number the error names;
    /// [`Error::InvalidPriority`] for NaN; [`Error::SignatureMismatch`] if a signature is given and does not fit.
    pub fn new(
        table: Arc<str>,
        priority: impl Into<NewPriority>,
        columns: Box<[Selection]>,
        writer: u64,
        slots: KeySlots,
        signature: Option<&Signature>,
    ) -> Result<Self> {
        if columns.iter().all(Selection::is_empty) {
            return Err(Error::invalid("trajectory must not be empty."));
        }
        let priority = priority.into();
        check_priority(priority)?;
        for (index, column) in columns.iter().enumerate() {
            column.check(writer).map_err(|error| Error::invalid(format!("Error in column {index}: {error}")))?;
        }
        if let Some(signature) = signature {
            let types: Vec<_> = columns.iter().filter_map(Selection::array_type).collect();
            signature.check_types(&table, &types)?;
        }
        Ok(Self { table, key: item_key_in(slots), priority, columns, is_validated: true })
    }

    /// The same item for a caller that opts out of the check against the signature.
    pub fn not_validated(self) -> Self {
        Self { is_validated: false, ..self }
    }

    /// As [`WriterItem::new`], for columns that were just selected from one writer and have at least one cell each, so
    /// that they need no check.
    ///
    /// # Errors
    /// [`Error::InvalidPriority`] for NaN.
    pub(crate) fn selected(table: Arc<str>, priority: f64, columns: Box<[Selection]>, slots: KeySlots) -> Result<Self> {
        let priority = priority.into();
        check_priority(priority)?;
        Ok(Self { table, key: item_key_in(slots), priority, columns, is_validated: true })
    }

    /// The chunks of the item. A chunk that several columns use may occur several times, but not twice in a row.
    pub fn chunks(&self) -> impl Iterator<Item = &Arc<WriterChunk>> {
        let mut last = std::ptr::null();
        let runs = self.columns.iter().flat_map(|column| column.runs.iter());
        runs.map(|run| &run.chunk)
            .filter(move |chunk| std::mem::replace(&mut last, Arc::as_ptr(chunk)) != Arc::as_ptr(chunk))
    }

    /// The chunk, the first row and the number of rows, and whether the time axis is dropped, if the item consists of the same
    /// rows of all columns of one chunk, in order.
    pub fn rows(&self) -> Option<(&Arc<WriterChunk>, u32, u32, bool)> {
        let (first, squeeze) = (self.columns[0].runs.first()?, self.columns[0].squeeze);
        let same = |(index, column): (usize, &Selection)| {
            column.runs.len() == 1 && column.squeeze == squeeze && {
                let run = &column.runs[0];
                Arc::ptr_eq(&run.chunk, &first.chunk)
                    && run.index as usize == index
                    && (run.offset, run.length) == (first.offset, first.length)
            }
        };
        let whole = first.chunk.template.ids.len() == self.columns.len() && self.columns.iter().enumerate().all(same);
        whole.then_some((&first.chunk, first.offset, first.length, squeeze))
    }

    /// Returns the data for the table. All chunks must be closed.
    ///
    /// # Errors
    /// If a chunk is open and cannot be closed.
    pub fn trajectory(&self) -> Result<Trajectory> {
        if let Some((chunk, offset, length, squeeze)) = self.rows() {
            let chunk = chunk.close()?;
            return if squeeze {
                Trajectory::squeezed_row(chunk, offset)
            } else {
                Trajectory::rows(chunk, offset, length)
            };
        }
        // Consecutive runs mostly share a chunk.
        let mut last: Option<(&Arc<WriterChunk>, Arc<Chunk>)> = None;
        let mut columns = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            let mut slices = SmallVec::new();
            for run in &column.runs {
                let chunk = match &last {
                    Some((open, closed)) if Arc::ptr_eq(open, &run.chunk) => closed.clone(),
                    _ => run.chunk.close()?,
                };
                last = Some((&run.chunk, chunk.clone()));
                slices.push(Slice { chunk, column: run.index, offset: run.offset, length: run.length });
            }
            columns.push(TrajectoryColumn { slices, squeeze: column.squeeze });
        }
        Trajectory::columns(columns)
    }
}

fn check_priority(priority: NewPriority) -> Result<()> {
    if priority.value.is_nan() {
        return Err(Error::InvalidPriority("`priority` must not be nan.".into()));
    }
    Ok(())
}
