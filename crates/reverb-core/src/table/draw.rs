//! Draws of items, and draws that are given back.

use super::contents::{Table, referenced_bytes};
use super::in_flight::{Delivery, Flight, Gone};
use super::removal::RemovalReason;
use crate::item::FlightNumber;
use crate::selector::Selector;
use crate::slab::Item;
use crate::{Chunk, Drawn, NewItem, Trajectory};
use std::mem::MaybeUninit;

/// Number of draws that are made together, so that their memory can be prefetched.
pub(super) const BLOCK: usize = 32;

impl Table {
    /// Draws an item; the caller has checked [`Table::can_sample`]. `None` if the table is empty. `now_nanos` is the
    /// time, for the figures of the table.
    ///
    /// An item that was drawn `max_times_sampled` times is removed. The result has its data, so unlike other calls that
    /// remove items this one releases no data.
    pub fn sample(&mut self, now_nanos: u64) -> Option<Drawn> {
        let mut drawn = Vec::with_capacity(1);
        if !self.slab.is_empty() {
            self.draw(false, &mut drawn);
            self.count_new(&drawn, now_nanos);
        }
        drawn.pop()
    }

    /// Draws items while the rate limiter allows it, until `drawn` has `wanted` items. Returns whether it drew any.
    /// `now_nanos` is as in [`Table::sample`].
    pub fn sample_up_to(&mut self, wanted: usize, rate_limited: bool, now_nanos: u64, drawn: &mut Vec<Drawn>) -> bool {
        let before = drawn.len();
        while drawn.len() < wanted && !self.slab.is_empty() {
            // If a draw may remove its item, the next draw must see the removal.
            let block = if self.config.max_times_sampled > 0 { 1 } else { (wanted - drawn.len()).min(BLOCK) };
            match self.allowed_samples(block) {
                0 => break,
                1 => self.draw(rate_limited, drawn),
                count => self.draw_block(count, rate_limited, drawn),
            }
        }
        if drawn.len() == before {
            return false;
        }
        self.count_new(&drawn[before..], now_nanos);
        true
    }

    /// Counts new draws in the counters of the table.
    pub(super) fn count_new(&mut self, drawn: &[Drawn], now_nanos: u64) {
        self.counting.count_draws(drawn.len(), now_nanos, |index| drawn[index].inserted_at);
        self.counting.sample_bytes += drawn.iter().map(|draw| referenced_bytes(&draw.trajectory)).sum::<u64>();
    }

    /// The number of samples, at most `wanted`, that the rate limiter allows now.
    fn allowed_samples(&self, wanted: usize) -> usize {
        if self.limiter.can_sample(wanted as i64) {
            return wanted;
        }
        (1..wanted).take_while(|&count| self.limiter.can_sample(count as i64)).last().unwrap_or(0)
    }

    pub(super) fn draw(&mut self, rate_limited: bool, drawn: &mut Vec<Drawn>) {
        let (slot, probability) = self.sampler.sample(&mut self.rng);
        let mut sample = MaybeUninit::uninit();
        self.count_draw(slot, probability, rate_limited, &mut sample);
        // SAFETY: `count_draw` has written it.
        let mut sample = unsafe { sample.assume_init() };
        let max_times_sampled = self.config.max_times_sampled;
        // An item may have entered with more draws than the limit, so equality would not be enough.
        let is_last = max_times_sampled > 0 && sample.times_sampled >= max_times_sampled;
        let gone = is_last.then(|| self.set_aside(slot, sample.times_sampled));
        if self.tracks_draws {
            let item = Flight::of(&sample);
            sample.in_flight = self.in_flight.add(item, gone);
            if self.noted.is_some() {
                self.note_flights([item].into_iter());
                if is_last {
                    self.note_taken(item);
                }
            }
        }
        drawn.push(sample);
    }

    /// Removes an item that was drawn often enough. It returns if so many draws are given back that fewer than
    /// `returns_below` are left.
    pub(super) fn set_aside(&mut self, slot: u32, returns_below: i32) -> Gone {
        let places = (self.sampler.place(slot), self.remover.place(slot));
        let Item { priority, times_sampled, trajectory, .. } = self.take_out(slot, RemovalReason::MaxTimesSampled);
        Gone { priority, times_sampled, trajectory, places, returns_below, is_deleted: false }
    }

    /// Draws items that stay in the table. Items lie scattered in memory, and counting a reference delays all later
    /// loads, so the draws prefetch what they will read.
    pub(super) fn draw_block(&mut self, count: usize, rate_limited: bool, drawn: &mut Vec<Drawn>) {
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
        // Written in place: a value that is built first and then moved would wait for its own stores.
        for (target, &(slot, probability)) in drawn.spare_capacity_mut().iter_mut().zip(block.iter()) {
            self.count_draw(slot, probability, rate_limited, target);
        }
        // SAFETY: the capacity was reserved, and `count` samples were written there.
        unsafe { drawn.set_len(before + count) };
        self.track(&mut drawn[before..]);
    }

    /// Tracks new draws until they are delivered or given back.
    #[inline]
    fn track(&mut self, drawn: &mut [Drawn]) {
        if self.tracks_draws {
            for draw in &mut *drawn {
                draw.in_flight = self.in_flight.add(Flight::of(draw), None);
            }
            if self.noted.is_some() {
                self.note_flights(drawn.iter().map(Flight::of));
            }
        }
    }

    /// Whether the draw is of this table and no reset has come after it.
    #[inline]
    pub fn is_current(&self, draw: &Drawn) -> bool {
        draw.epoch == self.epoch
    }

    /// Notes that draws of this table have reached their caller. Draws from before a reset are ignored.
    pub fn delivered(&mut self, drawn: &[Drawn], removed: &mut Vec<Trajectory>) {
        for draw in drawn {
            if self.is_current(draw) {
                self.end_draw(Flight::of(draw), draw.in_flight, removed);
            }
        }
    }

    /// As [`Table::delivered`], but in O(1), for a large batch. The caller calls [`Table::continue_deliveries`] next. Not
    /// for journaled tables, which note each draw.
    pub fn begin_delivery(&mut self, delivery: Delivery) {
        if delivery.epoch == self.epoch {
            self.in_flight.begin_delivery(delivery);
        }
    }

    /// Ends the tracking of `count` draws of deliveries that have begun. Returns false if none are left.
    pub fn continue_deliveries(&mut self, count: usize, removed: &mut Vec<Trajectory>) -> bool {
        self.in_flight.remove_delivered(count, removed)
    }

    /// Tells the table how many draws are in flight that it does not track, just after options were changed so that
    /// draws affect one another. Items that they bring over the limit return if they are given back.
    pub fn expect_untracked(&mut self, count: u64) {
        self.in_flight.expect_untracked(count);
    }

    /// Notes that draws of [`Table::expect_untracked`] were delivered or given back, in O(1). The caller calls
    /// [`Table::continue_untracked`] next.
    pub fn end_untracked(&mut self, count: u64) {
        self.in_flight.end_untracked(count);
    }

    /// Releases `count` of the items that were kept for draws of [`Table::expect_untracked`], once all of these have
    /// ended. Returns false if none are left.
    pub fn continue_untracked(&mut self, count: usize, removed: &mut Vec<Trajectory>) -> bool {
        self.in_flight.remove_kept(count, removed)
    }

    /// Whether the table tracks draws that it makes now.
    pub fn tracks_draws(&self) -> bool {
        self.tracks_draws
    }

    /// Number of draws that the table tracks.
    pub fn num_tracked_draws(&self) -> usize {
        self.in_flight.len()
    }

    /// Counts a draw of the item in a slot, and returns the item as it is after that.
    #[inline(always)]
    pub(super) fn count_sample(&mut self, slot: u32) -> &Item {
        self.limiter.samples += 1;
        self.draws_of_items += 1;
        let item = self.slab.get_mut(slot);
        self.num_unique_samples += u64::from(item.times_sampled == 0);
        item.times_sampled = item.times_sampled.saturating_add(1);
        item
    }

    /// Counts a draw, and writes the drawn item to `target`.
    #[inline(always)]
    fn count_draw(&mut self, slot: u32, probability: f64, rate_limited: bool, target: &mut MaybeUninit<Drawn>) {
        let (table_size, epoch) = (self.slab.len() as i64, self.epoch);
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
                epoch,
                in_flight: FlightNumber::NONE,
            });
        };
        match &item.trajectory {
            &Trajectory::Rows { ref chunk, offset, length, squeeze } => {
                write(Trajectory::Rows { chunk: chunk.clone(), offset, length, squeeze });
            }
            columns @ Trajectory::Columns(_) => write(columns.clone()),
        }
    }

    /// Takes back a draw of this table that was not delivered, as if it had not happened.
    ///
    /// If the item has left because it was drawn often enough, it returns to its old place as soon as it has draws left,
    /// even if others have filled the table meanwhile: with the priority that updates have set since, and not if it was
    /// deleted since. The table is then over its size until the next insert or, if the rate limiter counts samples,
    /// until as many items are drawn. If the key is in the table again, the draw stands. After a reset there is nothing
    /// to take back. Returns whether the draw was undone.
    pub fn give_back(&mut self, drawn: Drawn, removed: &mut Vec<Trajectory>) -> bool {
        let undone = self.take_back(drawn, removed);
        self.counting.returned_samples += u64::from(undone);
        undone
    }

    /// Takes back a draw without counting it as a sample that went back.
    pub(super) fn take_back(&mut self, drawn: Drawn, removed: &mut Vec<Trajectory>) -> bool {
        let undone = self.is_current(&drawn) && self.end_undelivered(Flight::of(&drawn), drawn.in_flight, removed);
        removed.push(drawn.trajectory);
        undone
    }

    /// Undoes [`Table::count_sample`] for an item, wherever it is now. Returns false if the draw stands.
    pub(super) fn undo(&mut self, item: Flight, number: FlightNumber, removed: &mut Vec<Trajectory>) -> bool {
        let found = self.slab.find(item.key);
        // Another item may have been inserted under the same key.
        if let Some(slot) = found.filter(|slot| self.slab.get(*slot).inserted_at == item.inserted_at) {
            let times_sampled = &mut self.slab.get_mut(slot).times_sampled;
            if *times_sampled > 0 {
                *times_sampled -= 1;
                self.draws_of_items -= 1;
                self.num_unique_samples -= u64::from(*times_sampled == 0);
            }
        } else if let Some(gone) = self.in_flight.gone_mut(item, number) {
            if found.is_some() {
                return false;
            }
            let Some(left) = gone.as_mut() else { return false };
            left.times_sampled -= 1;
            if left.times_sampled < left.returns_below
                && let Some(gone) = gone.take()
            {
                self.put_back(item, gone, removed);
            }
        }
        self.limiter.samples -= 1;
        true
    }

    /// Puts an item back that has left the table because it was drawn too often.
    fn put_back(&mut self, item: Flight, gone: Gone, removed: &mut Vec<Trajectory>) {
        let was_kept = self.noted.is_some() && self.was_kept_before(item, &gone);
        let Gone { priority, times_sampled, trajectory, places, is_deleted, .. } = gone;
        let num_episodes = self.usage.num_episodes();
        let new = NewItem { key: item.key, priority, takes_largest: false, others: None, times_sampled, trajectory };
        let Some(slot) = self.put_again(new, item.inserted_at) else {
            unreachable!("the caller saw that the key is gone")
        };
        self.note_priority(priority);
        self.place(slot, Some(places));
        self.usage.uncount_deleted_episodes(self.usage.num_episodes() - num_episodes);
        self.num_unique_samples -= u64::from(times_sampled == 0);
        self.limiter.deletes -= 1;
        self.counting.returned_items += 1;
        if is_deleted {
            // The delete was noted when it was asked for.
            removed.push(self.take_out(slot, RemovalReason::Delete).trajectory);
            self.in_flight.unmark_unreceived(item);
        } else if self.noted.is_some() {
            self.note_back(item, was_kept);
        }
        self.evict_bytes(removed);
    }
}
