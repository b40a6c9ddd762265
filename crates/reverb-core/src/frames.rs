//! Frames for buffers within one process: rows of blocks with the layout of chunks, written in place and gathered by
//! ranges of rows.
//!
//! Frames lie in *segments*, one for each environment of a batch. A segment is a ring of `length` rows. The frames of
//! one `add` have the same *id*, which counts adds. Frame `id` of a segment lies in its row `id % length`.
//!
//! A buffer without a server needs no items: each frame is added once and drawn by position. Draws by priority use the
//! sum tree of tables, with rows as slots. A buffer has one lock, and no call waits. `2026-11-22-readers.json` has the
//! times beside cpprb, Flashbax and TorchRL.

use crate::copy::{by_size, copy};
use crate::gather::{BatchColumn, BatchLayout};
use crate::prefetch::prefetch;
use crate::selector::{Prioritized, Selector, check_priority};
use crate::writer::Value;
use crate::{Buffer, Chunk, DType, Error, Layout, Result, SelectorKind, Shape};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::mem::MaybeUninit;
use std::sync::Arc;

/// Approximate size of a block in bytes: memory grows with the frames, and large allocations are few.
const BLOCK_BYTES: usize = 1 << 20;
/// Maximum number of rows of all segments, because selectors count slots in 32 bits.
const MAX_ROWS: u64 = u32::MAX as u64;
/// Maximum number of draws by priority for each sequence, because a draw may choose a frame without enough successors.
const MAX_TRIES: usize = 10_000;
/// Number of rows before its copy at which a row is prefetched.
const AHEAD: usize = 8;

/// The first frame of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameId {
    /// Index of the segment.
    pub segment: u32,
    /// Number of the frame in the segment.
    pub id: u64,
}

/// The result of a draw: first frames of the sequences, and the probability of each.
pub type FrameDraw = (Vec<FrameId>, Vec<f64>);

/// The priorities by which frames are drawn.
#[derive(Debug)]
struct Priorities {
    kind: SelectorKind,
    selector: Prioritized,
    /// By slot, as they were given.
    values: Vec<f64>,
}

/// The frames of a buffer. A plain struct: a caller that shares one puts a lock around it.
#[derive(Debug)]
pub struct Frames {
    block: Arc<Layout>,
    /// Logarithm of the number of rows of a block, which is a power of two.
    shift: u32,
    /// Blocks, allocated when their first row is written and empty before.
    blocks: Vec<Box<[u8]>>,
    segments: u64,
    length: u64,
    added: u64,
    /// The first id since the last clear.
    base: u64,
    priorities: Option<Priorities>,
    rng: SmallRng,
}

impl Frames {
    /// Creates `segments` rings of `length` frames. Frames are drawn by priority if there is an exponent.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there would be no rows or too many, or if a column holds strings.
    pub fn new(
        columns: Vec<(DType, Shape)>,
        segments: u64,
        length: u64,
        priority_exponent: Option<f64>,
        seed: Option<u64>,
    ) -> Result<Self> {
        let rows = segments.checked_mul(length).filter(|&rows| (1..=MAX_ROWS).contains(&rows)).ok_or_else(|| {
            Error::invalid(format!(
                "expected 1 to {MAX_ROWS} frames in all segments, got {segments} segments of {length} frames"
            ))
        })?;
        if columns.is_empty() || columns.iter().any(|(dtype, _)| *dtype == DType::String) {
            return Err(Error::invalid("frames need at least one column and cannot hold strings"));
        }
        let row_bytes = Layout::new(1, columns.iter().map(|(dtype, shape)| (*dtype, shape.clone(), 0)))?.size_bytes;
        let fitting = (BLOCK_BYTES / row_bytes.max(1)).clamp(1, 1 << 16).next_power_of_two();
        let block_rows = fitting.min((rows as usize).next_power_of_two());
        let priorities = match priority_exponent {
            None => None,
            Some(exponent) => {
                let kind = SelectorKind::Prioritized { priority_exponent: exponent };
                kind.validate()?;
                Some(Priorities { kind, selector: Prioritized::new(exponent), values: Vec::new() })
            }
        };
        Ok(Self {
            block: Arc::new(Layout::new(block_rows, columns.into_iter().map(|(dtype, shape)| (dtype, shape, 0)))?),
            shift: block_rows.trailing_zeros(),
            blocks: Vec::new(),
            segments,
            length,
            added: 0,
            base: 0,
            priorities,
            rng: seed.map_or_else(SmallRng::from_os_rng, SmallRng::seed_from_u64),
        })
    }

    /// Number of adds since the last clear, which is the id of the next frames.
    pub fn added(&self) -> u64 {
        self.added
    }

    /// The oldest id that still exists.
    pub fn oldest(&self) -> u64 {
        self.added.saturating_sub(self.length).max(self.base)
    }

    /// Removes all frames. The next frames have the id `next_id`. Memory stays allocated.
    pub fn clear(&mut self, next_id: u64) {
        self.added = next_id;
        self.base = next_id;
        if let Some(Priorities { selector, .. }) = &mut self.priorities {
            drop(selector.take());
        }
    }

    /// Adds the rows of a chunk: one row for each segment, then the next row for each segment, and so on. They
    /// overwrite the oldest rows.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the number of rows is not a multiple of the number of segments, or the columns
    /// differ from those of the frames; [`Error::InvalidPriority`]. Nothing was added then.
    pub fn add(&mut self, chunk: &Chunk, priorities: &[f64]) -> Result<u64> {
        let types: Vec<_> = chunk.columns().iter().map(|column| (column.dtype, &column.shape[..])).collect();
        self.check_types(&types)?;
        let columns: Vec<_> = (0..types.len()).map(|index| chunk.rows_of(index, 0, chunk.rows())).collect();
        self.add_columns(&columns, u64::from(chunk.rows()), priorities)
    }

    /// Adds the rows of values as [`Frames::add`] adds those of a chunk. Each value has `rows` rows along its first
    /// axis. Copies them once.
    ///
    /// # Errors
    /// The errors of [`Frames::add`].
    ///
    /// # Panics
    /// If a value has another number of rows.
    pub fn add_values(&mut self, values: &[Value<'_>], rows: usize, priorities: &[f64]) -> Result<u64> {
        assert!(values.iter().all(|value| value.shape.first() == Some(&rows)), "each value has {rows} rows");
        self.check_types(&values.iter().map(|value| (value.dtype, &value.shape[1..])).collect::<Vec<_>>())?;
        let columns: Vec<_> = values.iter().map(|value| value.bytes).collect();
        self.add_columns(&columns, rows as u64, priorities)
    }

    fn add_columns(&mut self, columns: &[&[u8]], rows: u64, priorities: &[f64]) -> Result<u64> {
        if !rows.is_multiple_of(self.segments) {
            return Err(Error::invalid(format!("expected a multiple of {} rows, got {rows}", self.segments)));
        }
        if let Some(Priorities { kind, .. }) = &self.priorities {
            if priorities.len() != 1 && priorities.len() as u64 != rows {
                return Err(Error::invalid(format!("expected 1 or {rows} priorities, got {}", priorities.len())));
            }
            priorities.iter().try_for_each(|&priority| check_priority(kind, priority).map(drop))?;
        }
        let first = self.added;
        let mut row = 0;
        while row < rows {
            // With one segment, consecutive rows are consecutive in the ring as well, up to its end.
            let (segment, id) = (row % self.segments, first + row / self.segments);
            let target = segment * self.length + id % self.length;
            let room = self.length - id % self.length;
            let run = if self.segments == 1 { (rows - row).min(room) } else { 1 };
            let run = run.min(self.block_rows() - target % self.block_rows());
            self.write(target, columns, row as usize, run as usize);
            for offset in 0..run {
                self.set_priority(target + offset, id + offset, priorities, (row + offset) as usize);
            }
            row += run;
        }
        self.added += rows / self.segments;
        Ok(first)
    }

    fn check_types(&self, got: &[(DType, &[usize])]) -> Result<()> {
        let expected = self.block.columns.iter().map(|column| (column.dtype, &column.shape[..]));
        if expected.clone().eq(got.iter().copied()) {
            return Ok(());
        }
        let text = |types: &[(DType, &[usize])]| {
            let all: Vec<_> =
                types.iter().map(|(dtype, shape)| format!("{dtype}{}", crate::tensor::shape_text(shape))).collect();
            all.join(", ")
        };
        let expected: Vec<_> = expected.collect();
        Err(Error::invalid(format!("expected frames of {}, got {}", text(&expected), text(got))))
    }

    fn block_rows(&self) -> u64 {
        1 << self.shift
    }

    fn write(&mut self, target: u64, columns: &[&[u8]], row: usize, count: usize) {
        let (block, first) = ((target >> self.shift) as usize, (target & (self.block_rows() - 1)) as usize);
        if self.blocks.len() <= block {
            self.blocks.resize_with(block + 1, Box::default);
        }
        if self.blocks[block].is_empty() {
            self.blocks[block] = vec![0; self.block.size_bytes].into();
        }
        let data = &mut self.blocks[block];
        for (column, bytes) in self.block.columns.iter().zip(columns) {
            let bytes = &bytes[row * column.row_bytes..(row + count) * column.row_bytes];
            let start = column.offset + first * column.row_bytes;
            data[start..start + bytes.len()].copy_from_slice(bytes);
        }
    }

    fn set_priority(&mut self, slot: u64, id: u64, priorities: &[f64], row: usize) {
        let Some(Priorities { selector, values, .. }) = &mut self.priorities else { return };
        let priority = priorities[if priorities.len() == 1 { 0 } else { row }];
        if values.len() <= slot as usize {
            values.resize(slot as usize + 1, 0.0);
        }
        values[slot as usize] = priority;
        if id - self.base >= self.length {
            selector.update(slot as u32, priority);
        } else {
            selector.insert(slot as u32, priority);
        }
    }

    /// Changes the priorities of frames. Frames that were overwritten are ignored.
    ///
    /// # Errors
    /// [`Error::InvalidPriority`]; [`Error::InvalidArgument`] if frames are not drawn by priority or a segment does not
    /// exist. Nothing has changed then.
    pub fn update_priorities(&mut self, frames: &[FrameId], priorities: &[f64]) -> Result<()> {
        let (oldest, added, length, segments) = (self.oldest(), self.added, self.length, self.segments);
        let Some(Priorities { kind, selector, values }) = &mut self.priorities else {
            return Err(Error::invalid("this buffer does not draw by priority"));
        };
        for (frame, &priority) in frames.iter().zip(priorities) {
            check_priority(kind, priority)?;
            check_segment(frame.segment, segments)?;
        }
        for (frame, &priority) in frames.iter().zip(priorities) {
            if (oldest..added).contains(&frame.id) {
                let row = u64::from(frame.segment) * length + frame.id % length;
                values[row as usize] = priority;
                selector.update(row as u32, priority);
            }
        }
        Ok(())
    }

    /// Returns the priorities of all stored frames: segment by segment, oldest first. `None` if frames have none.
    pub fn priorities(&self) -> Option<Vec<f64>> {
        let Priorities { values, .. } = self.priorities.as_ref()?;
        let slots = (0..self.segments)
            .flat_map(|segment| (self.oldest()..self.added).map(move |id| segment * self.length + id % self.length));
        Some(slots.map(|slot| values[slot as usize]).collect())
    }

    /// Returns the size of so many sequences of so many steps, in bytes.
    pub fn bytes_of(&self, sequences: usize, steps: u64) -> usize {
        let row_bytes: usize = self.block.columns.iter().map(|column| column.row_bytes).sum();
        usize::try_from(steps).map_or(usize::MAX, |steps| sequences.saturating_mul(steps).saturating_mul(row_bytes))
    }

    /// Draws `count` sequences of `steps` frames. Each sequence lies within one segment and ends at its newest frame at
    /// the latest.
    ///
    /// Draws are uniform, or by the priority of the first frame. A frame with too few successors is drawn again, and
    /// the probabilities are those of single frames.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there are fewer than `steps` frames.
    pub fn draw(&mut self, count: usize, steps: u64) -> Result<FrameDraw> {
        let starts = (self.added - self.oldest() + 1).saturating_sub(steps.max(1));
        if starts == 0 {
            return Err(Error::invalid(format!(
                "the buffer is empty, or has fewer than {steps} frames in a row: {} were added",
                self.added
            )));
        }
        let (oldest, added, length, segments) = (self.oldest(), self.added, self.length, self.segments);
        let Some(Priorities { selector, .. }) = &mut self.priorities else {
            let rng = &mut self.rng;
            let frame = |_| FrameId {
                segment: if segments == 1 { 0 } else { rng.random_range(0..segments as u32) },
                id: oldest + rng.random_range(0..starts),
            };
            let frames = (0..count).map(frame).collect();
            return Ok((frames, vec![1.0 / (starts as f64 * segments as f64); count]));
        };
        let (mut frames, mut probabilities) = (Vec::with_capacity(count), Vec::with_capacity(count));
        let mut tries = 0;
        while frames.len() < count {
            let (slot, probability) = selector.sample(&mut self.rng);
            let (segment, place) = (u64::from(slot) / length, u64::from(slot) % length);
            let id = oldest + (place + length - oldest % length) % length;
            if id + steps.max(1) <= added {
                frames.push(FrameId { segment: segment as u32, id });
                probabilities.push(probability);
            } else if tries == MAX_TRIES * count {
                return Err(Error::invalid(format!(
                    "no frame with a priority above 0 starts a sequence of {steps} frames"
                )));
            }
            tries += 1;
        }
        Ok((frames, probabilities))
    }

    /// Copies sequences into one batch.
    ///
    /// # Arguments
    /// * `frames`: Where sequences begin. Their ids are taken modulo the length, whatever is there.
    /// * `steps`: Frames of each.
    /// * `prefix`: The first dimensions of the arrays, whose product is the number of frames.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if a segment does not exist, or the batch is too large.
    pub fn gather(&self, frames: &[FrameId], steps: u64, prefix: &[usize]) -> Result<(BatchLayout, Buffer)> {
        frames.iter().try_for_each(|frame| check_segment(frame.segment, self.segments))?;
        let total = frames.len() as u64 * steps;
        if prefix.iter().map(|&dim| dim as u64).product::<u64>() != total || steps > self.length {
            return Err(Error::invalid(format!("{total} frames do not fill an array of shape {prefix:?}")));
        }
        let columns = self.block.columns.iter().map(|column| BatchColumn {
            dtype: column.dtype,
            shape: prefix.iter().copied().chain(column.shape.iter().copied()).collect(),
            row_lengths: None,
            has_open_rows: false,
            squeezed: false,
            offset: 0,
            size_bytes: 0,
        });
        let layout = BatchLayout::new(columns.collect())?;
        let mut buffer = Buffer::new(layout.size_bytes);
        let target = buffer.as_uninit_mut();
        let runs = self.runs(frames, steps);
        for (index, column) in layout.columns.iter().enumerate() {
            self.copy_column(index, &runs, &mut target[column.offset..column.offset + column.size_bytes]);
        }
        Ok((layout, buffer))
    }

    /// Ranges of rows within one block: block, first row in the block, number of rows.
    fn runs(&self, frames: &[FrameId], steps: u64) -> Vec<(u32, u32, u32)> {
        let mut runs = Vec::with_capacity(frames.len());
        let mask = self.block_rows() - 1;
        for frame in frames {
            let base = u64::from(frame.segment) * self.length;
            let (mut place, mut left) = (frame.id % self.length, steps);
            while left > 0 {
                let row = base + place;
                let count = left.min(self.length - place).min(self.block_rows() - (row & mask));
                runs.push(((row >> self.shift) as u32, (row & mask) as u32, count as u32));
                place = (place + count) % self.length;
                left -= count;
            }
        }
        runs
    }

    fn copy_column(&self, index: usize, runs: &[(u32, u32, u32)], target: &mut [MaybeUninit<u8>]) {
        let column = &self.block.columns[index];
        let row_bytes = column.row_bytes;
        if runs.len() * row_bytes == target.len() {
            by_size!(
                row_bytes,
                BYTES => return self.copy_rows::<BYTES>(column.offset, runs, target),
                _ => {}
            );
        }
        self.copy_runs(column.offset, row_bytes, runs, target);
    }

    fn copy_rows<const BYTES: usize>(&self, offset: usize, runs: &[(u32, u32, u32)], target: &mut [MaybeUninit<u8>]) {
        let (targets, _) = target.as_chunks_mut::<BYTES>();
        for (index, (target, &(block, row, _))) in targets.iter_mut().zip(runs).enumerate() {
            self.prefetch(offset, BYTES, runs, index + AHEAD);
            let start = offset + row as usize * BYTES;
            match self.bytes(block, start, BYTES) {
                Some(bytes) => copy(target, bytes),
                None => target.fill(MaybeUninit::new(0)),
            }
        }
    }

    fn copy_runs(&self, offset: usize, row_bytes: usize, runs: &[(u32, u32, u32)], mut target: &mut [MaybeUninit<u8>]) {
        for (index, &(block, row, count)) in runs.iter().enumerate() {
            self.prefetch(offset, row_bytes, runs, index + AHEAD);
            let (head, rest) = target.split_at_mut(count as usize * row_bytes);
            let start = offset + row as usize * row_bytes;
            match self.bytes(block, start, head.len()) {
                Some(bytes) => copy(head, bytes),
                // A block that was never written reads as zeros.
                None => head.fill(MaybeUninit::new(0)),
            }
            target = rest;
        }
    }

    /// The bytes of a block; `None` if it was never written.
    #[inline]
    fn bytes(&self, block: u32, start: usize, len: usize) -> Option<&[u8]> {
        self.blocks.get(block as usize)?.get(start..start + len)
    }

    #[inline]
    fn prefetch(&self, offset: usize, row_bytes: usize, runs: &[(u32, u32, u32)], index: usize) {
        if let Some(&(block, row, _)) = runs.get(index)
            && let Some(block) = self.blocks.get(block as usize)
        {
            prefetch(block.as_ptr().wrapping_add(offset + row as usize * row_bytes));
        }
    }
}

fn check_segment(segment: u32, segments: u64) -> Result<()> {
    if u64::from(segment) < segments {
        return Ok(());
    }
    Err(Error::invalid(format!("segment {segment} does not exist; the buffer has {segments} segments")))
}
