//! Tables of a cluster whose shards keep the ratio of inserts and samples together.

use crate::common::cluster::{client, client_of, shard_of, shards, soon};
use crate::common::cluster_writer::{ClusterWriter, QUICK, WriterOf};
use crate::common::faucet::Faucet;
use crate::common::test_shard::TestShard;
use crate::common::wire;
use crate::common::{Receive, addresses, config, draw, eventually, here, items, rows, uniform};
use crate::done;
use reverb_core::{Error, RateLimiterConfig, Table, TableConfig};
use reverb_net::client::Client;
use reverb_net::replay_v1::proto::{RoomMessage, RoomReport, ShardCounts, SumsRequest, Tally, room_message};
use reverb_net::server::Server;
use reverb_net::transport::cluster::OnShardLoss;
use reverb_service::TableHandle;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Code, Status};

const SHARDS: usize = 4;

fn table(samples_per_insert: f64, min_diff: f64, max_diff: f64) -> TableHandle {
    named("table", samples_per_insert, min_diff, max_diff)
}

fn named(name: &str, samples_per_insert: f64, min_diff: f64, max_diff: f64) -> TableHandle {
    let rate_limiter = RateLimiterConfig { samples_per_insert, min_size_to_sample: 1, min_diff, max_diff };
    TableHandle::new(Table::new(TableConfig { rate_limiter, ..config(name) }).unwrap())
}

fn tables(samples_per_insert: f64, min_diff: f64, max_diff: f64) -> Vec<TableHandle> {
    (0..SHARDS).map(|_| table(samples_per_insert, min_diff, max_diff)).collect()
}

/// Inserts and samples of all shards.
fn totals(tables: &[TableHandle]) -> (u64, u64) {
    let all = tables.iter().map(|table| table.with_table(Table::totals));
    all.fold((0, 0), |(inserts, samples), of| (inserts + of.0, samples + of.1))
}

fn briefly() -> Option<Instant> {
    Some(Instant::now() + Duration::from_secs(2))
}

/// Attaches the client to all shards.
async fn begin(client: &Client) {
    client.insert(rows("table", &[1]), soon()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn inserts_at_one_shard_use_the_room_of_all_and_draws_make_more() {
    let tables = tables(1.0, -20.0, 40.0);
    let servers = shards(&tables);
    let cluster = client_of(&servers);
    begin(&cluster).await;
    // A client of one shard, whose inserts wait for the room of all.
    let here = Arc::new(Client::new(&addresses(&servers[2])[0]));
    let inserting = tokio::spawn(async move {
        for value in 0..100 {
            here.insert(rows("table", &[value]), soon()).await.unwrap();
        }
    });
    // A share of the last room is less than one insert.
    let least = 40 - SHARDS as u64 + 1;
    eventually("the room is used", || totals(&tables).0 >= least).await;
    for batch in 1..=8 {
        cluster.receive(&draw("table", 8), soon()).await.unwrap();
        eventually("more may go", || totals(&tables).0 >= (least + 8 * batch).min(101)).await;
        assert!(totals(&tables).0 <= 40 + 8 * batch);
    }
    inserting.await.unwrap();
    assert_eq!(totals(&tables), (101, 64));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_thread_that_fills_and_then_draws_is_told_what_it_waits_for() {
    let tables = tables(1.0, -20.0, 40.0);
    let servers = shards(&tables);
    let client = client_of(&servers);
    let text = loop {
        match client.insert(rows("table", &[1]), briefly()).await {
            // On a busy machine, shards do not hear each other for moments.
            Err(Error::DeadlineExceeded(text)) if text.contains(" until ") => break text,
            Ok(_) | Err(Error::DeadlineExceeded(_)) => {}
            Err(error) => panic!("{error:?}"),
        }
    };
    assert!(text.contains("insert into table `table` waits: "), "{text}");
    assert!(
        text.contains(" until an insert may go; all shards together: ") && text.contains(", 0 samples, "),
        "{text}"
    );
    let (inserts, _) = totals(&tables);
    // The room of one publication, the window at most, may be in excess.
    assert!((40 - SHARDS as u64..=40 + 60).contains(&inserts), "{inserts}");
    // It may go on by draws, until these wait.
    let text = loop {
        match client.receive(&draw("table", 10), briefly()).await {
            Err(Error::DeadlineExceeded(text)) if text.contains(" until ") => break text,
            Ok(_) | Err(Error::DeadlineExceeded(_)) => {}
            Err(error) => panic!("{error:?}"),
        }
    };
    assert!(text.starts_with("sample of table `table` waits: "), "{text}");
    assert!(text.contains(" until 10 samples may go; all shards together: "), "{text}");
    let (_, samples) = totals(&tables);
    let diff = inserts as f64 - samples as f64;
    assert!((-20.0 - 60.0..-10.0).contains(&diff), "{inserts} inserts, {samples} samples");
    client.insert(rows("table", &[1]), soon()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn bounds_that_are_too_narrow_are_refused_by_name() {
    let tables = tables(3.0, 0.0, 12.0);
    let servers = shards(&tables);
    let client = client_of(&servers);
    let says = "table `table` of a cluster: max_diff - min_diff must be at least shards × samples_per_insert + learners × \
                batch = 4 × 3 + 1 × 1 = 13, got 12 - 0 = 12";
    for _ in 0..2 {
        assert_eq!(client.insert(rows("table", &[1]), soon()).await, Err(Error::invalid(says)));
        let error = client.receive(&draw("table", 1), soon()).await.unwrap_err();
        assert_eq!(error, Error::invalid(says));
    }
    let wide = (0..SHARDS).map(|_| table(1.0, -20.0, 40.0)).collect::<Vec<_>>();
    let servers = shards(&wide);
    let client = client_of(&servers);
    begin(&client).await;
    let error = client.receive(&draw("table", 57), soon()).await.unwrap_err();
    assert_eq!(
        error,
        Error::invalid(
            "table `table` of a cluster: max_diff - min_diff must be at least shards × samples_per_insert + learners × \
             batch = 4 × 1 + 1 × 57 = 61, got 40 - -20 = 60"
        )
    );
    client.receive(&draw("table", 10), soon()).await.unwrap();
}

/// Shards with these tables, for writers.
fn shards_of(tables: &[TableHandle]) -> Vec<TestShard> {
    (0..).zip(tables).map(|(id, table)| TestShard::of(id, table.clone(), None)).collect()
}

/// What items of a writer wait for by the sums of all shards.
async fn told(writer: &ClusterWriter) -> String {
    loop {
        match writer.session.flush(0, briefly(), |_| {}).await {
            Err(Error::DeadlineExceeded(text)) if text.contains(" until an insert may go; ") => return text,
            // On a busy machine, shards do not hear each other for moments.
            Err(Error::DeadlineExceeded(_)) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_alone_fills_up_to_the_bound_over_all_shards_and_goes_on_after_draws() {
    let tables = tables(1.0, -20.0, 40.0);
    let shards = shards_of(&tables);
    let mut writer = WriterOf::new(&shards, OnShardLoss::Continue).start().await;
    // One episode, which is on one shard.
    for number in 0..60 {
        writer.write(number);
    }
    let text = told(&writer).await;
    assert!(text.contains("insert into table `table` waits: "), "{text}");
    assert!(text.contains(" all shards together: ") && text.contains(", 0 samples, "), "{text}");
    let least = 40 - SHARDS as u64 + 1;
    eventually("the room is used", || totals(&tables).0 >= least).await;
    // Episodes on all shards.
    for number in 60..100 {
        writer.steps.end_episode(true).unwrap();
        writer.write(number);
    }
    told(&writer).await;
    assert!(totals(&tables).0 <= 40);
    let ports: Vec<_> = shards.iter().map(|shard| shard.server.port()).collect();
    let learner = client(&ports, OnShardLoss::Continue, Duration::from_secs(5));
    for batch in 1..=8 {
        learner.receive(&draw("table", 8), soon()).await.unwrap();
        eventually("more may go", || totals(&tables).0 >= (least + 8 * batch).min(100)).await;
        // Where several shards insert at once, by the room of a publication more.
        assert!(totals(&tables).0 <= 40 + 12 + 8 * batch);
    }
    writer.flush().await.unwrap();
    assert_eq!(totals(&tables), (100, 64));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_takes_part_in_the_limiter_of_a_table_that_comes_later() {
    let tables: Vec<_> = (0..SHARDS).map(|_| named("later", 1.0, -20.0, 40.0)).collect();
    let shard = |(id, table): (u32, &TableHandle)| TestShard::with(id, uniform("table"), vec![table.clone()], None);
    let shards: Vec<_> = (0..).zip(&tables).map(shard).collect();
    let mut writer = WriterOf::new(&shards, OnShardLoss::Continue).start().await;
    writer.try_write(0).await.unwrap();
    // A client of one shard takes no part itself.
    let here = Client::new(&addresses(&shards[0].server)[0]);
    for _ in 0..40 {
        here.insert(rows("later", &[1]), soon()).await.unwrap();
    }
    let text = here.insert(rows("later", &[1]), briefly()).await.unwrap_err().to_string();
    assert!(text.contains(" until ") && !text.contains("all shards together"), "{text}");
    let mut item = writer.item(1, 1);
    item.table = "later".into();
    writer.push(item).unwrap();
    let text = told(&writer).await;
    assert!(text.ends_with("; all shards together: 40 inserts, 0 samples, 40 items"), "{text}");
    here.receive(&draw("later", SHARDS), soon()).await.unwrap();
    writer.flush().await.unwrap();
    assert_eq!(totals(&tables), (41, SHARDS as u64));
}

#[tokio::test(flavor = "multi_thread")]
async fn items_of_a_table_that_comes_later_wait_until_the_writer_takes_part_in_its_limiter() {
    let tables: Vec<_> = (0..SHARDS).map(|_| named("later", 1.0, -20.0, 40.0)).collect();
    let shard = |(id, table): (u32, &TableHandle)| TestShard::with(id, uniform("table"), vec![table.clone()], None);
    let shards: Vec<_> = (0..).zip(&tables).map(shard).collect();
    let writer = WriterOf::new(&shards, OnShardLoss::Continue).start().await;
    // The writer has a stream to each shard.
    let mut environments = Vec::new();
    while environments.len() < SHARDS {
        let num_empty = || shards.iter().filter(|shard| shard.keys().is_empty()).count();
        let (mut steps, before) = (writer.other_steps(), num_empty());
        writer.write_of(&mut steps, 0);
        writer.flush().await.unwrap();
        if num_empty() < before {
            environments.push(steps);
        }
    }
    for number in 0..20 {
        for steps in &mut environments {
            writer.write_to("later", steps, number);
        }
    }
    told(&writer).await;
    // Where several shards insert at once, by the room of a publication more.
    assert!(totals(&tables).0 <= 40 + 12, "{:?}", totals(&tables));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_reports_once_that_bounds_are_too_narrow_and_goes_by_its_shards() {
    let tables = tables(3.0, 0.0, 12.0);
    let shards = shards_of(&tables);
    let mut writer = WriterOf::new(&shards, OnShardLoss::Continue).start().await;
    let says = "table `table` of a cluster: max_diff - min_diff must be at least shards × samples_per_insert + learners × \
                batch = 4 × 3 + 1 × 1 = 13, got 12 - 0 = 12";
    assert_eq!(writer.try_write(0).await, Err(Error::invalid(says)));
    writer.flush().await.unwrap();
    for number in 1..4 {
        writer.steps.end_episode(true).unwrap();
        writer.try_write(number).await.unwrap();
    }
    assert_eq!(totals(&tables), (4, 0));
}

/// Learners of the cluster and actors of single shards that work until they are told to end.
struct Work {
    tasks: JoinSet<()>,
    ends: Arc<AtomicBool>,
    drawn: Arc<AtomicU64>,
}

impl Work {
    fn begin(learners: Vec<Client>, actors: Vec<Client>) -> Self {
        let (ends, drawn, mut tasks) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default(), JoinSet::new());
        for learner in learners {
            let (ended, count) = (ends.clone(), drawn.clone());
            tasks.spawn(async move {
                while !ended.load(Relaxed) {
                    let brief = Some(Instant::now() + Duration::from_secs(1));
                    if learner.receive(&draw("table", 4), brief).await.is_ok() {
                        count.fetch_add(1, Relaxed);
                    }
                }
            });
        }
        for actor in actors {
            let ended = ends.clone();
            tasks.spawn(async move {
                while !ended.load(Relaxed) {
                    let brief = Some(Instant::now() + Duration::from_secs(1));
                    let _late_or_lost = actor.insert(rows("table", &[1]), brief).await;
                }
            });
        }
        Self { tasks, ends, drawn }
    }

    /// Lets batches be drawn, and checks the bounds meanwhile.
    async fn go_on(&self, batches: u64, tables: &[TableHandle], (least, most): (f64, f64)) {
        let before = self.drawn.load(Relaxed);
        eventually("learners draw", || {
            let (inserts, samples) = totals(tables);
            let diff = 2.0 * inserts as f64 - samples as f64;
            assert!((least..=most).contains(&diff), "{diff}: {inserts} inserts, {samples} samples");
            self.drawn.load(Relaxed) >= before + batches
        })
        .await;
    }

    async fn end(self) {
        self.ends.store(true, Relaxed);
        self.tasks.join_all().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bounds_hold_with_a_shard_that_is_silent_and_one_that_is_killed() {
    const WINDOW: f64 = 200.0;
    let tables = tables(2.0, -100.0, 100.0);
    let mut servers = shards(&tables);
    let faucets: Vec<_> = servers.iter().map(|server| Faucet::before(server.port())).collect();
    let mut ports = Vec::new();
    for faucet in faucets {
        ports.push(faucet.await);
    }
    let numbers: Vec<_> = ports.iter().map(|faucet| faucet.port).collect();
    let learner = || client(&numbers, OnShardLoss::Continue, Duration::from_secs(2));
    let actor = |place: usize| Client::new(&addresses(&servers[place])[0]);
    let work = Work::begin(vec![learner(), learner()], vec![actor(0), actor(1), actor(2), actor(2)]);
    // Without cuts; messages of this machine may be late.
    let bounds = (-100.0 - WINDOW, 100.0 + WINDOW);
    work.go_on(100, &tables, bounds).await;
    ports[0].close();
    work.go_on(50, &tables, bounds).await;
    drop(servers.remove(1));
    work.go_on(100, &tables, bounds).await;
    ports[0].open();
    work.go_on(100, &tables, bounds).await;
    work.end().await;
}

/// A `Sums` stream of arbitrary messages. Returns how it ends.
async fn ended(server: &Server, messages: Vec<SumsRequest>) -> Option<Status> {
    let mut service = wire::connect(server.port()).await;
    let (requests, stream) = mpsc::unbounded_channel();
    let mut responses = service.sums(UnboundedReceiverStream::new(stream)).await.unwrap().into_inner();
    messages.into_iter().for_each(|message| requests.send(message).unwrap());
    loop {
        match responses.message().await {
            Ok(Some(_)) => {}
            Ok(None) => return None,
            Err(status) => return Some(status),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_messages_end_their_stream_by_name_and_no_other() {
    let tables = tables(1.0, -20.0, 40.0);
    let servers = shards(&tables);
    let client = client_of(&servers);
    begin(&client).await;
    let first = |shards| SumsRequest { table: "table".into(), learner: 7, shards, ..SumsRequest::default() };
    let report = |report: RoomReport| SumsRequest {
        message: Some(RoomMessage { kind: Some(room_message::Kind::Report(report)) }),
        ..SumsRequest::default()
    };
    let of = |shard| RoomReport { shard, ..RoomReport::default() };
    let counted = ShardCounts { inserts: u64::MAX, ..ShardCounts::default() };
    let too_much = RoomReport { tally: Some(Tally { counts: vec![counted] }), ..of(None) };
    for (messages, says) in [
        (vec![SumsRequest::default()], "table"),
        (vec![first(vec![0, 4096])], "expected ids of shards below 256, got 4096"),
        (vec![first((0..256).collect())], "table `table` of a cluster: max_diff - min_diff must be at least"),
        (vec![first(vec![1]), report(of(Some(0)))], "expected a report of the client or of another shard"),
        (vec![first(vec![1]), report(too_much)], "expected a count of a shard below 281474976710656"),
    ] {
        let status = ended(&servers[0], messages).await.expect("it is refused");
        assert_ne!(status.code(), Code::Ok);
        assert!(status.message().contains(says), "{status}");
    }
    let ask = SumsRequest { ask: true, ..first(vec![]) };
    assert!(ended(&servers[0], vec![ask]).await.is_none());
    client.receive(&draw("table", 1), soon()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_keeps_no_ratio_has_no_room() {
    let tables = tables(1.0, -f64::MAX, f64::MAX);
    let servers = shards(&tables);
    let client = client_of(&servers);
    begin(&client).await;
    let first = SumsRequest { table: "table".into(), learner: 7, ..SumsRequest::default() };
    assert!(ended(&servers[0], vec![first]).await.is_none());
    done!(tables[0].insert(items(0..100), here()));
    client.receive(&draw("table", 50), soon()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_another_cluster_at_the_address_of_a_lost_shard_keeps_its_own_ratio() {
    let mut shards = shards_of(&tables(1.0, -20.0, 40.0));
    // It may have chosen the lost shard before it hears of the loss, and then waits as long as it is told to.
    let mut writer = WriterOf::new(&shards, OnShardLoss::Continue).patient(QUICK).start().await;
    writer.try_write(0).await.unwrap();
    let lost = shards.remove(1);
    let port = lost.server.port();
    drop(lost);
    let own = table(1.0, -20.0, 40.0);
    let stranger = shard_of("other", 1, &own, Some(port));
    let its_client = Client::new(&addresses(&stranger)[0]);
    // The client tries the address again meanwhile, and goes on with the other shards.
    for number in 1..13 {
        writer.steps.end_episode(true).unwrap();
        writer.try_write(number).await.unwrap();
        sleep(Duration::from_millis(100)).await;
    }
    let text = loop {
        match its_client.insert(rows("table", &[1]), briefly()).await {
            Ok(_) => {}
            Err(Error::DeadlineExceeded(text)) => break text,
            Err(error) => panic!("{error:?}"),
        }
    };
    assert!(!text.contains("all shards together"), "{text}");
    assert_eq!(own.with_table(Table::totals), (40, 0));
}
