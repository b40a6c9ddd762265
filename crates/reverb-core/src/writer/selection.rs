//! Selections of cells for the columns of an item.

use super::chunk::{CellData, WriterChunk};
use super::column::WriterColumn;
use crate::{ArrayType, DType, Error, Result, Shape};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Consecutive cells of one column in one chunk.
#[derive(Debug, Clone)]
pub struct CellRun {
    /// Column that the cells were appended to.
    pub column: Arc<WriterColumn>,
    /// Chunk that holds the cells.
    pub chunk: Arc<WriterChunk>,
    /// Index of the column in the chunk.
    pub index: u32,
    /// Row of the first cell in the chunk.
    pub offset: u32,
    /// Number of cells.
    pub length: u32,
}

impl CellRun {
    /// Whether the writer no longer keeps the first cell, which is the oldest.
    pub fn expired(&self) -> bool {
        self.chunk.row_number(self.offset) < self.column.alive_from.load(Relaxed)
    }

    /// Copies the cells out.
    ///
    /// # Errors
    /// The errors of [`WriterChunk::read`].
    pub fn read(&self) -> Result<CellData> {
        self.chunk.read(self.index, self.offset, self.length)
    }

    /// Shape of a cell.
    pub fn shape(&self) -> &Shape {
        self.chunk.template.shape(self.index)
    }

    /// Checks that the cells are still kept, and that they are those of `writer`.
    fn check(&self, writer: u64) -> Result<()> {
        if self.expired() {
            return Err(Error::invalid("Column contains expired CellRef."));
        }
        if self.column.writer != writer {
            return Err(Error::invalid("Column contains cells of another writer."));
        }
        Ok(())
    }

    /// The cell at `index` in the run.
    pub fn cell(&self, index: u32) -> Self {
        Self { offset: self.offset + index, length: 1, ..self.clone() }
    }
}

/// The cells of one column of an item, in order.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Runs of cells; only consecutive cells of a chunk share a run.
    pub runs: SmallVec<[CellRun; 2]>,
    /// Whether the time axis is dropped; the selection must then have one cell.
    pub squeeze: bool,
}

impl Selection {
    /// Number of cells.
    pub fn len(&self) -> usize {
        self.runs.iter().map(|run| run.length as usize).sum()
    }

    /// Whether the selection has no cells.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Adds cells at the end.
    pub fn push(&mut self, run: CellRun) {
        if let Some(last) = self.runs.last_mut()
            && Arc::ptr_eq(&last.chunk, &run.chunk)
            && last.index == run.index
            && last.offset + last.length == run.offset
        {
            last.length += run.length;
            return;
        }
        self.runs.push(run);
    }

    /// The cell at `index`, which must exist.
    pub fn cell(&self, mut index: usize) -> CellRun {
        for run in &self.runs {
            if index < run.length as usize {
                return run.cell(index as u32);
            }
            index -= run.length as usize;
        }
        unreachable!("the caller has looked at the length")
    }

    /// Element type and shape of a cell; `None` if there are no cells.
    pub fn cell_type(&self) -> Option<(DType, &Shape)> {
        self.runs.first().map(|run| (run.column.dtype, run.shape()))
    }

    /// Type of the array, with the time axis unless it is dropped; `None` if there are no cells.
    pub fn array_type(&self) -> Option<ArrayType> {
        let (dtype, shape) = self.cell_type()?;
        let mut dims = Vec::with_capacity(shape.len() + 1);
        if !self.squeeze {
            dims.push(self.len());
        }
        dims.extend_from_slice(shape);
        Some(ArrayType { dtype, shape: dims, has_time: !self.squeeze })
    }

    /// Checks that the cells can be a column of an item of `writer`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] with the reason.
    pub fn check(&self, writer: u64) -> Result<()> {
        let Some((first, others)) = self.runs.split_first() else {
            return Err(Error::invalid("the column is empty."));
        };
        first.check(writer)?;
        let mut index = first.length;
        for run in others {
            run.check(writer)?;
            if run.column.dtype != first.column.dtype {
                return Err(Error::invalid(format!(
                    "Column references tensors with different dtypes: {} (index 0) != {} (index {index}).",
                    first.column.dtype, run.column.dtype
                )));
            }
            if run.shape() != first.shape() {
                return Err(Error::invalid(format!(
                    "Column references tensors with incompatible shapes: {} (index 0) not compatible with {} (index {index}).",
                    crate::tensor::shape_text(first.shape()),
                    crate::tensor::shape_text(run.shape())
                )));
            }
            index += run.length;
        }
        if self.squeeze && index != 1 {
            return Err(Error::invalid(format!(
                "TrajectoryColumn must contain exactly one row when squeeze is set but got {index}."
            )));
        }
        Ok(())
    }
}
