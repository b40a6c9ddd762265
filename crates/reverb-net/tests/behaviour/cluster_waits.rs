//! Draws from a cluster that has too little: what they wait for, what ends the wait, and what it costs.

use crate::common::cluster::{client, client_of, fill, seeded, shard_of, shards, soon, with_min_size};
use crate::common::faucet::Faucet;
use crate::common::races::{at_rest, len};
use crate::common::{Receive, SOON, draw, eventually, here, int64s, item};
use crate::done;
use reverb_core::{Error, RateLimiterConfig, Result, SelectorKind, TableChanges};
use reverb_net::client::Client;
use reverb_net::server::{End, Server};
use reverb_net::transport::cluster::OnShardLoss;
use reverb_service::{Batch, TableHandle, WaitKind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Time after which a shard is missing that does not answer.
const SHORT: Duration = Duration::from_secs(3);

/// Tables of which each item can be drawn so often; 0 for any number.
fn tables<const N: usize>(min_size: i64, max_times_sampled: i32) -> [TableHandle; N] {
    std::array::from_fn(|seed| with_min_size(seed as u64, min_size, max_times_sampled))
}

fn insert(table: &TableHandle, keys: std::ops::Range<u64>) {
    fill(table, keys.map(|key| (key, 1.0)));
}

/// Begins a draw in a task. It has no deadline, at which it would look once more.
fn begin(client: &Arc<Client>, count: usize) -> JoinHandle<Result<Batch>> {
    let client = client.clone();
    tokio::spawn(async move { client.receive(&draw("table", count), None).await })
}

async fn ended(drawing: JoinHandle<Result<Batch>>) -> Result<Batch> {
    tokio::time::timeout(SOON, drawing).await.expect("the draw waits for ever").unwrap()
}

/// Waits until so many draws wait at each table.
async fn waiting(tables: &[TableHandle], count: usize) {
    eventually("a draw waits at each shard", || tables.iter().all(|table| table.waits(10).len() == count)).await;
}

fn rounds(client: &Client) -> u64 {
    client.cluster_counts().unwrap().rounds
}

async fn values(drawing: JoinHandle<Result<Batch>>) -> Vec<i64> {
    let mut values = int64s(&ended(drawing).await.unwrap(), 0);
    values.sort_unstable();
    values
}

#[tokio::test(flavor = "multi_thread")]
async fn the_least_size_to_sample_counts_the_items_of_all_shards() {
    let tables: [_; 3] = tables(10, 0);
    let servers = shards(&tables);
    tables.iter().zip([0, 10, 20]).for_each(|(table, first)| insert(table, first..first + 3));
    let client = Arc::new(client_of(&servers));
    let drawing = begin(&client, 5);
    waiting(&tables, 1).await;
    let wait = &tables[1].waits(10)[0];
    assert_eq!(wait.kind, WaitKind::Call);
    assert_eq!(wait.reason, "sample of table `table` waits: all shards of the cluster together lack items");
    // What cannot help wakes nobody.
    for _ in 0..50 {
        tables[0].mutate(&[(0, 2.0)], &[]).unwrap();
    }
    insert(&tables[2], 23..24);
    assert_eq!(ended(drawing).await.unwrap().info.table_sizes(), [10; 5]);
    assert_eq!(rounds(&client), 2, "one that has found too little, and one after the insert");
    // It is enough from the start.
    assert_eq!(ended(begin(&client, 5)).await.unwrap().info.len(), 5);
    assert_eq!(rounds(&client), 3);
    waiting(&tables, 0).await;
}

/// As in one table, the size is looked at before each draw.
#[tokio::test(flavor = "multi_thread")]
async fn draws_that_remove_leave_the_least_size_to_sample() {
    let tables: [_; 3] = tables(10, 1);
    let servers = shards(&tables);
    tables.iter().zip([0, 10, 20]).for_each(|(table, first)| insert(table, first..first + 4));
    let client = Arc::new(client_of(&servers));
    assert_eq!(ended(begin(&client, 2)).await.unwrap().info.table_sizes(), [12; 2]);
    let drawing = begin(&client, 3);
    waiting(&tables, 1).await;
    let text = client.receive(&draw("table", 3), Some(Instant::now())).await.unwrap();
    assert_eq!(text.info.len(), 1, "the deadline passes");
    insert(&tables[0], 30..33);
    assert_eq!(values(drawing).await.len(), 3);
    client.settle(Instant::now() + SOON).await;
    assert_eq!(tables.iter().map(len).sum::<usize>(), 9);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draw_that_lacks_many_items_is_woken_seldom() {
    let tables: [_; 4] = tables(1000, 0);
    let servers = shards(&tables);
    let client = Arc::new(client_of(&servers));
    let drawing = begin(&client, 1);
    waiting(&tables, 1).await;
    // The other one takes its time after each insert.
    let other = client_of(&servers);
    for key in 0..1000 {
        insert(&tables[key as usize % 3], key..key + 1);
        if key % 10 == 5 {
            let early = other.receive(&draw("table", 1), Some(Instant::now())).await;
            assert!(early.is_err(), "{early:?}");
        }
    }
    assert_eq!(ended(drawing).await.unwrap().info.table_sizes(), [1000]);
    assert!(rounds(&client) < 30, "{} rounds", rounds(&client));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_draws_that_want_more_than_there_is_both_go_on() {
    let tables: [_; 2] = tables(1, 1);
    let servers = shards(&tables);
    let clients = [(); 2].map(|()| Arc::new(client_of(&servers)));
    for first in (0..200).step_by(20) {
        insert(&tables[0], first..first + 4);
        insert(&tables[1], first + 4..first + 8);
        let drawings = clients.each_ref().map(|client| begin(client, 6));
        // One of them takes six of the eight items. The other waits for four more.
        waiting(&tables, 1).await;
        insert(&tables[1], first + 8..first + 12);
        let mut all = Vec::new();
        for drawing in drawings {
            all.extend(values(drawing).await);
        }
        all.sort_unstable();
        assert!(all.iter().copied().eq(first as i64..first as i64 + 12), "{all:?}");
    }
    for client in &clients {
        client.settle(Instant::now() + SOON).await;
    }
    for table in &tables {
        at_rest(table, 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn draws_that_wait_do_not_wake_each_other() {
    let tables: [_; 2] = tables(1, 1);
    let servers = shards(&tables);
    let clients = [(); 2].map(|()| Arc::new(client_of(&servers)));
    insert(&tables[0], 0..4);
    insert(&tables[1], 4..8);
    let drawings = clients.each_ref().map(|client| begin(client, 10));
    waiting(&tables, 2).await;
    let before = clients.each_ref().map(|client| rounds(client));
    let third = client_of(&servers);
    for _ in 0..100 {
        third.sample(&draw("table", 8), soon()).await.unwrap().draw.unwrap().give_back().await;
    }
    waiting(&tables, 2).await;
    for (client, before) in clients.iter().zip(before) {
        // At most, it had seen a moment at which others held items.
        assert!(rounds(client) <= before + 4, "{} after {before} rounds", rounds(client));
    }
    insert(&tables[0], 8..20);
    let mut all = Vec::new();
    for drawing in drawings {
        all.extend(values(drawing).await);
    }
    all.sort_unstable();
    assert!(all.iter().copied().eq(0..20), "{all:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draw_of_an_item_that_goes_back_ends_a_wait_also_if_the_item_never_left() {
    let tables: [_; 2] = tables(1, 3);
    let servers = shards(&tables);
    insert(&tables[0], 7..8);
    let (first, second) = (client_of(&servers), Arc::new(client_of(&servers)));
    let held = first.sample(&draw("table", 2), soon()).await.unwrap();
    assert_eq!(len(&tables[0]), 1);
    let drawing = begin(&second, 3);
    waiting(&tables, 1).await;
    held.draw.unwrap().give_back().await;
    assert_eq!(values(drawing).await, [7, 7, 7]);
}

/// Inserts that come between the round and the wait.
#[tokio::test(flavor = "multi_thread")]
async fn no_insert_is_missed() {
    let tables: [_; 3] = tables(1, 1);
    let servers = shards(&tables);
    let client = Arc::new(client_of(&servers));
    for key in 0..300 {
        let drawing = begin(&client, 1);
        for _ in 0..key % 40 {
            tokio::task::yield_now().await;
        }
        insert(&tables[key as usize % 3], key..key + 1);
        assert_eq!(values(drawing).await, [key as i64]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_at_a_deadline_says_what_all_shards_lack() {
    let tables: [_; 4] = tables(100, 0);
    let servers = shards(&tables);
    tables.iter().zip([0, 10, 20, 30]).for_each(|(table, first)| insert(table, first..first + 3));
    let client = Arc::new(client_of(&servers));
    // It is connected before a deadline is short.
    let drawing = begin(&client, 3);
    waiting(&tables, 1).await;
    drawing.abort();
    for deadline in [Duration::ZERO, Duration::from_millis(200)] {
        let deadline = Some(Instant::now() + deadline);
        let Err(Error::DeadlineExceeded(text)) = client.receive(&draw("table", 3), deadline).await else {
            panic!("there are too few")
        };
        assert!(text.starts_with("sample of table `table` waits: 12 of 100 items over 4 shards\n"), "{text}");
    }
    waiting(&tables, 0).await;
    tables.iter().zip([100, 200, 300, 400]).for_each(|(table, first)| insert(table, first..first + 22));
    assert_eq!(client.receive(&draw("table", 3), soon()).await.unwrap().info.table_sizes(), [100; 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draw_that_is_given_up_waits_nowhere() {
    let tables: [_; 3] = tables(1, 1);
    let servers = shards(&tables);
    let client = client_of(&servers);
    let begun = client.begin_sample(&draw("table", 1), soon(), None, false).await.unwrap();
    waiting(&tables, 1).await;
    begun.give_back().await;
    waiting(&tables, 0).await;
    let begun = client.begin_sample(&draw("table", 1), soon(), None, false).await.unwrap();
    waiting(&tables, 1).await;
    drop((begun, client));
    waiting(&tables, 0).await;
    insert(&tables[0], 0..1);
    at_rest(&tables[0], 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draw_that_waits_ends_with_the_cluster() {
    let tables: [_; 2] = tables(1, 1);
    let mut servers = shards(&tables);
    let client = Arc::new(client_of(&servers));
    let drawing = begin(&client, 1);
    waiting(&tables, 1).await;
    for server in &mut servers {
        tokio::task::block_in_place(|| server.end(End::ForGood)).unwrap();
    }
    let ended = ended(drawing).await;
    assert!(matches!(ended, Err(Error::ServerStopped(_))), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_goes_on_without_a_shard_that_is_lost_and_ends_when_it_returns() {
    let tables: [_; 2] = tables(4, 0);
    let mut servers = shards(&tables);
    let ports: Vec<_> = servers.iter().map(Server::port).collect();
    let client = Arc::new(client(&ports, OnShardLoss::Continue, SOON));
    insert(&tables[0], 0..2);
    insert(&tables[1], 10..11);
    let drawing = begin(&client, 8);
    waiting(&tables, 1).await;
    tokio::task::block_in_place(|| servers[1].end(End::Returns)).unwrap();
    eventually("the shard is missing", || !client.cluster_counts().unwrap().missing.is_empty()).await;
    waiting(&tables[..1], 1).await;
    // Items of a missing shard cannot be drawn, so they do not count.
    insert(&tables[0], 2..3);
    let late = Some(Instant::now() + Duration::from_millis(300));
    let Err(Error::DeadlineExceeded(text)) = client.receive(&draw("table", 8), late).await else {
        panic!("there are too few")
    };
    let missing = format!("3 of 4 items over 1 shard; shard 1 at ipv4:127.0.0.1:{} is missing: ", ports[1]);
    assert!(text.contains(&missing), "{text}");
    let returned = with_min_size(5, 4, 0);
    insert(&returned, 10..11);
    let _server = shard_of("replay", 1, &returned, Some(ports[1]));
    assert_eq!(ended(drawing).await.unwrap().info.table_sizes(), [4; 8]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_ends_when_a_shard_answers_again_that_was_silent() {
    let tables: [_; 2] = tables(4, 0);
    let servers = shards(&tables);
    let faucet = Faucet::before(servers[1].port()).await;
    let client = Arc::new(client(&[servers[0].port(), faucet.port], OnShardLoss::Continue, SHORT));
    insert(&tables[0], 0..1);
    insert(&tables[1], 10..12);
    let drawing = begin(&client, 8);
    waiting(&tables, 1).await;
    faucet.close();
    // It wakes the draw, which finds out that the other shard is silent.
    insert(&tables[0], 1..2);
    eventually("the shard is missing", || !client.cluster_counts().unwrap().missing.is_empty()).await;
    waiting(&tables[..1], 1).await;
    faucet.open();
    assert_eq!(ended(drawing).await.unwrap().info.table_sizes(), [4; 8]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_limiter_that_is_changed_everywhere_ends_a_wait() {
    let tables: [_; 2] = tables(10, 0);
    let servers = shards(&tables);
    let client = Arc::new(client_of(&servers));
    insert(&tables[0], 0..2);
    let drawing = begin(&client, 1);
    waiting(&tables, 1).await;
    let rate_limiter =
        RateLimiterConfig { samples_per_insert: 1.0, min_size_to_sample: 2, min_diff: -f64::MAX, max_diff: f64::MAX };
    let changes = TableChanges { rate_limiter: Some(rate_limiter), ..TableChanges::default() };
    // The one that the draw waits for is changed last.
    for table in tables.iter().rev() {
        table.configure(&changes).unwrap();
    }
    match ended(drawing).await {
        Ok(batch) => assert_eq!(batch.info.table_sizes(), [2]),
        // It has seen one before the other.
        Err(Error::InvalidArgument(text)) => assert!(text.contains("the same rate limiter"), "{text}"),
        Err(error) => panic!("{error}"),
    }
    assert_eq!(client.receive(&draw("table", 1), soon()).await.unwrap().info.table_sizes(), [2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rate_limiters_that_differ_are_refused_by_name() {
    let tables = [with_min_size(1, 3, 0), with_min_size(2, 3, 0), with_min_size(3, 7, 0)];
    let servers = shards(&tables);
    tables.iter().zip([0, 10, 20]).for_each(|(table, first)| insert(table, first..first + 4));
    let client = client_of(&servers);
    let Err(Error::InvalidArgument(text)) = client.receive(&draw("table", 1), soon()).await else {
        panic!("the limiters differ")
    };
    let [first, .., third] = &*servers else { unreachable!() };
    let limiter = |size| {
        let (min, max) = (-f64::MAX, f64::MAX);
        format!("samples_per_insert=1, min_size_to_sample={size}, min_diff={min}, max_diff={max}")
    };
    let expected = format!(
        "expected the same rate limiter of table `table` at all shards, but shard 0 at ipv4:127.0.0.1:{} has {}, and \
         shard 2 at ipv4:127.0.0.1:{} has {}",
        first.port(),
        limiter(3),
        third.port(),
        limiter(7)
    );
    assert_eq!(text, expected);
    // All that was raced for is back.
    let removing = [seeded(1, SelectorKind::Uniform, 1), with_min_size(2, 2, 1)];
    let servers = shards(&removing);
    removing.iter().for_each(|table| done!(table.insert(vec![item(1)], here())));
    let refused = client_of(&servers).receive(&draw("table", 1), soon()).await;
    assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{refused:?}");
    for table in &removing {
        at_rest(table, 1).await;
    }
}
