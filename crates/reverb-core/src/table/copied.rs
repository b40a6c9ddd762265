//! Batches that are drawn and copied in one go.

use super::Table;
use super::draw::BLOCK;
use crate::batch_info::InfoColumns;
use crate::gather::{BatchLayout, Rows, copy_alike};
use crate::selector::Selector;
use crate::{BatchInfo, Buffer, Chunk, ItemKey, Trajectory};

/// Items and bytes of such a batch at most: whoever guards the table keeps others out for some microseconds.
const MAX_ITEMS: usize = 4096;
const MAX_BYTES: usize = 128 << 10;

/// Slots, and the probability that each had.
type Draws = Vec<(u32, f64)>;

/// A batch that was drawn and copied in one go.
#[derive(Debug)]
pub struct CopiedBatch {
    /// What is known of each sample.
    pub info: BatchInfo,
    /// The columns in `buffer`.
    pub layout: BatchLayout,
    /// All columns' bytes.
    pub buffer: Buffer,
}

/// What a table needs to take the draws of a [`CopiedBatch`] back: which items, and when they were inserted.
#[derive(Debug)]
pub struct CopiedDraws {
    items: Vec<(ItemKey, u64)>,
    epoch: u64,
}

impl Table {
    /// Draws a small batch of rows and copies them, which takes no reference to a chunk for any of them: a tenth of
    /// the time of a batch of 256 small rows. Who draws again and again gives the layout of the last batch, which is `used`
    /// if this one has the same.
    ///
    /// `None` if that cannot be done, and then nothing has changed: the limiter does not allow all `count` draws now, draws
    /// may remove items, the items are no rows of chunks of one layout, have strings, or are more than a few.
    pub fn sample_copied(
        &mut self,
        count: usize,
        squeeze_time: bool,
        used: Option<BatchLayout>,
    ) -> Option<CopiedBatch> {
        self.copy_draws(count, squeeze_time, used).map(|(batch, _)| batch)
    }

    /// As [`Table::sample_copied`], with what [`Table::give_back_copied`] takes if the batch reaches nobody.
    pub fn sample_copied_leased(&mut self, count: usize, squeeze_time: bool) -> Option<(CopiedBatch, CopiedDraws)> {
        let (batch, draws) = self.copy_draws(count, squeeze_time, None)?;
        let items = draws.iter().map(|(slot, _)| self.slab.get(*slot)).map(|item| (item.key, item.inserted_at));
        let draws = CopiedDraws { items: items.collect(), epoch: self.epoch };
        Some((batch, draws))
    }

    /// Takes back the draws of a batch that reached nobody, as if they had not been.
    pub fn give_back_copied(&mut self, draws: CopiedDraws) {
        // After a reset there is nothing to take back.
        if draws.epoch == self.epoch {
            for (key, inserted_at) in draws.items {
                self.uncount_sample(self.slab.find(key), inserted_at);
            }
        }
    }

    fn copy_draws(
        &mut self,
        count: usize,
        squeeze_time: bool,
        used: Option<BatchLayout>,
    ) -> Option<(CopiedBatch, Draws)> {
        let draws_stay = self.config.max_times_sampled < 1;
        let are_few = (1..=MAX_ITEMS).contains(&count);
        if !(draws_stay && are_few && !self.slab.is_empty() && self.limiter.can_sample(count as i64)) {
            return None;
        }
        // With a seed, the draws must not depend on the road they take.
        let before = self.rng.clone();
        let copied = self.draw_alike(count, squeeze_time, used);
        if copied.is_none() {
            self.rng = before;
        }
        let (draws, layout, buffer) = copied?;
        Some((CopiedBatch { info: self.count_samples(&draws), layout, buffer }, draws))
    }

    /// Chooses items and copies them. `None` if they are not alike, or too large.
    fn draw_alike(
        &mut self,
        count: usize,
        squeeze_time: bool,
        used: Option<BatchLayout>,
    ) -> Option<(Draws, BatchLayout, Buffer)> {
        let mut draws = Draws::with_capacity(count);
        let mut rows: Vec<Rows<'_>> = Vec::with_capacity(count);
        while draws.len() < count {
            let first = draws.len();
            draws.resize(count.min(first + BLOCK), (0, 0.0));
            self.sampler.sample_many(&mut self.rng, &mut draws[first..]);
            draws[first..].iter().for_each(|(slot, _)| self.slab.prefetch(*slot));
            // In steps, since each needs memory that is rarely near, and that the one before has asked for.
            for (slot, _) in &draws[first..] {
                if let Trajectory::Rows { chunk, .. } = &self.slab.get(*slot).trajectory {
                    Chunk::prefetch(chunk);
                }
            }
            for (slot, _) in &draws[first..] {
                let item = Rows::of(&self.slab.get(*slot).trajectory)?;
                let fits = match rows.first() {
                    Some(first) => item.is_alike(first),
                    None => item.size_bytes()? <= MAX_BYTES / count,
                };
                if !fits {
                    return None;
                }
                rows.push(item);
            }
        }
        let (layout, buffer) = copy_alike(&rows, squeeze_time, used)?;
        Some((draws, layout, buffer))
    }

    fn count_samples(&mut self, draws: &[(u32, f64)]) -> BatchInfo {
        let table_size = self.slab.len() as u64;
        let mut info = BatchInfo::zeros(draws.len());
        let InfoColumns { keys, probabilities, table_sizes, priorities, times_sampled } = info.columns_mut();
        table_sizes.fill(table_size);
        for (index, &(slot, probability)) in draws.iter().enumerate() {
            let item = self.count_sample(slot);
            keys[index] = item.key;
            probabilities[index] = probability.to_bits();
            priorities[index] = item.priority.to_bits();
            times_sampled[index] = item.times_sampled;
        }
        info
    }
}
