//! Draws in flight: made, but neither delivered to their callers nor given back.
//!
//! A table tracks them if its draws affect later ones, so that a checkpoint can hold the items as if they had not been
//! drawn. Other tables track nothing.

use crate::item::FlightNumber;
use crate::{Drawn, ItemKey, Trajectory};
use hashbrown::HashSet;

/// A draw in flight.
#[derive(Debug)]
pub(super) struct Flight {
    pub key: ItemKey,
    /// Time of the item's insert, which tells it from another item with the same key.
    pub inserted_at: u64,
    /// The item as it was before the draw, if the draw removed it.
    pub removed: Option<RemovedItem>,
}

/// What a table does not hold any more of an item that a draw removed.
#[derive(Debug, Clone)]
pub(super) struct RemovedItem {
    pub priority: f64,
    pub times_sampled: i32,
    pub trajectory: Trajectory,
}

/// The draws of a table in flight.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    flights: Vec<Option<Flight>>,
    free: Vec<u32>,
    /// Draws that are delivered, but still have to be removed from `flights`.
    delivered: Vec<Vec<FlightNumber>>,
}

/// The draws of a large batch that have reached their caller together.
#[derive(Debug)]
pub struct Delivery {
    pub(super) epoch: u64,
    numbers: Vec<FlightNumber>,
}

impl Delivery {
    /// Takes the numbers of the draws. This is O(n), so the caller does it without the lock that guards the table.
    pub fn of(drawn: &[Drawn]) -> Self {
        // Draws from before a reset come first, and are not tracked any more.
        let epoch = drawn.last().map_or(u64::MAX, |last| last.epoch);
        let numbers = drawn.iter().filter(|draw| draw.epoch == epoch).map(|draw| draw.in_flight).collect();
        Self { epoch, numbers }
    }
}

impl InFlight {
    /// Tracks a draw.
    pub fn add(&mut self, flight: Flight) -> FlightNumber {
        if let Some(number) = self.free.pop() {
            self.flights[number as usize] = Some(flight);
            return FlightNumber::new(number);
        }
        self.flights.push(Some(flight));
        FlightNumber::new(self.flights.len() as u32 - 1)
    }

    /// Ends the tracking of a draw. The caller has checked that the number is of the current epoch. No data is freed,
    /// because the caller has the draw.
    pub fn remove(&mut self, number: FlightNumber) {
        let Some(number) = number.get() else { return };
        if self.flights.get_mut(number as usize).and_then(Option::take).is_none() {
            return;
        }
        self.free.push(number);
        if self.free.len() == self.flights.len() {
            self.flights.clear();
            self.free.clear();
        }
    }

    /// Counts the draws of a batch as delivered, in O(1). [`InFlight::remove_delivered`] ends their tracking.
    pub fn begin_delivery(&mut self, delivery: Delivery) {
        self.delivered.push(delivery.numbers);
    }

    /// Ends the tracking of `count` delivered draws. Returns false if none are left.
    pub fn remove_delivered(&mut self, count: usize) -> bool {
        let Some(mut numbers) = self.delivered.pop() else { return false };
        let left = numbers.len().saturating_sub(count);
        numbers.drain(left..).for_each(|number| self.remove(number));
        if !numbers.is_empty() {
            self.delivered.push(numbers);
        }
        !self.delivered.is_empty()
    }

    /// Number of draws that are tracked.
    pub fn len(&self) -> usize {
        self.flights.len() - self.free.len()
    }

    /// The draws in flight.
    pub fn iter(&self) -> impl Iterator<Item = &Flight> {
        let delivered: HashSet<_> = self.delivered.iter().flatten().filter_map(|number| number.get()).collect();
        let flights = self.flights.iter().enumerate();
        flights
            .filter(move |(number, _)| !delivered.contains(&(*number as u32)))
            .filter_map(|(_, flight)| flight.as_ref())
    }
}

impl Flight {
    /// A draw that left its item in the table.
    pub fn of(key: ItemKey, inserted_at: u64) -> Self {
        Self { key, inserted_at, removed: None }
    }

    /// A draw that removed its item.
    pub fn that_removed(drawn: &Drawn) -> Self {
        let Drawn { key, priority, inserted_at, times_sampled, trajectory, .. } = drawn;
        let removed =
            RemovedItem { priority: *priority, times_sampled: times_sampled - 1, trajectory: trajectory.clone() };
        Self { key: *key, inserted_at: *inserted_at, removed: Some(removed) }
    }
}
