//! A writer's steps, as patterns see them.

use crate::{DType, Error, Result};
use std::borrow::Cow;

/// A step of a writer. Two steps are the same if both numbers are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepId {
    /// The episode. The id changes with each end of an episode.
    pub episode: u64,
    /// Index of the step in its episode, from 0. All steps count, even those without a value in a column that patterns
    /// use.
    pub index: u64,
}

/// The newest rows of the columns that patterns use. Age 1 is the newest row.
///
/// A step adds one row to every column, which is empty if the column has no value. A later part of the same step fills
/// the existing row.
pub trait Steps {
    /// The step of the newest row; `None` if no row was added since the buffers were cleared. It does not change when
    /// an episode ends and the rows are kept.
    fn newest(&self) -> Option<StepId>;

    /// Number of rows since the buffers were cleared. May stop growing at
    /// [`Evaluator::max_age`](super::Evaluator::max_age).
    fn num_rows(&self) -> u64;

    /// Whether the row of this age exists and has a value in column `source`.
    fn has(&self, source: usize, age: u32) -> bool;

    /// The value in a row; `None` if [`Steps::has`] is false.
    fn cell(&self, source: usize, age: u32) -> Option<Cell<'_>>;

    /// Calls `visit` with the values of rows of these ages, which all exist, until it fails. An implementation can
    /// override this if reading many cells at once is faster.
    ///
    /// # Errors
    /// The error that `visit` returned.
    fn for_each_cell(
        &self,
        source: usize,
        ages: &mut dyn Iterator<Item = u32>,
        visit: &mut dyn FnMut(Cell<'_>) -> Result<()>,
    ) -> Result<()> {
        ages.filter_map(|age| self.cell(source, age)).try_for_each(visit)
    }
}

/// The value of a column in one row.
#[derive(Debug, Clone)]
pub struct Cell<'a> {
    /// Element type.
    pub dtype: DType,
    /// Number of elements.
    pub elements: usize,
    /// The elements, little-endian; empty for strings, which are never read.
    pub bytes: Cow<'a, [u8]>,
}

impl Cell<'_> {
    /// The only element, for a condition. The type holds every integer type.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`], with the column `source` in its text, if the cell is not a single bool or integer.
    pub fn integer(&self, source: usize) -> Result<i128> {
        let unfit = || {
            Error::invalid(format!(
                "A condition reads column {source}, which must hold one bool or integer, got {} of type {}.",
                self.elements, self.dtype
            ))
        };
        if self.elements != 1 {
            return Err(unfit());
        }
        let value = match self.dtype {
            DType::Bool => i128::from(self.only::<1>()?[0] != 0),
            DType::Int8 => i8::from_le_bytes(self.only()?).into(),
            DType::Int16 => i16::from_le_bytes(self.only()?).into(),
            DType::Int32 => i32::from_le_bytes(self.only()?).into(),
            DType::Int64 => i64::from_le_bytes(self.only()?).into(),
            DType::UInt8 => u8::from_le_bytes(self.only()?).into(),
            DType::UInt16 => u16::from_le_bytes(self.only()?).into(),
            DType::UInt32 => u32::from_le_bytes(self.only()?).into(),
            DType::UInt64 => u64::from_le_bytes(self.only()?).into(),
            _ => return Err(unfit()),
        };
        Ok(value)
    }

    /// The only element, as a TD error.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the cell is not a single float32, float64, int32 or int64.
    pub fn td_error(&self) -> Result<f64> {
        let is_number = matches!(self.dtype, DType::Float32 | DType::Float64 | DType::Int32 | DType::Int64);
        if !is_number {
            let number = self.dtype as u8;
            return Err(Error::invalid(format!("TD Error expects a double/float/int tensor and it is {number}")));
        }
        if self.elements != 1 {
            return Err(Error::invalid("TD Error expects a scalar tensor"));
        }
        Ok(match self.dtype {
            DType::Float32 => f32::from_le_bytes(self.only()?).into(),
            DType::Float64 => f64::from_le_bytes(self.only()?),
            DType::Int32 => i32::from_le_bytes(self.only()?).into(),
            _ => i64::from_le_bytes(self.only()?) as f64,
        })
    }

    fn only<const SIZE: usize>(&self) -> Result<[u8; SIZE]> {
        self.bytes.as_ref().try_into().map_err(|_| {
            Error::Internal(format!("a cell of type {} has {} bytes instead of {SIZE}", self.dtype, self.bytes.len()))
        })
    }
}
