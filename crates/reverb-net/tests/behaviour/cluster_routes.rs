//! Updates, deletes and reads by key at a cluster: which shard gets which keys, also while one is missing.

use crate::common::faucet::Faucet;
use crate::common::test_shard::{TestShard, client_of, cluster, options};
use crate::common::wire::{self, Inserts};
use crate::common::{Receive, SOON, draw, eventually, int64s, rows};
use reverb_core::Error;
use reverb_net::client::{Client, Get, Info, Mutate, Reset};
use reverb_net::server::End;
use reverb_net::transport::cluster::OnShardLoss::{Continue, Raise, Wait};
use reverb_net::transport::cluster::{ClusterOptions, OnShardLoss};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A time that passes in a test, and that is long for a shard that serves.
const SHORT: Duration = Duration::from_secs(3);
/// A key of a shard that is not there.
const UNOWNED: u64 = 77 << 56;

fn soon() -> Option<Instant> {
    Some(Instant::now() + SOON)
}

async fn mutate(client: &Client, keys: &[u64], priority: f64) -> reverb_core::Result<Option<u64>> {
    let updates: Vec<_> = keys.iter().map(|&key| (key, priority)).collect();
    client.call(Mutate::new("table", &updates, &[]), soon()).await
}

/// Reads items. Returns the value of each, by the place of its key.
async fn read(client: &Client, keys: &[u64]) -> reverb_core::Result<BTreeMap<u32, Vec<i64>>> {
    let mut read: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for part in client.call(Get { table: "table", keys, columns: &[] }, soon()).await? {
        for (place, value) in part.places.into_iter().zip(int64s(&part.batch, 0)) {
            read.entry(place).or_default().push(value);
        }
    }
    Ok(read)
}

/// Starts shards 0, 3 and 255 with four items each. Returns their keys, too.
async fn three() -> (Vec<TestShard>, Vec<Vec<u64>>) {
    let (mut shards, mut keys) = (Vec::new(), Vec::new());
    for (place, id) in [0, 3, 255].into_iter().enumerate() {
        let shard = TestShard::start(id);
        let first = 10 * place as i64;
        keys.push(shard.fill(&[first, first + 1, first + 2, first + 3]).await);
        shard.journal.take();
        shards.push(shard);
    }
    (shards, keys)
}

/// Puts an item 0 with a key of another shard into a shard, as clients do that know nothing of shards.
async fn put_foreign(shard: &TestShard, key: u64) {
    let mut service = wire::connect(shard.server.port()).await;
    let mut inserts = Inserts::open(&mut service).await;
    let mut request = wire::insert(1, "table", 1);
    request.batches[0].keys = vec![key];
    inserts.send(request);
    assert!(inserts.answer().await.unwrap().failure.is_none());
    shard.journal.take();
}

#[tokio::test(flavor = "multi_thread")]
async fn each_shard_gets_the_updates_and_deletes_of_its_keys_and_of_those_that_nobody_owns() {
    let (shards, keys) = three().await;
    let client = cluster(&shards, Raise);
    let updates: Vec<_> = keys.iter().flat_map(|keys| &keys[1..]).map(|&key| (key, 2.0)).collect();
    let mut deletes: Vec<_> = keys.iter().map(|keys| keys[0]).collect();
    deletes.push(UNOWNED);
    assert_eq!(client.call(Mutate::new("table", &updates, &deletes), soon()).await.unwrap(), Some(12));
    for (shard, keys) in shards.iter().zip(&keys) {
        assert_eq!(shard.changed_keys(), *keys);
        assert_eq!(
            keys.iter().map(|&key| shard.priority(key)).collect::<Vec<_>>(),
            [None, Some(2.0), Some(2.0), Some(2.0)]
        );
    }
    // A shard that owns none of the keys is not asked.
    assert_eq!(mutate(&client, &keys[1][1..], 3.0).await.unwrap(), Some(3));
    assert_eq!(shards.iter().map(TestShard::num_calls).collect::<Vec<_>>(), [0, 1, 0]);
    // All are asked for a key that nobody owns.
    assert_eq!(mutate(&client, &[UNOWNED], 3.0).await.unwrap(), Some(0));
    assert_eq!(shards.iter().map(TestShard::num_calls).collect::<Vec<_>>(), [1, 1, 1]);
    // A call without keys says whether there is such a table.
    assert_eq!(mutate(&client, &[], 0.0).await.unwrap(), Some(0));
    let missing = client.call(Mutate::new("missing", &[], &[]), soon()).await.unwrap_err();
    assert!(matches!(missing, Error::TableNotFound { .. }), "{missing:?}");
    assert_eq!(client.keys_passed_over(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_put_the_items_of_all_shards_at_the_places_of_their_keys() {
    let (shards, keys) = three().await;
    let client = cluster(&shards, Raise);
    let asked = [keys[2][3], UNOWNED, keys[0][1], keys[1][0], keys[2][0], keys[0][1]];
    let expected = [(0, 23), (2, 1), (3, 10), (4, 20), (5, 1)].map(|(place, value)| (place, vec![value]));
    assert_eq!(read(&client, &asked).await.unwrap(), BTreeMap::from(expected));
    assert_eq!(read(&client, &[]).await.unwrap(), BTreeMap::new());
    let missing = client.call(Get { table: "missing", keys: &[], columns: &[] }, soon()).await.unwrap_err();
    assert!(matches!(missing, Error::TableNotFound { .. }), "{missing:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_keys_go_to_all_shards_once_one_is_known_to_have_foreign_keys() {
    let (shards, keys) = three().await;
    let client = cluster(&shards, Continue);
    client.call(Info, soon()).await.unwrap();
    let key = keys[0][1];
    put_foreign(&shards[1], key).await;
    // The client has not heard of it: only the owner is asked.
    assert_eq!(mutate(&client, &[key], 2.0).await.unwrap(), Some(1));
    assert_eq!(read(&client, &[key]).await.unwrap(), BTreeMap::from([(0, vec![1])]));
    assert_eq!(shards.iter().map(TestShard::num_calls).collect::<Vec<_>>(), [1, 0, 0]);
    client.call(Info, soon()).await.unwrap();
    assert_eq!(mutate(&client, &[key], 3.0).await.unwrap(), Some(2));
    assert_eq!(read(&client, &[key]).await.unwrap(), BTreeMap::from([(0, vec![1, 0])]));
    assert_eq!(shards.iter().map(TestShard::num_calls).collect::<Vec<_>>(), [1, 1, 1]);
    // Another client hears of it when it connects.
    assert_eq!(mutate(&cluster(&shards, Continue), &[key], 4.0).await.unwrap(), Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_with_an_invalid_priority_changes_nothing_at_any_shard() {
    let (shards, keys) = three().await;
    let client = cluster(&shards, Continue);
    for place in 0..3 {
        let mut updates: Vec<_> = keys.iter().map(|keys| (keys[1], 5.0)).collect();
        updates[place].1 = f64::NAN;
        let error = client.call(Mutate::new("table", &updates, &[keys[0][0]]), soon()).await.unwrap_err();
        assert!(matches!(&error, Error::InvalidPriority(text) if text.contains("NaN")), "{error:?}");
        assert!(shards.iter().all(|shard| shard.changed_keys().is_empty()));
    }
    assert_eq!(mutate(&client, &[keys[0][0], keys[2][2]], 5.0).await.unwrap(), Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_go_on_without_a_missing_shard_and_with_it_when_it_is_back() {
    let (mut shards, keys) = three().await;
    let client = cluster(&shards, Continue);
    let all = keys.concat();
    assert_eq!(mutate(&client, &all, 2.0).await.unwrap(), Some(12));
    let lost = shards.remove(1);
    let (port, table) = (lost.server.port(), lost.table.clone());
    drop(lost);
    assert_eq!(mutate(&client, &all, 3.0).await.unwrap(), Some(8));
    assert_eq!(client.keys_passed_over(), 4);
    assert_eq!(read(&client, &[all[0], all[4], all[8]]).await.unwrap().into_keys().collect::<Vec<_>>(), [0, 2]);
    assert_eq!(client.keys_passed_over(), 5);
    // A call that concerns no other shard goes on, too, and no other is asked.
    shards.iter().for_each(|shard| drop(shard.journal.take()));
    assert_eq!(mutate(&client, &keys[1], 4.0).await.unwrap(), Some(0));
    assert!(shards.iter().all(|shard| shard.num_calls() == 0));
    assert_eq!(read(&client, &keys[1]).await.unwrap(), BTreeMap::new());
    assert_eq!(client.keys_passed_over(), 13);
    let info = client.call(Info, soon()).await.unwrap();
    assert_eq!(info[0].info.current_size, 8);
    let error = client.call(Reset { table: "missing" }, soon()).await.unwrap_err();
    assert!(matches!(error, Error::TableNotFound { .. }), "{error:?}");
    let back = TestShard::of(3, table, Some(port));
    let until = Instant::now() + SOON;
    while mutate(&client, &keys[1], 5.0).await.unwrap() != Some(4) {
        assert!(Instant::now() < until, "the shard is not used again");
    }
    assert_eq!(back.priority(keys[1][3]), Some(5.0));
    assert_eq!(read(&client, &all).await.unwrap().len(), 12);
    assert_eq!(client.call(Info, soon()).await.unwrap()[0].info.current_size, 12);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_a_shard_that_was_never_reached_are_passed_over_while_it_is_missing() {
    let (mut shards, keys) = three().await;
    let ports: Vec<_> = shards.iter().map(|shard| shard.server.port()).collect();
    drop(shards.remove(1));
    let client = client_of(ports, options(Continue));
    assert_eq!(mutate(&client, &[keys[0][0], keys[1][0], keys[1][1]], 2.0).await.unwrap(), Some(1));
    assert_eq!(client.keys_passed_over(), 2);
    // Nobody knows that it does not own them.
    shards.iter().for_each(|shard| drop(shard.journal.take()));
    assert_eq!(mutate(&client, &[keys[1][2]], 2.0).await.unwrap(), Some(0));
    assert!(shards.iter().all(|shard| shard.num_calls() == 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_fail_without_a_shard_name_it_after_the_others_have_done_their_part() {
    let (mut shards, keys) = three().await;
    let client = cluster(&shards, Raise);
    client.call(Info, soon()).await.unwrap();
    let lost = shards.remove(1);
    let peer = lost.peer();
    drop(lost);
    let all = keys.concat();
    let names = |error: &Error| matches!(error, Error::Unavailable(text) if text.contains(&peer));
    let error = mutate(&client, &all, 3.0).await.unwrap_err();
    assert!(names(&error), "{error:?}");
    for (shard, keys) in shards.iter().zip([&keys[0], &keys[2]]) {
        assert!(keys.iter().all(|&key| shard.priority(key) == Some(3.0)));
    }
    let error = read(&client, &all).await.unwrap_err();
    assert!(names(&error), "{error:?}");
    let error = client.call(Info, soon()).await.unwrap_err();
    assert!(names(&error), "{error:?}");
    // What does not concern the shard goes on.
    assert_eq!(mutate(&client, &keys[2], 4.0).await.unwrap(), Some(4));
    assert_eq!(read(&client, &keys[0]).await.unwrap().len(), 4);
    let error = client.call(Reset { table: "table" }, soon()).await.unwrap_err();
    assert!(names(&error), "{error:?}");
    assert!(shards.iter().all(|shard| shard.keys().is_empty()));
    assert_eq!(client.keys_passed_over(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_waits_for_a_missing_shard_until_it_returns() {
    let (mut shards, keys) = three().await;
    let client = Arc::new(cluster(&shards, Wait));
    client.call(Info, soon()).await.unwrap();
    let lost = shards.remove(1);
    let (port, table) = (lost.server.port(), lost.table.clone());
    drop(lost);
    let all = keys.concat();
    let updating = tokio::spawn({
        let (client, all) = (client.clone(), all.clone());
        async move { mutate(&client, &all, 3.0).await }
    });
    eventually("the others have the update", || {
        [0, 1].into_iter().all(|place| shards[place].priority(keys[2 * place][0]) == Some(3.0))
    })
    .await;
    let reading = tokio::spawn({
        let (client, all) = (client.clone(), all.clone());
        async move { read(&client, &all).await }
    });
    let _back = TestShard::of(3, table, Some(port));
    assert_eq!(updating.await.unwrap().unwrap(), Some(12));
    assert_eq!(reading.await.unwrap().unwrap().len(), 12);
    assert_eq!(client.keys_passed_over(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_waits_for_missing_shards_until_its_deadline() {
    let (mut shards, keys) = three().await;
    let client = cluster(&shards, Wait);
    client.call(Info, soon()).await.unwrap();
    let lost = shards.remove(1);
    let peer = lost.peer();
    drop(lost);
    let late = |keys: Vec<u64>| {
        let client = &client;
        async move {
            let updates: Vec<_> = keys.iter().map(|&key| (key, 2.0)).collect();
            let deadline = Instant::now() + SHORT;
            let error = client.call(Mutate::new("table", &updates, &[]), Some(deadline)).await.unwrap_err();
            assert!(Instant::now() >= deadline);
            error
        }
    };
    let error = late(keys.concat()).await;
    assert!(matches!(&error, Error::Unreached(text) if text.contains(&peer)), "{error:?}");
    assert_eq!(shards[0].priority(keys[0][0]), Some(2.0));
    // What does not concern the shard does not wait.
    assert_eq!(mutate(&client, &keys[2], 4.0).await.unwrap(), Some(4));
    shards.clear();
    let error = late(keys[0].clone()).await;
    assert!(matches!(&error, Error::Unreached(_)), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn a_shard_that_does_not_answer_in_time_is_missing() {
    let (shards, keys) = three().await;
    let faucet = Faucet::before(shards[1].server.port()).await;
    let ports = || [shards[0].server.port(), faucet.port, shards[2].server.port()];
    let of = |on_shard_loss: OnShardLoss| {
        client_of(ports(), ClusterOptions { shard_timeout: SHORT, ..options(on_shard_loss) })
    };
    let clients = [of(Continue), of(Raise)];
    for client in &clients {
        client.call(Info, soon()).await.unwrap();
    }
    faucet.close();
    let all = keys.concat();
    assert_eq!(mutate(&clients[0], &all, 3.0).await.unwrap(), Some(8));
    assert_eq!(clients[0].keys_passed_over(), 4);
    let error = mutate(&clients[1], &all, 4.0).await.unwrap_err();
    let peer = format!("127.0.0.1:{}", faucet.port);
    assert!(matches!(&error, Error::Unavailable(text) if text.contains(&peer)), "{error:?}");
    assert_eq!(shards[2].priority(keys[2][0]), Some(4.0));
    faucet.open();
    assert_eq!(mutate(&clients[1], &all, 5.0).await.unwrap(), Some(12));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_was_stopped_for_good_when_all_its_shards_were() {
    for on_shard_loss in [Continue, Raise, Wait] {
        let (mut shards, keys) = three().await;
        let client = cluster(&shards, on_shard_loss);
        client.call(Info, soon()).await.unwrap();
        let stop = |mut shard: TestShard| tokio::task::spawn_blocking(move || shard.server.end(End::ForGood));
        stop(shards.remove(1)).await.unwrap().unwrap();
        // One of them is a loss.
        if on_shard_loss == Continue {
            assert_eq!(mutate(&client, &keys.concat(), 3.0).await.unwrap(), Some(8));
        }
        assert_eq!(mutate(&client, &keys[0], 3.0).await.unwrap(), Some(4));
        for shard in shards {
            stop(shard).await.unwrap().unwrap();
        }
        for _ in 0..2 {
            let error = mutate(&client, &keys.concat(), 3.0).await.unwrap_err();
            assert!(matches!(&error, Error::ServerStopped(_)), "{on_shard_loss:?}: {error:?}");
        }
        let error = client.call(Info, soon()).await.unwrap_err();
        assert!(matches!(&error, Error::ServerStopped(_)), "{on_shard_loss:?}: {error:?}");
    }
}

/// What a client does that hears of foreign keys by it.
#[derive(Debug, Clone, Copy)]
enum Hears {
    ByDraw,
    ByInsert,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_draws_or_inserts_hears_of_foreign_keys_without_a_new_connection() {
    for hears in [Hears::ByDraw, Hears::ByInsert] {
        let (shards, keys) = three().await;
        let client = cluster(&shards, Raise);
        client.call(Info, soon()).await.unwrap();
        let foreign = keys[2][0] + 1;
        put_foreign(&shards[0], foreign).await;
        assert_eq!(mutate(&client, &[foreign], 5.0).await.unwrap(), Some(0), "nobody has told it yet: {hears:?}");
        assert_eq!(shards[0].priority(foreign), Some(1.0));
        match hears {
            Hears::ByDraw => drop(client.receive(&draw("table", 4), soon()).await.unwrap()),
            // The shard that is chosen is the emptier of two random ones.
            Hears::ByInsert => {
                while shards[0].keys().len() < 6 {
                    client.insert(rows("table", &[1]), soon()).await.unwrap();
                }
            }
        }
        assert_eq!(mutate(&client, &[foreign], 5.0).await.unwrap(), Some(1), "{hears:?}");
        assert_eq!(shards[0].priority(foreign), Some(5.0));
    }
}
