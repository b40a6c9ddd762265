//! Steps of int64 columns for patterns, in their simplest form.

use reverb_core::DType;
use reverb_core::pattern::{Cell, Evaluator, Pass, StepId, Steps};

/// Values of one step, by column.
pub type Row = Vec<Option<Value>>;

/// A value with its type.
#[derive(Debug, Clone, PartialEq)]
pub struct Value {
    pub dtype: DType,
    pub elements: usize,
    pub bytes: Vec<u8>,
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self { dtype: DType::Int64, elements: 1, bytes: value.to_le_bytes().to_vec() }
    }
}

/// An item that was created: its table, its priority, and the int64 values of each column.
#[derive(Debug, Clone, PartialEq)]
pub struct Made {
    pub table: String,
    pub priority: f64,
    pub columns: Vec<Vec<i64>>,
    pub squeezed: Vec<bool>,
}

/// All rows, oldest first.
#[derive(Default)]
pub struct Rows(pub Vec<(StepId, Row)>);

/// A writer that keeps all rows and creates all items at once.
pub struct Writer {
    pub evaluator: Evaluator,
    pub rows: Rows,
    pub items: Vec<Made>,
    is_open: bool,
    episode: u64,
    index: u64,
}

impl Steps for Rows {
    fn newest(&self) -> Option<StepId> {
        self.0.last().map(|(step, _)| *step)
    }

    fn num_rows(&self) -> u64 {
        self.0.len() as u64
    }

    fn has(&self, source: usize, age: u32) -> bool {
        self.cell(source, age).is_some()
    }

    fn cell(&self, source: usize, age: u32) -> Option<Cell<'_>> {
        let (_, row) = &self.0[self.0.len().checked_sub(age as usize)?];
        let value = row.get(source)?.as_ref()?;
        Some(Cell { dtype: value.dtype, elements: value.elements, bytes: value.bytes.as_slice().into() })
    }
}

impl Writer {
    pub fn new(evaluator: Evaluator) -> Self {
        Self { evaluator, rows: Rows::default(), items: Vec::new(), is_open: false, episode: 0, index: 0 }
    }

    /// A step, or a part of one.
    pub fn append(&mut self, row: Row, partial: bool) -> reverb_core::Result<()> {
        if self.is_open {
            let (_, open) = self.rows.0.last_mut().expect("a step is open");
            for (place, value) in open.iter_mut().zip(row) {
                *place = place.take().or(value);
            }
        } else {
            self.rows.0.push((StepId { episode: self.episode, index: self.index }, row));
            self.index += 1;
        }
        self.is_open = partial;
        self.make_items(false)
    }

    pub fn end_episode(&mut self, clear: bool) -> reverb_core::Result<()> {
        self.make_items(true)?;
        if clear {
            self.rows.0.clear();
        }
        self.is_open = false;
        self.episode += 1;
        self.index = 0;
        Ok(())
    }

    fn make_items(&mut self, end: bool) -> reverb_core::Result<()> {
        let mut pass = Pass::new(end);
        while let Some(item) = self.evaluator.next_item(&mut pass, &self.rows)? {
            let value = |source: usize, age: u32| {
                let cell = self.rows.cell(source, age).expect("all rows of an item are there");
                cell.integer(source).unwrap_or(i128::MIN) as i64
            };
            let columns = &item.pattern.columns;
            self.items.push(Made {
                table: item.pattern.table.clone(),
                priority: item.priority,
                columns: columns.iter().map(|c| c.ages().map(|age| value(c.source, age)).collect()).collect(),
                squeezed: columns.iter().map(|column| column.squeeze).collect(),
            });
        }
        Ok(())
    }
}
