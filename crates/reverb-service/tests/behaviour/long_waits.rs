//! Reports of long waits: one for each program and table.

use crate::common::{exactly, here, items, queue};
use reverb_service::{Call, Notice, Peer, TableHandle, Transport};
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A peer of this name that calls from this address.
fn peer(name: &str, address: &str) -> Arc<Peer> {
    let peer = Peer::new(Transport::Tcp, address.into());
    peer.introduce(name);
    Arc::new(peer)
}

/// Waits in vain for longer than it takes to be reported, and counts the reports.
async fn wait(table: &TableHandle, peer: &Arc<Peer>, reports: &Cell<usize>) {
    let Call::Waiting(waiting) = table.sample(exactly(1), peer) else { panic!("the table is not empty") };
    let deadline = Some(Instant::now() + Duration::from_secs(15));
    waiting.result(deadline, |_| reports.set(reports.get() + 1)).await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn one_of_a_programs_waits_at_a_table_is_reported() {
    let (table, other) = (queue("table", 10), queue("other", 10));
    let reports = Cell::new(0);
    tokio::join!(
        wait(&table, here(), &reports),
        wait(&table, here(), &reports),
        wait(&table, here(), &reports),
        wait(&other, here(), &reports),
        wait(&other, here(), &reports),
    );
    assert_eq!(reports.get(), 2, "one for each table");
    wait(&table, here(), &reports).await;
    assert_eq!(reports.get(), 3, "the waits before have ended");
}

#[tokio::test(start_paused = true)]
async fn each_program_gets_its_own_report() {
    let table = queue("table", 10);
    let reports = Cell::new(0);
    let near = [peer("actor (box:1)", "10.0.0.1:4001"), peer("actor (box:1)", "10.0.0.1:4002")];
    let (far, second) = (peer("actor (box:1)", "10.0.0.2:4001"), peer("actor (box:2)", "10.0.0.1:4003"));
    let nameless = [(); 2].map(|()| Arc::new(Peer::new(Transport::Unix, String::new())));
    tokio::join!(
        wait(&table, &near[0], &reports),
        wait(&table, &near[1], &reports),
        wait(&table, &far, &reports),
        wait(&table, &second, &reports),
        wait(&table, &nameless[0], &reports),
        wait(&table, &nameless[1], &reports),
    );
    assert_eq!(reports.get(), 5);
}

#[tokio::test(start_paused = true)]
async fn draws_and_inserts_are_reported_separately() {
    let table = queue("table", 2);
    let reports = Cell::new(0);
    let note = |_: &Notice| reports.set(reports.get() + 1);
    let deadline = Some(Instant::now() + Duration::from_secs(15));
    let full = queue("full", 1);
    let inserts = [0..2, 2..4].map(|numbers| match full.insert(items(numbers), here()) {
        Call::Waiting(waiting) => waiting.result(deadline, note),
        Call::Done(result) => panic!("it does not wait: {result:?}"),
    });
    let [first, second] = inserts;
    let (_, first, second) = tokio::join!(wait(&table, here(), &reports), first, second);
    first.and(second).unwrap_err();
    assert_eq!(reports.get(), 2);
}
