//! What can be seen of requests that wait, and of who makes them.

use crate::common::{chunk, config, exactly, here, items, queue, uniform};
use reverb_core::{RateLimiterConfig, Table, TableConfig, WaitHistogram};
use reverb_service::local::{BatchRequest, LocalDraw, RowInsert, begin_insert, sample_copied};
use reverb_service::{Call, Operation, Peer, Replay, TableHandle, Transport, Waiting};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

fn peer(name: &str) -> Arc<Peer> {
    let peer = Peer::new(Transport::Tcp, "10.0.0.7:4711".into());
    peer.introduce(name);
    Arc::new(peer)
}

macro_rules! waiting {
    ($call:expr) => {
        match $call {
            Call::Waiting(waiting) => waiting,
            Call::Done(result) => panic!("it does not wait: {result:?}"),
        }
    };
}

fn insert(table: &TableHandle, key: u64, peer: &Arc<Peer>) -> Waiting<()> {
    waiting!(table.insert(items([key]), peer))
}

fn traffic(peer: &Peer) -> (u64, u64) {
    (peer.traffic.inserts.load(Relaxed), peer.traffic.samples.load(Relaxed))
}

#[test]
fn each_waiting_insert_says_who_makes_it_and_what_it_waits_for() {
    let table = queue("full", 1);
    assert!(matches!(table.insert(items([0]), here()), Call::Done(Ok(()))));
    assert!(table.waits(20).is_empty());
    let peers = ["first", "second", "third"].map(peer);
    let _waiting = peers.each_ref().map(|peer| insert(&table, 1, peer));
    let waits = table.waits(20);
    let seen: Vec<_> = waits.iter().map(|wait| (wait.operation, wait.peer.id, wait.reason.as_str())).collect();
    let reason = "the queue is full (1 of 1 item); 1 more sample until an insert may go";
    assert_eq!(
        seen,
        [
            (Operation::Insert, peers[0].id, format!("insert into table `full` waits: {reason}").as_str()),
            (
                Operation::Insert,
                peers[1].id,
                format!("insert into table `full` waits behind 1 other insert: {reason}").as_str()
            ),
            (
                Operation::Insert,
                peers[2].id,
                format!("insert into table `full` waits behind 2 other inserts: {reason}").as_str()
            ),
        ]
    );
    assert!(waits.is_sorted_by_key(|wait| std::cmp::Reverse(wait.waited)));
    let info = table.status().info;
    assert!(info.longest_insert_wait_seconds.unwrap() >= waits[0].waited.as_secs_f64());
    assert_eq!(info.longest_sample_wait_seconds, Some(0.0));
}

#[test]
fn draws_that_do_not_affect_one_another_do_not_wait_behind_others() {
    let limiter = RateLimiterConfig { min_size_to_sample: 5, ..config("table").rate_limiter };
    let bounded = TableConfig { max_times_sampled: 1, rate_limiter: limiter.clone(), ..config("bounded") };
    let free = TableConfig { rate_limiter: limiter, ..config("free") };
    for (config, second) in [(bounded, "waits behind 1 other sample: "), (free, "waits: ")] {
        let table = TableHandle::new(Table::new(config).unwrap());
        let _waiting = [(); 2].map(|()| waiting!(table.sample(exactly(1), here())));
        let waits = table.waits(20);
        let reason = table.with_table(|table| table.limiter_view().sample_waits_for(1));
        let expected = ["waits: ", second].map(|what| format!("sample of table `{}` {what}{reason}", table.name()));
        assert_eq!([&waits[0].reason, &waits[1].reason], expected.each_ref());
    }
}

#[test]
fn at_most_the_wanted_number_of_each_kind_is_listed() {
    let (full, empty) = (queue("full", 1), uniform("empty"));
    assert!(matches!(full.insert(items([0]), here()), Call::Done(Ok(()))));
    let _inserts: Vec<_> = (1..6).map(|key| insert(&full, key, here())).collect();
    let _samples: Vec<_> = (1..6).map(|_| waiting!(empty.sample(exactly(1), here()))).collect();
    assert_eq!((full.waits(3).len(), full.waits(20).len()), (3, 5));
    assert_eq!((empty.waits(3).len(), empty.waits(20).len()), (3, 5));
    assert!(full.waits(0).is_empty());
}

#[tokio::test]
async fn waits_are_counted_when_they_are_answered_withdrawn_or_expired() {
    let table = queue("table", 1);
    let count = |table: &TableHandle| {
        let info = table.status().info;
        let sum = |waits: Option<WaitHistogram>| waits.unwrap().counts.iter().sum::<u64>();
        (sum(info.insert_wait_seconds), sum(info.sample_wait_seconds))
    };
    assert!(matches!(table.insert(items([0]), here()), Call::Done(Ok(()))));
    assert!(matches!(table.sample(exactly(1), here()), Call::Done(Ok(_))));
    assert_eq!(count(&table), (0, 0), "nobody has waited");
    let answered = waiting!(table.sample(exactly(1), here()));
    assert_eq!(count(&table), (0, 0), "the wait has not ended");
    assert!(matches!(table.insert(items([1]), here()), Call::Done(Ok(()))));
    answered.result(None, |_| ()).await.unwrap();
    assert_eq!(count(&table), (0, 1));
    drop(waiting!(table.sample(exactly(1), here())));
    assert_eq!(count(&table), (0, 2), "withdrawn");
    let expiring = waiting!(table.sample(exactly(1), here()));
    expiring.result(Some(Instant::now() + Duration::from_millis(10)), |_| ()).await.unwrap_err();
    assert_eq!(count(&table), (0, 3), "expired");
    assert!(table.status().info.sample_wait_seconds.unwrap().sum_seconds >= 0.01);
    assert!(matches!(table.insert(items([2]), here()), Call::Done(Ok(()))));
    let closed = insert(&table, 3, here());
    table.close();
    closed.result(None, |_| ()).await.unwrap_err();
    assert_eq!(count(&table), (1, 3), "ended by a stop");
}

#[tokio::test]
async fn items_are_counted_for_the_peer_that_inserts_or_draws_them() {
    let (table, copied) = (queue("table", 4), uniform("copied"));
    let replay = Replay::new(vec![table.clone(), copied.clone()], 1 << 20).unwrap();
    let (actor, learner) = (peer("actor"), peer("learner"));
    assert!(matches!(table.insert(items(0..3), &actor), Call::Done(Ok(()))));
    // One of two items fits.
    let blocked = waiting!(table.insert(items(3..5), &actor));
    assert_eq!(traffic(&actor), (3, 0), "the second insert is not done");
    drop(blocked);
    assert_eq!(traffic(&actor), (4, 0), "one item of it stays in the table");
    assert!(matches!(table.sample(exactly(3), &learner), Call::Done(Ok(_))));
    let more = waiting!(table.sample(exactly(2), &learner));
    assert!(matches!(table.insert(items([7]), replay.this_process()), Call::Done(Ok(()))));
    more.result(None, |_| ()).await.unwrap();
    assert_eq!(traffic(&learner), (0, 5));
    assert_eq!(traffic(replay.this_process()), (1, 0));
    assert!(matches!(copied.insert(items([8]), replay.this_process()), Call::Done(Ok(()))));
    copied.sample_copied(exactly(2), true, None, replay.this_process(), |_, _| ()).unwrap();
    assert_eq!(traffic(replay.this_process()), (2, 2));
}

#[tokio::test]
async fn each_server_counts_the_callers_in_its_process_by_itself() {
    let (one, other) = (uniform("one"), uniform("other"));
    let servers = [&one, &other].map(|table| Replay::new(vec![table.clone()], 1 << 20).unwrap());
    let traffic = || servers.each_ref().map(|server| traffic(server.this_process()));
    let rows = RowInsert {
        chunk: chunk(&[1, 2, 3]),
        more: Vec::new(),
        rows_per_item: 1,
        tables: vec![("one".into(), vec![1.0].into())],
    };
    begin_insert(&servers[0], &rows, 1).unwrap();
    assert_eq!(traffic(), [(3, 0), (0, 0)]);
    let request = |table: &str| BatchRequest { table: table.into(), draw: exactly(2), squeeze_time: true };
    sample_copied(&servers[0], &one, &request("one"), None).unwrap();
    LocalDraw::begin(&servers[0], &request("one"), None, true).unwrap().result().await.unwrap();
    assert_eq!(traffic(), [(3, 4), (0, 0)]);
    let _draw = LocalDraw::begin(&servers[1], &request("other"), None, true).unwrap();
    assert_eq!(other.waits(1)[0].peer.id, servers[1].this_process().id);
}
