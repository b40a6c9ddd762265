//! A server tells each figure of its tables, and it travels.

use crate::common::{Receive, SOON, addresses, draw, eventually, rows, server, uniform};
use reverb_core::{FIGURES, Figure, TableInfo};
use reverb_net::client::{Client, Info};
use reverb_net::server::Server;
use std::time::Instant;

fn soon() -> Option<Instant> {
    Some(Instant::now() + SOON)
}

fn info(server: &Server) -> TableInfo {
    server.replay().tables()[0].status().info
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_tells_each_figure_and_it_travels() {
    let server = server(vec![uniform("table")]);
    let client = Client::new(&addresses(&server)[0]);
    client.insert(rows("table", &[1, 2, 3]), soon()).await.unwrap();
    client.receive(&draw("table", 2), soon()).await.unwrap();
    eventually("the samples are received", || info(&server).undelivered_samples == Some(0)).await;
    let told = info(&server);
    let mut tables = client.call(Info, soon()).await.unwrap();
    let arrived = tables.pop().unwrap().info;
    for Figure { name, value, .. } in FIGURES {
        assert!(value(&told).is_some(), "no code sets `{name}`");
        // The age of the table has changed.
        assert!(value(&arrived) == value(&told) || *name == "age_seconds", "`{name}` is {:?}", value(&arrived));
    }
    assert!(arrived.age_seconds > 0.0);
    assert!(arrived.sample_age_seconds.unwrap().count() == 2 && arrived.insert_bytes > Some(0));
}
