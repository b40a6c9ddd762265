//! What a table does with the draws of a race until the caller says which have won, and afterwards.

use crate::common::{Recorder, Told, config, here, items, keys};
use crate::done;
use reverb_core::{AfterRound, Error, Race, RaceReport, Table, TableChanges, TableConfig};
use reverb_service::lease::Lease;
use reverb_service::{Peer, TableHandle, snapshot_all};
use std::sync::atomic::Ordering::Relaxed;

/// A table of these items, each of which can be drawn so often; 0 for any number of times.
fn table(items_with: impl IntoIterator<Item = u64>, max_times_sampled: i32) -> TableHandle {
    let config = TableConfig { max_times_sampled, ..config("table") };
    let table = TableHandle::new(Table::new(config).unwrap());
    done!(table.insert(items(items_with), here()));
    table
}

/// Asks for so many draws, however long that takes.
fn up_to(limit: usize) -> Race {
    Race { interval: f64::INFINITY, limit, by_size: false }
}

fn race(table: &TableHandle, limit: usize) -> (RaceReport, Lease) {
    table.race(up_to(limit)).unwrap()
}

fn held(lease: &Lease) -> Vec<u64> {
    keys(lease.items())
}

fn sorted(mut keys: Vec<u64>) -> Vec<u64> {
    keys.sort_unstable();
    keys
}

fn undelivered(table: &TableHandle) -> u64 {
    table.status().info.undelivered_samples.unwrap()
}

fn samples(table: &TableHandle) -> i64 {
    table.status().info.samples
}

#[test]
fn held_items_are_drawn_by_nobody_else_and_losers_are_free_at_once() {
    let table = table(0..5, 1);
    let (report, mut first) = race(&table, 3);
    let (rest, second) = race(&table, 9);
    assert_eq!((report.size, report.arrivals.len(), report.is_cut), (5, 3, true));
    assert_eq!((rest.size, rest.arrivals.len(), rest.is_cut), (2, 2, false));
    assert_eq!(sorted([held(&first), held(&second)].concat()), [0, 1, 2, 3, 4]);
    assert_eq!(race(&table, 9).0.arrivals, [], "all items are held");
    let winner = held(&first)[1];
    let losers = sorted(held(&first).into_iter().filter(|&key| key != winner).collect());
    first.keep(&[1], here()).unwrap();
    assert_eq!((held(&first), first.samples()), (vec![winner], 1));
    assert_eq!(sorted(held(&race(&table, 9).1)), losers);
    drop(second);
    first.received().unwrap();
    assert_eq!((undelivered(&table), samples(&table)), (0, 1));
    assert_eq!(race(&table, 9).0.arrivals.len(), 4);
}

#[test]
fn a_lease_that_is_dropped_frees_winners_and_losers() {
    let table = table(0..5, 1);
    let (_, mut lease) = race(&table, 4);
    assert_eq!(undelivered(&table), 4);
    lease.keep(&[0, 3], here()).unwrap();
    assert_eq!((undelivered(&table), samples(&table)), (2, 2));
    drop(lease);
    assert_eq!((undelivered(&table), samples(&table)), (0, 0));
    assert_eq!(race(&table, 9).0.arrivals.len(), 5);
}

#[test]
fn losers_of_a_table_that_tracks_no_draws_do_not_count() {
    let table = table(0..5, 0);
    let (report, mut lease) = race(&table, 40);
    assert_eq!((report.arrivals.len(), undelivered(&table), samples(&table)), (40, 40, 40));
    let winners: Vec<_> = (0..40).step_by(4).collect();
    lease.keep(&winners, here()).unwrap();
    assert_eq!((undelivered(&table), samples(&table)), (10, 10));
    lease.received().unwrap();
    assert_eq!((undelivered(&table), samples(&table)), (0, 10));
}

/// What the table counts of its samples: how many, of how many bytes, how many of known age, and how many went back.
fn figures(table: &TableHandle) -> [u64; 4] {
    let info = table.status().info;
    let aged = info.sample_age_seconds.unwrap().counts.iter().sum();
    [info.process_samples.unwrap(), info.sample_bytes.unwrap(), aged, info.returned_samples.unwrap()]
}

#[test]
fn only_winners_count_as_samples_and_as_samples_that_went_back() {
    for max_times_sampled in [0, 1] {
        let table = table(0..8, max_times_sampled);
        let peer = Peer::in_same_process();
        let sampled = || peer.traffic.samples.load(Relaxed);
        let (_, mut lease) = race(&table, 5);
        assert_eq!((figures(&table), sampled(), table.status().info.last_sample_at), ([0; 4], 0, None));
        lease.keep(&[0, 2, 4], &peer).unwrap();
        assert_eq!((figures(&table), sampled()), ([3, 24, 3, 0], 3));
        assert!(table.status().info.last_sample_at.is_some());
        drop(lease);
        assert_eq!((figures(&table), sampled()), ([3, 24, 3, 3], 3), "they went back");
        let (_, lease) = race(&table, 5);
        drop(lease);
        let (_, mut lease) = race(&table, 5);
        lease.keep(&[], &peer).unwrap();
        lease.received().unwrap();
        assert_eq!((figures(&table), sampled(), samples(&table)), ([3, 24, 3, 3], 3, 0), "nobody has won");
        let (_, mut lease) = race(&table, 5);
        lease.keep(&[1], &peer).unwrap();
        lease.received().unwrap();
        assert_eq!((figures(&table), sampled(), samples(&table)), ([4, 32, 4, 3], 4, 1));
    }
}

#[test]
fn items_that_are_taken_out_of_a_lease_are_given_back_by_hand() {
    let table = table(0..5, 1);
    let (_, mut lease) = race(&table, 4);
    lease.keep(&[1, 2], here()).unwrap();
    let items = lease.into_items();
    assert_eq!((items.len(), undelivered(&table), samples(&table)), (2, 0, 2));
    table.give_back(items);
    assert_eq!((samples(&table), race(&table, 9).0.arrivals.len()), (0, 5));
}

#[test]
fn items_that_are_taken_out_of_a_lease_return_where_a_limit_of_draws_has_come_meanwhile() {
    let table = table([7], 0);
    let (_, mut lease) = race(&table, 2);
    table.configure(&TableChanges { max_times_sampled: Some(2), ..TableChanges::default() }).unwrap();
    lease.keep(&[0, 1], here()).unwrap();
    let items = lease.into_items();
    let len = || table.with_table(Table::len);
    assert_eq!((items.len(), len()), (2, 0), "it was drawn often enough");
    table.give_back(items);
    assert_eq!(len(), 1);
}

#[test]
fn positions_that_are_not_those_of_held_items_are_refused_and_the_lease_goes_on() {
    let table = table(0..5, 1);
    let (_, mut lease) = race(&table, 3);
    for (positions, bad) in [
        (&[3][..], "3 as number 1 of 1"),
        (&[1, 0], "0 as number 2 of 2"),
        (&[1, 1, 2], "1 as number 2 of 3"),
        (&[0, 1, 2, 3], "3 as number 4 of 4"),
        (&[usize::MAX, 0], "18446744073709551615 as number 1 of 2"),
    ] {
        let Err(Error::InvalidArgument(text)) = lease.keep(positions, here()) else {
            panic!("{positions:?} were taken")
        };
        assert_eq!(text, format!("expected ascending positions below 3, got {bad}"));
    }
    assert_eq!((lease.samples(), undelivered(&table)), (3, 3));
    lease.keep(&[2], here()).unwrap();
    lease.keep(&[], here()).unwrap();
    assert_eq!((lease.samples(), undelivered(&table), samples(&table)), (0, 0, 0));
}

#[test]
fn a_checkpoint_holds_what_is_raced_as_not_drawn() {
    let table = table(0..5, 1);
    let (_, mut lease) = race(&table, 4);
    lease.keep(&[0], here()).unwrap();
    let count = |table: &TableHandle| snapshot_all(std::slice::from_ref(table))[0].num_items();
    assert_eq!(count(&table), 5);
    lease.received().unwrap();
    assert_eq!(count(&table), 4);
}

#[test]
fn a_journal_hears_of_losers_that_come_back_and_of_receipts() {
    let table = table([], 1);
    let journal = Recorder::of(&table);
    done!(table.insert(items(0..3), here()));
    assert_eq!(journal.take(), [0, 1, 2].map(Told::Put));
    let (_, mut lease) = race(&table, 3);
    let drawn = held(&lease);
    assert_eq!(journal.take(), []);
    lease.keep(&[1], here()).unwrap();
    assert_eq!(journal.take(), [drawn[2], drawn[0]].map(Told::Back));
    lease.received().unwrap();
    assert_eq!(journal.take(), [Told::received(drawn[1])]);
}

#[test]
fn races_that_are_too_large_or_come_after_the_end_are_refused_by_name() {
    let table = table(0..5, 1);
    let Err(Error::ResourceExhausted(text)) = table.race(up_to(20_000)) else { panic!("it is too large") };
    assert!(text.contains("a race for 20000 items exceeds the maximum of 16384 items"), "{text}");
    let (_, lease) = race(&table, 2);
    table.close();
    assert!(matches!(table.race(up_to(1)), Err(Error::Cancelled(_))));
    assert!(matches!(lease.received(), Err(Error::Cancelled(_))), "the last checkpoint may hold them");
}

/// Two learners whose batches are larger than half of the items both end, since each frees what it holds before it
/// waits for more.
#[test]
fn two_learners_on_fewer_items_than_two_batches_both_go_on() {
    const BATCH: usize = 8;
    let shards = [table(0..6, 1), table(100..106, 1)];
    let learn = || {
        let mut batch: Vec<Lease> = Vec::new();
        let mut next = Race::new(BATCH, 12.0, 12);
        loop {
            let Some(race) = next else {
                // As a learner that waits does.
                batch.clear();
                std::thread::yield_now();
                next = Race::new(BATCH, 12.0, 12);
                continue;
            };
            let wanted = BATCH - batch.iter().map(Lease::samples).sum::<usize>();
            let (reports, mut leases): (Vec<_>, Vec<_>) = shards.iter().map(|shard| shard.race(race).unwrap()).unzip();
            let round = race.merge(wanted, &reports);
            for (shard, lease) in leases.iter_mut().enumerate() {
                let mut won: Vec<_> =
                    round.winners.iter().filter(|won| won.shard == shard).map(|won| won.index).collect();
                won.sort_unstable();
                lease.keep(&won, here()).unwrap();
            }
            batch.extend(leases);
            match round.next {
                AfterRound::Done => break batch.iter().flat_map(held).collect::<Vec<_>>(),
                AfterRound::Race(race) => next = Some(race),
                AfterRound::Wait => next = None,
            }
        }
    };
    let batches = std::thread::scope(|scope| {
        let learners = [
            scope.spawn(|| (0..200).map(|_| learn()).collect::<Vec<_>>()),
            scope.spawn(|| (0..200).map(|_| learn()).collect()),
        ];
        learners.map(|learner| learner.join().unwrap())
    });
    for batch in batches.concat() {
        let all = sorted(batch);
        assert!(all.len() == BATCH && all.is_sorted_by(|before, after| before < after), "{all:?}");
    }
    assert_eq!(shards.iter().map(|shard| race(shard, 9).0.arrivals.len()).sum::<usize>(), 12);
}
