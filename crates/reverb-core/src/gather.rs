//! From drawn items to one batch: every column in one contiguous block, all columns in one buffer.

mod rows;

use crate::buffer::ALIGN;
use crate::chunk::encode_strings;
use crate::copy::copy;
use crate::tensor::shape_text;
use crate::trajectory::ColumnView;
use crate::{Buffer, Chunk, Column, DType, Drawn, Error, MovedRows, Result, Trajectory, UsedRows, keep_rows};
use rows::Form;
pub(crate) use rows::Rows;
use std::iter;
use std::mem::MaybeUninit;
use std::sync::Arc;

/// One column of a batch: the array it becomes, and where its bytes lie in the batch's buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchColumn {
    /// Element type.
    pub dtype: DType,
    /// Shape of the array: `[batch, time, *row]`, `[batch, *row]` without time axis, `[rows, *row]` if ragged.
    pub shape: Vec<usize>,
    /// Rows of each item where they differ; the array then holds all rows one after another.
    pub row_lengths: Option<Vec<u32>>,
    /// Whether the items' columns have no time axis of their own.
    pub squeezed: bool,
    /// First byte in the buffer, a multiple of 64.
    pub offset: usize,
    /// Bytes; for strings those of the ends (`elements + 1` little-endian `u32`) and of the text.
    pub size_bytes: usize,
}

/// The columns of a batch and the size of the buffer they share.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BatchLayout {
    /// The columns in order.
    pub columns: Vec<BatchColumn>,
    /// Bytes of the buffer.
    pub size_bytes: usize,
}

impl BatchLayout {
    /// Puts columns one after another and sets their offsets. The sizes of strings are taken as they are.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where a shape's bytes do not fit the address space: it may come from a peer.
    pub fn new(mut columns: Vec<BatchColumn>) -> Result<Self> {
        let mut end = 0_usize;
        for (index, column) in columns.iter_mut().enumerate() {
            let too_large =
                || Error::invalid(format!("batch column {index} of shape {} is too large", shape_text(&column.shape)));
            if column.dtype != DType::String {
                column.size_bytes = column
                    .shape
                    .iter()
                    .try_fold(column.dtype.size(), |n, &dim| n.checked_mul(dim))
                    .ok_or_else(too_large)?;
            }
            column.offset = end.checked_next_multiple_of(ALIGN).ok_or_else(too_large)?;
            end = column
                .offset
                .checked_add(column.size_bytes)
                .filter(|&end| end <= isize::MAX as usize)
                .ok_or_else(too_large)?;
        }
        Ok(Self { columns, size_bytes: end })
    }
}

/// Drawn items whose columns fit together, on their way into a buffer.
///
/// The buffer can be filled whole, or in pieces as messages go out; either way each byte is copied once.
#[derive(Debug)]
pub struct Gatherer {
    items: Vec<Drawn>,
    /// The items as they are read, where chunks of theirs are encoded: decoded once for the whole batch, and only the
    /// rows that it needs are kept, so that this is never larger than the batch and one chunk. Empty if none is.
    decoded: Vec<Drawn>,
    layout: BatchLayout,
    /// The column at hand.
    column: usize,
    /// Bytes of it that are done.
    done: usize,
    /// Bytes of the buffer that are done.
    position: usize,
    /// The region of the string column at hand, made when its first piece is asked for.
    strings: Vec<u8>,
    /// What the items have in common.
    form: Form,
}

/// Why items cannot be stacked: the first item that differs from those before, and in what.
#[derive(Debug)]
pub struct Mismatch {
    /// The items, untouched.
    pub items: Vec<Drawn>,
    /// Index of the item that does not fit.
    pub index: usize,
    /// In what it differs.
    pub reason: String,
}

impl Gatherer {
    /// Plans the batch of `items`. With `squeeze_time`, a time axis that is 1 in every item is dropped.
    ///
    /// # Errors
    /// A [`Mismatch`] that returns the items, if they differ in their columns' number, dtype or row shape.
    pub fn new(items: Vec<Drawn>, squeeze_time: bool) -> std::result::Result<Self, Box<Mismatch>> {
        let form = Form::of(&items);
        let mismatch = if form == Form::Alike { None } else { first_mismatch(&items) };
        let planned = match mismatch {
            Some((index, reason)) => Err((index, reason)),
            None => decode(&items, form)
                .and_then(|decoded| {
                    let (read, form) = match decoded.is_empty() {
                        true => (&items, form),
                        false => (&decoded, Form::of(&decoded)),
                    };
                    Ok((plan(read, form, squeeze_time)?, decoded, form))
                })
                .map_err(|error| (0, error.to_string())),
        };
        match planned {
            Ok((layout, decoded, form)) => {
                Ok(Self { items, decoded, layout, column: 0, done: 0, position: 0, strings: Vec::new(), form })
            }
            Err((index, reason)) => Err(Box::new(Mismatch { items, index, reason })),
        }
    }

    /// The columns.
    pub fn layout(&self) -> &BatchLayout {
        &self.layout
    }

    /// The items.
    pub fn items(&self) -> &[Drawn] {
        &self.items
    }

    /// The columns, of a batch that is done.
    pub fn into_layout(self) -> BatchLayout {
        self.layout
    }

    /// Gives the items back, to be returned to their table if they were not delivered.
    pub fn into_items(self) -> Vec<Drawn> {
        self.items
    }

    /// Bytes that are still to come.
    pub fn remaining(&self) -> usize {
        self.layout.size_bytes - self.position
    }

    /// The whole batch in a new buffer.
    pub fn gather(&mut self) -> Buffer {
        let mut buffer = Buffer::new(self.layout.size_bytes);
        self.fill(buffer.as_uninit_mut());
        buffer
    }

    /// Writes the next `target.len()` bytes of the buffer, of which at least so many must remain.
    pub fn fill(&mut self, target: &mut [MaybeUninit<u8>]) {
        debug_assert!(target.len() <= self.remaining());
        // Taken out while they are read, for the place in the buffer changes meanwhile.
        let (items, decoded) = (std::mem::take(&mut self.items), std::mem::take(&mut self.decoded));
        let read = if decoded.is_empty() { &items } else { &decoded };
        // Found once for all columns: from an item to its bytes it is three steps through memory that is rarely near.
        let mut rows: Vec<Rows<'_>> = Vec::new();
        if self.form != Form::Any {
            rows.reserve_exact(read.len());
            rows.extend(read.iter().filter_map(|item| Rows::of(&item.trajectory)));
        }
        let has_strings = || self.layout.columns.iter().any(|column| column.dtype == DType::String);
        if self.form == Form::Alike && self.position == 0 && target.len() == self.layout.size_bytes && !has_strings() {
            rows::copy_columns(target, &self.layout, &rows);
            self.position = target.len();
        } else {
            self.fill_from(target, read, &rows);
        }
        drop(rows);
        self.items = items;
        // The items may live on until the batch has arrived; their decoded rows need not.
        self.decoded = if self.remaining() > 0 { decoded } else { Vec::new() };
    }

    fn fill_from(&mut self, mut target: &mut [MaybeUninit<u8>], items: &[Drawn], rows: &[Rows<'_>]) {
        while !target.is_empty() {
            let column = &self.layout.columns[self.column];
            let (offset, size) = (column.offset, column.size_bytes);
            let written = if self.position < offset {
                let padding = target.len().min(offset - self.position);
                target[..padding].fill(MaybeUninit::new(0));
                padding
            } else if self.done == 0 && size <= target.len() && column.dtype != DType::String {
                self.whole_column(&mut target[..size], items, rows);
                self.next_column();
                size
            } else if size == 0 {
                self.next_column();
                0
            } else {
                let wanted = target.len().min(size - self.done);
                let piece = &mut target[..wanted];
                if column.dtype == DType::String {
                    self.string_piece(piece, items)
                } else {
                    self.piece(piece, items)
                }
                if self.done == size {
                    self.next_column();
                }
                wanted
            };
            self.position += written;
            target = &mut target[written..];
        }
    }

    fn next_column(&mut self) {
        self.column += 1;
        self.done = 0;
        self.strings = Vec::new();
    }

    fn whole_column(&self, mut target: &mut [MaybeUninit<u8>], items: &[Drawn], rows: &[Rows<'_>]) {
        if !rows.is_empty() {
            return rows::copy_column(target, rows, self.column, self.form == Form::Alike);
        }
        for item in items {
            for_each_segment(&item.trajectory, self.column, |bytes| {
                let (head, rest) = std::mem::take(&mut target).split_at_mut(bytes.len());
                copy(head, bytes);
                target = rest;
            });
        }
    }

    /// Part of a column of numbers, begun or ended in the middle.
    fn piece(&mut self, mut target: &mut [MaybeUninit<u8>], items: &[Drawn]) {
        // Where the item at hand begins in the column. Pieces are large and few, so it is looked up again each time.
        let mut start = 0;
        let column = self.column;
        for item in items {
            if target.is_empty() {
                break;
            }
            let done = &mut self.done;
            for_each_segment(&item.trajectory, column, |bytes| {
                let end = start + bytes.len();
                if *done < end && !target.is_empty() {
                    let from = &bytes[*done - start..];
                    let from = &from[..from.len().min(target.len())];
                    let (head, rest) = std::mem::take(&mut target).split_at_mut(from.len());
                    copy(head, from);
                    target = rest;
                    *done += from.len();
                }
                start = end;
            });
        }
    }

    fn string_piece(&mut self, target: &mut [MaybeUninit<u8>], items: &[Drawn]) {
        if self.done == 0 {
            let strings: Vec<&[u8]> = items.iter().flat_map(|item| strings_of(&item.trajectory, self.column)).collect();
            self.strings = encode_strings(strings.iter().copied()).expect("the plan has counted the bytes");
        }
        copy(target, &self.strings[self.done..self.done + target.len()]);
        self.done += target.len();
    }
}

/// The items with the rows of encoded chunks decoded, each chunk once; empty if no chunk is encoded. Packed chunks are
/// unpacked.
#[inline]
fn decode(items: &[Drawn], form: Form) -> Result<Vec<Drawn>> {
    // Single rows are read from interleaved chunks as they are.
    let single_rows = || form != Form::Any && matches!(items[0].trajectory, Trajectory::Rows { length: 1, .. });
    if !Chunk::may_be_compressed() && (!Chunk::may_be_interleaved() || single_rows()) {
        return Ok(Vec::new());
    }
    let mut all_readable = true;
    for item in items {
        all_readable &= item.trajectory.is_readable();
        item.trajectory.for_each_use(|chunk, _| {
            if chunk.is_packed() {
                chunk.data();
            }
        });
    }
    if all_readable { Ok(Vec::new()) } else { decode_encoded(items) }
}

#[cold]
#[inline(never)]
fn decode_encoded(items: &[Drawn]) -> Result<Vec<Drawn>> {
    let mut used = UsedRows::default();
    let unreadable = items.iter().filter(|item| !item.trajectory.is_readable());
    unreadable.for_each(|item| used.add(&item.trajectory, Chunk::is_encoded));
    let (mut moved, mut scratch) = (MovedRows::default(), Vec::new());
    for (chunk, rows) in used {
        let copy = keep_rows(&chunk, &rows, &mut scratch)?;
        moved.insert(chunk, copy, rows);
    }
    let read = |item: &Drawn| {
        let mut item = item.clone();
        if let Some(trajectory) = moved.rewrite(&item.trajectory) {
            item.trajectory = trajectory;
        }
        item
    };
    Ok(items.iter().map(read).collect())
}

/// The batch of rows that are all alike, and not of strings; by the layout `used` before, if it is the same. `None` if
/// there are none.
pub(crate) fn copy_alike(
    rows: &[Rows<'_>],
    squeeze_time: bool,
    used: Option<BatchLayout>,
) -> Option<(BatchLayout, Buffer)> {
    let first = rows.first()?;
    let time = (first.length, !(squeeze_time && first.length == 1));
    let is_same = |(column, used): (&Column, &BatchColumn)| {
        let shape = || batch_shape(rows.len(), time, column).eq(used.shape.iter().copied());
        column.dtype == used.dtype && used.row_lengths.is_none() && !used.squeezed && shape()
    };
    let fits = |used: &BatchLayout| {
        used.columns.len() == first.columns().len() && first.columns().iter().zip(&used.columns).all(is_same)
    };
    let to_column = |column: &Column| {
        let shape = batch_shape(rows.len(), time, column).collect();
        BatchColumn { dtype: column.dtype, shape, row_lengths: None, squeezed: false, offset: 0, size_bytes: 0 }
    };
    let layout = match used.filter(fits) {
        Some(used) => used,
        None => BatchLayout::new(first.columns().iter().map(to_column).collect()).ok()?,
    };
    let mut buffer = Buffer::new(layout.size_bytes);
    rows::copy_columns(buffer.as_uninit_mut(), &layout, rows);
    Some((layout, buffer))
}

/// `[batch, time, *row]`, or without the time axis.
fn batch_shape(batch: usize, (time, has_time): (usize, bool), column: &Column) -> impl Iterator<Item = usize> + '_ {
    iter::once(batch).chain(has_time.then_some(time)).chain(column.shape.iter().copied())
}

/// Calls `visit` with the bytes of each slice of a column of numbers.
#[inline]
fn for_each_segment(trajectory: &Trajectory, column: usize, mut visit: impl FnMut(&[u8])) {
    match trajectory.column(column) {
        ColumnView::One { chunk, column, offset, length, .. } => visit(chunk.rows_of(column as usize, offset, length)),
        ColumnView::Many(many) => {
            for slice in &many.slices {
                visit(slice.chunk.rows_of(slice.column as usize, slice.offset, slice.length));
            }
        }
    }
}

/// All strings of a column of an item, in order.
fn strings_of(trajectory: &Trajectory, column: usize) -> Vec<&[u8]> {
    let of = |chunk: &'_ Chunk, column: usize, offset: u32, length: u32| {
        let elements = chunk.columns()[column].elements;
        (offset as usize * elements, length as usize * elements)
    };
    match trajectory.column(column) {
        ColumnView::One { chunk, column, offset, length, .. } => {
            let (first, count) = of(chunk, column as usize, offset, length);
            chunk.strings_of(column as usize, first, count).collect()
        }
        ColumnView::Many(many) => many
            .slices
            .iter()
            .flat_map(|slice| {
                let (first, count) = of(&slice.chunk, slice.column as usize, slice.offset, slice.length);
                slice.chunk.strings_of(slice.column as usize, first, count)
            })
            .collect(),
    }
}

/// Dtype and row shape of a column, its number of rows, and whether it is squeezed.
fn column_of(trajectory: &Trajectory, index: usize) -> (&Column, usize, bool) {
    match trajectory.column(index) {
        ColumnView::One { chunk, column, length, squeeze, .. } => {
            (&chunk.columns()[column as usize], length as usize, squeeze)
        }
        ColumnView::Many(many) => {
            let slice = &many.slices[0];
            (&slice.chunk.columns()[slice.column as usize], many.length(), many.squeeze)
        }
    }
}

/// The first item that cannot be stacked on the first, and why.
fn first_mismatch(items: &[Drawn]) -> Option<(usize, String)> {
    let first = &items.first()?.trajectory;
    for (index, item) in items.iter().enumerate().skip(1) {
        let item = &item.trajectory;
        if let (Trajectory::Rows { chunk: a, .. }, Trajectory::Rows { chunk: b, .. }) = (first, item)
            && Arc::ptr_eq(a.layout(), b.layout())
        {
            continue;
        }
        if let Some(reason) = mismatch(first, item) {
            return Some((index, reason));
        }
    }
    None
}

fn mismatch(first: &Trajectory, item: &Trajectory) -> Option<String> {
    let (expected, got) = (first.num_columns(), item.num_columns());
    if expected != got {
        return Some(format!("it has {got} columns, the first item has {expected}"));
    }
    (0..got).find_map(|index| {
        let (a, _, a_squeezed) = column_of(first, index);
        let (b, _, b_squeezed) = column_of(item, index);
        if a.dtype != b.dtype {
            Some(format!("its column {index} has dtype {}, that of the first item has {}", b.dtype, a.dtype))
        } else if a.shape != b.shape {
            let (a, b) = (shape_text(&a.shape), shape_text(&b.shape));
            Some(format!("rows of its column {index} have shape {b}, those of the first item have {a}"))
        } else if a_squeezed != b_squeezed {
            Some(format!("only one of it and the first item has a time axis in column {index}"))
        } else {
            None
        }
    })
}

fn plan(items: &[Drawn], form: Form, squeeze_time: bool) -> Result<BatchLayout> {
    let Some(first) = items.first() else { return Ok(BatchLayout::default()) };
    let columns =
        (0..first.trajectory.num_columns()).map(|index| plan_column(items, index, form, squeeze_time)).collect();
    BatchLayout::new(columns)
}

fn plan_column(items: &[Drawn], index: usize, form: Form, squeeze_time: bool) -> BatchColumn {
    let (column, length, squeezed) = column_of(&items[0].trajectory, index);
    let rows = |item: &Drawn| match &item.trajectory {
        Trajectory::Rows { length, .. } => *length as usize,
        trajectory => column_of(trajectory, index).1,
    };
    let ragged = form == Form::Any && items.iter().any(|item| rows(item) != length);
    let row_lengths = ragged.then(|| items.iter().map(|item| rows(item) as u32).collect::<Vec<_>>());
    let shape = match &row_lengths {
        Some(lengths) => batch_shape(lengths.iter().map(|&n| n as usize).sum(), (0, false), column).collect(),
        None => batch_shape(items.len(), (length, !(squeezed || squeeze_time && length == 1)), column).collect(),
    };
    let size_bytes = if column.dtype == DType::String {
        let text = |item: &Drawn| strings_of(&item.trajectory, index).iter().map(|s| 4 + s.len()).sum::<usize>();
        4 + items.iter().map(text).sum::<usize>()
    } else {
        0
    };
    BatchColumn { dtype: column.dtype, shape, row_lengths, squeezed, offset: 0, size_bytes }
}
