//! Draws from all shards of a cluster: as from one table, whatever lies where.

use crate::common::cluster;
use crate::common::cluster::{client_of, fill, seeded, shard, shard_of, shards, soon};
use crate::common::races::{at_rest, figures, len};
use crate::common::{Receive, SOON, draw, int64s, server};
use reverb_core::{Error, SelectorKind};
use reverb_net::client::{Client, Sampled};
use reverb_net::server::Server;
use reverb_net::transport::cluster::OnShardLoss;
use reverb_service::{Batch, BatchRequest, DrawRequest, TableHandle};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const SHARDS: u64 = 8;
const BATCH: usize = 64;
const PRIORITIZED: SelectorKind = SelectorKind::Prioritized { priority_exponent: 1.0 };

/// The value of an item: its shard, its weight, and a number.
fn value(shard: u64, weight: u64, number: u64) -> u64 {
    shard * 1_000_000 + weight * 10_000 + number
}

/// The shard and the weight of an item.
fn cell(value: i64) -> (u64, u64) {
    let value = value as u64;
    (value / 1_000_000, value / 10_000 % 100)
}

/// The number of items of each cell. The last shard has twenty times as many as others.
fn sizes() -> BTreeMap<(u64, u64), u64> {
    let size = |shard: u64, weight: u64| if shard == SHARDS - 1 { 20 * 12 } else { 6 + shard + weight };
    (0..SHARDS).flat_map(|shard| (1..=5).map(move |weight| ((shard, weight), size(shard, weight)))).collect()
}

fn fill_shard(table: &TableHandle, shard: u64, sizes: &BTreeMap<(u64, u64), u64>) {
    for (&(of, weight), &size) in sizes.iter().filter(|((of, _), _)| *of == shard) {
        fill(table, (0..size).map(|number| (value(of, weight, number), weight as f64)));
    }
}

/// Draws batches, and returns how often items of each cell came. Checks what each row says of its draw.
async fn counts(
    client: &Client,
    batches: usize,
    weights: &BTreeMap<(u64, u64), f64>,
    is_uniform: bool,
    size: u64,
) -> BTreeMap<(u64, u64), u64> {
    let (mut counts, total) = (BTreeMap::new(), weights.values().sum::<f64>());
    for _ in 0..batches {
        let batch = client.receive(&draw("table", BATCH), soon()).await.unwrap();
        let values = int64s(&batch, 0);
        assert_eq!((values.len(), batch.info.len()), (BATCH, BATCH));
        let rows = values.iter().zip(batch.info.keys()).zip(batch.info.probabilities());
        for (((&value, &key), &probability), &of) in rows.zip(batch.info.table_sizes()) {
            assert_eq!((value as u64, of), (key, size as i64));
            let cell = cell(value);
            let weight = if is_uniform { 1.0 } else { cell.1 as f64 };
            assert!((probability * total / weight - 1.0).abs() < 1e-9, "{probability} of {cell:?}");
            *counts.entry(cell).or_default() += 1;
        }
    }
    counts
}

/// How far counts are from what they should be, in standard deviations of chi-square.
fn z(counts: &BTreeMap<(u64, u64), u64>, weights: &BTreeMap<(u64, u64), f64>) -> f64 {
    let (drawn, total) = (counts.values().sum::<u64>() as f64, weights.values().sum::<f64>());
    let terms = weights.iter().map(|(cell, weight)| {
        let expected = drawn * weight / total;
        (counts.get(cell).copied().unwrap_or_default() as f64 - expected).powi(2) / expected
    });
    let freedom = (weights.len() - 1) as f64;
    (terms.sum::<f64>() - freedom) / (2.0 * freedom).sqrt()
}

#[tokio::test(flavor = "multi_thread")]
async fn items_of_all_shards_are_drawn_by_their_weights() {
    for (sampler, is_uniform) in [(SelectorKind::Uniform, true), (PRIORITIZED, false)] {
        let tables: Vec<_> = (0..SHARDS).map(|shard| seeded(100 + shard, sampler.clone(), 0)).collect();
        let servers = shards(&tables);
        let client = client_of(&servers);
        let weigh = |((shard, weight), size): (&(u64, u64), &u64)| {
            let of_one = if is_uniform { 1 } else { *weight };
            ((*shard, *weight), (size * of_one) as f64)
        };
        // At first, some shards are empty, also that with most items.
        let all = sizes();
        let mut present: BTreeMap<_, _> = BTreeMap::new();
        for filled in [&[0, 1, 2, 3][..], &[7, 4], &[5, 6]] {
            for &shard in filled {
                fill_shard(&tables[shard as usize], shard, &all);
                present.extend(all.range((shard, 0)..(shard + 1, 0)).map(|(cell, size)| (*cell, *size)));
            }
            let weights: BTreeMap<_, _> = present.iter().map(weigh).collect();
            let counts = counts(&client, 150, &weights, is_uniform, present.values().sum()).await;
            let z = z(&counts, &weights);
            assert!(z.abs() < 6.0, "z = {z} for shards {filled:?}, uniform: {is_uniform}");
        }
        let counts = client.cluster_counts().unwrap();
        assert!(counts.rounds >= 450 && counts.missing.is_empty(), "{counts:?}");
        // The races that all shards answer have few arrivals too many; only the first ones do not know the sums.
        assert!(counts.spare_arrivals < counts.rounds * BATCH as u64, "{counts:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn items_of_weight_zero_everywhere_are_drawn_by_sizes() {
    let tables = [1, 2, 3].map(|seed| seeded(seed, PRIORITIZED, 0));
    let servers = shards(&tables);
    for (shard, size) in [(0, 10), (1, 30), (2, 60)] {
        fill(&tables[shard], (0..size).map(|number| (value(shard as u64, 0, number), 0.0)));
    }
    let weights = BTreeMap::from([((0, 0), 10.0), ((1, 0), 30.0), ((2, 0), 60.0)]);
    let counts = counts(&client_of(&servers), 100, &weights, true, 100).await;
    assert!(z(&counts, &weights).abs() < 6.0, "{counts:?}");
}

/// Draws until a batch of another size comes, which has the rest.
async fn draw_all(client: Client, batch: usize) -> Vec<i64> {
    let mut all = Vec::new();
    let request = BatchRequest { draw: DrawRequest { at_least: 1, ..DrawRequest::exactly(batch) }, ..draw("table", 1) };
    loop {
        match client.receive(&request, Some(Instant::now() + Duration::from_secs(3))).await {
            Ok(batch) => all.extend(int64s(&batch, 0)),
            Err(Error::DeadlineExceeded(text)) => {
                assert!(text.contains("0 of 1 item over 3 shards"), "{text}");
                return all;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn items_that_are_drawn_once_come_exactly_once_over_several_clients() {
    let tables = [1, 2, 3].map(|seed| seeded(seed, SelectorKind::Uniform, 1));
    let servers = shards(&tables);
    for (shard, size) in [(0, 5), (1, 200), (2, 40)] {
        fill(&tables[shard], (0..size).map(|number| (value(shard as u64, 1, number), 1.0)));
    }
    let clients = [8, 24, 7].map(|batch| tokio::spawn(draw_all(client_of(&servers), batch)));
    let mut all = Vec::new();
    for client in clients {
        all.extend(client.await.unwrap());
    }
    all.sort_unstable();
    let expected =
        [(0, 5), (1, 200), (2, 40)].into_iter().flat_map(|(of, size)| (0..size).map(move |i| value(of, 1, i)));
    assert_eq!(all, expected.map(|value| value as i64).collect::<Vec<_>>());
    for table in &tables {
        at_rest(table, 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draw_waits_for_items_of_any_shard_and_holds_none_meanwhile() {
    let tables = [1, 2].map(|seed| seeded(seed, SelectorKind::Uniform, 1));
    let servers = shards(&tables);
    let client = client_of(&servers);
    // It is connected before a deadline is short.
    fill(&tables[0], [(9, 1.0)]);
    assert_eq!(int64s(&client.receive(&draw("table", 1), soon()).await.unwrap(), 0), [9]);
    fill(&tables[0], [(1, 1.0), (2, 1.0)]);
    let request = draw("table", 3);
    // The deadline passes: what is there is drawn, as from one table.
    let batch = client.receive(&request, Some(Instant::now())).await.unwrap();
    assert_eq!(batch.info.len(), 2);
    let Err(Error::DeadlineExceeded(text)) = client.receive(&request, Some(Instant::now())).await else {
        panic!("there are no items")
    };
    assert!(text.starts_with("sample of table `table` waits: 0 of 3 items over 2 shards\n"), "{text}");
    fill(&tables[0], [(3, 1.0)]);
    let waiting = tokio::spawn(async move { client.receive(&draw("table", 3), soon()).await });
    // Others get what it waits with.
    let other = client_of(&servers);
    assert_eq!(int64s(&other.receive(&draw("table", 1), soon()).await.unwrap(), 0), [3]);
    fill(&tables[1], [(4, 1.0), (5, 1.0), (6, 1.0)]);
    let mut values = int64s(&waiting.await.unwrap().unwrap(), 0);
    values.sort_unstable();
    assert_eq!(values, [4, 5, 6]);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_parts_of_a_batch_are_acknowledged_or_given_back_together() {
    let tables = [1, 2, 3].map(|seed| seeded(seed, SelectorKind::Uniform, 1));
    let servers = shards(&tables);
    for (first, table) in (0..).step_by(10).zip(&tables) {
        fill(table, (first..first + 8).map(|key| (key, 1.0)));
    }
    let client = client_of(&servers);
    let request = draw("table", 12);
    let left = || tables.iter().map(len).sum::<usize>();
    // Dropped.
    drop(client.sample(&request, soon()).await.unwrap());
    all_at_rest(&tables).await;
    // Given back after it was acknowledged.
    let Sampled { batch, draw } = client.sample(&request, soon()).await.unwrap();
    let mut draw = draw.unwrap();
    assert_eq!((batch.info.len(), left()), (12, 12));
    assert!(draw.is_ready() && !draw.is_lost() && !draw.is_local());
    draw.received(true).unwrap();
    draw.give_back().await;
    all_at_rest(&tables).await;
    // Begun and given up, before and after it is there.
    drop(client.begin_sample(&request, soon(), None, false).await.unwrap());
    let mut begun = client.begin_sample(&request, soon(), None, false).await.unwrap();
    assert_eq!(begun.result().await.unwrap().info.len(), 12);
    assert!(matches!(begun.result().await, Err(Error::Cancelled(_))), "it was taken");
    begun.give_back().await;
    all_at_rest(&tables).await;
    // Received.
    let mut begun = client.begin_sample(&request, soon(), None, false).await.unwrap();
    begun.result().await.unwrap();
    begun.received(false).unwrap();
    client.settle(Instant::now() + SOON).await;
    assert_eq!((left(), tables.iter().map(|table| figures(table).1[0]).sum::<u64>()), (12, 0));
}

/// Waits until all items are in the tables again.
async fn all_at_rest(tables: &[TableHandle]) {
    for table in tables {
        at_rest(table, 8).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_axis_is_dropped_only_if_that_is_asked_for() {
    let tables = [1, 2].map(|seed| seeded(seed, SelectorKind::Uniform, 0));
    let servers = shards(&tables);
    tables.iter().zip([1, 2]).for_each(|(table, key)| fill(table, [(key, 1.0)]));
    let client = client_of(&servers);
    for squeeze_time in [false, true] {
        let request = BatchRequest { squeeze_time, ..draw("table", 16) };
        let batch: Batch = client.receive(&request, soon()).await.unwrap();
        let shape: &[usize] = if squeeze_time { &[16] } else { &[16, 1] };
        assert_eq!(&batch.layout.columns[0].shape[..], shape);
    }
}

async fn refused(client: &Client, text: &str) {
    let Err(Error::InvalidArgument(reason)) = client.receive(&draw("table", 1), soon()).await else {
        panic!("{text} was expected")
    };
    assert!(reason.contains(text), "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_are_no_shards_of_one_cluster_are_refused_by_name() {
    let table = || {
        let table = seeded(1, SelectorKind::Uniform, 0);
        fill(&table, [(1, 1.0)]);
        table
    };
    let (first, tables) = (shard(0, &table()), [table(), table()]);
    let plain = server(vec![table()]);
    refused(&of(&[&first, &plain]), &format!("the server at ipv4:127.0.0.1:{} is none", plain.port())).await;
    let other = shard_of("other", 1, &tables[0], None);
    refused(&of(&[&first, &other]), "is shard 1 of cluster `other-").await;
    let third = shard(2, &tables[1]);
    let batch = of(&[&first, &third]).receive(&draw("table", 1), soon()).await.unwrap();
    assert_eq!(batch.info.table_sizes(), [2]);
    for (request, text) in [(0, "must be > 0"), (1 << 21, "exceeds the maximum")] {
        let error = of(&[&first, &third]).receive(&draw("table", request), soon()).await.unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
    }
    let Err(Error::TableNotFound { known, .. }) = of(&[&first, &third]).receive(&draw("nowhere", 1), soon()).await
    else {
        panic!("there is no such table")
    };
    assert_eq!(known, "table");
}

fn of(shards: &[&Server]) -> Client {
    let ports: Vec<_> = shards.iter().map(|shard| shard.port()).collect();
    cluster::client(&ports, OnShardLoss::Continue, SOON)
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_servers_that_are_one_shard_the_newer_counts() {
    let tables = [1, 2, 3].map(|seed| seeded(seed, SelectorKind::Uniform, 0));
    tables.iter().zip([10, 20, 30]).for_each(|(table, key)| fill(table, [(key, 1.0)]));
    let (first, older) = (shard(0, &tables[0]), shard(1, &tables[1]));
    // Nobody listens at the third address at first.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let client = cluster::client(&[first.port(), older.port(), port], OnShardLoss::Continue, SOON);
    let values = async || {
        let mut values = int64s(&client.receive(&draw("table", 64), soon()).await.unwrap(), 0);
        values.sort_unstable();
        values.dedup();
        values
    };
    assert_eq!(values().await, [10, 20]);
    let _newer = shard_of("replay", 1, &tables[2], Some(port));
    let deadline = Instant::now() + SOON;
    while values().await != [10, 30] {
        assert!(Instant::now() < deadline, "the newer one does not count");
    }
    assert_eq!(values().await, [10, 30]);
}
