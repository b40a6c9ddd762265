//! Races between the end of a request and its service.

use crate::common::{self, exactly, here, item, items, keys, on_answer, queue, silent};
use crate::done;
use crate::waits;
use rand::{Rng, SeedableRng, rngs::StdRng};
use reverb_core::{Error, RateLimiterConfig, SelectorKind, Table, TableConfig};
use reverb_service::{Call, DrawRequest, TableHandle};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

fn len(table: &TableHandle) -> usize {
    table.with_table(|table| table.len())
}

#[test]
fn a_sample_dropped_in_the_moment_it_is_served_is_not_lost() {
    const COUNT: u64 = 3000;
    let table = queue("table", 10);
    let barrier = Barrier::new(2);
    // Failures are collected, because a panic would leave the other thread at the barrier.
    let mut lost = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for key in 0..COUNT {
                barrier.wait();
                drop(table.insert(vec![item(key)], here()));
                barrier.wait();
            }
        });
        for key in 0..COUNT {
            let waiting = table.sample(exactly(1), here());
            barrier.wait();
            for _ in 0..key % 50 {
                std::hint::spin_loop();
            }
            drop(waiting);
            barrier.wait();
            // Both the insert and the drop have returned, so the later one has put the item back.
            match table.sample(exactly(1), here()) {
                Call::Done(Ok(drawn)) if keys(&drawn) == [key] => {}
                other => lost.push((key, other)),
            }
        }
    });
    assert!(lost.is_empty(), "{lost:?}");
    let info = table.status().info;
    let deletes = table.with_table(|table| table.limiter().deletes);
    assert_eq!((info.inserts, info.samples, deletes), (COUNT as i64, COUNT as i64, COUNT as i64));
}

#[test]
fn a_sample_dropped_before_its_answer_is_sent_is_not_lost() {
    let table = queue("table", 10);
    let first = waits!(table.sample(exactly(1), here()));
    let second = waits!(table.sample(exactly(1), here()));
    // One turn serves both, and the first answer is sent before the second.
    let first = on_answer(first, move || drop(second));
    done!(table.insert(items(0..2), here()));
    assert_eq!(len(&table), 1, "the second item is back");
    drop(first);
    assert_eq!(len(&table), 2);
}

#[test]
fn a_sample_dropped_at_its_deadline_while_its_answer_is_on_its_way_is_not_lost() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let _entered = runtime.enter();
    let table = queue("table", 10);
    let first = waits!(table.sample(exactly(1), here()));
    let second = waits!(table.sample(exactly(1), here()));
    let expired = Arc::new(Mutex::new(None));
    let first = on_answer(first, {
        let (table, expired) = (table.clone(), expired.clone());
        move || {
            let mut result = Box::pin(second.result(Some(Instant::now() - Duration::from_secs(1)), silent));
            assert!(result.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            assert_eq!(len(&table), 0, "the request was served, although its answer is not here");
            *expired.lock().unwrap() = Some(result);
        }
    });
    done!(table.insert(items(0..2), here()));
    let expired = expired.lock().unwrap().take();
    assert!(expired.is_some());
    // The answer has arrived, but the future is not polled again.
    drop(expired);
    assert_eq!(len(&table), 1, "the second item is back");
    drop(first);
}

/// The items that each producer knows to be inserted.
#[derive(Default)]
struct Ledger {
    whole: Vec<Vec<u64>>,
    partly: Vec<Vec<u64>>,
}

async fn produce(table: TableHandle, seed: u64, next_key: Arc<AtomicU64>) -> Ledger {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut ledger = Ledger::default();
    for _ in 0..400 {
        let count = rng.random_range(1..6);
        let first = next_key.fetch_add(count, Relaxed);
        let keys: Vec<u64> = (first..first + count).collect();
        let whole = match (table.insert(items(keys.clone()), here()), rng.random_range(0..4)) {
            (Call::Done(result), _) => result.is_ok(),
            (Call::Waiting(waiting), 0) => {
                tokio::time::sleep(Duration::from_micros(rng.random_range(0..500))).await;
                drop(waiting);
                false
            }
            (Call::Waiting(waiting), 1) => {
                let deadline = Instant::now() + Duration::from_micros(rng.random_range(0..2000));
                waiting.result(Some(deadline), silent).await.is_ok()
            }
            (Call::Waiting(waiting), _) => waiting.result(None, silent).await.is_ok(),
        };
        if whole { ledger.whole.push(keys) } else { ledger.partly.push(keys) }
    }
    ledger
}

async fn consume(table: TableHandle, seed: u64, stop: Arc<AtomicBool>) -> Vec<u64> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut consumed = Vec::new();
    while !stop.load(Relaxed) {
        let at_most = rng.random_range(1..8);
        let request = DrawRequest { at_least: rng.random_range(1..=at_most), at_most, ahead: 0, is_ahead: false };
        let result = match table.sample(request, here()) {
            Call::Done(result) => result,
            Call::Waiting(waiting) => {
                let deadline = Instant::now() + Duration::from_micros(rng.random_range(0..3000));
                let result = waiting.result(Some(deadline), silent);
                if rng.random_bool(0.5) {
                    // The task may be dropped in any state: waiting, expiring, served.
                    match tokio::time::timeout(Duration::from_micros(rng.random_range(0..3000)), result).await {
                        Ok(result) => result,
                        Err(_) => continue,
                    }
                } else {
                    result.await
                }
            }
        };
        match result {
            Ok(drawn) if rng.random_bool(0.2) => table.give_back(drawn),
            Ok(drawn) => consumed.extend(keys(&drawn)),
            Err(Error::DeadlineExceeded(_)) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
    consumed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_queue_with_many_producers_and_consumers_loses_nothing_and_duplicates_nothing() {
    for round in 0..5 {
        // Spare room: an item that returns to a table that was filled up meanwhile would be evicted.
        let limiter = queue("table", 10).with_table(|table| table.config().rate_limiter.clone());
        let sampler = SelectorKind::Fifo;
        let config = TableConfig { sampler, max_times_sampled: 1, rate_limiter: limiter, ..common::config("table") };
        let table = TableHandle::new(Table::new(config).unwrap());
        let (next_key, stop) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let producers: Vec<_> =
            (0..4).map(|seed| tokio::spawn(produce(table.clone(), 100 * round + seed, next_key.clone()))).collect();
        let consumers: Vec<_> =
            (0..4).map(|seed| tokio::spawn(consume(table.clone(), 100 * round + 50 + seed, stop.clone()))).collect();
        let mut ledgers = Vec::new();
        for producer in producers {
            ledgers.push(producer.await.unwrap());
        }
        stop.store(true, Relaxed);
        let mut consumed = Vec::new();
        for consumer in consumers {
            consumed.extend(consumer.await.unwrap());
        }
        let left = len(&table);
        if left > 0 {
            consumed.extend(keys(&done!(table.sample(exactly(left), here()))));
        }
        check_books(&table, &ledgers, &consumed);
    }
}

fn check_books(table: &TableHandle, ledgers: &[Ledger], consumed: &[u64]) {
    let seen: HashSet<u64> = consumed.iter().copied().collect();
    let mut counts = HashMap::new();
    consumed.iter().for_each(|key| *counts.entry(key).or_insert(0) += 1);
    let twice: Vec<_> = counts.into_iter().filter(|&(_, count)| count > 1).collect();
    assert!(twice.is_empty(), "drawn more than once: {twice:?}");
    for keys in ledgers.iter().flat_map(|ledger| &ledger.whole) {
        assert!(keys.iter().all(|key| seen.contains(key)), "lost of {keys:?}");
    }
    for keys in ledgers.iter().flat_map(|ledger| &ledger.partly) {
        let inserted = keys.iter().filter(|key| seen.contains(key)).count();
        assert!(keys[..inserted].iter().all(|key| seen.contains(key)), "not the beginning of {keys:?}");
    }
    let status = table.status();
    assert_eq!((status.info.waiting_inserts, status.info.waiting_samples), (Some(0), Some(0)));
    let count = consumed.len() as i64;
    let deletes = table.with_table(|table| table.limiter().deletes);
    assert_eq!((status.info.inserts, status.info.samples, deletes), (count, count, count));
}

#[test]
fn a_long_turn_lets_others_in_and_loses_nothing() {
    let limiter =
        RateLimiterConfig { samples_per_insert: 1.0, min_size_to_sample: 1, min_diff: -f64::MAX, max_diff: f64::MAX };
    let config = TableConfig {
        sampler: SelectorKind::Fifo,
        max_times_sampled: 1,
        rate_limiter: limiter,
        ..common::config("table")
    };
    let table = TableHandle::new(Table::new(config).unwrap());
    let batches: Vec<_> = (0..4).map(|i| items(i * 20_000..(i + 1) * 20_000)).collect();
    let mut consumed: Vec<u64> = std::thread::scope(|scope| {
        for batch in batches {
            scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
                if let Call::Waiting(waiting) = table.insert(batch, here()) {
                    runtime.block_on(waiting.result(None, silent)).unwrap();
                }
            });
        }
        let consume = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            let mut consumed = Vec::new();
            while consumed.len() < 40_000 {
                let drawn = match table.sample(exactly(100), here()) {
                    Call::Done(result) => result.unwrap(),
                    Call::Waiting(waiting) => runtime.block_on(waiting.result(None, silent)).unwrap(),
                };
                consumed.extend(keys(&drawn));
            }
            consumed
        };
        let consumers = [scope.spawn(consume), scope.spawn(consume)];
        consumers.into_iter().flat_map(|consumer| consumer.join().unwrap()).collect()
    });
    consumed.sort_unstable();
    assert!(consumed.into_iter().eq(0..80_000));
}
