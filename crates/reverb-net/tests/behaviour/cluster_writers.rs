//! Writers of a cluster: which shard gets an episode, what the keys of its items are, and what becomes of the items of a
//! shard that is lost.

use crate::common::cluster::shard_of;
use crate::common::cluster_writer::{ClusterWriter, QUICK, WriterOf};
use crate::common::test_shard::{TestShard, slots};
use crate::common::{Receive, draw, eventually, int64s, queue, uniform};
use reverb_core::Error;
use reverb_net::client::Client;
use reverb_net::client::writer::{SessionOptions, unconfirmed};
use reverb_net::server::{End, Server};
use reverb_net::transport::cluster::OnShardLoss::{Continue, Raise, Wait};
use reverb_net::transport::cluster::Placement;
use reverb_service::TableHandle;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

fn start(ids: &[u32]) -> Vec<TestShard> {
    ids.iter().map(|&id| TestShard::start(id)).collect()
}

/// Shards whose tables have room for one item: a second one waits.
fn full(ids: &[u32]) -> Vec<TestShard> {
    ids.iter().map(|&id| TestShard::of(id, queue("table", 1), None)).collect()
}

/// Starts the shard again, without its items, at its address.
fn again(shard: TestShard) -> TestShard {
    let (id, port) = (shard.id, shard.server.port());
    drop(shard);
    TestShard::of(id, queue("table", 1000), Some(port))
}

fn end(shard: &mut TestShard, end: End) {
    tokio::task::block_in_place(|| shard.server.end(end)).unwrap();
}

/// The numbers of the items that a shard has, in order.
fn items(shard: &TestShard) -> Vec<u64> {
    let mut items: Vec<_> = shard.keys().iter().map(|&key| shard.priority(key).unwrap() as u64).collect();
    items.sort_unstable();
    items
}

/// The place of the shard that owns a key.
fn owner(shards: &[TestShard], key: u64) -> usize {
    shards.iter().position(|shard| slots(shard.id).contains(key)).expect("a shard owns the key")
}

#[track_caller]
fn assert_own_keys(shards: &[TestShard]) {
    for shard in shards {
        assert!(shard.keys().iter().all(|&key| slots(shard.id).contains(key)));
        assert!(!shard.server.replay().has_foreign_keys());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_episode_is_whole_on_one_shard_and_all_shards_get_some() {
    let shards = start(&[3, 7, 200]);
    let mut writer = WriterOf::new(&shards, Continue).start().await;
    for episode in 0..60 {
        let keys: Vec<_> = (0..3).map(|item| writer.write(10 * episode + item)).collect();
        writer.steps.end_episode(true).unwrap();
        let place = owner(&shards, keys[0]);
        writer.flush().await.unwrap();
        let stored = shards[place].keys();
        assert!(keys.iter().all(|key| stored.contains(key)), "an episode stays on its shard");
    }
    let counts: Vec<_> = shards.iter().map(|shard| shard.keys().len()).collect();
    assert!(counts.iter().sum::<usize>() == 180 && counts.iter().all(|&count| count >= 20), "{counts:?}");
    assert_eq!(writer.session.num_confirmed(), 180);
    assert_own_keys(&shards);
}

#[tokio::test(flavor = "multi_thread")]
async fn episodes_go_to_the_other_shard_where_one_is_far_fuller() {
    let shards = start(&[3, 7]);
    shards[0].fill(&[7; 1000]).await;
    let mut writer = WriterOf::new(&shards, Continue).start().await;
    for episode in 0..30 {
        writer.write(episode);
        writer.flush().await.unwrap();
        writer.steps.end_episode(true).unwrap();
    }
    // The writer has got to know the load of each by an episode.
    assert_eq!(shards[0].keys().len(), 1001);
    assert_eq!(shards[1].keys().len(), 29);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_older_of_two_servers_of_a_shard_gets_no_episodes() {
    let mut shards = start(&[3, 7, 3]);
    end(&mut shards[2], End::Returns);
    let mut writer = WriterOf::new(&shards, Continue).start().await;
    shards[1].fill(&[7; 1000]).await;
    let mut numbers = 0..;
    let mut write_episode = async || {
        writer.try_write(numbers.next().unwrap()).await.unwrap();
        writer.steps.end_episode(true).unwrap();
    };
    // The writer gets to know how full it is, and that the older one is empty.
    while shards[1].keys().len() == 1000 || shards[0].keys().is_empty() {
        write_episode().await;
    }
    let port = shards.remove(2).server.port();
    shards.push(TestShard::of(3, uniform("table"), Some(port)));
    shards[2].fill(&[7; 100]).await;
    let deadline = Instant::now() + QUICK * 100;
    while shards[2].keys().len() == 100 {
        write_episode().await;
        assert!(Instant::now() < deadline, "the newer one gets nothing");
    }
    let of_older = shards[0].keys().len();
    for _ in 0..30 {
        write_episode().await;
    }
    assert_eq!(shards[0].keys().len(), of_older);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_chooses_once_stays_on_its_shard() {
    let shards = start(&[3, 7, 200]);
    let mut writer = WriterOf { placement: Placement::Writer, ..WriterOf::new(&shards, Continue) }.start().await;
    let first = owner(&shards, writer.write(0));
    for episode in 1..20 {
        writer.steps.end_episode(true).unwrap();
        writer.write(episode);
    }
    writer.flush().await.unwrap();
    assert_eq!(items(&shards[first]), (0..20).collect::<Vec<_>>());
    assert_own_keys(&shards);
}

#[tokio::test(flavor = "multi_thread")]
async fn environments_of_one_writer_have_a_shard_each() {
    let shards = start(&[3, 7]);
    let mut writer = WriterOf::new(&shards, Continue).start().await;
    let mut other = writer.other_steps();
    for number in 0..20 {
        let here = owner(&shards, writer.write(number));
        let there = owner(&shards, writer.write_of(&mut other, 100 + number));
        for (steps, place, number) in [(0, here, number + 50), (1, there, number + 150)] {
            let key = if steps == 0 { writer.write(number) } else { writer.write_of(&mut other, number) };
            assert_eq!(owner(&shards, key), place, "the episode of the other changes nothing");
        }
        writer.steps.end_episode(true).unwrap();
        other.end_episode(true).unwrap();
    }
    writer.flush().await.unwrap();
    assert_eq!(shards.iter().map(|shard| shard.keys().len()).sum::<usize>(), 80);
    assert_own_keys(&shards);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_of_two_episodes_has_all_its_chunks_on_the_shard_of_the_later() {
    let shards = start(&[3, 7]);
    let mut writer = WriterOf::new(&shards, Continue).start().await;
    let first = owner(&shards, writer.write(0));
    writer.flush().await.unwrap();
    writer.steps.end_episode(false).unwrap();
    // The other shard is empty, as far as the writer knows.
    let key = writer.write_steps(2, 1);
    writer.flush().await.unwrap();
    assert_eq!(owner(&shards, key), 1 - first);
    let address = shards[1 - first].peer();
    let batch = Client::new(&address).receive(&draw("table", 1), Some(Instant::now() + QUICK * 100)).await.unwrap();
    assert_eq!(int64s(&batch, 0), [0, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_episode_goes_on_while_an_item_of_the_last_waits_for_its_shard() {
    let shards = full(&[3, 7]);
    let options = SessionOptions { max_in_flight_items: 2, ..SessionOptions::default() };
    let mut writer = WriterOf { options, ..WriterOf::new(&shards, Continue) }.start().await;
    let first = owner(&shards, writer.write(1));
    writer.flush().await.unwrap();
    writer.write(2);
    eventually("an item waits", || shards[first].table.pulse().waiting_inserts == 1).await;
    writer.steps.end_episode(true).unwrap();
    assert_eq!(owner(&shards, writer.write(3)), 1 - first);
    eventually("the next episode is there", || items(&shards[1 - first]) == [3]).await;
    eventually("it is confirmed", || writer.session.num_confirmed() == 2).await;
    assert_eq!(writer.session.num_pending(), 1);
    let of_writer = unconfirmed().into_iter().filter(|other| other.address == writer.address()).collect::<Vec<_>>();
    assert_eq!(of_writer.iter().map(|one| one.items.values().sum::<usize>()).collect::<Vec<_>>(), [1]);
    // The limit counts the items of both shards.
    assert!(writer.session.has_room(1) && !writer.session.has_room(2));
    writer.write(4);
    assert!(!writer.session.has_room(1));
    let late = writer.session.flush(0, Some(Instant::now() + QUICK), |_| {}).await.unwrap_err();
    assert!(matches!(&late, Error::DeadlineExceeded(text) if text.starts_with("2 items are not in their")), "{late:?}");
    assert!(writer.session.has_more_in_flight(1) && !writer.session.has_more_in_flight(2));
    for shard in &shards {
        let client = Client::new(&shard.peer());
        client.receive(&draw("table", 1), Some(Instant::now() + QUICK * 100)).await.unwrap();
    }
    writer.flush().await.unwrap();
    assert_eq!((items(&shards[first]), items(&shards[1 - first])), (vec![2], vec![4]));
    assert!(writer.session.is_settled() && writer.session.close(QUICK).await.is_none());
    assert_eq!(writer.session.num_confirmed(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_made_when_a_shard_was_reached() {
    for ids in [&[3][..], &[3, 7]] {
        let mut shards = start(ids);
        shards.iter_mut().for_each(|shard| end(shard, End::Returns));
        let impatient = WriterOf::new(&shards, Continue).patient(QUICK).unreached();
        let gave_up = impatient.session.reach(None).await.unwrap_err();
        assert!(matches!(gave_up, Error::Unavailable(_)), "{gave_up:?}");
        let mut writer = WriterOf::new(&shards, Continue).unreached();
        assert!(!writer.session.is_reached() && !writer.session.has_room(1));
        let unreached = writer.session.reach(Some(Instant::now() + QUICK)).await.unwrap_err();
        assert!(matches!(unreached, Error::Unreached(_)), "{unreached:?}");
        let shards: Vec<_> = shards.into_iter().map(again).collect();
        writer.session.take_room(1, None, |_| {}).await.unwrap();
        assert!(writer.session.has_room(1));
        writer.write(1);
        writer.flush().await.unwrap();
        assert_eq!(shards.iter().flat_map(items).collect::<Vec<_>>(), [1]);
        assert_own_keys(&shards);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_was_made_too_early_is_replaced() {
    let mut shards = start(&[3, 7]);
    // None can be reached before the item is pushed.
    shards.iter_mut().for_each(|shard| end(shard, End::Returns));
    let mut writer = WriterOf::new(&shards, Continue).unreached();
    let (one, two) = (writer.item(1, 1), writer.item(1, 2));
    let refused = writer.push(one).unwrap_err();
    assert!(matches!(&refused, Error::Unavailable(text) if text.starts_with("no shard of ")), "{refused:?}");
    let shards: Vec<_> = shards.into_iter().map(again).collect();
    writer.session.reach(None).await.unwrap();
    writer.push(two).unwrap();
    writer.flush().await.unwrap();
    assert_eq!(shards.iter().flat_map(items).collect::<Vec<_>>(), [2]);
    assert_own_keys(&shards);
}

/// A writer with one item that is in its shard, and one that the shard has and has not confirmed.
async fn with_waiting_item(shards: &[TestShard], policy: WriterOf<'_>) -> (ClusterWriter, usize) {
    let mut writer = policy.start().await;
    let place = owner(shards, writer.write(1));
    writer.flush().await.unwrap();
    assert_eq!(owner(shards, writer.write(2)), place);
    eventually("an item waits", || shards[place].table.pulse().waiting_inserts == 1).await;
    (writer, place)
}

#[tokio::test(flavor = "multi_thread")]
async fn items_of_a_lost_shard_move_to_another_under_keys_of_that_one() {
    for goodbye in [End::Returns, End::ForGood] {
        let mut shards = full(&[3, 7, 200]);
        // A shard that was stopped for good is not waited for.
        let timeout = if goodbye == End::ForGood { Duration::from_secs(300) } else { QUICK };
        let (mut writer, lost) = with_waiting_item(&shards, WriterOf::new(&shards, Continue).patient(timeout)).await;
        end(&mut shards[lost], goodbye);
        writer.flush().await.unwrap();
        assert_eq!(items(&shards[lost]), [1]);
        let other = shards.iter().position(|shard| items(shard) == [2]).expect("a shard has got it");
        assert_own_keys(&shards);
        assert_eq!(owner(&shards, writer.write(3)), other, "the rest of the episode follows");
        let client = Client::new(&shards[other].peer());
        client.receive(&draw("table", 1), Some(Instant::now() + QUICK * 100)).await.unwrap();
        writer.steps.end_episode(true).unwrap();
        assert_ne!(owner(&shards, writer.write(4)), lost);
        writer.flush().await.unwrap();
        assert_eq!(writer.session.num_confirmed(), 4);
        assert_own_keys(&shards);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_item_is_lost_where_a_shard_dies_while_a_writer_writes() {
    let mut shards = start(&[3, 7, 200]);
    let mut writer = WriterOf::new(&shards, Continue).patient(QUICK).start().await;
    let mut confirmed = Vec::new();
    for number in 0..600 {
        writer.write(number);
        if number % 20 == 19 {
            writer.steps.end_episode(true).unwrap();
        }
        if number == 299 {
            writer.flush().await.unwrap();
            confirmed.extend(0..300);
        }
        if number == 450 {
            end(&mut shards[1], End::Returns);
        }
    }
    writer.flush().await.unwrap();
    let mut all: Vec<_> = shards.iter().flat_map(items).collect();
    all.sort_unstable();
    let count = |number: u64| all.iter().filter(|&&other| other == number).count();
    assert!(confirmed.iter().all(|&number| count(number) == 1));
    let counts: Vec<_> = (300..600).map(count).collect();
    assert!(counts.iter().all(|count| (1..=2).contains(count)), "{counts:?}");
    assert_eq!(writer.session.num_confirmed(), 600);
    assert_own_keys(&shards);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_whose_losses_raise_names_the_shard_and_goes_on_elsewhere() {
    for goodbye in [End::Returns, End::ForGood] {
        let mut shards = full(&[3, 7]);
        let (mut writer, lost) = with_waiting_item(&shards, WriterOf::new(&shards, Raise).patient(QUICK)).await;
        end(&mut shards[lost], goodbye);
        let name = format!("shard {} at {} is missing: ", shards[lost].id, shards[lost].peer());
        let error = writer.flush().await.unwrap_err();
        let Error::Unavailable(text) = &error else { panic!("{error:?}") };
        assert!(text.starts_with(&name) && text.contains("1 items were not confirmed"), "{text}");
        assert_eq!((writer.session.num_pending(), writer.session.is_settled()), (0, true));
        assert_eq!(owner(&shards, writer.write(3)), 1 - lost);
        writer.flush().await.unwrap();
        assert_eq!(items(&shards[1 - lost]), [3]);
        assert_own_keys(&shards);
    }
}

/// Starts a server of another cluster at the address of a lost shard, as the same shard of that one.
fn start_stranger(lost: &TestShard) -> (Server, TableHandle) {
    let table = queue("table", 1000);
    (shard_of("other", lost.id, &table, Some(lost.server.port())), table)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_another_cluster_at_the_address_of_a_lost_shard_does_not_hide_the_others() {
    for policy in [Continue, Raise] {
        let mut shards = full(&[3, 7]);
        let (mut writer, lost) = with_waiting_item(&shards, WriterOf::new(&shards, policy).patient(QUICK)).await;
        end(&mut shards[lost], End::Returns);
        eventually("the writer has lost it", || writer.road_name().contains("1 of 2")).await;
        let (_server, stranger) = start_stranger(&shards[lost]);
        eventually("the writer has reached the stranger", || writer.road_name().contains("(2 servers)")).await;
        assert_eq!(writer.flush().await.is_err(), policy == Raise);
        if policy == Raise {
            assert_eq!(owner(&shards, writer.write(3)), 1 - lost);
            writer.flush().await.unwrap();
        }
        assert_eq!(items(&shards[1 - lost]), [if policy == Raise { 3 } else { 2 }]);
        assert_eq!(stranger.with_table(|table| table.keys().count()), 0);
        assert_own_keys(&shards);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn items_of_a_new_table_go_on_where_a_server_of_another_cluster_has_the_address_of_a_lost_shard() {
    let of = |id| TestShard::with(id, uniform("table"), vec![uniform("more")], None);
    let mut shards = vec![of(3), of(7)];
    let mut writer = WriterOf::new(&shards, Raise).start().await;
    let place = owner(&shards, writer.write(1));
    writer.flush().await.unwrap();
    end(&mut shards[1 - place], End::Returns);
    eventually("the writer has lost it", || writer.road_name().contains("1 of 2")).await;
    let (_server, _stranger) = start_stranger(&shards[1 - place]);
    writer.client.try_shards().await;
    eventually("the writer has reached the stranger", || writer.road_name().contains("(2 servers)")).await;
    let mut steps = writer.other_steps();
    writer.write_to("more", &mut steps, 2);
    writer.flush().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_waits_for_its_shard_keeps_its_items_and_their_keys() {
    for goodbye in [End::Returns, End::ForGood] {
        let mut shards = full(&[3, 7]);
        let (mut writer, lost) = with_waiting_item(&shards, WriterOf::new(&shards, Wait).patient(QUICK)).await;
        end(&mut shards[lost], goodbye);
        let late = writer.session.flush(0, Some(Instant::now() + QUICK * 5), |_| {}).await.unwrap_err();
        assert!(matches!(late, Error::DeadlineExceeded(_)), "{late:?}");
        assert!(!writer.session.has_server());
        let returned = again(shards.remove(lost));
        writer.flush().await.unwrap();
        assert_eq!(items(&returned), [2]);
        assert_own_keys(&[returned]);
        writer.steps.end_episode(true).unwrap();
        assert_eq!(owner(&shards, writer.write(3)), 0);
        writer.flush().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn when_all_shards_were_stopped_for_good_a_writer_says_so_and_goes_on_with_others() {
    for policy in [Continue, Raise, Wait] {
        let mut shards = full(&[3, 7]);
        let (mut writer, lost) = with_waiting_item(&shards, WriterOf::new(&shards, policy)).await;
        end(&mut shards[1 - lost], End::ForGood);
        eventually("the writer has heard of it", || writer.road_name().contains("1 of 2")).await;
        end(&mut shards[lost], End::ForGood);
        let error = writer.flush().await.unwrap_err();
        let is_counted = |text: &str| text.contains("1 items were not confirmed");
        assert!(matches!(&error, Error::ServerStopped(text) if is_counted(text)), "{policy:?}: {error:?}");
        let shards: Vec<_> = shards.into_iter().map(again).collect();
        // New ones are there by the time that items come again.
        let (number, deadline) = (3, Instant::now() + QUICK * 100);
        while writer.try_write(number).await.is_err() {
            assert!(Instant::now() < deadline, "it goes on");
        }
        assert_eq!(shards.iter().flat_map(items).collect::<Vec<_>>(), [number]);
        assert_own_keys(&shards);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_has_returned_gets_episodes_again() {
    let mut shards = start(&[3, 7]);
    shards[0].fill(&[7; 1000]).await;
    let mut writer = WriterOf::new(&shards, Continue).patient(QUICK).start().await;
    writer.write(0);
    writer.flush().await.unwrap();
    let emptier = again(shards.remove(1));
    let deadline = Instant::now() + QUICK * 100;
    let mut number = 1;
    while emptier.keys().len() < 10 {
        writer.steps.end_episode(true).unwrap();
        writer.write(number);
        writer.flush().await.unwrap();
        number += 1;
        assert!(Instant::now() < deadline, "the shard that has returned gets nothing");
    }
    assert_own_keys(&[shards.remove(0), emptier]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_item_of_an_earlier_episode_is_reported_and_the_writer_goes_on() {
    let shards = start(&[3, 7]);
    let mut writer = WriterOf::new(&shards, Continue).start().await;
    let mut wrong = writer.item(1, 1);
    wrong.table = "missing".into();
    writer.push(wrong).unwrap();
    writer.steps.end_episode(true).unwrap();
    writer.write(2);
    let refused = writer.flush().await.unwrap_err();
    assert!(matches!(&refused, Error::TableNotFound { table, .. } if table == "missing"), "{refused:?}");
    writer.write(3);
    writer.flush().await.unwrap();
    let mut all: Vec<_> = shards.iter().flat_map(items).collect();
    all.sort_unstable();
    assert_eq!(all, [2, 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_confirmed_items_never_falls_while_streams_end() {
    let shards = start(&[3, 7]);
    let writer = WriterOf::new(&shards, Continue).start().await;
    let is_over = AtomicBool::new(false);
    let watch = || {
        let mut last = 0;
        while !is_over.load(Relaxed) {
            let now = writer.session.num_confirmed();
            assert!(now >= last, "{now} after {last}");
            last = now;
        }
    };
    let write = async {
        let mut steps = writer.other_steps();
        for number in 0..500 {
            writer.write_of(&mut steps, number);
            writer.flush().await.unwrap();
            steps.end_episode(true).unwrap();
        }
        is_over.store(true, Relaxed);
    };
    let runtime = Handle::current();
    tokio::task::block_in_place(|| {
        std::thread::scope(|scope| {
            scope.spawn(watch);
            runtime.block_on(write);
        });
    });
    assert_eq!(writer.session.num_confirmed(), 500);
}
