//! Information on each sample of a batch.

use crate::{Drawn, Error, Result};

/// Information on each sample of a batch, column by column, in one block of memory.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct BatchInfo {
    /// Four columns of 64-bit words, then one of 32 bits.
    words: Vec<u64>,
    count: usize,
}

/// The columns, for writing. Floating-point numbers are written as their bits.
pub(crate) struct InfoColumns<'a> {
    pub(crate) keys: &'a mut [u64],
    pub(crate) probabilities: &'a mut [u64],
    pub(crate) table_sizes: &'a mut [u64],
    pub(crate) priorities: &'a mut [u64],
    pub(crate) times_sampled: &'a mut [i32],
}

impl BatchInfo {
    /// Collects the information on drawn items.
    pub fn of(items: &[Drawn]) -> Self {
        let mut info = Self::zeros(items.len());
        let columns = info.columns_mut();
        for (index, item) in items.iter().enumerate() {
            columns.keys[index] = item.key;
            columns.probabilities[index] = item.probability.to_bits();
            columns.table_sizes[index] = item.table_size;
            columns.priorities[index] = item.priority.to_bits();
            columns.times_sampled[index] = item.times_sampled;
        }
        info
    }

    /// Reads little-endian bytes: keys, probabilities, table sizes and priorities of 8 bytes each, and numbers of draws
    /// of 4 bytes each.
    ///
    /// # Errors
    /// [`Error::DataLoss`] if the columns have different lengths.
    pub fn from_le_bytes(columns: [&[u8]; 4], times_sampled: &[u8]) -> Result<Self> {
        let count = columns[0].len() / 8;
        if columns.iter().any(|column| column.len() != 8 * count) || times_sampled.len() != 4 * count {
            return Err(Error::DataLoss(format!(
                "the sample infos of a batch differ in number: {:?} bytes in columns of 8 bytes, {} bytes in one of 4",
                columns.map(<[u8]>::len),
                times_sampled.len()
            )));
        }
        let mut info = Self::zeros(count);
        let words = columns.iter().flat_map(|column| column.as_chunks().0);
        info.words.iter_mut().zip(words).for_each(|(word, &bytes)| *word = u64::from_le_bytes(bytes));
        let numbers = info.columns_mut().times_sampled.iter_mut().zip(times_sampled.as_chunks().0);
        numbers.for_each(|(number, &bytes)| *number = i32::from_le_bytes(bytes));
        Ok(info)
    }

    pub(crate) fn zeros(count: usize) -> Self {
        Self { words: vec![0; 4 * count + count.div_ceil(2)], count }
    }

    pub(crate) fn columns_mut(&mut self) -> InfoColumns<'_> {
        let (keys, rest) = self.words.split_at_mut(self.count);
        let (probabilities, rest) = rest.split_at_mut(self.count);
        let (table_sizes, rest) = rest.split_at_mut(self.count);
        let (priorities, rest) = rest.split_at_mut(self.count);
        // SAFETY: each word holds two numbers, and any bits are a valid number and a valid word.
        let (_, pairs, _) = unsafe { rest.align_to_mut() };
        InfoColumns { keys, probabilities, table_sizes, priorities, times_sampled: &mut pairs[..self.count] }
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether the batch has no samples.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Keys of the items.
    pub fn keys(&self) -> &[u64] {
        &self.words[..self.count]
    }

    /// Probability of each draw.
    pub fn probabilities(&self) -> &[f64] {
        // SAFETY: numbers have the size and the alignment of the words, and any bits are a valid number.
        unsafe { self.words[self.count..2 * self.count].align_to().1 }
    }

    /// Number of items in the table at each draw.
    pub fn table_sizes(&self) -> &[i64] {
        // SAFETY: numbers have the size and the alignment of the words, and any bits are a valid number.
        unsafe { self.words[2 * self.count..3 * self.count].align_to().1 }
    }

    /// Priorities of the items.
    pub fn priorities(&self) -> &[f64] {
        // SAFETY: numbers have the size and the alignment of the words, and any bits are a valid number.
        unsafe { self.words[3 * self.count..4 * self.count].align_to().1 }
    }

    /// Number of draws of each item, including this one.
    pub fn times_sampled(&self) -> &[i32] {
        // SAFETY: each word holds two numbers, and any bits are a valid number.
        let pairs: &[i32] = unsafe { self.words[4 * self.count..].align_to().1 };
        &pairs[..self.count]
    }
}
