//! The races of a sample stream whose winners the client has not chosen yet. Nobody else can draw what they hold.

use crate::replay_v1::proto::Choice;
use crate::replay_v1::wire::winners_from_wire;
use reverb_core::{Drawn, Error, Result};
use reverb_service::lease::Lease;
use reverb_service::{Peer, TableHandle};
use std::collections::HashMap;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// The held races of one stream.
#[derive(Debug, Default)]
pub struct HeldRaces {
    by_id: HashMap<u64, Held>,
    /// Number of draws in all of them.
    samples: usize,
    /// Ends when the time of the first is over, or before.
    timer: Option<Pin<Box<Sleep>>>,
}

#[derive(Debug)]
struct Held {
    table: TableHandle,
    squeeze_time: bool,
    hold: Duration,
    until: Instant,
    /// Who is told that the winners were counted, if the limiter is that of all shards.
    learner: Option<u64>,
    /// `None` after its time. The race stays until the client has heard of that, or has withdrawn it.
    lease: Option<Lease>,
}

/// The winners of a race, and how to send them.
#[derive(Debug)]
pub struct Chosen {
    pub table: TableHandle,
    pub winners: Vec<Drawn>,
    pub squeeze_time: bool,
}

impl HeldRaces {
    /// Number of races, also of those whose time is over.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Number of draws that are held.
    pub fn samples(&self) -> usize {
        self.samples
    }

    pub fn contains(&self, request_id: u64) -> bool {
        self.by_id.contains_key(&request_id)
    }

    /// Holds the draws of a race for a time. A learner is told that the winners were counted.
    pub fn add(
        &mut self,
        request_id: u64,
        table: TableHandle,
        lease: Lease,
        squeeze_time: bool,
        hold: Duration,
        learner: Option<u64>,
    ) {
        // A client may ask for more than the clock can count: some decades are as good.
        let until = Instant::now() + hold.min(Duration::from_secs(u64::from(u32::MAX)));
        self.samples += lease.samples();
        self.by_id.insert(request_id, Held { table, squeeze_time, hold, until, learner, lease: Some(lease) });
        if self.timer.as_ref().is_none_or(|timer| until < timer.deadline()) {
            self.timer = Some(Box::pin(sleep_until(until)));
        }
    }

    /// Forgets a race, if there is one. Its draws go back.
    pub fn free(&mut self, request_id: u64) {
        if let Some(Held { lease: Some(lease), .. }) = self.by_id.remove(&request_id) {
            self.samples -= lease.samples();
        }
    }

    /// Takes the winners of a race, which count as samples of `peer`. All other draws go back.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there is no such race, or if the positions of the winners are not those of draws: the
    /// race is still held then. [`Error::DeadlineExceeded`] if the draws went back because its time is over; it is
    /// forgotten then.
    pub fn choose(&mut self, request_id: u64, choice: &Choice, peer: &Peer) -> Result<Chosen> {
        let Some(held) = self.by_id.get_mut(&request_id) else {
            return Err(Error::invalid(format!("no race with request id {request_id} awaits a choice")));
        };
        if let Some(lease) = &mut held.lease {
            let samples = lease.samples();
            lease.keep(&winners_from_wire(choice, samples)?, peer)?;
            held.learner.iter().for_each(|learner| held.table.tell_counted(*learner, lease.samples() as u64));
            self.samples -= samples;
        }
        let Some(Held { table, squeeze_time, hold, lease, .. }) = self.by_id.remove(&request_id) else {
            unreachable!("it was found above")
        };
        let late = || {
            Error::DeadlineExceeded(format!(
                "a race of table `{}` was held for {} ms without a choice, and its items are back in the table",
                table.name(),
                hold.as_millis()
            ))
        };
        let winners = lease.ok_or_else(late)?.into_items();
        Ok(Chosen { table, winners, squeeze_time })
    }

    /// Waits for other work of the stream, and meanwhile gives back the draws of races whose time is over. A client that
    /// has stopped reads no answers.
    pub async fn free_during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = self.overdue() => self.free_overdue(),
            }
        }
    }

    /// Waits until the time of a race may be over.
    pub async fn overdue(&mut self) {
        match &mut self.timer {
            Some(timer) => timer.as_mut().await,
            None => std::future::pending().await,
        }
    }

    /// Gives back the draws of all races whose time is over.
    pub fn free_overdue(&mut self) {
        let now = Instant::now();
        let mut next = None;
        for held in self.by_id.values_mut().filter(|held| held.lease.is_some()) {
            if held.until > now {
                next = Some(next.map_or(held.until, |next: Instant| next.min(held.until)));
            } else if let Some(lease) = held.lease.take() {
                self.samples -= lease.samples();
            }
        }
        self.timer = next.map(|until| Box::pin(sleep_until(until)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay_v1::wire::winners_to_wire;
    use crate::tables::{config, here, items};
    use reverb_core::{Race, Table, TableConfig};
    use reverb_service::Call;

    const ITEMS: usize = 10;

    fn table() -> TableHandle {
        let once = TableConfig { max_times_sampled: 1, ..config("table") };
        let table = TableHandle::new(Table::new(once).unwrap());
        assert!(matches!(table.insert(items(0..ITEMS as u64), here()), Call::Done(Ok(()))));
        table
    }

    fn len(table: &TableHandle) -> usize {
        table.with_table(Table::len)
    }

    impl HeldRaces {
        fn race(&mut self, request_id: u64, table: &TableHandle, limit: usize, seconds: u64) {
            let (_, lease) = table.race(Race { interval: 1e9, limit, by_size: false }).unwrap();
            self.add(request_id, table.clone(), lease, false, Duration::from_secs(seconds), None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_race_is_held_for_its_own_time() {
        let (table, mut held, begun) = (table(), HeldRaces::default(), Instant::now());
        held.race(1, &table, 4, 30);
        held.race(2, &table, 3, 10);
        held.race(3, &table, 2, 20);
        assert_eq!((held.len(), held.samples(), len(&table)), (3, 9, 1));
        for (seconds, samples) in [(10, 6), (20, 4)] {
            held.overdue().await;
            held.free_overdue();
            let now = begun.elapsed().as_secs();
            assert_eq!((now, held.len(), held.samples(), len(&table)), (seconds, 3, samples, ITEMS - samples));
        }
        let choice = winners_to_wire(&[1, 3]).unwrap();
        assert!(matches!(held.choose(2, &choice, here()), Err(Error::DeadlineExceeded(_))));
        held.free(3);
        let winners = held.choose(1, &choice, here()).unwrap().winners;
        assert_eq!((winners.len(), held.len(), held.samples(), len(&table)), (2, 0, 0, ITEMS - 2));
        // The time of the first has not passed yet. After that, there is nothing to wait for.
        held.overdue().await;
        held.free_overdue();
        assert_eq!(begun.elapsed().as_secs(), 30);
        assert!(tokio::time::timeout(Duration::from_secs(3600), held.overdue()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn draws_go_back_in_time_while_the_stream_does_something_else() {
        let (table, mut held) = (table(), HeldRaces::default());
        held.race(1, &table, 4, 10);
        held.race(2, &table, 3, 20);
        let work = async {
            tokio::time::sleep(Duration::from_secs(15)).await;
            len(&table)
        };
        assert_eq!(held.free_during(work).await, ITEMS - 3);
        assert_eq!(held.samples(), 3);
    }

    #[test]
    fn a_race_that_is_dropped_with_its_stream_frees_its_draws() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let table = table();
        runtime.block_on(async {
            let mut held = HeldRaces::default();
            held.race(1, &table, 4, 10);
            assert_eq!(len(&table), ITEMS - 4);
        });
        assert_eq!(len(&table), ITEMS);
    }
}
