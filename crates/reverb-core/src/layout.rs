//! The places of a chunk's columns in its bytes.

use crate::column::{Column, interleave};
use crate::copy::copy;
use crate::encoding::{Encoding, takes_delta};
use crate::memory::chunk_buffer;
use crate::tensor::{Shape, shape_text};
use crate::writer::ChunkMemory;
use crate::{DType, Error, Result};
use bytes::Bytes;
use std::mem::MaybeUninit;

/// Alignment of a column's region in a chunk, in bytes.
const REGION_ALIGN: usize = 8;
// limit (Chunks and messages): dimensions of a row | {}, since a batch has two more and arrays of old NumPy have no more
// than these | `InvalidArgumentError`
/// Maximum number of dimensions of a row: a batch has two more, and NumPy 1 arrays have at most 32.
const MAX_RANK: usize = 30;
// limit (Chunks and messages): one chunk | {} | `InvalidArgumentError`
/// Rows and bytes of a chunk are counted in 32 bits.
pub(crate) const MAX_CHUNK_BYTES: usize = u32::MAX as usize;

// limit (Chunks and messages): rows of a chunk | one for each byte, or {} | `InvalidArgumentError`
/// Maximum number of rows of a chunk without data. Without it, a chunk of a few bytes could have rows for which its
/// readers need gigabytes.
const MAX_EMPTY_ROWS: usize = 1 << 16;
/// Rows are drawn faster as they lie interleaved if they have at most this many bytes.
const INTERLEAVED_ROW_BYTES: usize = 4096;

/// The columns of a chunk with a given number of rows, and the encoding of its bytes. Chunks of the same columns share
/// one layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The columns in order.
    pub columns: Box<[Column]>,
    /// Number of rows, the same for every column.
    pub rows: u32,
    /// Size of the whole chunk in bytes, decoded if it is encoded.
    pub size_bytes: usize,
    /// Whether the columns of a row lie side by side. Such bytes are never compressed.
    is_interleaved: bool,
    /// The encoding of the bytes; `None` if they are not compressed.
    encoding: Option<Box<Encoding>>,
}

impl Layout {
    /// Lays out `rows` rows of columns. Each column is given by its dtype, the shape of a row and, for strings only,
    /// the size of its region in bytes.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there are no rows or the chunk would exceed 4 GiB.
    pub fn new(rows: usize, columns: impl IntoIterator<Item = (DType, Shape, usize)>) -> Result<Self> {
        if rows == 0 {
            return Err(Error::invalid("a chunk needs at least one row, got 0"));
        }
        let mut end = 0_usize;
        let mut laid_out = Vec::new();
        for (dtype, shape, string_bytes) in columns {
            let column = lay_out(rows, dtype, shape, string_bytes, end)?;
            end = column.offset + column.size_bytes;
            laid_out.push(column);
        }
        let rows = u32::try_from(rows).map_err(|_| too_large(rows, &[]))?;
        Ok(Self { columns: laid_out.into(), rows, size_bytes: end, is_interleaved: false, encoding: None })
    }

    /// Checks the number of rows: at most one for each byte, or 65 536.
    pub(crate) fn check_rows(&self) -> Result<()> {
        let most = self.size_bytes.max(MAX_EMPTY_ROWS);
        if self.rows as usize > most {
            let (rows, size_bytes) = (self.rows, self.size_bytes);
            return Err(Error::invalid(format!("a chunk of {size_bytes} bytes has {rows} rows, more than {most}")));
        }
        Ok(())
    }

    /// Returns the same columns, encoded.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if `encoding` does not have exactly one flag for each column, or sets the flag of a
    /// column that cannot be stored as differences.
    pub fn encoded(&self, encoding: Encoding) -> Result<Self> {
        let (flags, columns) = (&encoding.delta, &self.columns);
        if flags.len() != columns.len() {
            return Err(Error::invalid(format!(
                "expected {} delta flags, one for each column, got {}",
                columns.len(),
                flags.len()
            )));
        }
        if let Some(index) = columns.iter().zip(flags).position(|(column, &delta)| delta && !takes_delta(column.dtype))
        {
            let dtype = columns[index].dtype;
            return Err(Error::invalid(format!(
                "column {index} of dtype {dtype} cannot be stored as differences: only integers can"
            )));
        }
        let (columns, encoding) = (columns.clone(), Some(Box::new(encoding)));
        Ok(Self { columns, encoding, is_interleaved: false, ..*self })
    }

    /// Returns the same columns, interleaved: the columns of a row lie side by side without gaps. The layout has no
    /// encoding.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if a column holds strings.
    pub fn interleaved(&self) -> Result<Self> {
        let mut columns = self.columns.clone();
        interleave(&mut columns)?;
        Ok(Self { columns, encoding: None, is_interleaved: true, ..*self })
    }

    /// Whether draws of single rows are faster if the columns of a row lie side by side. They are if there are several
    /// rows and columns, none of strings, and rows are small. With large rows the processor itself predicts which memory
    /// is read next.
    pub fn is_drawn_better_by_row(&self) -> bool {
        let row_bytes: usize = self.columns.iter().map(|column| column.row_bytes).sum();
        self.rows > 1
            && self.columns.len() > 1
            && row_bytes <= INTERLEAVED_ROW_BYTES
            && self.columns.iter().all(|column| column.dtype != DType::String)
    }

    /// Whether the columns of a row lie side by side.
    #[inline]
    pub fn is_interleaved(&self) -> bool {
        self.is_interleaved
    }

    /// Size in bytes of a chunk that is not compressed.
    pub fn held_bytes(&self) -> usize {
        match self.columns.first() {
            Some(first) if self.is_interleaved => first.stride * self.rows as usize,
            _ => self.size_bytes,
        }
    }

    /// Assembles the bytes of a chunk from its columns, each given as its rows one after another. The result is not
    /// compressed.
    ///
    /// # Panics
    /// If the number of columns, or the size of one, differs from this layout.
    pub fn assemble<C: AsRef<[u8]>>(&self, columns: &[C]) -> Vec<u8> {
        let mut chunk = Vec::new();
        let bytes = self.held_bytes();
        chunk.reserve_exact(bytes);
        self.assemble_into(columns, &mut chunk.spare_capacity_mut()[..bytes]);
        // SAFETY: all were written.
        unsafe { chunk.set_len(bytes) };
        chunk
    }

    /// As [`Layout::assemble`], into memory that a server of this host can read, if there is some.
    ///
    /// # Panics
    /// As [`Layout::assemble`].
    pub fn assemble_in<C: AsRef<[u8]>>(&self, columns: &[C], memory: Option<&dyn ChunkMemory>) -> Bytes {
        let bytes = self.held_bytes();
        match memory.and_then(|memory| memory.take(bytes)).or_else(|| chunk_buffer(bytes)) {
            Some(mut buffer) => {
                self.assemble_into(columns, buffer.as_uninit_mut());
                // SAFETY: all were written.
                unsafe { buffer.into_bytes() }
            }
            None => self.assemble(columns).into(),
        }
    }

    /// Writes all bytes of `target`, which has as many as a chunk.
    fn assemble_into<C: AsRef<[u8]>>(&self, columns: &[C], target: &mut [MaybeUninit<u8>]) {
        assert_eq!(columns.len(), self.columns.len(), "columns of a chunk");
        let mut end = 0;
        for (column, rows) in self.columns.iter().zip(columns) {
            let rows = rows.as_ref();
            assert_eq!(rows.len(), column.size_bytes, "bytes of a column");
            if self.is_interleaved {
                column.put_interleaved(target, rows);
            } else {
                target[end..column.offset].fill(MaybeUninit::new(0));
                end = column.offset + column.size_bytes;
                copy(&mut target[column.offset..end], rows);
            }
        }
        // Interleaved columns leave no gap.
        if !self.is_interleaved {
            target[end..].fill(MaybeUninit::new(0));
        }
    }

    /// Interleaves the bytes of a chunk that lie column by column, as this layout states.
    pub(crate) fn interleave_bytes(&self, data: &[u8]) -> Vec<u8> {
        let columns = self.columns.iter().map(|column| &data[column.offset..column.offset + column.size_bytes]);
        self.assemble(&columns.collect::<Vec<_>>())
    }

    /// The reverse of [`Layout::interleave_bytes`].
    pub(crate) fn separate_bytes(&self, data: &[u8], target: &mut [u8]) {
        let mut end = 0;
        for column in &self.columns {
            target[end..column.offset].fill(0);
            end = column.offset + column.size_bytes;
            if column.row_bytes == 0 {
                continue;
            }
            let region = &mut target[column.offset..end];
            let rows = data[column.start..].chunks(column.stride);
            for (target, row) in region.chunks_exact_mut(column.row_bytes).zip(rows) {
                target.copy_from_slice(&row[..column.row_bytes]);
            }
        }
    }

    /// The encoding of the bytes; `None` if they are not compressed.
    #[inline]
    pub fn encoding(&self) -> Option<&Encoding> {
        self.encoding.as_deref()
    }
}

/// Lays out a column whose region follows the one that ends at `end`.
fn lay_out(rows: usize, dtype: DType, shape: Shape, string_bytes: usize, end: usize) -> Result<Column> {
    if shape.len() > MAX_RANK {
        return Err(Error::invalid(format!(
            "the rows of a column have {} dimensions, more than the {MAX_RANK} that are supported",
            shape.len()
        )));
    }
    let too_large = || too_large(rows, &shape);
    let elements = shape.iter().try_fold(1_usize, |n, &dim| n.checked_mul(dim)).ok_or_else(too_large)?;
    let row_bytes = elements.checked_mul(dtype.size()).ok_or_else(too_large)?;
    let size_bytes = if dtype == DType::String {
        // The size of the ends must not overflow, even where a peer states it.
        elements.checked_mul(rows).and_then(|n| n.checked_mul(4)?.checked_add(4)).ok_or_else(too_large)?;
        string_bytes
    } else {
        row_bytes.checked_mul(rows).ok_or_else(too_large)?
    };
    let offset = end.next_multiple_of(REGION_ALIGN);
    offset.checked_add(size_bytes).filter(|&end| end <= MAX_CHUNK_BYTES).ok_or_else(too_large)?;
    let (start, stride) = (offset, row_bytes);
    Ok(Column { dtype, shape, elements, row_bytes, offset, size_bytes, start, stride })
}

#[cold]
fn too_large(rows: usize, shape: &[usize]) -> Error {
    Error::invalid(format!(
        "a chunk of {rows} rows with a column of shape {} is larger than {MAX_CHUNK_BYTES} bytes",
        shape_text(shape)
    ))
}
