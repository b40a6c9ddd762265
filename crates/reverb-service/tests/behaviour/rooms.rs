//! Tables of several shards, whose limiter is that of all of them together, and clients that carry what they say.

use crate::common::{config, exactly, here, items, silent};
use crate::{done, waits};
use parking_lot::Mutex;
use reverb_core::published_room::{
    Counted, Counts, Generation, Incarnation, Learner, MAX_COUNT, MemberId, PUBLISH_EVERY, Report, RoomConfig, Sums,
    Tally,
};
use reverb_core::{Error, MAX_SHARDS, Race, RateLimiterConfig, SelectorKind, Table, TableChanges, TableConfig};
use reverb_service::{Call, RoomDelivery, RoomLink, RoomMessage, Shard, TableHandle, Waiting, snapshot_all};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

const SHARDS: u32 = 4;
/// Long enough for a home to be found, and for all to be counted.
const SETTLED: Duration = Duration::from_secs(1);

fn ratio(samples_per_insert: f64, min_diff: f64, max_diff: f64) -> RateLimiterConfig {
    RateLimiterConfig { samples_per_insert, min_size_to_sample: 1, min_diff, max_diff }
}

fn table(rate_limiter: RateLimiterConfig) -> TableHandle {
    TableHandle::new(table_of(rate_limiter, 0))
}

fn table_of(rate_limiter: RateLimiterConfig, size: u64) -> Table {
    let mut table = Table::new(TableConfig { rate_limiter, ..config("replay") }).unwrap();
    items(0..size).into_iter().for_each(|item| table.insert(item, 1, &mut Vec::new()));
    table
}

fn tables(rate_limiter: &RateLimiterConfig) -> Vec<TableHandle> {
    (0..SHARDS).map(|_| table(rate_limiter.clone())).collect()
}

fn shard(id: u32) -> Shard {
    Shard::new(id, MAX_SHARDS, "replay".into()).unwrap()
}

fn ids() -> Vec<u32> {
    (0..SHARDS).collect()
}

/// A client of all shards: it carries messages, reports as a learner, and counts what it was given to carry.
struct Client {
    state: Arc<ClientState>,
    _tasks: JoinSet<()>,
}

struct ClientState {
    links: BTreeMap<u32, RoomLink>,
    learner: Mutex<Learner>,
    begun: Instant,
    carried: Mutex<u64>,
    heard: Mutex<u64>,
    /// Shards that do not hear this client.
    cut: Mutex<BTreeSet<u32>>,
}

impl Client {
    fn new(number: u64, tables: &[TableHandle]) -> Self {
        let mut tasks = JoinSet::new();
        let (mut links, mut receivers) = (BTreeMap::new(), Vec::new());
        for (id, table) in ids().into_iter().zip(tables) {
            let (link, deliveries) = table.attach_to_room(&shard(id), number, &ids()).unwrap().unwrap();
            links.insert(id, link);
            receivers.push((id, deliveries));
        }
        let config =
            RoomConfig { limiter: links[&0].limiter.clone(), shards: u64::from(SHARDS), learners: 1, batch: 1 };
        let learner = Mutex::new(Learner::new(Duration::ZERO, config, number, &ids()).unwrap());
        let (carried, heard, cut) = Default::default();
        let state = Arc::new(ClientState { links, learner, begun: Instant::now(), carried, heard, cut });
        for (from, mut deliveries) in receivers {
            let state = state.clone();
            tasks.spawn(async move {
                while let Some(delivery) = deliveries.recv().await {
                    state.take(from, &delivery);
                }
            });
        }
        let reporting = state.clone();
        tasks.spawn(async move {
            loop {
                let now = reporting.begun.elapsed();
                let (report, to) = reporting.learner.lock().report(now);
                to.into_iter().for_each(|id| reporting.tell(id, &RoomMessage::Reported(report.clone())));
                sleep(PUBLISH_EVERY).await;
            }
        });
        Self { state, _tasks: tasks }
    }

    fn cut(&self, id: u32) {
        self.state.cut.lock().insert(id);
    }

    /// Draws so many samples once they may go, as races do: by chance, from all shards that are not cut off.
    async fn draw(&self, tables: &[TableHandle], count: u64) {
        let state = &self.state;
        while !state.learner.lock().take(state.begun.elapsed(), count) {
            sleep(PUBLISH_EVERY).await;
        }
        let tally = state.learner.lock().tally().clone();
        let cut = state.cut.lock().clone();
        let of_shard = |id: &u32| !cut.contains(id) && tables[*id as usize].with_table(Table::len) > 0;
        let with_items: Vec<_> = ids().into_iter().filter(of_shard).collect();
        let id = with_items[(count as usize + state.begun.elapsed().as_millis() as usize) % with_items.len()];
        let table = &tables[id as usize];
        table.hear_learner(&tally).unwrap();
        let (_, mut lease) = table.race(Race { interval: 1e9, limit: count as usize, by_size: false }).unwrap();
        lease.keep(&(0..count as usize).collect::<Vec<_>>(), here()).unwrap();
        table.tell_counted(state.number(), count);
        lease.received().unwrap();
    }
}

impl ClientState {
    fn number(&self) -> u64 {
        match self.learner.lock().report(Duration::ZERO).0.from {
            MemberId::Learner(number) => number,
            MemberId::Shard(_) => unreachable!("it is a learner"),
        }
    }

    fn tell(&self, id: u32, message: &RoomMessage) {
        if !self.cut.lock().contains(&id) {
            self.links[&id].hear(message).unwrap();
        }
    }

    fn take(&self, from: u32, RoomDelivery { to, message }: &RoomDelivery) {
        if self.cut.lock().contains(&from) {
            return;
        }
        *self.carried.lock() += to.len() as u64;
        to.iter().for_each(|id| self.tell(*id, message));
        if to.is_empty() {
            *self.heard.lock() += 1;
            let (mut learner, now) = (self.learner.lock(), self.begun.elapsed());
            match message {
                RoomMessage::Published(publication) => {
                    learner.hear(now, publication);
                }
                RoomMessage::Counted(count, counted) => learner.counted(*count, counted),
                RoomMessage::Reported(_) => panic!("a report came to a client"),
            }
        }
    }
}

/// Inserts and samples of all tables.
fn totals(tables: &[TableHandle]) -> (u64, u64) {
    let all = tables.iter().map(|table| table.with_table(Table::totals));
    all.fold((0, 0), |(inserts, samples), of| (inserts + of.0, samples + of.1))
}

fn diff(tables: &[TableHandle], samples_per_insert: f64) -> f64 {
    let (inserts, samples) = totals(tables);
    inserts as f64 * samples_per_insert - samples as f64
}

fn insert(table: &TableHandle, first_key: u64, count: u64) -> Call<()> {
    table.insert(items(first_key..first_key + count), here())
}

fn waiting(table: &TableHandle, first_key: u64, count: u64) -> Waiting<()> {
    waits!(insert(table, first_key, count))
}

#[tokio::test(start_paused = true)]
async fn inserts_at_one_shard_use_the_room_of_all() {
    let tables = tables(&ratio(1.0, -20.0, 40.0));
    let client = Client::new(1, &tables);
    let stuck = waiting(&tables[2], 0, 1000);
    sleep(SETTLED).await;
    let (inserts, _) = totals(&tables);
    // The last room is less than one insert for each shard.
    assert!((40 - u64::from(SHARDS) + 1..=40).contains(&inserts), "{inserts}");
    let reason = stuck.explain();
    assert!(reason.starts_with("insert into table `replay` waits: "), "{reason}");
    assert!(
        reason.contains(" more samples until 963 inserts may go; all shards together: 37 inserts, 0 samples, 37 items"),
        "{reason}"
    );
    for _ in 0..10 {
        client.draw(&tables, 2).await;
        sleep(SETTLED).await;
    }
    let (inserts, samples) = totals(&tables);
    assert_eq!(samples, 20);
    assert!((57..=60).contains(&inserts), "{inserts}");
}

#[tokio::test(start_paused = true)]
async fn the_bounds_hold_while_shards_are_silent_and_lost() {
    let (spi, window) = (2.0, 80.0);
    let tables = tables(&ratio(spi, -40.0, 40.0));
    let clients = [Client::new(1, &tables), Client::new(2, &tables)];
    let _stuck: Vec<_> = (0..).zip(&tables).map(|(id, table)| waiting(table, id * 10_000, 10_000)).collect();
    let mut seen = [0.0_f64; 2];
    for step in 0..600_u32 {
        match step {
            200 => clients.iter().for_each(|client| client.cut(0)),
            400 => clients.iter().for_each(|client| client.cut(2)),
            _ => {}
        }
        clients[step as usize % 2].draw(&tables, 3).await;
        let now = diff(&tables, spi);
        seen = [seen[0].min(now), seen[1].max(now)];
        assert!((-40.0 - window..=40.0 + window).contains(&now), "step {step}: {now}");
    }
    let (inserts, samples) = totals(&tables);
    assert_eq!(samples, 1800);
    assert!(inserts as f64 * spi >= 1800.0 - 40.0, "{inserts} inserts");
    assert!(seen[1] > 20.0, "the room was used: {seen:?}");
}

#[tokio::test(start_paused = true)]
async fn without_clients_inserts_stand_still_and_say_so_until_one_comes() {
    let tables = tables(&ratio(1.0, -20.0, 40.0));
    // Before the first client, the table is one of its own.
    done!(insert(&tables[0], 0, 40));
    let stuck = waiting(&tables[0], 100, 1);
    assert!(!stuck.explain().contains("cluster"), "{}", stuck.explain());
    drop(stuck);
    let client = Client::new(1, &tables);
    client.draw(&tables, 8).await;
    sleep(SETTLED).await;
    done!(insert(&tables[0], 200, 1));
    drop(client);
    sleep(SETTLED).await;
    let stuck = waiting(&tables[0], 300, 1);
    let reason = stuck.explain();
    let says =
        "no client of the cluster that uses the table is connected to this shard; no shard has published its sums";
    assert!(reason.contains(says), "{reason}");
    let _client = Client::new(2, &tables);
    stuck.result(Some((Instant::now() + SETTLED).into_std()), silent).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_a_table_has_counted_alone_is_a_part_of_the_sums_but_only_once() {
    let tables = tables(&ratio(1.0, 10.0, 50.0));
    done!(insert(&tables[1], 0, 40));
    let client = Client::new(1, &tables);
    // 32 inserts more than samples are left.
    client.draw(&tables, 8).await;
    let stuck = waiting(&tables[0], 100, 100);
    sleep(SETTLED).await;
    assert!((55..=58).contains(&totals(&tables).0), "{:?}", totals(&tables));
    drop((stuck, client));
    let known = snapshot_all(&tables[1..2]).remove(0).tally;
    let returned = table(ratio(1.0, 10.0, 50.0));
    returned.restore(table_of(ratio(1.0, 10.0, 50.0), 40), &known);
    returned.attach_to_room(&shard(1), 2, &ids()).unwrap().unwrap();
    let mut now = snapshot_all(&[returned]).remove(0).tally;
    let of_all = now.sums(&ids());
    assert_eq!((of_all.inserts, of_all.samples), (known.sums(&ids()).inserts, 8));
    now.merge(&known);
    assert_eq!(now.sums(&[1]).items, 40);
}

#[tokio::test(start_paused = true)]
async fn two_clients_carry_and_another_takes_the_place_of_one_that_leaves() {
    let tables = tables(&ratio(1.0, -20.0, 40.0));
    let mut clients: Vec<_> = (0..5).map(|number| Client::new(number, &tables)).collect();
    sleep(SETTLED).await;
    let carried = |clients: &[Client]| -> Vec<u64> {
        clients.iter().map(|client| std::mem::take(&mut *client.state.carried.lock())).collect()
    };
    carried(&clients);
    sleep(SETTLED).await;
    let before = carried(&clients);
    assert!(before[0] > 0 && before[1] == before[0] && before[2..] == [0, 0, 0], "{before:?}");
    // Nothing new is said: each message goes 13 times a second, to and from each shard but the home.
    assert!(before[0] <= 13 * 2 * u64::from(SHARDS - 1), "{before:?}");
    drop(clients.remove(0));
    sleep(SETTLED).await;
    let after = carried(&clients);
    assert!(after[0] > 0 && after[1] > 0 && after[2..] == [0, 0], "{after:?}");
    assert!(*clients[3].state.heard.lock() > 0, "it carries nothing, but hears the home");
}

#[tokio::test(start_paused = true)]
async fn a_table_without_a_ratio_has_no_room_and_too_narrow_bounds_are_refused() {
    let attach = |table: &TableHandle, ids: &[u32]| table.attach_to_room(&shard(0), 1, ids);
    for limiter in [ratio(1.0, -f64::MAX, f64::MAX), ratio(1.0, 0.0, 9.0)] {
        let queue = TableConfig {
            sampler: SelectorKind::Fifo,
            max_times_sampled: 1,
            rate_limiter: limiter,
            ..config("replay")
        };
        let table = TableHandle::new(Table::new(queue).unwrap());
        assert!(attach(&table, &[0, 1]).unwrap().is_none());
    }
    let table = table(ratio(3.0, 0.0, 10.0));
    let error = attach(&table, &[0, 1, 2, 3]).unwrap_err().to_string();
    let says = "table `replay` of a cluster: max_diff - min_diff must be at least shards × samples_per_insert + learners × \
                batch = 4 × 3 + 1 × 1 = 13, got 10 - 0 = 10";
    assert_eq!(error, says);
    let error = attach(&table, &[0, 4096]).unwrap_err().to_string();
    assert_eq!(error, "expected ids of shards below 256, got 4096");
    // Its own limiter still decides.
    done!(insert(&table, 0, 3));
    drop(waiting(&table, 10, 1));
    let (link, _deliveries) = attach(&table, &[1]).unwrap().unwrap();
    assert_eq!(link.name_shards(&shard(0), &[2, 3]).unwrap_err().to_string(), says.split_once(": ").unwrap().1);
    link.name_shards(&shard(0), &[1, 2]).unwrap();
}

#[tokio::test(start_paused = true)]
async fn messages_that_a_client_may_not_send_are_refused_and_the_room_goes_on() {
    let tables = tables(&ratio(1.0, -20.0, 40.0));
    let client = Client::new(1, &tables);
    let link = &client.state.links[&0];
    let report =
        |from| RoomMessage::Reported(Report { from, tally: Tally::default(), newest: None, has_home: false, wants: 0 });
    for from in [MemberId::Learner(2), MemberId::Shard(0)] {
        assert!(matches!(link.hear(&report(from)), Err(Error::InvalidArgument(_))), "{from:?}");
    }
    let far = Generation { number: MAX_COUNT - 1, home: Incarnation { shard: 1, number: 1 } };
    let of_far =
        Report { from: MemberId::Shard(1), tally: Tally::default(), newest: Some(far), has_home: false, wants: 0 };
    assert!(matches!(link.hear(&RoomMessage::Reported(of_far)), Err(Error::InvalidArgument(_))));
    let counted = Counted { incarnation: Incarnation { shard: 1, number: 1 }, tally: Tally::default() };
    assert!(matches!(link.hear(&RoomMessage::Counted(1, counted)), Err(Error::InvalidArgument(_))));
    let many: Tally = (0..9000).map(|number| (Incarnation { shard: 1, number }, Counts::default())).collect();
    assert!(matches!(tables[0].hear_learner(&many), Err(Error::ResourceExhausted(_))));
    sleep(SETTLED).await;
    done!(insert(&tables[0], 0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_no_client_has_named_is_not_heard_until_one_names_it() {
    let table = table(ratio(1.0, -20.0, 40.0));
    let (link, _deliveries) = table.attach_to_room(&shard(0), 1, &[1]).unwrap().unwrap();
    let known = |shard| {
        let tally = snapshot_all(std::slice::from_ref(&table)).remove(0).tally;
        tally.knows(Incarnation { shard, number: 1 })
    };
    let report = |shard| {
        let tally = Tally::from_iter([(Incarnation { shard, number: 1 }, Counts::default())]);
        RoomMessage::Reported(Report { from: MemberId::Shard(shard), tally, newest: None, has_home: false, wants: 0 })
    };
    link.hear(&report(2)).unwrap();
    assert!(!known(2));
    link.name_shards(&shard(0), &[2]).unwrap();
    link.hear(&report(2)).unwrap();
    assert!(known(2));
}

#[tokio::test(start_paused = true)]
async fn draws_at_one_shard_are_counted_and_a_new_limiter_asks_clients_to_come_again() {
    let tables = tables(&ratio(1.0, -20.0, 40.0));
    let client = Client::new(1, &tables);
    sleep(SETTLED).await;
    done!(insert(&tables[1], 0, 1));
    drop(done!(tables[1].sample(exactly(8), here())));
    let stuck = waiting(&tables[0], 100, 100);
    sleep(SETTLED).await;
    let (inserts, samples) = totals(&tables);
    assert_eq!(samples, 8);
    assert!((45..=48).contains(&inserts), "{inserts}");
    drop(stuck);
    let wider = TableChanges { rate_limiter: Some(ratio(1.0, -20.0, 80.0)), ..TableChanges::default() };
    tables.iter().for_each(|table| table.configure(&wider).unwrap());
    sleep(2 * PUBLISH_EVERY).await;
    drop(client);
    let _client = Client::new(1, &tables);
    let _stuck = waiting(&tables[0], 300, 100);
    sleep(SETTLED).await;
    let (inserts, _) = totals(&tables);
    assert!((85..=88).contains(&inserts), "{inserts}");
}

/// Tables of shards that a client has left.
async fn left(limiter: &RateLimiterConfig) -> Vec<TableHandle> {
    let tables = tables(limiter);
    drop(Client::new(1, &tables));
    sleep(SETTLED).await;
    tables
}

fn set_limiter(table: &TableHandle, limiter: &RateLimiterConfig) {
    let changes = TableChanges { rate_limiter: Some(limiter.clone()), ..TableChanges::default() };
    table.configure(&changes).unwrap();
}

fn sums(table: &TableHandle) -> Sums {
    snapshot_all(std::slice::from_ref(table)).remove(0).tally.sums(&ids())
}

fn unlimited() -> RateLimiterConfig {
    ratio(1.0, -f64::MAX, f64::MAX)
}

async fn ends_soon(waiting: Waiting<()>) {
    waiting.result(Some((Instant::now() + SETTLED).into_std()), silent).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_clients_a_limiter_without_a_ratio_lets_inserts_go_at_once() {
    let tables = left(&ratio(1.0, -20.0, 40.0)).await;
    let stuck = waiting(&tables[0], 0, 100);
    set_limiter(&tables[0], &unlimited());
    ends_soon(stuck).await;
}

#[tokio::test(start_paused = true)]
async fn without_clients_a_restored_table_without_a_ratio_lets_inserts_go_at_once() {
    let tables = left(&ratio(1.0, -20.0, 40.0)).await;
    let stuck = waiting(&tables[0], 0, 100);
    tables[0].restore(table_of(unlimited(), 0), &Tally::default());
    ends_soon(stuck).await;
}

#[tokio::test(start_paused = true)]
async fn without_clients_another_ratio_is_that_of_all_who_come() {
    let tables = left(&ratio(1.0, -20.0, 40.0)).await;
    let stuck = waiting(&tables[0], 0, 70);
    tables.iter().for_each(|table| set_limiter(table, &ratio(1.0, -20.0, 80.0)));
    assert!(stuck.explain().contains("no client of the cluster"), "{}", stuck.explain());
    let _client = Client::new(2, &tables);
    ends_soon(stuck).await;
}

#[tokio::test(start_paused = true)]
async fn what_was_counted_before_a_change_of_the_limiter_is_counted_once() {
    let limiter = ratio(1.0, -20.0, 100.0);
    let tables = tables(&limiter);
    let client = Client::new(1, &tables);
    sleep(SETTLED).await;
    done!(insert(&tables[0], 0, 10));
    client.draw(&tables, 4).await;
    sleep(SETTLED).await;
    // Counts of the others, and of this one by them.
    set_limiter(&tables[0], &unlimited());
    done!(insert(&tables[0], 100, 5));
    set_limiter(&tables[0], &limiter);
    done!(insert(&tables[0], 200, 3));
    let _client = Client::new(2, &tables);
    sleep(SETTLED).await;
    for table in &tables {
        assert_eq!(sums(table), Sums { inserts: 18, samples: 4, items: 18 });
    }
    // Also where the room was made anew at once.
    set_limiter(&tables[0], &ratio(1.0, -20.0, 90.0));
    tables[0].restore(table_of(limiter, 2), &Tally::default());
    assert_eq!(sums(&tables[0]), Sums { inserts: 18, samples: 4, items: 2 });
}

#[tokio::test(start_paused = true)]
async fn a_draw_that_is_given_back_makes_room_for_the_next() {
    let tables = tables(&ratio(1.0, -20.0, 100.0));
    let client = Client::new(1, &tables);
    sleep(SETTLED).await;
    done!(insert(&tables[0], 0, 1));
    let samples = || sums(&tables[0]).samples;
    let draw = |count| done!(tables[0].sample(exactly(count), here()));
    let (first, second) = (draw(4), draw(4));
    assert_eq!(samples(), 8);
    tables[0].give_back(first);
    assert_eq!(samples(), 8);
    drop(draw(3));
    assert_eq!(samples(), 8);
    // Also in another room.
    drop(client);
    set_limiter(&tables[0], &ratio(1.0, -20.0, 90.0));
    let _client = Client::new(2, &tables);
    drop(draw(3));
    assert_eq!(samples(), 10);
    tables[0].give_back(second);
    drop(draw(4));
    assert_eq!(samples(), 10);
}
