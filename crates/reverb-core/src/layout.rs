//! Where the columns of a chunk lie in its bytes.

use crate::compression::{Encoding, takes_delta};
use crate::copy::copy;
use crate::interleave;
use crate::tensor::{Shape, shape_text};
use crate::{DType, Error, Result};
use std::mem::MaybeUninit;

/// Where a column's region begins inside a chunk: every region is aligned to this many bytes.
const REGION_ALIGN: usize = 8;
/// Dimensions of a row: a batch has two more, and NumPy 1 arrays at most 32.
const MAX_RANK: usize = 30;
/// Rows, and a chunk's bytes, are counted in 32 bits.
pub(crate) const MAX_CHUNK_BYTES: usize = u32::MAX as usize;

/// One column of a chunk: dtype, shape of a row, and where its rows lie.
///
/// Rows of numbers lie one after another in C order, little-endian. A column of strings is
/// `rows × elements + 1` little-endian `u32` ends (the first is 0), then the bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Element type.
    pub dtype: DType,
    /// Shape of one row, without the time axis.
    pub shape: Shape,
    /// Elements in one row.
    pub elements: usize,
    /// Bytes of one row; 0 for strings.
    pub row_bytes: usize,
    /// First byte of the column's region in the chunk.
    pub offset: usize,
    /// Bytes of the region.
    pub size_bytes: usize,
    /// Where the first row is in bytes that are not compressed: `offset`, or its place in an interleaved row.
    pub(crate) start: usize,
    /// Bytes from there to the next row.
    pub(crate) stride: usize,
}

impl Column {
    /// Whether other columns lie between its rows.
    #[inline]
    pub(crate) fn is_interleaved(&self) -> bool {
        self.stride != self.row_bytes
    }
}

/// The columns of a chunk with a given number of rows, and how its bytes are encoded. Chunks of the same form share one,
/// so a chunk is no larger for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The columns in order.
    pub columns: Box<[Column]>,
    /// Rows of every column.
    pub rows: u32,
    /// Bytes of the whole chunk, decoded if it is encoded.
    pub size_bytes: usize,
    /// Whether the columns of a row lie side by side. Such bytes are not compressed.
    is_interleaved: bool,
    /// How the bytes are compressed; `None` if they are not.
    encoding: Option<Box<Encoding>>,
}

impl Layout {
    /// Lays out `rows` rows of columns, each given by dtype, row shape, and, for strings only, the bytes of its region.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there is no row, or the chunk would pass 4 GiB.
    pub fn new(rows: usize, columns: impl IntoIterator<Item = (DType, Shape, usize)>) -> Result<Self> {
        if rows == 0 {
            return Err(Error::invalid("a chunk needs at least one row, got 0"));
        }
        let too_large = |shape: &[usize]| {
            Error::invalid(format!(
                "a chunk of {rows} rows with a column of shape {} passes {MAX_CHUNK_BYTES} bytes",
                shape_text(shape)
            ))
        };
        let mut end = 0_usize;
        let mut laid_out = Vec::new();
        for (dtype, shape, string_bytes) in columns {
            if shape.len() > MAX_RANK {
                return Err(Error::invalid(format!(
                    "a column's rows have {} dimensions; at most {MAX_RANK} are possible",
                    shape.len()
                )));
            }
            let elements =
                shape.iter().try_fold(1_usize, |n, &dim| n.checked_mul(dim)).ok_or_else(|| too_large(&shape))?;
            let row_bytes = elements.checked_mul(dtype.size()).ok_or_else(|| too_large(&shape))?;
            let size_bytes = if dtype == DType::String {
                // What the region is read by must not overflow, whoever says how large it is.
                elements
                    .checked_mul(rows)
                    .and_then(|n| n.checked_mul(4)?.checked_add(4))
                    .ok_or_else(|| too_large(&shape))?;
                string_bytes
            } else {
                row_bytes.checked_mul(rows).ok_or_else(|| too_large(&shape))?
            };
            let offset = end.next_multiple_of(REGION_ALIGN);
            end = offset
                .checked_add(size_bytes)
                .filter(|&end| end <= MAX_CHUNK_BYTES)
                .ok_or_else(|| too_large(&shape))?;
            let (start, stride) = (offset, row_bytes);
            laid_out.push(Column { dtype, shape, elements, row_bytes, offset, size_bytes, start, stride });
        }
        let rows = u32::try_from(rows).map_err(|_| too_large(&[]))?;
        Ok(Self { columns: laid_out.into(), rows, size_bytes: end, is_interleaved: false, encoding: None })
    }

    /// The same columns, encoded.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if not every column has a flag for differences, or one has it that cannot.
    pub fn encoded(&self, encoding: Encoding) -> Result<Self> {
        let (flags, columns) = (&encoding.delta, &self.columns);
        if flags.len() != columns.len() {
            return Err(Error::invalid(format!("{} delta flags for {} columns", flags.len(), columns.len())));
        }
        if let Some(index) = columns.iter().zip(flags).position(|(column, &delta)| delta && !takes_delta(column.dtype))
        {
            let dtype = columns[index].dtype;
            return Err(Error::invalid(format!("rows of column {index}, of type {dtype}, cannot be differences")));
        }
        let (columns, encoding) = (columns.clone(), Some(Box::new(encoding)));
        Ok(Self { columns, encoding, is_interleaved: false, ..*self })
    }

    /// The same columns, those of a row side by side and without gaps, not compressed.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there are strings.
    pub fn interleaved(&self) -> Result<Self> {
        let mut columns = self.columns.clone();
        interleave::lay_out(&mut columns)?;
        Ok(Self { columns, encoding: None, is_interleaved: true, ..*self })
    }

    /// Whether the columns of a row lie side by side.
    #[inline]
    pub fn is_interleaved(&self) -> bool {
        self.is_interleaved
    }

    /// Bytes of a chunk that is not compressed.
    pub fn held_bytes(&self) -> usize {
        match self.columns.first() {
            Some(first) if self.is_interleaved => first.stride * self.rows as usize,
            _ => self.size_bytes,
        }
    }

    /// The bytes of a chunk of these columns, each of which has its rows one after another. Not compressed.
    ///
    /// # Panics
    /// If there are other columns, or of other sizes.
    pub fn assemble<C: AsRef<[u8]>>(&self, columns: &[C]) -> Vec<u8> {
        assert_eq!(columns.len(), self.columns.len(), "columns of a chunk");
        let mut chunk = Vec::new();
        let bytes = self.held_bytes();
        chunk.reserve_exact(bytes);
        let target = &mut chunk.spare_capacity_mut()[..bytes];
        let mut end = 0;
        for (column, rows) in self.columns.iter().zip(columns) {
            let rows = rows.as_ref();
            assert_eq!(rows.len(), column.size_bytes, "bytes of a column");
            if self.is_interleaved {
                interleave::put(target, column, rows);
            } else {
                target[end..column.offset].fill(MaybeUninit::new(0));
                end = column.offset + column.size_bytes;
                copy(&mut target[column.offset..end], rows);
            }
        }
        // SAFETY: all columns were put there, and zeros between them; interleaved ones leave no gap.
        unsafe { chunk.set_len(bytes) };
        chunk
    }

    /// How the bytes are compressed; `None` if they are not.
    #[inline]
    pub fn encoding(&self) -> Option<&Encoding> {
        self.encoding.as_deref()
    }
}
