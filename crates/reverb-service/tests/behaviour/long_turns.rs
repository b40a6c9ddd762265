//! Calls of many operations, and what others see and do in the meantime.

use crate::common::{config, exactly, here, items, keys, on_answer, queue, set_journal, silent, uniform};
use crate::done;
use crate::waits;
use reverb_core::{Confirmation, Error, SelectorKind, Table, TableConfig};
use reverb_service::lease::Lease;
use reverb_service::{Inserter, Journal, TableHandle, Waiting};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread::{ThreadId, current, spawn};
use std::time::Duration;

/// Maximum number of operations of one call before others get in.
const STEP: usize = 16_384;
const MANY: u64 = 50_000;
const SOON: Duration = Duration::from_secs(20);

fn len(table: &TableHandle) -> usize {
    table.with_table(Table::len)
}

/// Has a small draw wait, and returns it with the number that `look` returns at the moment of its answer.
fn look_at_answer(
    table: &TableHandle,
    look: impl FnOnce(&TableHandle) -> usize + Send + 'static,
) -> (Waiting<Vec<reverb_core::Drawn>>, Arc<AtomicUsize>) {
    let seen = Arc::new(AtomicUsize::new(usize::MAX));
    let waiting = waits!(table.sample(exactly(1), here()));
    let (table, later) = (table.clone(), seen.clone());
    (on_answer(waiting, move || later.store(look(&table), Relaxed)), seen)
}

#[test]
fn a_draw_that_is_served_is_answered_before_a_large_draw_behind_it() {
    let table = uniform("table");
    let (small, waiting) = look_at_answer(&table, |table| table.status().info.waiting_samples.unwrap() as usize);
    let large = waits!(table.sample(exactly(200_000), here()));
    done!(table.insert(items(0..1), here()));
    assert_eq!(waiting.load(Relaxed), 1, "the large draw is not done yet");
    assert_eq!(table.status().info.waiting_samples, Some(0));
    drop((small, large));
}

#[test]
fn a_small_draw_takes_turns_with_a_large_one_before_it() {
    let table = uniform("table");
    let large = waits!(table.sample(exactly(200_000), here()));
    let (small, drawn) = look_at_answer(&table, |table| table.status().info.samples as usize);
    done!(table.insert(items(0..1), here()));
    assert!(drawn.load(Relaxed) <= STEP, "{} draws", drawn.load(Relaxed));
    drop((small, large));
}

#[tokio::test]
async fn draws_that_count_keep_their_order_however_large() {
    let table = queue("table", 2 * MANY);
    let large = waits!(table.sample(exactly(MANY as usize), here()));
    let small = waits!(table.sample(exactly(1), here()));
    done!(table.insert(items(0..MANY + 1), here()));
    assert!(keys(&large.result(None, silent).await.unwrap()).into_iter().eq(0..MANY));
    assert_eq!(keys(&small.result(None, silent).await.unwrap()), [MANY]);
}

/// How far the small insert of [`Relay`] has come.
#[derive(Debug, PartialEq, PartialOrd)]
enum Progress {
    Begins,
    Waits,
    Served,
    Returned,
}

/// Holds two threads at their commits, so that the thread of a large insert serves the small insert of another thread.
#[derive(Debug)]
struct Relay {
    table: TableHandle,
    large: ThreadId,
    progress: Mutex<Option<Progress>>,
    changed: Condvar,
}

impl Relay {
    /// The key of the small insert.
    const SMALL: u64 = 1 << 40;

    fn reach(&self, progress: Progress) {
        let mut now = self.progress.lock().unwrap();
        if now.as_ref() < Some(&progress) {
            *now = Some(progress);
        }
        self.changed.notify_all();
    }

    fn await_progress(&self, progress: Progress) {
        let now = self.progress.lock().unwrap();
        let awaited = Some(&progress);
        let (_now, waited) = self.changed.wait_timeout_while(now, SOON, |now| now.as_ref() < awaited).unwrap();
        assert!(!waited.timed_out(), "waited for {progress:?}");
    }

    fn is_served(&self) -> bool {
        *self.progress.lock().unwrap() >= Some(Progress::Served)
    }
}

impl Journal for Relay {
    fn check(&self) -> reverb_core::Result<()> {
        Ok(())
    }

    fn commit(&self, _: Confirmation) -> reverb_core::Result<()> {
        if current().id() == self.large {
            if self.table.with_table(|table| table.contains(Self::SMALL)) {
                self.reach(Progress::Served);
            }
            self.reach(Progress::Begins);
            self.await_progress(if self.is_served() { Progress::Returned } else { Progress::Waits });
        } else {
            self.reach(Progress::Waits);
            self.await_progress(Progress::Served);
        }
        Ok(())
    }
}

#[test]
fn an_insert_that_another_thread_has_served_does_not_stay_for_the_rest_of_a_large_one() {
    const LARGE: u64 = 20 * STEP as u64;
    let table = uniform("table");
    let relay = Arc::new(Relay {
        table: table.clone(),
        large: current().id(),
        progress: Mutex::new(None),
        changed: Condvar::new(),
    });
    set_journal(&table, relay.clone());
    let (other, seen) = (table.clone(), relay);
    let small = spawn(move || {
        seen.await_progress(Progress::Begins);
        let waiting = waits!(other.insert(items([Relay::SMALL]), Inserter { peer: here(), client: 2 }));
        let inserted = len(&other);
        seen.reach(Progress::Returned);
        (waiting, inserted)
    });
    done!(table.insert(items(0..LARGE), Inserter { peer: here(), client: 1 }));
    let (mut waiting, inserted) = small.join().unwrap();
    assert!(inserted <= LARGE as usize / 2, "{inserted} of {LARGE} items came first");
    assert!(matches!(waiting.poll_result(&mut Context::from_waker(Waker::noop())), Poll::Ready(Ok(()))));
    assert_eq!(len(&table), LARGE as usize + 1);
}

#[test]
fn a_large_draw_that_need_not_wait_is_not_rate_limited() {
    let table = uniform("table");
    done!(table.insert(items(0..1), here()));
    assert!(done!(table.sample(exactly(MANY as usize), here())).iter().all(|drawn| !drawn.rate_limited));
}

#[test]
fn many_samples_return_in_steps() {
    let table = queue("table", MANY);
    done!(table.insert(items(0..MANY), here()));
    let drawn = done!(table.sample(exactly(MANY as usize), here()));
    let (small, back) = look_at_answer(&table, len);
    table.give_back(drawn);
    assert_eq!((back.load(Relaxed), len(&table)), (STEP - 1, MANY as usize - 1));
    drop(small);
    assert_eq!(keys(&done!(table.sample(exactly(MANY as usize), here()))), Vec::from_iter(0..MANY));
}

#[test]
fn samples_on_their_way_back_are_not_taken_for_delivered() {
    let table = queue("table", MANY);
    done!(table.insert(items(0..MANY), here()));
    let drawn = done!(table.sample(exactly(MANY as usize), here()));
    let lease = Lease::drawn(table.clone(), drawn);
    let (small, undelivered) =
        look_at_answer(&table, |table| table.status().info.undelivered_samples.unwrap() as usize);
    drop(lease);
    assert!(undelivered.load(Relaxed) >= MANY as usize - STEP, "{} undelivered", undelivered.load(Relaxed));
    assert_eq!(table.status().info.undelivered_samples, Some(0));
    drop(small);
}

#[test]
fn many_samples_of_a_dropped_draw_return_in_steps() {
    let table = queue("table", MANY);
    let large = waits!(table.sample(exactly(MANY as usize + 1), here()));
    let (small, back) = look_at_answer(&table, len);
    done!(table.insert(items(0..MANY), here()));
    drop(large);
    assert_eq!((back.load(Relaxed), len(&table)), (STEP - 1, MANY as usize - 1));
    drop(small);
    assert_eq!(keys(&done!(table.sample(exactly(MANY as usize), here()))), Vec::from_iter(0..MANY));
}

/// The numbers of changed items that another thread sees while `change(round)` runs, collected until it sees a part of a
/// change or a thousand rounds have passed.
fn seen_meanwhile(
    table: &TableHandle,
    change: impl Fn(u64),
    changed: impl Fn(&TableHandle) -> usize + Sync,
) -> Vec<usize> {
    let (stop, barrier, mut round) = (AtomicBool::new(false), Barrier::new(2), 0);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            barrier.wait();
            let mut parts = Vec::new();
            while !stop.load(Relaxed) {
                let seen = changed(table);
                if !seen.is_multiple_of(MANY as usize) {
                    parts.push(seen);
                    stop.store(true, Relaxed);
                }
            }
            parts
        });
        barrier.wait();
        while !stop.load(Relaxed) && round < 1000 {
            round += 1;
            change(round);
        }
        stop.store(true, Relaxed);
        watcher.join().unwrap()
    })
}

#[test]
fn many_updates_let_others_see_a_part_of_them() {
    let table = uniform("table");
    done!(table.insert(items(0..MANY), here()));
    let update = |round: u64| {
        let updates: Vec<_> = (0..MANY).map(|key| (key, (round % 2) as f64)).collect();
        table.mutate(&updates, &[]).unwrap();
    };
    update(0);
    // Updates are made in the order of their keys.
    let changed = |table: &Table| {
        let priority = |key| table.get(key).unwrap().priority;
        let (mut low, mut high) = (0, MANY);
        while low < high {
            let middle = (low + high) / 2;
            if priority(middle) == priority(0) { low = middle + 1 } else { high = middle }
        }
        low as usize
    };
    let parts = seen_meanwhile(&table, update, |table| table.with_table(changed));
    assert!(!parts.is_empty() && parts.iter().all(|part| part % STEP == 0), "{parts:?}");
}

#[test]
fn many_deletes_let_others_see_a_part_of_them() {
    let table = uniform("table");
    let replace = |_| {
        done!(table.insert(items(0..MANY), here()));
        table.mutate(&[], &Vec::from_iter(0..MANY)).unwrap();
    };
    let parts = seen_meanwhile(&table, replace, |table| table.status().info.removed.unwrap().deleted as usize);
    assert!(!parts.is_empty() && parts.iter().all(|part| (part % MANY as usize).is_multiple_of(STEP)), "{parts:?}");
}

#[test]
fn others_get_in_while_many_draws_are_noted_as_delivered() {
    let table = queue("table", MANY);
    let deliver = |_| {
        done!(table.insert(items(0..MANY), here()));
        let drawn = done!(table.sample(exactly(MANY as usize), here()));
        table.delivered(&drawn).unwrap();
    };
    // While the table is not empty, the batch is still being drawn.
    let left = |table: &Table| if table.is_empty() { table.num_tracked_draws() } else { 0 };
    let parts = seen_meanwhile(&table, deliver, |table| table.with_table(left));
    assert!(!parts.is_empty() && parts.iter().all(|part| (MANY as usize - part).is_multiple_of(STEP)), "{parts:?}");
}

#[test]
fn all_priorities_are_checked_before_the_first_is_applied() {
    let kind = SelectorKind::Prioritized { priority_exponent: 1.0 };
    let table = TableHandle::new(Table::new(TableConfig { sampler: kind, ..config("table") }).unwrap());
    done!(table.insert(items(0..MANY), here()));
    let mut updates: Vec<_> = (0..MANY).map(|key| (key, 2.0)).collect();
    updates.last_mut().unwrap().1 = -1.0;
    let error = table.mutate(&updates, &Vec::from_iter(0..MANY)).unwrap_err();
    let Error::InvalidPriority(text) = error else { panic!("{error:?}") };
    assert!(text.contains("Its key is 49999. Nothing was changed."), "{text}");
    assert_eq!(len(&table), MANY as usize);
    assert!(table.with_table(|table| (0..MANY).all(|key| table.get(key).unwrap().priority == 1.0)));
}
