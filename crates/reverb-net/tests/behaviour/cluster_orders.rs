//! Draws from a cluster whose tables draw in an order: in order within a shard, by the sizes of the shards.

use crate::common::cluster::{client_of, fill, seeded, shards, soon};
use crate::common::races::at_rest;
use crate::common::{Receive, draw, here, int64s, item, queue};
use crate::waits;
use reverb_core::SelectorKind::{self, Fifo, Lifo, MaxHeap, MinHeap};
use reverb_service::{BatchRequest, DrawRequest};

const SHARDS: u64 = 3;

/// The shard of an item by its value.
fn shard_of(value: i64) -> usize {
    value as usize / 1000
}

/// The weight of the item with this key: no order of its own.
fn weight(key: u64) -> f64 {
    (key * 37 % 101) as f64
}

#[tokio::test(flavor = "multi_thread")]
async fn items_come_once_and_in_the_order_of_their_shard() {
    let sizes = [5, 60, 17];
    for sampler in [Fifo, Lifo, MinHeap, MaxHeap] {
        let tables: Vec<_> = (0..SHARDS).map(|seed| seeded(seed, sampler.clone(), 1)).collect();
        let servers = shards(&tables);
        let mut expected: Vec<Vec<u64>> = Vec::new();
        for ((shard, table), size) in (0..).zip(&tables).zip(sizes) {
            let keys: Vec<u64> = (0..size).map(|number| 1000 * shard + number).collect();
            fill(table, keys.iter().map(|&key| (key, weight(key))));
            expected.push(in_order(&sampler, keys));
        }
        let client = client_of(&servers);
        let mut drawn = vec![Vec::new(); sizes.len()];
        let mut left = sizes.iter().sum::<u64>();
        while left > 0 {
            let request =
                BatchRequest { draw: DrawRequest { at_least: 1, ..DrawRequest::exactly(7) }, ..draw("table", 1) };
            let batch = client.receive(&request, soon()).await.unwrap();
            let values = int64s(&batch, 0);
            assert_eq!(values.len() as u64, left.min(7));
            assert!(batch.info.probabilities().iter().all(|&probability| probability == 1.0));
            assert!(batch.info.table_sizes().iter().all(|&size| size as u64 <= left), "{:?}", batch.info.table_sizes());
            assert_eq!(batch.info.table_sizes()[0] as u64, left);
            left -= values.len() as u64;
            values.iter().for_each(|&value| drawn[shard_of(value)].push(value as u64));
        }
        assert_eq!(drawn, expected, "{sampler}");
        client.settle(soon().unwrap()).await;
        for table in &tables {
            at_rest(table, 0).await;
        }
    }
}

fn in_order(sampler: &SelectorKind, mut keys: Vec<u64>) -> Vec<u64> {
    match sampler {
        Lifo => keys.reverse(),
        MinHeap => keys.sort_by(|&a, &b| weight(a).total_cmp(&weight(b))),
        MaxHeap => keys.sort_by(|&a, &b| weight(b).total_cmp(&weight(a))),
        _ => {}
    }
    keys
}

#[tokio::test(flavor = "multi_thread")]
async fn shards_are_drawn_from_by_their_sizes() {
    let tables: Vec<_> = (0..SHARDS).map(|seed| seeded(10 + seed, Fifo, 0)).collect();
    let servers = shards(&tables);
    let sizes = [100.0, 0.0, 300.0];
    for ((shard, table), size) in (0..).zip(&tables).zip(sizes) {
        fill(table, (0..size as u64).map(|number| (1000 * shard + number, 1.0)));
    }
    let client = client_of(&servers);
    let (mut counts, batches) = ([0.0; SHARDS as usize], 100);
    for _ in 0..batches {
        let values = int64s(&client.receive(&draw("table", 64), soon()).await.unwrap(), 0);
        // Nothing leaves, so the oldest item of a shard comes again and again.
        assert!(values.iter().all(|value| value % 1000 == 0), "{values:?}");
        values.iter().for_each(|&value| counts[shard_of(value)] += 1.0);
    }
    let all = 64.0 * f64::from(batches);
    let deviation = (all * 0.25 * 0.75).sqrt();
    assert!((counts[2] - 0.75 * all).abs() < 6.0 * deviation && counts[1] == 0.0, "{counts:?}");
}

/// Its limiter keeps at most as many items at each shard as that one may hold.
#[tokio::test(flavor = "multi_thread")]
async fn queues_are_one_queue_of_the_sum_of_their_sizes() {
    let tables: Vec<_> = (0..SHARDS).map(|_| queue("table", 4)).collect();
    let servers = shards(&tables);
    for (first, table) in (0..).step_by(1000).zip(&tables) {
        fill(table, (first..first + 4).map(|key| (key, 1.0)));
    }
    let waiting = waits!(tables[0].insert(vec![item(4)], here()));
    let client = client_of(&servers);
    let mut values = int64s(&client.receive(&draw("table", 12), soon()).await.unwrap(), 0);
    values.sort_unstable();
    assert_eq!(values, [0, 1, 2, 3, 1000, 1001, 1002, 1003, 2000, 2001, 2002, 2003]);
    waiting.result(soon(), |_| {}).await.unwrap();
    assert_eq!(int64s(&client.receive(&draw("table", 1), soon()).await.unwrap(), 0), [4]);
    client.settle(soon().unwrap()).await;
    for table in &tables {
        at_rest(table, 0).await;
    }
}
