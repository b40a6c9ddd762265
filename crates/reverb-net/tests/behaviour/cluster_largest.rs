//! Items of a cluster that take the largest priority: that of all shards, as they have last told the client.

use crate::common::cluster_writer::{ClusterWriter, WriterOf};
use crate::common::test_shard::{TestShard, cluster, slots};
use crate::common::{Receive, SOON, addresses, draw, eventually, rows, uniform};
use reverb_core::NewPriority;
use reverb_net::client::{Client, Info, Mutate, Reset};
use reverb_net::server::End;
use reverb_net::transport::cluster::OnShardLoss::Continue;
use reverb_service::local::{Priorities, RowInsert};
use std::time::Instant;

fn soon() -> Option<Instant> {
    Some(Instant::now() + SOON)
}

fn start() -> Vec<TestShard> {
    [3, 7].map(TestShard::start).into()
}

/// A client that has reached all shards.
async fn connect(shards: &[TestShard]) -> Client {
    let client = cluster(shards, Continue);
    client.call(Info, soon()).await.unwrap();
    client
}

fn one(priorities: Priorities) -> RowInsert {
    RowInsert { tables: vec![("table".into(), priorities)], ..rows("table", &[1]) }
}

async fn insert(client: &Client, priorities: Priorities) -> u64 {
    client.insert(one(priorities), soon()).await.unwrap()[0]
}

/// Inserts items until one is at this shard. Returns its key.
async fn insert_at(client: &Client, shard: &TestShard, priorities: &Priorities) -> u64 {
    loop {
        let key = insert(client, priorities.clone()).await;
        if slots(shard.id).contains(key) {
            return key;
        }
    }
}

/// The priority of a new item at this shard that takes the largest.
async fn largest_at(client: &Client, shard: &TestShard) -> f64 {
    let key = insert_at(client, shard, &Priorities::largest()).await;
    shard.priority(key).unwrap()
}

/// Another client gives an item of this shard a priority.
async fn raise(shard: &TestShard, priority: f64) {
    let keys = shard.fill(&[1]).await;
    shard.table.mutate(&[(keys[0], priority)], &[]).unwrap();
}

/// Writes an episode of one item that takes the largest priority. Returns its key.
async fn write(writer: &mut ClusterWriter) -> u64 {
    let mut item = writer.item(1, 0);
    item.priority = NewPriority { value: 0.0, takes_largest: true };
    let key = item.key;
    writer.push(item).unwrap();
    writer.flush().await.unwrap();
    writer.steps.end_episode(true).unwrap();
    key
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_of_one_shard_gets_what_the_client_has_set_at_another() {
    let shards = start();
    let client = connect(&shards).await;
    let key = insert_at(&client, &shards[0], &vec![1.0].into()).await;
    let updates = [(key, 40.0)];
    client.call(Mutate::new("table", &updates, &[]), soon()).await.unwrap();
    assert_eq!(largest_at(&client, &shards[1]).await, 40.0);
    let missed = [(key ^ 1, 50.0)];
    client.call(Mutate::new("table", &missed, &[]), soon()).await.unwrap();
    assert_eq!(largest_at(&client, &shards[1]).await, 40.0, "no item has got it");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_episode_of_one_shard_gets_what_a_learner_has_set_at_another() {
    let shards = start();
    let mut writer = WriterOf::new(&shards, Continue).start().await;
    let learner = connect(&shards).await;
    let key = insert_at(&learner, &shards[0], &vec![1.0].into()).await;
    let updates = [(key, 40.0)];
    learner.call(Mutate::new("table", &updates, &[]), soon()).await.unwrap();
    // From its own episodes there, the writer hears of the update.
    while !slots(shards[0].id).contains(write(&mut writer).await) {}
    loop {
        let key = write(&mut writer).await;
        if slots(shards[1].id).contains(key) {
            assert_eq!(shards[1].priority(key), Some(40.0));
            return;
        }
    }
}

/// How a client hears of the largest priority of a shard.
#[derive(Debug, Clone, Copy)]
enum Hears {
    Hello,
    Info,
    Draw,
    Insert,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_hears_of_it_with_all_that_shards_answer() {
    for hears in [Hears::Hello, Hears::Info, Hears::Draw, Hears::Insert] {
        let shards = start();
        let mut largest = 40.0;
        loop {
            let mut client = connect(&shards).await;
            raise(&shards[0], largest).await;
            match hears {
                Hears::Hello => client = connect(&shards).await,
                Hears::Info => drop(client.call(Info, soon()).await.unwrap()),
                Hears::Draw => drop(client.receive(&draw("table", 1), soon()).await.unwrap()),
                Hears::Insert => drop(insert_at(&client, &shards[0], &vec![1.0].into()).await),
            }
            let key = insert(&client, Priorities::largest()).await;
            if let Some(priority) = shards[1].priority(key) {
                assert_eq!(priority, largest, "{hears:?}");
                break;
            }
            // Which shard gets an item is chosen at random.
            largest += 1.0;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_without_priorities_does_not_add_a_1_to_those_of_others() {
    let shards = start();
    let key = shards[0].fill(&[1]).await[0];
    shards[0].table.reset().unwrap();
    let client = Client::new(&addresses(&shards[0].server)[0]);
    client.insert(one(vec![0.25].into()), soon()).await.unwrap();
    assert_eq!(shards[0].priority(key), None);
    let client = connect(&shards).await;
    assert_eq!(largest_at(&client, &shards[1]).await, 0.25);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_before_a_reset_counts_also_for_clients_that_have_not_heard_of_it() {
    let shards = start();
    raise(&shards[0], 40.0).await;
    raise(&shards[1], 30.0).await;
    shards[0].fill(&[1; 1000]).await;
    let (client, other) = (connect(&shards).await, connect(&shards).await);
    // It knows from now on that this shard is full, and writes to the other.
    insert_at(&other, &shards[0], &vec![1.0].into()).await;
    client.call(Reset { table: "table" }, soon()).await.unwrap();
    assert_eq!(largest_at(&client, &shards[1]).await, 1.0);
    for _ in 0..3 {
        let key = insert(&other, Priorities::largest()).await;
        assert_eq!(shards[1].priority(key), Some(1.0));
    }
    raise(&shards[0], 20.0).await;
    client.call(Info, soon()).await.unwrap();
    assert_eq!(largest_at(&client, &shards[1]).await, 20.0);
}

/// Waits until the client has noticed that so many shards are connected.
async fn reaches(client: &Client, shards: &str) {
    let is_so = || client.road_name().is_some_and(|name| name.contains(shards));
    eventually("the client has noticed which shards are there", is_so).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_lost_shard_has_told_still_counts() {
    let mut shards = start();
    raise(&shards[0], 40.0).await;
    let client = connect(&shards).await;
    drop(shards.remove(0));
    reaches(&client, "1 of 2").await;
    assert_eq!(largest_at(&client, &shards[0]).await, 40.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_returns_without_its_items_tells_anew() {
    let mut shards = start();
    raise(&shards[0], 40.0).await;
    let client = connect(&shards).await;
    let (id, port) = (shards[0].id, shards[0].server.port());
    drop(shards.remove(0));
    reaches(&client, "1 of 2").await;
    shards.insert(0, TestShard::of(id, uniform("table"), Some(port)));
    raise(&shards[0], 5.0).await;
    insert_at(&client, &shards[0], &vec![1.0].into()).await;
    assert_eq!(largest_at(&client, &shards[1]).await, 5.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_shard_has_told_that_was_stopped_for_good_does_not_count() {
    let mut shards = start();
    raise(&shards[0], 40.0).await;
    let client = connect(&shards).await;
    tokio::task::block_in_place(|| shards[0].server.end(End::ForGood)).unwrap();
    reaches(&client, "1 of 2").await;
    assert_eq!(largest_at(&client, &shards[1]).await, 1.0);
}
