//! Inserts into a cluster: which shard gets them, and how clients know which one is emptier.

use crate::common::test_shard::{TestShard, cluster, slots};
use crate::common::wire::{self, Inserts};
use crate::common::{SOON, eventually, queue, rows, server, uniform};
use reverb_net::client::{Client, Info};
use reverb_net::replay_v1::proto::{Largest, Load, WriteItem, WriteRequest, WriteResponse};
use reverb_net::server::Server;
use reverb_net::transport::cluster::OnShardLoss::Continue;
use std::time::Instant;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;

fn soon() -> Option<Instant> {
    Some(Instant::now() + SOON)
}

async fn insert(client: &Client, values: &[i64]) -> Vec<u64> {
    client.insert(rows("table", values), soon()).await.unwrap().into_vec()
}

fn lens(shards: &[TestShard]) -> Vec<usize> {
    shards.iter().map(|shard| shard.keys().len()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_keys_of_an_insert_are_in_the_slots_of_the_shard_that_has_it_whole() {
    let shards = [3, 7, 200].map(TestShard::start);
    let client = cluster(&shards, Continue);
    for _ in 0..20 {
        let keys = insert(&client, &[1, 2, 3]).await;
        let has = |shard: &&TestShard| slots(shard.id).contains(keys[0]);
        let shard = shards.iter().find(has).expect("one of the shards owns the key");
        let stored = shard.keys();
        assert!(keys.iter().all(|key| stored.contains(key)));
    }
    assert_eq!(lens(&shards).iter().sum::<usize>(), 60);
    assert!(shards.iter().all(|shard| !shard.server.replay().has_foreign_keys()));
}

#[tokio::test(flavor = "multi_thread")]
async fn all_inserts_go_to_the_other_shard_where_one_is_far_fuller() {
    let shards = [3, 7].map(TestShard::start);
    shards[0].fill(&[7; 1000]).await;
    let client = cluster(&shards, Continue);
    for value in 0..50 {
        insert(&client, &[value]).await;
    }
    // The client has got to know the load of each by an insert.
    assert_eq!(lens(&shards), [1001, 49]);
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_shards_get_about_as_many_inserts() {
    let shards = [3, 7, 200].map(TestShard::start);
    let client = cluster(&shards, Continue);
    for value in 0..120 {
        insert(&client, &[value]).await;
    }
    let lens = lens(&shards);
    assert!(lens.iter().sum::<usize>() == 120 && lens.iter().all(|&len| len >= 20), "{lens:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn inserts_go_to_the_shards_that_can_be_reached() {
    let mut shards = [3, 7, 200].map(TestShard::start).into_iter().collect::<Vec<_>>();
    let client = cluster(&shards, Continue);
    client.call(Info, soon()).await.unwrap();
    drop(shards.remove(1));
    eventually("the client has noticed the loss", || client.road_name().is_some_and(|name| name.contains("2 of 3")))
        .await;
    for value in 0..20 {
        insert(&client, &[value]).await;
    }
    assert_eq!(lens(&shards).iter().sum::<usize>(), 20);
    assert_eq!(client.keys_passed_over(), 0);
}

/// Sends one item on a stream of a writer. Returns the confirmation.
async fn write(server: &Server) -> WriteResponse {
    let mut service = wire::connect(server.port()).await;
    let (requests, stream) = mpsc::unbounded_channel();
    let mut responses = service.write(UnboundedReceiverStream::new(stream)).await.unwrap().into_inner();
    let key = 3 << 56;
    let item = WriteItem { table: "table".into(), key, priority: 1.0, chunk_key: 9, rows: 1, ..WriteItem::default() };
    let (chunks, items) = (vec![wire::chunk(9, 1)], vec![item]);
    requests.send(WriteRequest { writer_id: 7, first_sequence: 1, chunks, items, ..WriteRequest::default() }).unwrap();
    responses.message().await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_of_a_shard_tell_its_load_and_those_of_other_servers_do_not() {
    let shard = TestShard::start(3);
    shard.fill(&[1, 2]).await;
    let mut service = wire::connect(shard.server.port()).await;
    let mut inserts = Inserts::open(&mut service).await;
    inserts.send(wire::insert(1, "table", 3));
    let epoch = shard.table.with_table(|table| table.largest_seen().epoch);
    let largest = vec![Largest { table: 0, priority: 1.0, epoch }];
    let load = Load { bytes: 40, waiting_inserts: 0, has_foreign_keys: true, largest };
    assert_eq!(inserts.answer().await.unwrap().load.as_ref(), Some(&load));
    let confirmation = write(&shard.server).await;
    assert_eq!((confirmation.count, confirmation.load), (1, Some(Load { bytes: 48, ..load })));
    let plain = server(vec![uniform("table")]);
    let mut service = wire::connect(plain.port()).await;
    let mut inserts = Inserts::open(&mut service).await;
    inserts.send(wire::insert(1, "table", 3));
    assert_eq!(inserts.answer().await.unwrap().load, None);
    let confirmation = write(&plain).await;
    assert_eq!((confirmation.count, confirmation.load), (1, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_counts_the_inserts_that_wait() {
    let shard = TestShard::of(3, queue("table", 1), None);
    let mut service = wire::connect(shard.server.port()).await;
    let mut inserts = Inserts::open(&mut service).await;
    inserts.send(wire::insert(1, "table", 1));
    assert_eq!(inserts.answer().await.unwrap().load.map(|load| load.waiting_inserts), Some(0));
    inserts.send(wire::insert(2, "table", 1));
    eventually("the insert waits", || shard.table.pulse().waiting_inserts == 1).await;
    inserts.send(wire::insert(3, "missing", 1));
    let refused = inserts.answer().await.unwrap();
    assert!(refused.failure.is_some());
    assert_eq!(refused.load.map(|load| load.waiting_inserts), Some(1));
}
