//! The steps of one writer: columns, the chunks that hold their values, and the rows that items may still refer to.
//!
//! Columns that are appended together share chunks and form a *group*. A group splits when only some of its columns get
//! a value; it never grows. Nothing here talks to a server: closed chunks are found through the items that need them.
//!
//! Each value is copied once, into an open chunk that is laid out for its full length, so a full chunk of numbers is
//! finished without another copy. A group keeps the chunk and the row of its last `num_keep_alive_refs` values.

use super::append_error::AppendError;
use super::chunk::{ChunkCompression, ChunkTemplate, Value, WriterChunk};
use super::column::WriterColumn;
use super::options::ColumnOptions;
use super::row_bytes::StreamChunks;
use super::selection::{CellRun, Selection};
use crate::pattern::StepId;
use crate::tensor::differ_in_first_axis;
use crate::{DType, EpisodeId, Result, Shape, random_key};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Debug)]
struct ColumnState {
    shared: Arc<WriterColumn>,
    /// Shape of the last value.
    shape: Shape,
    group: usize,
    /// Step of the last value.
    last_row: u64,
}

#[derive(Debug, Clone)]
struct CellPlace {
    row: u64,
    offset: u32,
    chunk: Arc<WriterChunk>,
}

/// Columns that share chunks.
#[derive(Debug)]
struct Group {
    columns: Vec<u32>,
    options: ColumnOptions,
    template: Arc<ChunkTemplate>,
    open: Option<Arc<WriterChunk>>,
    /// The values that are kept, oldest first.
    cells: VecDeque<CellPlace>,
}

impl Group {
    fn find(&self, row: u64) -> Option<&CellPlace> {
        let (first, last) = (self.cells.front()?.row, self.cells.back()?.row);
        if row < first || row > last {
            return None;
        }
        let index = match (last - first + 1) as usize == self.cells.len() {
            true => (row - first) as usize,
            // Not every step has a value.
            false => self.cells.partition_point(|cell| cell.row < row),
        };
        self.cells.get(index).filter(|cell| cell.row == row)
    }
}

/// The value of one column in a step.
#[derive(Debug, Clone, Copy)]
pub struct ColumnValue<'a> {
    /// The writer's number of the column. Columns are numbered from 0 in the order of their first values.
    pub column: u32,
    /// The value.
    pub value: Value<'a>,
    /// Whether the column, from this value on, takes values that differ in the length of their first axis.
    pub opens_rows: bool,
}

/// The buffer of a writer's steps; see the module.
#[derive(Debug)]
pub struct StepBuffer {
    writer: u64,
    /// Columns by number; `None` for a column without a value so far.
    columns: Vec<Option<ColumnState>>,
    groups: Vec<Group>,
    default_options: ColumnOptions,
    compression: ChunkCompression,
    /// Options of columns that differ from the default.
    options: Vec<(u32, ColumnOptions)>,
    /// Columns whose values may differ in their first axis.
    open_columns: Vec<u32>,
    episode: EpisodeId,
    step: i32,
    /// Steps are numbered consecutively. These are the numbers of the first step since the last clear and of the next
    /// step.
    first_row: u64,
    next_row: u64,
    step_is_open: bool,
    newest: Option<StepId>,
    stream: StreamChunks,
}

impl StepBuffer {
    /// Creates a buffer without steps.
    ///
    /// # Errors
    /// The errors of [`ColumnOptions::check`].
    pub fn new(default_options: ColumnOptions, compression: ChunkCompression, stream: StreamChunks) -> Result<Self> {
        static NEXT_WRITER: AtomicU64 = AtomicU64::new(1);
        default_options.check()?;
        Ok(Self {
            writer: NEXT_WRITER.fetch_add(1, Relaxed),
            columns: Vec::new(),
            groups: Vec::new(),
            default_options,
            compression,
            options: Vec::new(),
            open_columns: Vec::new(),
            episode: random_key(),
            step: 0,
            first_row: 0,
            next_row: 0,
            step_is_open: false,
            newest: None,
            stream,
        })
    }

    /// Number of this writer, unique within the process.
    pub fn writer(&self) -> u64 {
        self.writer
    }

    /// Sets the options of column `column`, which may have no values yet.
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] if a number is not valid.
    pub fn configure(&mut self, column: u32, options: ColumnOptions) -> Result<()> {
        options.check()?;
        self.options.retain(|(other, _)| *other != column);
        self.options.push((column, options));
        if let Some(known) = self.columns.get(column as usize).and_then(Option::as_ref) {
            let group = known.group;
            self.close_open(group)?;
            let group = self.split(group, |id| id == column)?;
            self.groups[group].options = options;
            self.groups[group].template = Arc::new(self.template(&[column], options)?);
            self.trim(group);
        }
        Ok(())
    }

    /// Lets the values of a column differ in the length of their first axis. The column, which may have no values yet,
    /// gets chunks of one row.
    fn open_rows(&mut self, column: u32) -> Result<()> {
        if self.is_open(column) {
            return Ok(());
        }
        self.open_columns.push(column);
        if let Some(known) = self.columns.get(column as usize).and_then(Option::as_ref) {
            let group = known.group;
            self.close_open(group)?;
            let group = self.split(group, |id| id == column)?;
            self.groups[group].template = Arc::new(self.template(&[column], self.groups[group].options)?);
        }
        Ok(())
    }

    fn is_open(&self, column: u32) -> bool {
        self.open_columns.contains(&column)
    }

    fn options_of(&self, column: u32) -> ColumnOptions {
        let own = self.options.iter().find(|(other, _)| *other == column);
        own.map_or(self.default_options, |(_, options)| *options)
    }

    /// Adds values to the open step, or starts a step if none is open. The step stays open if `partial`. Either all
    /// values are added or none.
    ///
    /// # Errors
    /// If a value differs in dtype or shape from the first value of its column, or the open step already has a value of
    /// the column.
    pub fn append(&mut self, values: &[ColumnValue<'_>], partial: bool) -> std::result::Result<(), AppendError> {
        self.check(values)?;
        self.append_checked(values, partial)?;
        Ok(())
    }

    /// As [`StepBuffer::append`], for values that have passed [`StepBuffer::check`].
    ///
    /// # Errors
    /// If a chunk cannot be closed because its strings exceed 4 GiB.
    pub fn append_checked(&mut self, values: &[ColumnValue<'_>], partial: bool) -> Result<()> {
        let row = self.row_to_fill();
        values.iter().filter(|value| value.opens_rows).try_for_each(|value| self.open_rows(value.column))?;
        self.add_columns(values)?;
        self.split_groups(values)?;
        self.change_shapes(values)?;
        self.next_row = row + 1;
        for group in 0..self.groups.len() {
            if values.iter().any(|value| value.column == self.groups[group].columns[0]) {
                self.push(group, row, values)?;
            }
        }
        for value in values {
            self.column_mut(value.column).last_row = row;
        }
        self.step_is_open = partial;
        self.newest = Some(StepId { episode: self.episode, index: self.step as u64 });
        if !partial {
            self.step += 1;
        }
        Ok(())
    }

    fn row_to_fill(&self) -> u64 {
        if self.step_is_open { self.next_row - 1 } else { self.next_row }
    }

    /// Checks that [`StepBuffer::append`] would add the values.
    ///
    /// # Errors
    /// The errors of [`StepBuffer::append`].
    pub fn check(&self, values: &[ColumnValue<'_>]) -> std::result::Result<(), AppendError> {
        let row = self.row_to_fill();
        for &ColumnValue { column, value, opens_rows } in values {
            let Some(known) = self.columns.get(column as usize).and_then(Option::as_ref) else {
                check_column(column, value)?;
                continue;
            };
            let (WriterColumn { dtype, .. }, shape) = (&*known.shared, &known.shape);
            if self.step_is_open && known.last_row == row {
                return Err(AppendError::AlreadySet { column });
            }
            if *dtype != value.dtype {
                return Err(AppendError::WrongDType { column, got: value.dtype, expected: *dtype });
            }
            if shape[..] != *value.shape {
                if (opens_rows || self.is_open(column)) && differ_in_first_axis(shape, value.shape) {
                    check_column(column, value)?;
                    continue;
                }
                let got = Shape::from_slice(value.shape);
                return Err(AppendError::WrongShape { column, got, expected: shape.clone() });
            }
        }
        Ok(())
    }

    /// Gives open columns the shapes of these values.
    fn change_shapes(&mut self, values: &[ColumnValue<'_>]) -> Result<()> {
        if self.open_columns.is_empty() {
            return Ok(());
        }
        for ColumnValue { column, value, .. } in values {
            let known = self.column_mut(*column);
            if known.shape[..] != *value.shape {
                known.shape = Shape::from_slice(value.shape);
                let group = known.group;
                // Chunks of open columns are full with one row, so none is open.
                let Group { columns, options, .. } = &self.groups[group];
                self.groups[group].template = Arc::new(self.template(columns, *options)?);
            }
        }
        Ok(())
    }

    /// Creates the columns that get their first value. Columns with the same options form one group, without the open
    /// ones.
    fn add_columns(&mut self, values: &[ColumnValue<'_>]) -> Result<()> {
        let is_new = |columns: &[Option<ColumnState>], id: u32| columns.get(id as usize).is_none_or(Option::is_none);
        if !values.iter().any(|value| is_new(&self.columns, value.column)) {
            return Ok(());
        }
        let mut groups: Vec<((ColumnOptions, bool), Vec<u32>)> = Vec::new();
        for ColumnValue { column, value, .. } in values {
            if !is_new(&self.columns, *column) {
                continue;
            }
            let options = (self.options_of(*column), self.is_open(*column));
            match groups.iter_mut().find(|(other, _)| *other == options) {
                Some((_, columns)) => columns.push(*column),
                None => groups.push((options, vec![*column])),
            }
            let shared = Arc::new(WriterColumn {
                id: *column,
                writer: self.writer,
                dtype: value.dtype,
                alive_from: AtomicU64::new(0),
            });
            if self.columns.len() <= *column as usize {
                self.columns.resize_with(*column as usize + 1, || None);
            }
            let shape = Shape::from_slice(value.shape);
            self.columns[*column as usize] = Some(ColumnState { shared, shape, group: usize::MAX, last_row: u64::MAX });
        }
        for ((options, _), columns) in groups {
            let template = Arc::new(self.template(&columns, options)?);
            columns.iter().for_each(|&id| self.column_mut(id).group = self.groups.len());
            self.groups.push(Group { columns, options, template, open: None, cells: VecDeque::new() });
        }
        Ok(())
    }

    fn template(&self, columns: &[u32], options: ColumnOptions) -> Result<ChunkTemplate> {
        let specs: Vec<_> = columns
            .iter()
            .map(|&id| {
                let ColumnState { shared, shape, .. } = self.column(id);
                (id, shared.dtype, shape.clone())
            })
            .collect();
        // The size of a row of strings is not known; each string counts as the size of a pointer.
        let row_bytes = |(_, dtype, shape): &(u32, DType, Shape)| {
            let element_bytes = if *dtype == DType::String { size_of::<usize>() } else { dtype.size() };
            shape.iter().fold(element_bytes, |bytes, &dim| bytes.saturating_mul(dim))
        };
        let row_bytes = specs.iter().map(row_bytes).fold(0, usize::saturating_add);
        let rows = if columns.iter().any(|&id| self.is_open(id)) { 1 } else { options.rows_of_chunk(row_bytes) };
        ChunkTemplate::new(&specs, rows, options, self.compression)
    }

    /// Splits groups of which only some columns have a value.
    fn split_groups(&mut self, values: &[ColumnValue<'_>]) -> Result<()> {
        let has = |id: u32| values.iter().any(|value| value.column == id);
        for group in 0..self.groups.len() {
            let columns = &self.groups[group].columns;
            if columns.len() > 1 && !is_same(columns, values) {
                let present = columns.iter().filter(|&&id| has(id)).count();
                if present > 0 && present < columns.len() {
                    self.close_open(group)?;
                    self.split(group, has)?;
                }
            }
        }
        Ok(())
    }

    /// Moves the columns that `goes` selects to a group of their own, unless it selects all. Returns the number of that
    /// group.
    fn split(&mut self, group: usize, goes: impl Fn(u32) -> bool) -> Result<usize> {
        let (leaving, staying): (Vec<u32>, Vec<u32>) = self.groups[group].columns.iter().partition(|&&id| goes(id));
        if staying.is_empty() {
            return Ok(group);
        }
        let options = self.groups[group].options;
        self.groups[group].template = Arc::new(self.template(&staying, options)?);
        self.groups[group].columns = staying;
        let template = Arc::new(self.template(&leaving, options)?);
        let cells = self.groups[group].cells.clone();
        let new = self.groups.len();
        leaving.iter().for_each(|&id| self.column_mut(id).group = new);
        self.groups.push(Group { columns: leaving, options, template, open: None, cells });
        Ok(new)
    }

    fn close_open(&mut self, group: usize) -> Result<()> {
        match self.groups[group].open.take() {
            Some(chunk) => chunk.close().map(drop),
            None => Ok(()),
        }
    }

    fn push(&mut self, group: usize, row: u64, values: &[ColumnValue<'_>]) -> Result<()> {
        let (episode, step, stream) = (self.episode, self.step, &self.stream);
        let Group { columns, template, open, cells, .. } = &mut self.groups[group];
        let in_order = is_same(columns, values);
        let find = |&id: &u32| {
            values.iter().find(|v| v.column == id).expect("split_groups left only columns with a value").value
        };
        let push = |chunk: &WriterChunk| match in_order {
            true => chunk.push(row, step, values.iter().map(|v| v.value)),
            false => chunk.push(row, step, columns.iter().map(find)),
        };
        let mut offset = None;
        if let Some(chunk) = open {
            offset = push(chunk)?;
        }
        let offset = match offset {
            Some(offset) => offset,
            // No chunk was open, or it was closed for an item that waited for it.
            None => {
                let chunk = open.insert(Arc::new(WriterChunk::open(template.clone(), episode, stream.clone())));
                push(chunk)?.expect("a new chunk is open")
            }
        };
        let chunk = open.as_ref().expect("it was just used").clone();
        if offset + 1 == template.max_rows {
            *open = None;
        }
        cells.push_back(CellPlace { row, offset, chunk });
        self.trim(group);
        Ok(())
    }

    /// Drops values beyond the number that is kept.
    fn trim(&mut self, group: usize) {
        let Group { cells, options, columns, .. } = &mut self.groups[group];
        if cells.len() <= options.num_keep_alive_refs as usize {
            return;
        }
        while cells.len() > options.num_keep_alive_refs as usize {
            cells.pop_front();
        }
        let oldest = cells.front().map_or(u64::MAX, |cell| cell.row);
        for &id in columns.iter() {
            let column = self.columns[id as usize].as_ref().expect("the columns of a group exist");
            column.shared.alive_from.store(oldest, Relaxed);
        }
    }

    /// Ends the episode. Chunks do not span episodes. With `clear`, no earlier row can be referred to any more.
    ///
    /// # Errors
    /// If a chunk cannot be closed because its strings exceed 4 GiB.
    pub fn end_episode(&mut self, clear: bool) -> Result<()> {
        for group in 0..self.groups.len() {
            self.close_open(group)?;
        }
        if clear {
            self.groups.iter_mut().for_each(|group| group.cells.clear());
            self.first_row = self.next_row;
            self.newest = None;
            for column in self.columns.iter().flatten() {
                column.shared.alive_from.store(self.next_row, Relaxed);
            }
        }
        self.episode = random_key();
        self.step = 0;
        self.step_is_open = false;
        Ok(())
    }

    /// Closes all open chunks.
    ///
    /// # Errors
    /// The errors of [`StepBuffer::end_episode`].
    pub fn close_chunks(&mut self) -> Result<()> {
        (0..self.groups.len()).try_for_each(|group| self.close_open(group))
    }

    /// Whether an open chunk has rows.
    pub fn has_open_rows(&self) -> bool {
        self.groups.iter().any(|group| group.open.as_ref().is_some_and(|chunk| !chunk.is_closed()))
    }

    /// Id of the episode.
    pub fn episode_id(&self) -> EpisodeId {
        self.episode
    }

    /// Number of complete steps of the episode.
    pub fn episode_steps(&self) -> i32 {
        self.step
    }

    /// The step of the newest row since the last clear. It does not change when an episode ends.
    pub fn newest_step(&self) -> Option<StepId> {
        self.newest
    }

    /// Whether the last append was partial.
    pub fn step_is_open(&self) -> bool {
        self.step_is_open
    }

    /// Number of steps since the last clear, including an open one.
    pub fn num_rows(&self) -> u64 {
        self.next_row - self.first_row
    }

    /// The value of a column in row `row`, counted since the last clear; `None` if the row has no value or it is no
    /// longer kept.
    pub fn cell(&self, column: u32, row: u64) -> Option<CellRun> {
        let (known, cell) = self.find(column, row)?;
        let index = cell.chunk.index_of(column)?;
        Some(CellRun { column: known.shared.clone(), chunk: cell.chunk.clone(), index, offset: cell.offset, length: 1 })
    }

    /// Whether [`StepBuffer::cell`] returns a value.
    pub fn has_cell(&self, column: u32, row: u64) -> bool {
        self.find(column, row).is_some()
    }

    /// Number of steps for which the values of a column are kept. `None` if the column has had no value yet.
    pub fn steps_kept(&self, column: u32) -> Option<u32> {
        let known = self.columns.get(column as usize)?.as_ref()?;
        Some(self.groups[known.group].options.num_keep_alive_refs)
    }

    fn find(&self, column: u32, row: u64) -> Option<(&ColumnState, &CellPlace)> {
        let known = self.columns.get(column as usize)?.as_ref()?;
        let group = &self.groups[known.group];
        let row = self.first_row + row;
        // Values are kept for this number of steps, even if some of the steps have no value.
        if row + u64::from(group.options.num_keep_alive_refs) < self.next_row {
            return None;
        }
        Some((known, group.find(row)?))
    }

    /// Selects the values of a column in the given rows.
    ///
    /// # Errors
    /// The first row whose value does not exist or is no longer kept.
    pub fn select(
        &self,
        column: u32,
        rows: impl Iterator<Item = u64>,
        squeeze: bool,
    ) -> std::result::Result<Selection, u64> {
        let mut selection = Selection { squeeze, ..Selection::default() };
        for row in rows {
            selection.push(self.cell(column, row).ok_or(row)?);
        }
        Ok(selection)
    }

    fn column(&self, id: u32) -> &ColumnState {
        self.columns[id as usize].as_ref().expect("the caller knows the column")
    }

    fn column_mut(&mut self, id: u32) -> &mut ColumnState {
        self.columns[id as usize].as_mut().expect("the caller knows the column")
    }
}

/// Fails, before anything changes, if a column of such values is not possible.
fn check_column(column: u32, value: Value<'_>) -> Result<()> {
    let columns = [(column, value.dtype, Shape::from_slice(value.shape))];
    let options = ColumnOptions { num_keep_alive_refs: 1, max_chunk_length: None };
    ChunkTemplate::new(&columns, 1, options, ChunkCompression::default()).map(drop)
}

/// Whether the values are those of the columns, in order, which is the common case.
fn is_same(columns: &[u32], values: &[ColumnValue<'_>]) -> bool {
    columns.len() == values.len() && columns.iter().zip(values).all(|(&id, value)| id == value.column)
}
