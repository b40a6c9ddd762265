//! The data of an item: columns made of slices of chunks.
//!
//! A trajectory is checked when it is created: ranges lie inside their chunks, slices of a column agree in dtype and
//! row shape, and a squeezed column has one row.

use crate::{Chunk, Error, MAX_ITEM_SLICES, Result};
use smallvec::SmallVec;
use std::sync::Arc;

/// Rows `[offset, offset + length)` of one column of a chunk.
#[derive(Debug, Clone)]
pub struct Slice {
    /// The chunk.
    pub chunk: Arc<Chunk>,
    /// Index of the column in the chunk.
    pub column: u32,
    /// First row.
    pub offset: u32,
    /// Number of rows, at least 1.
    pub length: u32,
}

/// Number of cells in rows of all columns of a chunk. A cell is a row of a column.
#[inline]
pub(crate) fn cells_of_rows(chunk: &Chunk, rows: u32) -> u64 {
    u64::from(rows) * chunk.columns().len() as u64
}

/// One column of an item: slices, one after another along the time axis.
#[derive(Debug, Clone)]
pub struct TrajectoryColumn {
    /// At least one slice, all with the same dtype and row shape.
    pub slices: SmallVec<[Slice; 1]>,
    /// Whether the time axis, of length 1, is dropped.
    pub squeeze: bool,
}

impl TrajectoryColumn {
    /// Number of rows.
    pub fn length(&self) -> usize {
        self.slices.iter().map(|slice| slice.length as usize).sum()
    }
}

/// The data of an item. Cloning it clones references, not data.
#[derive(Debug, Clone)]
pub enum Trajectory {
    /// The same rows of every column of one chunk. This is what `insert` and most writers make, and by far the most common
    /// case.
    Rows {
        /// The chunk.
        chunk: Arc<Chunk>,
        /// First row.
        offset: u32,
        /// Number of rows, at least 1.
        length: u32,
        /// Whether the time axis, of length 1, is dropped in all columns.
        squeeze: bool,
    },
    /// Any slices of any chunks.
    Columns(Arc<[TrajectoryColumn]>),
}

/// A column of a trajectory of either kind.
pub enum ColumnView<'a> {
    /// Rows of a column of one chunk.
    One {
        /// The chunk.
        chunk: &'a Arc<Chunk>,
        /// Index of the column in the chunk.
        column: u32,
        /// First row.
        offset: u32,
        /// Number of rows.
        length: u32,
        /// Whether the time axis is dropped.
        squeeze: bool,
    },
    /// Several slices.
    Many(&'a TrajectoryColumn),
}

impl Trajectory {
    /// Creates a trajectory of the same rows of all columns of a chunk.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there are no columns or no rows, or the rows are not in the chunk.
    pub fn rows(chunk: Arc<Chunk>, offset: u32, length: u32) -> Result<Self> {
        Self::check_rows(&chunk, offset, length)?;
        Ok(Self::Rows { chunk, offset, length, squeeze: false })
    }

    /// Creates a trajectory of one row of all columns of a chunk, without a time axis.
    ///
    /// # Errors
    /// Those of [`Trajectory::rows`].
    pub fn squeezed_row(chunk: Arc<Chunk>, offset: u32) -> Result<Self> {
        Self::check_rows(&chunk, offset, 1)?;
        Ok(Self::Rows { chunk, offset, length: 1, squeeze: true })
    }

    /// Checks what [`Trajectory::rows`] would make.
    ///
    /// # Errors
    /// Those of [`Trajectory::rows`].
    pub fn check_rows(chunk: &Chunk, offset: u32, length: u32) -> Result<()> {
        if chunk.columns().is_empty() || length == 0 {
            return Err(Error::invalid("Item trajectory must not be empty."));
        }
        check_rows(chunk, offset, length)
    }

    /// Creates a trajectory of slices of any chunks, in the short form if they are the same rows of all columns of one chunk.
    /// Checks that a reader can concatenate the slices of every column.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`], naming the column, if there are no columns, or more than [`MAX_ITEM_SLICES`] with
    /// their slices; if a column has no rows; if a slice lies outside its chunk; if slices of a column differ in dtype or
    /// row shape; or if a squeezed column has more than one row.
    pub fn columns(columns: Vec<TrajectoryColumn>) -> Result<Self> {
        if columns.is_empty() {
            return Err(Error::invalid("Item trajectory must not be empty."));
        }
        let slices = columns.iter().map(|column| 1 + column.slices.len()).sum::<usize>();
        if slices > MAX_ITEM_SLICES {
            return Err(Error::invalid(format!(
                "an item has {slices} columns and slices of chunks, and may have {MAX_ITEM_SLICES}; use longer chunks"
            )));
        }
        if let Some((slice, squeeze)) = common_rows(&columns) {
            let &Slice { ref chunk, offset, length, .. } = slice;
            Self::check_rows(chunk, offset, length)?;
            return Ok(Self::Rows { chunk: chunk.clone(), offset, length, squeeze });
        }
        for (index, column) in columns.iter().enumerate() {
            check_column(column).map_err(|error| Error::invalid(format!("Error in column {index}: {error}")))?;
        }
        Ok(Self::Columns(columns.into()))
    }

    /// Number of columns.
    pub fn num_columns(&self) -> usize {
        match self {
            Self::Rows { chunk, .. } => chunk.columns().len(),
            Self::Columns(columns) => columns.len(),
        }
    }

    /// Column `index`, which must exist.
    pub fn column(&self, index: usize) -> ColumnView<'_> {
        match self {
            &Self::Rows { ref chunk, offset, length, squeeze } => {
                ColumnView::One { chunk, column: index as u32, offset, length, squeeze }
            }
            Self::Columns(columns) => match &columns[index] {
                TrajectoryColumn { slices, squeeze } if slices.len() == 1 => {
                    let Slice { chunk, column, offset, length } = &slices[0];
                    ColumnView::One { chunk, column: *column, offset: *offset, length: *length, squeeze: *squeeze }
                }
                column => ColumnView::Many(column),
            },
        }
    }

    /// Returns a trajectory of column `index` alone. `None` if there is no such column.
    pub fn only_column(&self, index: usize) -> Option<Self> {
        Some(Self::Columns([self.own_column(index)?].into()))
    }

    /// Returns a trajectory of these columns alone, in this order. `None` if one of them does not exist, or if there are
    /// more of them than columns.
    pub fn only_columns(&self, indices: &[u32]) -> Option<Self> {
        if indices.is_empty() || indices.len() > self.num_columns() {
            return None;
        }
        indices.iter().map(|&index| self.own_column(index as usize)).collect::<Option<_>>().map(Self::Columns)
    }

    fn own_column(&self, index: usize) -> Option<TrajectoryColumn> {
        match self {
            &Self::Rows { ref chunk, offset, length, squeeze } if index < chunk.columns().len() => {
                let slice = Slice { chunk: chunk.clone(), column: index as u32, offset, length };
                Some(TrajectoryColumn { slices: smallvec::smallvec![slice], squeeze })
            }
            Self::Rows { .. } => None,
            Self::Columns(columns) => columns.get(index).cloned(),
        }
    }

    /// Whether its rows can be read from the data of its chunks directly, once unpacked.
    #[inline]
    pub(crate) fn is_readable(&self) -> bool {
        match self {
            Self::Rows { chunk, length, .. } => chunk.is_readable(*length),
            Self::Columns(columns) => {
                let mut slices = columns.iter().flat_map(|column| &column.slices);
                slices.all(|slice| slice.chunk.is_readable(slice.length))
            }
        }
    }

    /// Calls `visit(chunk, cells)` for each slice, or once for [`Trajectory::Rows`]. A cell is a row of a column.
    pub fn for_each_use(&self, mut visit: impl FnMut(&Arc<Chunk>, u64)) {
        match self {
            Self::Rows { chunk, length, .. } => visit(chunk, cells_of_rows(chunk, *length)),
            Self::Columns(columns) => {
                for slice in columns.iter().flat_map(|column| &column.slices) {
                    visit(&slice.chunk, u64::from(slice.length));
                }
            }
        }
    }

    /// The distinct chunks in the order of first use.
    pub fn chunks(&self) -> SmallVec<[Arc<Chunk>; 4]> {
        let mut chunks = SmallVec::<[Arc<Chunk>; 4]>::new();
        self.for_each_use(|chunk, _| {
            if !chunks.iter().any(|seen| Arc::ptr_eq(seen, chunk)) {
                chunks.push(chunk.clone());
            }
        });
        chunks
    }

    /// Size in bytes of the rows that it refers to, decoded. A row that is referred to twice counts twice; strings
    /// count with the average size of their chunk.
    pub fn size_bytes(&self) -> u64 {
        self.sum_of_slices(slice_bytes)
    }

    /// The share of these rows in the stored size of their chunks, which is the encoded size for encoded chunks.
    pub fn held_bytes(&self) -> u64 {
        self.sum_of_slices(|chunk, column, length| {
            let decoded = slice_bytes(chunk, column, length);
            if !chunk.is_compressed() {
                return decoded;
            }
            // Both sizes are below 2^32, and compressed data is never empty.
            (decoded * chunk.size_bytes() as u64).div_ceil(chunk.decoded_bytes() as u64)
        })
    }

    fn sum_of_slices(&self, slice_bytes: impl Fn(&Chunk, usize, u32) -> u64) -> u64 {
        match self {
            Self::Rows { chunk, length, .. } => {
                (0..chunk.columns().len()).map(|c| slice_bytes(chunk, c, *length)).sum()
            }
            Self::Columns(columns) => columns
                .iter()
                .flat_map(|column| &column.slices)
                .map(|slice| slice_bytes(&slice.chunk, slice.column as usize, slice.length))
                .sum(),
        }
    }
}

/// Returns a slice with the rows of all columns, and whether all are squeezed, if they are the same rows of all columns of one
/// chunk.
fn common_rows(columns: &[TrajectoryColumn]) -> Option<(&Slice, bool)> {
    let (first, squeeze) = only_slice(columns.first()?)?;
    let is_same = |(index, column): (usize, &TrajectoryColumn)| {
        only_slice(column).is_some_and(|(slice, squeezed)| {
            slice.column as usize == index
                && Arc::ptr_eq(&slice.chunk, &first.chunk)
                && (slice.offset, slice.length, squeezed) == (first.offset, first.length, squeeze)
        })
    };
    let are_common = first.chunk.columns().len() == columns.len() && !(squeeze && first.length > 1);
    (are_common && columns.iter().enumerate().all(is_same)).then_some((first, squeeze))
}

fn only_slice(column: &TrajectoryColumn) -> Option<(&Slice, bool)> {
    match &column.slices[..] {
        [slice] => Some((slice, column.squeeze)),
        _ => None,
    }
}

fn slice_bytes(chunk: &Chunk, column: usize, length: u32) -> u64 {
    let column = &chunk.columns()[column];
    (column.size_bytes as u64 * u64::from(length)).div_ceil(u64::from(chunk.rows()))
}

fn check_rows(chunk: &Chunk, offset: u32, length: u32) -> Result<()> {
    if offset.checked_add(length).is_none_or(|end| end > chunk.rows()) {
        return Err(Error::invalid(format!(
            "Cannot slice ({offset}, {}) out of chunk {} with {} rows.",
            u64::from(offset) + u64::from(length),
            chunk.key,
            chunk.rows()
        )));
    }
    Ok(())
}

fn check_column(column: &TrajectoryColumn) -> Result<()> {
    let mut first = None;
    for (index, slice) in column.slices.iter().enumerate() {
        let Some(spec) = slice.chunk.columns().get(slice.column as usize) else {
            return Err(Error::invalid(format!(
                "Cannot unpack column {} in chunk {} which has {} columns.",
                slice.column,
                slice.chunk.key,
                slice.chunk.columns().len()
            )));
        };
        check_rows(&slice.chunk, slice.offset, slice.length)?;
        if slice.length == 0 {
            return Err(Error::invalid(format!("slice {index} has no rows.")));
        }
        let (dtype, shape) = *first.get_or_insert((spec.dtype, &spec.shape));
        if dtype != spec.dtype {
            return Err(Error::invalid(format!(
                "Column references tensors with different dtypes: {dtype} (index 0) != {} (index {index}).",
                spec.dtype
            )));
        }
        if *shape != spec.shape {
            return Err(Error::invalid(format!(
                "Column references tensors with incompatible shapes: {} (index 0) not compatible with {} (index {index}).",
                crate::tensor::shape_text(shape),
                crate::tensor::shape_text(&spec.shape)
            )));
        }
    }
    match column.length() {
        0 => Err(Error::invalid("it has no rows.")),
        rows if column.squeeze && rows != 1 => Err(Error::invalid(format!(
            "TrajectoryColumn must contain exactly one row when squeeze is set but got {rows}."
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, EpisodeIds, Layout, StepRange};

    #[test]
    fn an_item_has_no_more_slices_than_a_checkpoint_can_hold() {
        let layout = Layout::new(1, [(DType::UInt8, smallvec::smallvec![], 0)]).unwrap();
        let chunk = Chunk::new(1, EpisodeIds::Same(1), StepRange::default(), Arc::new(layout), vec![1].into()).unwrap();
        let slice = Slice { chunk: Arc::new(chunk), column: 0, offset: 0, length: 1 };
        let columns = |count: usize| {
            let slices = std::iter::repeat_n(slice.clone(), count).collect();
            Trajectory::columns(vec![TrajectoryColumn { slices, squeeze: false }])
        };
        assert!(columns(MAX_ITEM_SLICES - 1).is_ok());
        let error = columns(MAX_ITEM_SLICES).unwrap_err();
        assert!(matches!(&error, Error::InvalidArgument(reason) if reason.contains("4194305")), "{error}");
    }

    /// A trajectory of a column for each slice of a chunk of three rows and two columns: column, offset, length, squeeze.
    fn of(slices: &[(u32, u32, u32, bool)]) -> Result<Trajectory> {
        let columns = [(DType::UInt8, smallvec::smallvec![], 0), (DType::Int32, smallvec::smallvec![2], 0)];
        let layout = Arc::new(Layout::new(3, columns).unwrap());
        let data = vec![0; layout.size_bytes].into();
        let chunk = Arc::new(Chunk::new(1, EpisodeIds::Same(1), StepRange::default(), layout, data).unwrap());
        let column = |&(column, offset, length, squeeze): &(u32, u32, u32, bool)| TrajectoryColumn {
            slices: smallvec::smallvec![Slice { chunk: chunk.clone(), column, offset, length }],
            squeeze,
        };
        Trajectory::columns(slices.iter().map(column).collect())
    }

    #[test]
    fn the_same_rows_of_all_columns_take_the_short_form() {
        for rows in [(0, 3, false), (1, 2, false), (2, 1, false), (2, 1, true)] {
            let (first, count, squeezed) = rows;
            let whole = of(&[(0, first, count, squeezed), (1, first, count, squeezed)]).unwrap();
            let Trajectory::Rows { offset, length, squeeze, .. } = &whole else { panic!("{rows:?}: {whole:?}") };
            assert_eq!((*offset, *length, *squeeze), rows);
            for index in 0..2 {
                let ColumnView::One { column, offset, length, squeeze, .. } = whole.column(index) else { panic!() };
                assert_eq!((column, (offset, length, squeeze)), (index as u32, rows));
            }
            let Some(Trajectory::Columns(alone)) = whole.only_column(1) else { panic!() };
            assert_eq!((alone[0].squeeze, alone[0].length()), (squeezed, count as usize));
        }
        for columns in [
            [(0, 1, 1, false), (1, 1, 1, true)],
            [(0, 1, 1, true), (1, 2, 1, true)],
            [(1, 1, 1, true), (0, 1, 1, true)],
            [(0, 0, 2, false), (1, 0, 3, false)],
        ] {
            assert!(matches!(of(&columns).unwrap(), Trajectory::Columns(_)), "{columns:?}");
        }
        assert!(matches!(of(&[(0, 0, 1, true)]).unwrap(), Trajectory::Columns(_)), "one of two columns");
    }

    #[test]
    fn the_short_form_is_checked_like_the_long_one() {
        for (columns, reason) in [
            ([(0, 2, 2, false), (1, 2, 2, false)], "Cannot slice (2, 4)"),
            ([(0, 3, 1, true), (1, 3, 1, true)], "Cannot slice (3, 4)"),
            ([(0, 0, 0, false), (1, 0, 0, false)], "must not be empty"),
            ([(0, 0, 2, true), (1, 0, 2, true)], "exactly one row when squeeze is set but got 2"),
        ] {
            let error = of(&columns).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
