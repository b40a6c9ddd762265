//! A server and its clients over TCP and over the Unix socket.

use crate::common::wire::{self, Samples};
use crate::common::{
    self, Receive, SOON, addresses, draw, eventually, exactly, here, int64s, queue, rows, server, uniform,
};
use reverb_core::{Error, NewItem};
use reverb_net::client::{Client, Info};
use reverb_net::replay_v1::proto::{Draw, SampleRequest, sample_request};
use reverb_net::server::{End, ListenOptions, Server};
use reverb_service::{BatchRequest, Replay, TableHandle, Transport};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

fn soon() -> Option<Instant> {
    Some(Instant::now() + SOON)
}

fn len(table: &TableHandle) -> usize {
    table.with_table(|table| table.len())
}

/// Waits until the table has no waiting requests, no undelivered samples, and the expected number of items.
async fn at_rest(table: &TableHandle, expected: usize) {
    eventually("the table comes to rest", || {
        let status = table.status();
        let busy = [status.info.waiting_inserts, status.info.waiting_samples, status.info.undelivered_samples];
        (busy, len(table)) == ([Some(0); 3], expected)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn inserted_items_are_sampled_on_both_roads() {
    let table = queue("queue", 100);
    let server = server(vec![table.clone(), uniform("other")]);
    for (address, road) in addresses(&server).iter().zip(["tcp", "unix"]) {
        let client = Client::new(address);
        client.insert(rows("queue", &[5, 6, 7]), soon()).await.unwrap();
        assert_eq!(client.transport().map(Transport::name), Some(road));
        let batch = client.receive(&draw("queue", 3), soon()).await.unwrap();
        assert_eq!(int64s(&batch, 0), [5, 6, 7]);
        assert_eq!(batch.layout.columns[0].shape, [3]);
        assert_eq!(batch.info.times_sampled(), [1, 1, 1]);
        at_rest(&table, 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_address_finds_the_server_in_this_process() {
    let server = server(vec![queue("queue", 100)]);
    let client = Client::new(&format!("localhost:{}", server.port()));
    client.insert(rows("queue", &[5]), soon()).await.unwrap();
    assert_eq!(int64s(&client.receive(&draw("queue", 1), soon()).await.unwrap(), 0), [5]);
    assert_eq!(client.transport().map(Transport::name), Some("same_process"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_waits_for_the_table_and_a_dropped_one_takes_nothing() {
    let table = queue("queue", 4);
    let server = server(vec![table.clone()]);
    for address in addresses(&server) {
        let client = Client::new(&address);
        let request = draw("queue", 3);
        let mut sample = client.receive(&request, None).into_future();
        tokio::select! {
            batch = &mut sample => panic!("{batch:?}"),
            () = eventually("the draw waits", || table.status().info.waiting_samples == Some(1)) => {}
        }
        client.insert(rows("queue", &[1, 2]), soon()).await.unwrap();
        assert_eq!(len(&table), 0);
        drop(sample);
        at_rest(&table, 2).await;
        // Three more items do not fit. Two of them are inserted, and the third is withdrawn.
        let insert = tokio::time::timeout(Duration::from_millis(100), client.insert(rows("queue", &[3, 4, 5]), None));
        assert!(insert.await.is_err());
        at_rest(&table, 4).await;
        assert_eq!(int64s(&client.receive(&draw("queue", 4), soon()).await.unwrap(), 0), [1, 2, 3, 4]);
        at_rest(&table, 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_waits_shows_who_makes_it() {
    let table = queue("queue", 4);
    let server = server(vec![table.clone()]);
    let me = reverb_service::process_name();
    let [tcp, unix] = addresses(&server);
    let here = format!("localhost:{}", server.port());
    for (address, road) in [(tcp, "over tcp from 127.0.0.1:"), (unix, "over unix"), (here, "over same_process")] {
        let client = Client::new(&address);
        let request = draw("queue", 3);
        let mut sample = client.receive(&request, None).into_future();
        tokio::select! {
            batch = &mut sample => panic!("{batch:?}"),
            () = eventually("the draw waits", || table.status().info.waiting_samples == Some(1)) => {}
        }
        let status = &Client::new(&address).call(Info, soon()).await.unwrap()[0];
        let peer = status.sample_peer.as_deref().unwrap();
        assert!(peer.starts_with(&me) && peer.contains(road), "{peer}");
        assert_eq!(status.insert_peer, None);
        drop(sample);
        at_rest(&table, 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn draws_dropped_at_any_moment_lose_nothing() {
    let table = queue("queue", 1000);
    let server = server(vec![table.clone()]);
    let client = Client::new(&addresses(&server)[1]);
    client.insert(rows("queue", &Vec::from_iter(0..500)), soon()).await.unwrap();
    let mut taken = 0;
    for micros in 0..300 {
        let request = draw("queue", 50);
        let sample = tokio::time::timeout(Duration::from_micros(micros * 4), client.receive(&request, None));
        if let Ok(batch) = sample.await {
            let values = int64s(&batch.unwrap(), 0);
            client.insert(rows("queue", &values), soon()).await.unwrap();
            taken += 1;
        }
    }
    at_rest(&table, 500).await;
    let mut values = int64s(&client.receive(&draw("queue", 500), soon()).await.unwrap(), 0);
    values.sort_unstable();
    assert_eq!(values, Vec::from_iter(0..500), "after {taken} whole batches");
}

#[tokio::test(flavor = "multi_thread")]
async fn samples_of_a_cancelled_draw_serve_the_next_request() {
    let table = queue("queue", 10);
    let server = server(vec![table.clone()]);
    table.insert(common::items([1, 2]), here());
    let mut service = wire::connect(server.port()).await;
    let mut samples = Samples::open(&mut service).await;
    for round in 0..300 {
        let id = 2 * round;
        // The draw waits and holds both items.
        samples.draw(id, wire::draw("queue", 3));
        eventually("the draw waits", || table.status().info.waiting_samples == Some(1)).await;
        samples.send(id, Some(sample_request::Kind::Cancel(true)));
        let at_once = Draw { at_most: 3, timeout_ms: Some(0), ..wire::draw("queue", 1) };
        samples.draw(id + 1, at_once);
        let (request_id, answer) = samples.answer().await;
        let (batch, _) = answer.unwrap_or_else(|failure| panic!("round {round}: {failure:?}"));
        assert_eq!((request_id, batch.keys.len()), (id + 1, 16), "round {round}");
        // The samples are not acknowledged, so they go back.
        samples.send(id + 1, Some(sample_request::Kind::Cancel(true)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_ends_a_call_with_the_reason() {
    let server = server(vec![queue("queue", 2)]);
    for address in addresses(&server) {
        let client = Client::new(&address);
        let deadline = || Some(Instant::now() + Duration::from_millis(50));
        let error = client.receive(&draw("queue", 1), deadline()).await.unwrap_err();
        assert!(matches!(&error, Error::DeadlineExceeded(text) if text.contains("is empty")), "{error:?}");
        let error = client.insert(rows("queue", &[1, 2, 3]), deadline()).await.unwrap_err();
        assert!(matches!(&error, Error::DeadlineExceeded(text) if text.contains("2 of 3 items")), "{error:?}");
        let request = BatchRequest { draw: exactly(5), ..draw("queue", 5) };
        let batch = client.receive(&request, deadline()).await.unwrap();
        assert_eq!(int64s(&batch, 0), [1, 2], "the short batch");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_the_client_did_not_acknowledge_goes_back_when_the_connection_is_cut() {
    let table = queue("queue", 10);
    let server = server(vec![table.clone()]);
    Client::new(&addresses(&server)[0]).insert(rows("queue", &[1, 2, 3, 4]), soon()).await.unwrap();
    let mut service = wire::connect(server.port()).await;
    let mut samples = Samples::open(&mut service).await;
    samples.draw(1, wire::draw("queue", 2));
    samples.draw(2, wire::draw("queue", 1));
    let (id, batch) = samples.answer().await;
    assert_eq!((id, batch.unwrap().0.keys.len() / 8), (1, 2));
    assert!(samples.answer().await.1.is_ok());
    assert_eq!((len(&table), table.status().info.undelivered_samples), (1, Some(3)));
    samples.send(2, Some(sample_request::Kind::Received(true)));
    eventually("one is received", || table.status().info.undelivered_samples == Some(2)).await;
    drop((samples, service));
    at_rest(&table, 3).await;
    let batch = Client::new(&addresses(&server)[0]).receive(&draw("queue", 3), soon()).await.unwrap();
    assert_eq!(int64s(&batch, 0), [1, 2, 4]);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_a_client_that_closed_its_side_and_disconnects_are_withdrawn() {
    let table = queue("queue", 1);
    let server = server(vec![table.clone()]);
    let mut service = wire::connect(server.port()).await;
    let wire::Inserts { requests, responses } = wire::Inserts::open(&mut service).await;
    requests.send(wire::insert(1, "queue", 2)).unwrap();
    drop(requests);
    eventually("the insert waits", || table.status().info.waiting_inserts == Some(1)).await;
    drop((responses, service));
    at_rest(&table, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_full_of_waiting_inserts_still_ends_each_at_its_deadline() {
    let table = queue("queue", 1);
    let server = server(vec![table.clone()]);
    let mut service = wire::connect(server.port()).await;
    let mut inserts = wire::Inserts::open(&mut service).await;
    inserts.send(wire::insert(1, "queue", 1));
    assert!(inserts.answer().await.unwrap().failure.is_none());
    // Together they exceed the bytes that a stream may hold by far.
    for id in 2..42 {
        inserts.send(reverb_net::replay_v1::proto::InsertRequest {
            timeout_ms: Some(100),
            ..wire::insert(id, "queue", 400_000)
        });
    }
    for _ in 2..42 {
        let answer = tokio::time::timeout(SOON, inserts.answer()).await.expect("it hangs").unwrap();
        assert!(answer.failure.unwrap().text.contains("Timeout exceeded"));
    }
    at_rest(&table, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_not_read_while_its_waiting_inserts_hold_too_much_memory() {
    const ROWS: u32 = 400_000;
    // Each insert has 3.2 MB of data. An item for each row takes several times as much.
    for rows_per_item in [ROWS, 1] {
        let items = (ROWS / rows_per_item) as usize;
        let table = queue("queue", 1);
        let server = server(vec![table.clone()]);
        let port = server.port();
        // The client has its own runtime, so that it can disconnect like a killed process.
        let process = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        process.spawn(async move {
            let inserts = wire::Inserts::open(&mut wire::connect(port).await).await;
            inserts.send(wire::insert(1, "queue", 1));
            for id in 2..42 {
                let mut insert = wire::insert(id, "queue", ROWS);
                insert.batches[0].keys.truncate(items);
                insert.batches[0].rows_per_item = rows_per_item;
                inserts.send(insert);
            }
            std::future::pending::<()>().await;
        });
        let bytes = ROWS as usize * 8 + items * size_of::<NewItem>();
        let most = (64_usize << 20).div_ceil(bytes) as u64;
        eventually("they wait", || table.status().info.waiting_inserts >= Some(most)).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(table.status().info.waiting_inserts, Some(most), "items of {rows_per_item} rows");
        process.shutdown_background();
        at_rest(&table, 1).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_the_server_cancels_waiting_calls_within_a_second() {
    let lost = |error: &Error| matches!(error, Error::CallCancelled(_));
    stop_with_waiting_calls(End::Returns, lost).await;
    stop_with_waiting_calls(End::ForGood, |error| matches!(error, Error::ServerStopped(_))).await;
}

async fn stop_with_waiting_calls(end: End, is_expected: impl Fn(&Error) -> bool) {
    let mut server = server(vec![queue("samples", 1), queue("inserts", 1)]);
    let clients = addresses(&server).map(|address| Client::new(&address));
    let calls = clients.iter().map(|client| async {
        let sample = draw("samples", 1);
        tokio::join!(client.receive(&sample, None), client.insert(rows("inserts", &[1, 2, 3]), None))
    });
    let calls: Vec<_> = calls.collect();
    let stop = async {
        let status = |table: usize| server.replay().tables()[table].status();
        eventually("all wait", || {
            status(0).info.waiting_samples == Some(2) && status(1).info.waiting_inserts == Some(2)
        })
        .await;
        let begun = Instant::now();
        tokio::task::block_in_place(|| server.end(end)).unwrap();
        begun
    };
    let [first, second] = <[_; 2]>::try_from(calls).ok().unwrap();
    let (begun, first, second) = tokio::join!(stop, first, second);
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    for (sample, insert) in [first, second] {
        assert!(sample.as_ref().is_err_and(&is_expected), "{sample:?}");
        let Err(Error::Unconfirmed(cause)) = insert else { panic!("expected an unknown outcome, got {insert:?}") };
        assert!(is_expected(&cause), "{cause:?}");
    }
    let deadline = Some(Instant::now() + Duration::from_millis(200));
    let error = clients[0].receive(&draw("samples", 1), deadline).await.unwrap_err();
    // The client tries to reach a server, or sent the call before it had noticed the end of the stream.
    match end {
        End::ForGood => assert!(is_expected(&error), "{error:?}"),
        _ => assert!(
            matches!(error, Error::DeadlineExceeded(_) | Error::Unreached(_) | Error::Unavailable(_)),
            "{error:?}"
        ),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_gone_is_unavailable() {
    // The port is bound, so that no other server can use it, but nothing listens on it.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let port = socket.local_addr().unwrap().port();
    let error = Client::new(&format!("ipv4:127.0.0.1:{port}")).call(Info, None).await.unwrap_err();
    assert!(matches!(&error, Error::Unavailable(text) if text.contains("no server at")), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_that_a_killed_server_left_does_not_break_the_next_one() {
    let mut first = server(vec![uniform("table")]);
    let (port, path) = (first.port(), first.unix_path().unwrap().to_owned());
    tokio::task::block_in_place(|| first.stop()).unwrap();
    // A socket without a listener.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let replay = Replay::new(vec![uniform("table")], common::MAX_MESSAGE_SIZE).unwrap();
    let options = ListenOptions { port: Some(port), ..ListenOptions::default() };
    let second = Server::start(&Handle::current(), replay, &options, None).unwrap();
    assert_eq!(second.unix_path(), Some(&*path));
    let client = Client::new(&format!("unix:{}", path.display()));
    client.insert(rows("table", &[1]), soon()).await.unwrap();
    assert_eq!(client.transport().map(Transport::name), Some("unix"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_continues_with_the_server_that_replaced_the_first() {
    let mut first = server(vec![uniform("table")]);
    let client = Client::new(&addresses(&first)[0]);
    client.insert(rows("table", &[1]), soon()).await.unwrap();
    tokio::task::block_in_place(|| first.end(End::Returns)).unwrap();
    let replay = Replay::new(vec![uniform("table")], common::MAX_MESSAGE_SIZE).unwrap();
    let options = ListenOptions { port: Some(first.port()), ..ListenOptions::default() };
    let _second = Server::start(&Handle::current(), replay, &options, None).unwrap();
    let deadline = Instant::now() + SOON;
    while let Err(error) = client.insert(rows("table", &[2]), soon()).await {
        assert!(matches!(error, Error::Unavailable(_) | Error::Unconfirmed(_)), "{error:?}");
        assert!(Instant::now() < deadline);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelling_a_request_or_an_unknown_id_is_harmless() {
    let table = queue("queue", 10);
    let server = server(vec![table.clone()]);
    let mut service = wire::connect(server.port()).await;
    let mut samples = Samples::open(&mut service).await;
    for kind in [sample_request::Kind::Cancel(true), sample_request::Kind::Received(true)] {
        samples.send(99, Some(kind));
    }
    samples.draw(1, wire::draw("queue", 1));
    eventually("the draw waits", || table.status().info.waiting_samples == Some(1)).await;
    samples.requests.send(SampleRequest { request_id: 1, kind: Some(sample_request::Kind::Cancel(true)) }).unwrap();
    at_rest(&table, 0).await;
    samples.draw(2, wire::draw("missing", 1));
    let (id, failure) = samples.answer().await;
    assert_eq!((id, failure.unwrap_err().name.as_str()), (2, "missing"));
}
