//! Draws from a cluster of which a shard is lost, or does not answer, and returns: what each policy does.

use crate::common::cluster::{client, client_of, fill, seeded, shard, shard_of, shards, soon};
use crate::common::faucet::Faucet;
use crate::common::races::at_rest;
use crate::common::{Receive, SOON, draw, eventually, int64s};
use reverb_core::{Error, SelectorKind};
use reverb_net::client::Client;
use reverb_net::server::{End, Server};
use reverb_net::transport::cluster::OnShardLoss;
use reverb_service::TableHandle;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time after which a shard is missing that does not answer.
const SHORT: Duration = Duration::from_secs(3);
const POLICIES: [OnShardLoss; 3] = [OnShardLoss::Continue, OnShardLoss::Wait, OnShardLoss::Raise];

/// A table of each shard, with an item of value 1, 2 or 3.
fn tables() -> [TableHandle; 3] {
    [1, 2, 3].map(table)
}

fn table(key: u64) -> TableHandle {
    let table = seeded(key, SelectorKind::Uniform, 0);
    fill(&table, [(key, 1.0)]);
    table
}

/// Draws a batch, and returns its values without repetitions, and the sizes of the table at its draws. A draw of a table of
/// two items is never of the third.
async fn batch(client: &Client, count: usize) -> Result<(Vec<i64>, Vec<i64>), Error> {
    let batch = client.receive(&draw("table", count), soon()).await?;
    let (mut values, mut sizes) = (int64s(&batch, 0), batch.info.table_sizes().to_vec());
    assert_eq!(values.len(), count);
    assert!(values.iter().zip(&sizes).all(|(value, size)| value <= size), "of a shard that does not take part");
    for numbers in [&mut values, &mut sizes] {
        numbers.sort_unstable();
        numbers.dedup();
    }
    Ok((values, sizes))
}

/// As [`batch`], of shards that do not come or go meanwhile. All their items are in it.
async fn values(client: &Client) -> Result<Vec<i64>, Error> {
    let (values, sizes) = batch(client, 64).await?;
    assert_eq!(sizes, [values.len() as i64], "of a part of the shards");
    Ok(values)
}

/// Draws until a batch has these values. A batch may take several rounds, and a shard may return between two of them: these
/// take so many that it nearly always does.
async fn until(client: &Client, expected: &[i64]) {
    let deadline = Instant::now() + SOON;
    let whole = (expected.to_vec(), vec![expected.len() as i64]);
    while batch(client, 100_000).await.ok().as_ref() != Some(&whole) {
        assert!(Instant::now() < deadline, "{expected:?} are not drawn");
    }
}

fn missing(client: &Client) -> Vec<String> {
    client.cluster_counts().unwrap().missing.iter().map(|peer| peer.to_string()).collect()
}

fn stop(server: &mut Server, end: End) {
    tokio::task::block_in_place(|| server.end(end)).unwrap();
}

#[track_caller]
fn assert_raised(result: Result<Vec<i64>, Error>, peer: &str) {
    let Err(Error::Unavailable(text)) = result else { panic!("{result:?}") };
    assert!(text.contains(&format!("shard 2 at {peer} is missing: ")), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_is_stopped_and_returns() {
    for policy in POLICIES {
        let tables = tables();
        let mut servers = shards(&tables);
        let ports: Vec<_> = servers.iter().map(Server::port).collect();
        let peer = format!("ipv4:127.0.0.1:{}", ports[2]);
        let client = Arc::new(client(&ports, policy, SOON));
        assert_eq!(values(&client).await.unwrap(), [1, 2, 3]);
        stop(&mut servers[2], End::Returns);
        let again = || shard_of("replay", 2, &table(3), Some(ports[2]));
        let _server = match policy {
            OnShardLoss::Continue => {
                for _ in 0..5 {
                    assert_eq!(values(&client).await.unwrap(), [1, 2]);
                }
                assert_eq!(missing(&client), [peer.as_str()]);
                again()
            }
            OnShardLoss::Raise => {
                for _ in 0..2 {
                    assert_raised(values(&client).await, &peer);
                }
                let request = draw("table", 1);
                let persistent = client.receive_persistently(&request, soon(), SOON).await;
                assert_raised(persistent.map(|batch| int64s(&batch, 0)), &peer);
                again()
            }
            OnShardLoss::Wait => {
                let Err(Error::DeadlineExceeded(text)) =
                    client.receive(&draw("table", 64), Some(Instant::now() + SHORT)).await
                else {
                    panic!("a shard is missing")
                };
                assert!(text.contains(&format!("shard 2 at {peer} is missing: ")), "{text}");
                let drawing = client.clone();
                let waiting = tokio::spawn(async move { values(&drawing).await });
                eventually("it waits", || client.cluster_counts().unwrap().missing.len() == 1).await;
                let server = again();
                assert_eq!(waiting.await.unwrap().unwrap(), [1, 2, 3]);
                server
            }
        };
        until(&client, &[1, 2, 3]).await;
        assert!(client.cluster_counts().unwrap().missing.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_does_not_answer_and_answers_again() {
    for policy in POLICIES {
        let tables = tables();
        let servers = shards(&tables);
        let faucet = Faucet::before(servers[2].port()).await;
        let ports = [servers[0].port(), servers[1].port(), faucet.port];
        let peer = format!("ipv4:127.0.0.1:{}", faucet.port);
        let client = Arc::new(client(&ports, policy, SHORT));
        until(&client, &[1, 2, 3]).await;
        faucet.close();
        match policy {
            OnShardLoss::Continue => {
                for _ in 0..5 {
                    assert_eq!(values(&client).await.unwrap(), [1, 2]);
                }
                assert_eq!(missing(&client), [peer.as_str()]);
                faucet.open();
            }
            OnShardLoss::Raise => {
                for _ in 0..2 {
                    assert_raised(values(&client).await, &peer);
                }
                faucet.open();
            }
            OnShardLoss::Wait => {
                let drawing = client.clone();
                let waiting = tokio::spawn(async move { values(&drawing).await });
                eventually("it waits", || client.cluster_counts().unwrap().missing.len() == 1).await;
                faucet.open();
                assert_eq!(waiting.await.unwrap().unwrap(), [1, 2, 3]);
            }
        }
        until(&client, &[1, 2, 3]).await;
        client.settle(Instant::now() + SOON).await;
        for table in &tables {
            at_rest(table, 1).await;
        }
    }
}

/// The draws that the silent shard holds go back in time.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_without_a_silent_shard_has_each_item_once_and_that_shard_loses_none() {
    let tables = [1, 2, 3].map(|seed| seeded(seed, SelectorKind::Uniform, 1));
    tables.iter().zip([0, 100, 200]).for_each(|(table, first)| fill(table, (first..first + 20).map(|key| (key, 1.0))));
    let servers = shards(&tables);
    let faucet = Faucet::before(servers[2].port()).await;
    let client = client(&[servers[0].port(), servers[1].port(), faucet.port], OnShardLoss::Continue, SHORT);
    client.receive(&draw("table", 1), soon()).await.unwrap();
    client.settle(Instant::now() + SOON).await;
    let left = tables[2].with_table(|table| table.len());
    faucet.close();
    let mut all = Vec::new();
    for _ in 0..3 {
        all.extend(int64s(&client.receive(&draw("table", 10), soon()).await.unwrap(), 0));
    }
    assert!(all.iter().all(|&value| value < 200), "{all:?}");
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 30, "each once");
    faucet.open();
    at_rest(&tables[2], left).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_is_down_at_first_takes_part_once_it_answers() {
    let tables = tables();
    let mut servers = shards(&tables);
    let ports: Vec<_> = servers.iter().map(Server::port).collect();
    drop(servers.pop());
    let client = client(&ports, OnShardLoss::Continue, SOON);
    assert_eq!(values(&client).await.unwrap(), [1, 2]);
    let _third = shard_of("replay", 2, &table(3), Some(ports[2]));
    until(&client, &[1, 2, 3]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_has_stopped_once_all_its_shards_were_stopped_for_good() {
    for waits in [false, true] {
        let tables = [1, 2].map(|seed| seeded(seed, SelectorKind::Uniform, 0));
        let mut servers = shards(&tables);
        let client = Arc::new(client_of(&servers));
        if !waits {
            fill(&tables[1], [(2, 1.0)]);
            assert_eq!(int64s(&client.receive(&draw("table", 1), soon()).await.unwrap(), 0), [2]);
        }
        stop(&mut servers[0], End::ForGood);
        if !waits {
            assert_eq!(int64s(&client.receive(&draw("table", 1), soon()).await.unwrap(), 0), [2], "one is only lost");
        }
        let drawing = client.clone();
        let waiting = waits.then(|| tokio::spawn(async move { drawing.receive(&draw("table", 1), soon()).await }));
        stop(&mut servers[1], End::ForGood);
        if let Some(waiting) = waiting {
            let _any = waiting.await.unwrap().unwrap_err();
        } else {
            let error = client.receive(&draw("table", 1), soon()).await.unwrap_err();
            assert!(matches!(error, Error::ServerStopped(_)), "{error:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_which_a_part_is_lost_goes_back_whole() {
    let tables = [1, 2].map(|seed| seeded(seed, SelectorKind::Uniform, 1));
    tables.iter().zip([0, 10]).for_each(|(table, first)| fill(table, (first..first + 4).map(|key| (key, 1.0))));
    let mut servers = vec![shard(0, &tables[0]), shard(1, &tables[1])];
    let client = client_of(&servers);
    let sampled = client.sample(&draw("table", 8), soon()).await.unwrap();
    let mut draw_of = sampled.draw.unwrap();
    stop(&mut servers[1], End::Returns);
    eventually("the loss is noticed", || draw_of.is_lost()).await;
    assert!(matches!(draw_of.received(false), Err(Error::Unavailable(_) | Error::CallCancelled(_))));
    assert!(draw_of.received(false).is_err() && draw_of.is_lost());
    at_rest(&tables[0], 4).await;
    let batch = client.receive(&draw("table", 4), soon()).await.unwrap();
    assert_eq!(batch.info.len(), 4, "the client goes on");
}
