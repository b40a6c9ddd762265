//! Draws of items, and how to take one back.

use super::{ItemView, NewItem, Table};
use crate::selector::Selector;
use crate::slab::Item;
use crate::{Chunk, ItemKey, Trajectory};
use std::mem::MaybeUninit;

/// Draws made ahead of the memory they need.
pub(super) const BLOCK: usize = 32;

/// An item that was drawn, as it was at that moment.
#[derive(Debug, Clone)]
pub struct Drawn {
    /// Name of the item.
    pub key: ItemKey,
    /// Probability the draw had.
    pub probability: f64,
    /// Items in the table, this one included.
    pub table_size: u64,
    /// Priority of the item.
    pub priority: f64,
    /// How often the item was drawn, this draw included.
    pub times_sampled: i32,
    /// Whether the draw had to wait for the rate limiter. A table does not wait: who did sets this.
    pub rate_limited: bool,
    /// When the item was inserted, in nanoseconds since the epoch.
    pub inserted_at: u64,
    /// The data.
    pub trajectory: Trajectory,
    /// If the draw removed the item: its places in the sampler and in the remover.
    places: Option<(u64, u64)>,
    epoch: u64,
}

impl Drawn {
    /// An item that was looked at and not drawn, so that it can be gathered. Giving it back changes nothing.
    pub fn peeked(item: ItemView, table_size: u64) -> Self {
        let ItemView { key, priority, times_sampled, inserted_at, trajectory } = item;
        let (probability, rate_limited, places) = (1.0, false, None);
        // No table was ever reset so often.
        let epoch = u64::MAX;
        Self {
            key,
            probability,
            table_size,
            priority,
            times_sampled,
            rate_limited,
            inserted_at,
            trajectory,
            places,
            epoch,
        }
    }
}

impl Table {
    /// Draws an item, for which the caller has asked [`Table::can_sample`]. `None` if the table is empty.
    ///
    /// An item drawn `max_times_sampled` times is removed; its data then moves into what is returned. (So nothing is
    /// put into `removed`; it is there so that all calls that remove look alike.)
    pub fn sample(&mut self, _removed: &mut Vec<Trajectory>) -> Option<Drawn> {
        let mut drawn = Vec::with_capacity(1);
        if !self.slab.is_empty() {
            self.draw(false, &mut drawn);
        }
        drawn.pop()
    }

    /// Draws items for as long as the rate limiter allows and until `drawn` has `wanted`. Returns whether it drew any.
    pub fn sample_up_to(&mut self, wanted: usize, rate_limited: bool, drawn: &mut Vec<Drawn>) -> bool {
        let before = drawn.len();
        while drawn.len() < wanted && !self.slab.is_empty() {
            // Where a draw may remove its item, the next one must see that.
            let block = if self.config.max_times_sampled > 0 { 1 } else { (wanted - drawn.len()).min(BLOCK) };
            match self.allowed_samples(block) {
                0 => break,
                1 => self.draw(rate_limited, drawn),
                count => self.draw_block(count, rate_limited, drawn),
            }
        }
        drawn.len() > before
    }

    /// How many of `wanted` samples the rate limiter allows now.
    fn allowed_samples(&self, wanted: usize) -> usize {
        if self.limiter.can_sample(wanted as i64) {
            return wanted;
        }
        (1..wanted).take_while(|&count| self.limiter.can_sample(count as i64)).last().unwrap_or(0)
    }

    fn draw(&mut self, rate_limited: bool, drawn: &mut Vec<Drawn>) {
        let (slot, probability) = self.sampler.sample(&mut self.rng);
        let mut sample = MaybeUninit::uninit();
        self.count_draw(slot, probability, rate_limited, &mut sample);
        // SAFETY: `count_draw` writes it.
        let mut sample = unsafe { sample.assume_init() };
        let max_times_sampled = self.config.max_times_sampled;
        // An item may have come in with more draws behind it than the limit, so this is no test of equality.
        if max_times_sampled > 0 && sample.times_sampled >= max_times_sampled {
            sample.places = Some((self.sampler.place(slot), self.remover.place(slot)));
            self.remove(slot);
        }
        drawn.push(sample);
    }

    /// Draws of items that stay. Items lie all over memory, and counting a reference lets no later load begin before
    /// it, so what the draws will touch is asked for ahead.
    fn draw_block(&mut self, count: usize, rate_limited: bool, drawn: &mut Vec<Drawn>) {
        let mut block = [(0, 0.0); BLOCK];
        let block = &mut block[..count];
        self.sampler.sample_many(&mut self.rng, block);
        block.iter().for_each(|(slot, _)| self.slab.prefetch(*slot));
        for (slot, _) in block.iter() {
            if let Trajectory::Rows { chunk, .. } = &self.slab.get(*slot).trajectory {
                Chunk::prefetch(chunk);
            }
        }
        drawn.reserve(count);
        let before = drawn.len();
        // Written where they stay: built first and then moved, each would wait for its own stores.
        for (target, &(slot, probability)) in drawn.spare_capacity_mut().iter_mut().zip(block.iter()) {
            self.count_draw(slot, probability, rate_limited, target);
        }
        // SAFETY: the capacity was reserved, and `count` samples were written there.
        unsafe { drawn.set_len(before + count) };
    }

    /// Counts a draw of the item in a slot, and returns the item as it is then.
    #[inline(always)]
    pub(super) fn count_sample(&mut self, slot: u32) -> &Item {
        self.limiter.samples += 1;
        let item = self.slab.get_mut(slot);
        self.num_unique_samples += u64::from(item.times_sampled == 0);
        item.times_sampled = item.times_sampled.saturating_add(1);
        item
    }

    /// Counts a draw, and writes what it gives to `target`.
    #[inline(always)]
    fn count_draw(&mut self, slot: u32, probability: f64, rate_limited: bool, target: &mut MaybeUninit<Drawn>) {
        let (table_size, epoch) = (self.slab.len() as u64, self.epoch);
        let item = self.count_sample(slot);
        let Item { key, priority, inserted_at, times_sampled, .. } = *item;
        let mut write = |trajectory| {
            target.write(Drawn {
                key,
                probability,
                table_size,
                priority,
                times_sampled,
                rate_limited,
                inserted_at,
                trajectory,
                places: None,
                epoch,
            });
        };
        match &item.trajectory {
            Trajectory::Rows { chunk, offset, length } => {
                write(Trajectory::Rows { chunk: chunk.clone(), offset: *offset, length: *length });
            }
            columns @ Trajectory::Columns(_) => write(columns.clone()),
        }
    }

    /// Takes back a draw of this table that reached nobody, as if it had not been.
    ///
    /// If the draw removed its item, the item goes back to its old place, also where others have filled its room
    /// meanwhile: the table is then over its size until the next insert, or, with a limiter that counts samples, until
    /// as many are drawn. Only where its key is in the table again the draw stands. After a reset there is nothing to
    /// take back.
    pub fn give_back(&mut self, drawn: Drawn, removed: &mut Vec<Trajectory>) {
        let found = self.slab.find(drawn.key);
        let undone = drawn.epoch == self.epoch
            && match drawn.places {
                Some(places) if found.is_none() => {
                    return self.put_back(drawn, places, removed);
                }
                Some(_) => false,
                None => true,
            };
        if undone {
            self.uncount_sample(found, drawn.inserted_at);
        }
        removed.push(drawn.trajectory);
    }

    /// Undoes [`Table::count_sample`] for an item that was inserted then, if a slot still has it.
    pub(super) fn uncount_sample(&mut self, found: Option<u32>, inserted_at: u64) {
        self.limiter.samples -= 1;
        if let Some(slot) = found {
            let item = self.slab.get_mut(slot);
            // Another item may have come under the same key.
            if item.inserted_at == inserted_at && item.times_sampled > 0 {
                item.times_sampled -= 1;
                self.num_unique_samples -= u64::from(item.times_sampled == 0);
            }
        }
    }

    fn put_back(&mut self, drawn: Drawn, places: (u64, u64), removed: &mut Vec<Trajectory>) {
        let times_sampled = drawn.times_sampled - 1;
        let item = NewItem { key: drawn.key, priority: drawn.priority, times_sampled, trajectory: drawn.trajectory };
        let Ok(slot) = self.put(item, drawn.inserted_at) else { unreachable!("the caller saw that the key is gone") };
        self.place(slot, Some(places));
        self.num_unique_samples -= u64::from(times_sampled == 0);
        self.limiter.samples -= 1;
        self.limiter.deletes -= 1;
        self.evict_bytes(removed);
    }
}
