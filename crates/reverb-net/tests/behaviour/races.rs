//! Races of tables of several servers, over TCP and over the Unix socket: what is held, chosen, freed and refused.

use crate::common::races::{at_rest, figures, len, once};
use crate::common::{Receive, SOON, addresses, config, draw, eventually, here, int64s, item, server};
use crate::done;
use bytes::Bytes;
use prost::Message;
use reverb_core::{AfterRound, Error, NewItem, Race, RaceReport, SelectorKind, Table, TableConfig};
use reverb_net::client::{Client, RaceCall, RaceRequest};
use reverb_net::replay_v1::proto::HelloResponse;
use reverb_net::server::{End, Server};
use reverb_service::TableHandle;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tonic::codegen::http::{HeaderMap, Response};

fn soon() -> Option<Instant> {
    Some(Instant::now() + SOON)
}

fn request(race: Race) -> RaceRequest {
    RaceRequest { table: "table".into(), race, squeeze_time: true, hold: SOON, claim: None }
}

/// A race for so many arrivals, whatever the weights.
fn for_arrivals(limit: usize) -> RaceRequest {
    request(Race { interval: 1e9, limit, by_size: false })
}

/// The clients of two servers with these items, on one road.
fn two_shards() -> ([Server; 2], [TableHandle; 2]) {
    let tables = [once("table", 0..6, 1), once("table", 100..106, 2)];
    (tables.clone().map(|table| server(vec![table])), tables)
}

fn clients(servers: &[Server; 2], road: usize) -> [Client; 2] {
    [0, 1].map(|shard| Client::new(&addresses(&servers[shard])[road]))
}

#[tokio::test(flavor = "multi_thread")]
async fn winners_of_two_servers_are_delivered_once_and_losers_are_drawn_later() {
    for road in [0, 1] {
        let (servers, tables) = two_shards();
        let clients = clients(&servers, road);
        let (mut next, mut delivered) = (Race::new(4, 12.0, 12), Vec::new());
        while let Some(race) = next {
            let request = request(race);
            let mut calls = Vec::new();
            for client in &clients {
                calls.push(client.begin_race(&request, soon()).await.unwrap());
            }
            let mut reports = Vec::new();
            for call in &mut calls {
                reports.push(call.report().await.unwrap());
            }
            assert_eq!(tables.each_ref().map(len).iter().sum::<usize>() + arrivals(&reports), 12 - delivered.len());
            let round = race.merge(4, &reports);
            for (shard, mut call) in calls.into_iter().enumerate() {
                let won = round.winners.iter().filter(|won| won.shard == shard);
                let mut won: Vec<_> = won.map(|won| won.index).collect();
                won.sort_unstable();
                if won.is_empty() {
                    continue;
                }
                let mut draw = call.choose(&won).unwrap();
                let batch = draw.result().await.unwrap();
                assert_eq!(batch.info.times_sampled(), vec![1; won.len()]);
                delivered.extend(int64s(&batch, 0));
                draw.received(false).unwrap();
            }
            for client in &clients {
                client.settle(Instant::now() + SOON).await;
            }
            eventually("the losers are back", || tables.iter().map(len).sum::<usize>() == 12 - delivered.len()).await;
            let (weight, size) = (12.0 - delivered.len() as f64, 12 - delivered.len() as u64);
            next = Race::new(4, weight, size);
        }
        delivered.sort_unstable();
        assert_eq!(delivered, Vec::from_iter((0..6).chain(100..106)), "each item once");
        for table in &tables {
            assert_eq!(figures(table), (0, [0, 6, 0]), "losers are no samples that went back");
        }
    }
}

fn arrivals(reports: &[RaceReport]) -> usize {
    reports.iter().map(|report| report.arrivals.len()).sum()
}

/// What a client has done last when it is killed; it has sent no receipt.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Moment {
    Raced,
    Chosen,
    Received,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_killed_at_any_moment_of_a_race_loses_nothing() {
    for moment in [Moment::Raced, Moment::Chosen, Moment::Received] {
        let table = once("table", 0..6, 1);
        let server = server(vec![table.clone()]);
        for address in addresses(&server) {
            let [_, _, returned] = figures(&table).1;
            // The client has its own runtime, so that it can end like a killed process.
            let process = Runtime::new().unwrap();
            let (ready, is_ready) = oneshot::channel();
            process.spawn(async move {
                let client = Client::new(&address);
                let mut call = client.begin_race(&for_arrivals(4), soon()).await.unwrap();
                assert_eq!(call.report().await.unwrap().arrivals.len(), 4);
                let mut draw = (moment != Moment::Raced).then(|| call.choose(&[0, 3]).unwrap());
                if moment == Moment::Received {
                    draw.as_mut().unwrap().result().await.unwrap();
                }
                ready.send(()).unwrap();
                std::future::pending::<()>().await;
            });
            is_ready.await.unwrap();
            match moment {
                Moment::Raced => assert_eq!(figures(&table).1[0], 4),
                Moment::Chosen => {}
                Moment::Received => assert_eq!(figures(&table).1[0], 2),
            }
            process.shutdown_background();
            at_rest(&table, 6).await;
            let [_, samples, now_returned] = figures(&table).1;
            assert_eq!(samples, now_returned, "{moment:?}");
            match moment {
                Moment::Raced => assert_eq!(now_returned, returned),
                // It may have been killed before its choice had left.
                Moment::Chosen => assert!([0, 2].contains(&(now_returned - returned))),
                Moment::Received => assert_eq!(now_returned - returned, 2),
            }
        }
        let client = Client::new(&addresses(&server)[0]);
        let mut all = int64s(&client.receive(&draw("table", 6), soon()).await.unwrap(), 0);
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3, 4, 5]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_dropped_frees_what_it_held_and_the_client_goes_on() {
    let table = once("table", 0..6, 1);
    let server = server(vec![table.clone()]);
    for address in addresses(&server) {
        let client = Client::new(&address);
        let mut call = client.begin_race(&for_arrivals(6), soon()).await.unwrap();
        call.report().await.unwrap();
        drop(call);
        at_rest(&table, 6).await;
        drop(client.begin_race(&for_arrivals(6), soon()).await.unwrap());
        let mut call = client.begin_race(&for_arrivals(6), soon()).await.unwrap();
        call.report().await.unwrap();
        let draw = call.choose(&[0, 1, 5]).unwrap();
        drop(draw);
        at_rest(&table, 6).await;
        let mut call = client.begin_race(&for_arrivals(6), soon()).await.unwrap();
        let report = call.report().await.unwrap();
        assert_eq!((report.arrivals.len(), report.size, report.size_left), (6, 6, 0));
        let mut draw = call.choose(&[2, 4]).unwrap();
        draw.result().await.unwrap();
        assert_eq!((len(&table), figures(&table).1[0]), (4, 2), "the losers are free at once");
        draw.received(false).unwrap();
        draw.give_back();
        at_rest(&table, 6).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_refuses_choices_that_are_none_and_goes_on() {
    let table = once("table", 0..6, 1);
    let server = server(vec![table.clone()]);
    let client = Client::new(&addresses(&server)[1]);
    let mut call = client.begin_race(&for_arrivals(3), soon()).await.unwrap();
    let refused = |call: &mut RaceCall, winners: &[usize], text: &str| {
        let Err(Error::InvalidArgument(reason)) = call.choose(winners) else { panic!("{winners:?} were taken") };
        assert!(reason.contains(text), "{reason}");
    };
    refused(&mut call, &[0], "after its report was taken");
    call.report().await.unwrap();
    assert!(matches!(call.report().await, Err(Error::InvalidArgument(_))), "it was taken");
    for winners in [&[][..], &[3], &[1, 0], &[1, 1]] {
        refused(&mut call, winners, &format!("below 3, at least one, got {winners:?}"));
    }
    assert_eq!(figures(&table), (3, [3, 0, 0]), "the race goes on");
    let mut draw = call.choose(&[1]).unwrap();
    refused(&mut call, &[0], "chosen once");
    drop(call);
    assert_eq!(draw.result().await.unwrap().info.len(), 1);
    draw.received(false).unwrap();
    client.settle(Instant::now() + SOON).await;
    at_rest(&table, 5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn draws_of_a_silent_client_go_back_in_time_and_its_choice_is_refused_by_name() {
    let table = once("table", 0..6, 1);
    let server = server(vec![table.clone()]);
    for address in addresses(&server) {
        let client = Client::new(&address);
        let request = RaceRequest { hold: Duration::from_millis(20), ..for_arrivals(4) };
        let mut call = client.begin_race(&request, soon()).await.unwrap();
        call.report().await.unwrap();
        at_rest(&table, 6).await;
        let mut draw = call.choose(&[0]).unwrap();
        let Err(Error::DeadlineExceeded(text)) = draw.result().await else { panic!("it came in time") };
        assert_eq!(
            text,
            "a race of table `table` was held for 20 ms without a choice, and its items are back in the table"
        );
        drop(draw);
        let mut call = client.begin_race(&for_arrivals(6), soon()).await.unwrap();
        assert_eq!(call.report().await.unwrap().arrivals.len(), 6, "the client goes on");
        drop(call);
        at_rest(&table, 6).await;
    }
    assert_eq!(figures(&table).1, [0; 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_batch_has_the_rows_of_the_winners_in_the_order_of_their_positions() {
    let weigh = |key: u64| NewItem { priority: key as f64, ..item(key) };
    let prioritized = TableConfig { sampler: SelectorKind::Prioritized { priority_exponent: 1.0 }, ..config("heavy") };
    let heavy = TableHandle::new(Table::new(prioritized).unwrap());
    done!(heavy.insert((1..9).map(weigh).collect(), here()));
    let server = server(vec![heavy.clone()]);
    for address in addresses(&server) {
        let client = Client::new(&address);
        let request = RaceRequest { table: "heavy".into(), ..for_arrivals(64) };
        let mut call = client.begin_race(&request, soon()).await.unwrap();
        let report = call.report().await.unwrap();
        assert_eq!((report.arrivals.len(), report.weight, report.weight_left), (64, 36.0, 36.0));
        let winners: Vec<_> = (0..64).step_by(3).collect();
        let batch = call.choose(&winners).unwrap().result().await.unwrap();
        let won: Vec<_> = winners.iter().map(|&index| report.arrivals[index].weight.round() as i64).collect();
        assert_eq!(int64s(&batch, 0), won, "the weight of an item is its key, and so is its value");
        // A race by sizes of a table with weights is empty.
        let race = Race { interval: 1e9, limit: 8, by_size: true };
        let mut call = client.begin_race(&RaceRequest { race, ..request.clone() }, soon()).await.unwrap();
        assert_eq!(call.report().await.unwrap().arrivals, []);
        drop(call);
        at_rest(&heavy, 8).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_frees_what_is_held_and_refuses_the_choice() {
    for end in [End::Returns, End::ForGood] {
        let table = once("table", 0..6, 1);
        let mut server = server(vec![table.clone()]);
        let clients = addresses(&server).map(|address| Client::new(&address));
        let mut calls = Vec::new();
        for client in &clients {
            let mut call = client.begin_race(&for_arrivals(3), soon()).await.unwrap();
            call.report().await.unwrap();
            calls.push(call);
        }
        tokio::task::block_in_place(|| server.end(end)).unwrap();
        at_rest(&table, 6).await;
        for mut call in calls {
            let error = match call.choose(&[0]) {
                Ok(mut draw) => draw.result().await.unwrap_err(),
                Err(error) => error,
            };
            let is_for_good = matches!(error, Error::ServerStopped(_));
            assert!(is_for_good == (end == End::ForGood) && (is_for_good || error.is_transient()), "{error:?}");
        }
        assert_eq!(figures(&table).1, [0; 3]);
    }
}

/// Each batch is larger than half of the items, so each client waits for what the other holds.
#[tokio::test(flavor = "multi_thread")]
async fn two_clients_that_each_hold_a_part_of_the_last_items_both_go_on() {
    const BATCH: usize = 8;
    let (servers, tables) = two_shards();
    let learner = async |clients: [Client; 2]| {
        for _ in 0..20 {
            let values = learn(&clients, BATCH).await;
            let all: BTreeSet<_> = values.iter().copied().collect();
            assert_eq!((values.len(), all.len()), (BATCH, BATCH), "{values:?}");
        }
    };
    tokio::time::timeout(SOON, async {
        tokio::join!(learner(clients(&servers, 0)), learner(clients(&servers, 1)));
    })
    .await
    .expect("they wait for each other");
    for table in &tables {
        at_rest(table, 6).await;
    }
}

/// Draws a batch as one from both servers, and gives it back.
async fn learn(clients: &[Client; 2], wanted: usize) -> Vec<i64> {
    let (mut batch, mut draws) = (Vec::new(), Vec::new());
    let all = || Race::new(wanted, 12.0, 12).unwrap();
    let mut race = all();
    loop {
        let request = request(race);
        let begun = [0, 1].map(|shard| clients[shard].begin_race(&request, soon()));
        let mut calls = Vec::new();
        for call in begun {
            calls.push(call.await.unwrap());
        }
        let mut reports = Vec::new();
        for call in &mut calls {
            reports.push(call.report().await.unwrap());
        }
        let round = race.merge(wanted - batch.len(), &reports);
        for (shard, mut call) in calls.into_iter().enumerate() {
            let mut won: Vec<_> = round.winners.iter().filter(|won| won.shard == shard).map(|won| won.index).collect();
            won.sort_unstable();
            if !won.is_empty() {
                let mut draw = call.choose(&won).unwrap();
                batch.extend(int64s(&draw.result().await.unwrap(), 0));
                draws.push(draw);
            }
        }
        match round.next {
            AfterRound::Done => return batch,
            AfterRound::Race(next) => race = next,
            AfterRound::Wait => {
                // As a learner that waits does.
                draws.clear();
                batch.clear();
                tokio::task::yield_now().await;
                race = all();
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_the_capability_is_named_with_it() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("ipv4:{}", listener.local_addr().unwrap());
    let hello = HelloResponse { version: 1, max_message_size: 1 << 20, ..HelloResponse::default() }.encode_to_vec();
    let framed = Bytes::from([&[0], &(hello.len() as u32).to_be_bytes()[..], &hello].concat());
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let mut streams = h2::server::handshake(socket).await.unwrap();
            while let Some(Ok((request, mut answer))) = streams.accept().await {
                let mut response = Response::new(());
                response.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
                let mut body = answer.send_response(response, false).unwrap();
                if request.uri().path().ends_with("Hello") {
                    body.send_data(framed.clone(), false).unwrap();
                    body.send_trailers(HeaderMap::from_iter([("grpc-status".parse().unwrap(), 0.into())])).unwrap();
                }
            }
        }
    });
    let client = Client::new(&address);
    let Err(Error::Unimplemented(text)) = client.begin_race(&for_arrivals(1), soon()).await else { panic!("it races") };
    assert!(text.contains("lacks the capability `race`"), "{text}");
}
