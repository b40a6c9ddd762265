//! The unary calls of dm-reverb, and its handshake for programs in the same process.

use crate::common::dm_inserts::{Service, connect, from_hex, golden, item, request, talk};
use crate::common::{self, config, queue, server, uniform};
use prost::Message;
use reverb_core::{SelectorKind, Table, TableConfig};
use reverb_formats::proto::schema::TableInfo;
use reverb_net::dm_reverb::proto::{
    CheckpointRequest, InitializeConnectionRequest, KeyWithPriority, MutatePrioritiesRequest, ResetRequest,
    ServerInfoRequest,
};
use reverb_service::TableHandle;
use tokio_stream::{iter, pending};
use tonic::{Code, Status};

async fn call(service: &mut Service, method: &str, message: &[u8]) -> Result<(), Status> {
    match method {
        "MutatePriorities" => {
            let request = MutatePrioritiesRequest::decode(message).unwrap();
            assert_eq!(request.encode_to_vec(), message);
            service.mutate_priorities(request).await.map(drop)
        }
        "Reset" => service.reset(ResetRequest::decode(message).unwrap()).await.map(drop),
        "InitializeConnection" => {
            let request = InitializeConnectionRequest::decode(message).unwrap();
            assert_eq!(request.encode_to_vec(), message);
            service.initialize_connection(iter([request])).await.map(drop)
        }
        _ => Ok(()),
    }
}

#[tokio::test]
async fn recorded_calls_have_the_recorded_results() {
    let prioritized = TableConfig { sampler: SelectorKind::Prioritized { priority_exponent: 1.0 }, ..config("prio") };
    let server = server(vec![uniform("t"), TableHandle::new(Table::new(prioritized).unwrap())]);
    let mut service = connect(server.port()).await;
    for vector in golden(include_str!("../../../../tests/data/unary.json")) {
        let name = vector["name"].as_str().unwrap();
        let events = vector["events"].as_array().unwrap();
        let result = call(&mut service, vector["method"].as_str().unwrap(), &from_hex(&events[0]["hex"])).await;
        let last = events.last().unwrap();
        match (last["code"].as_str().unwrap(), result) {
            ("OK", result) => assert!(result.is_ok(), "{name}: {result:?}"),
            (code, Err(status)) => {
                let expected = if code == "NOT_FOUND" { Code::NotFound } else { Code::InvalidArgument };
                assert_eq!((status.code(), status.message()), (expected, last["details"].as_str().unwrap()), "{name}");
            }
            (code, Ok(())) => panic!("{name}: expected {code}"),
        }
    }
}

#[tokio::test]
async fn server_info_describes_all_tables_under_one_id() {
    let first = server(vec![uniform("table"), queue("queue", 5)]);
    let mut service = connect(first.port()).await;
    let (_, status) = talk(
        &mut service,
        vec![request(&[common::dm_inserts::chunk(1, &[1])], &[item("table", 1, 1), item("table", 2, 1)], &[])],
    )
    .await;
    assert!(status.is_none(), "{status:?}");
    let info = service.server_info(ServerInfoRequest {}).await.unwrap().into_inner();
    let tables: Vec<_> = info.table_info.iter().map(|info| TableInfo::decode(info.clone()).unwrap()).collect();
    let sizes: Vec<_> = tables.iter().map(|table| (&*table.name, table.current_size, table.num_episodes)).collect();
    assert_eq!(sizes, [("table", 2, 1), ("queue", 0, 0)]);
    assert!(tables.iter().all(|table| table.signature.is_none()));
    assert_eq!(tables[0].rate_limiter_info.unwrap().insert_stats.unwrap().completed, 2);

    let id = info.tables_state_id.unwrap();
    let again = service.server_info(ServerInfoRequest {}).await.unwrap().into_inner();
    assert_eq!(again.tables_state_id, Some(id));
    let second = server(vec![uniform("table")]);
    let other = connect(second.port()).await.server_info(ServerInfoRequest {}).await.unwrap().into_inner();
    assert_ne!(other.tables_state_id, Some(id));
}

#[tokio::test]
async fn deletes_come_before_updates_and_unknown_keys_are_ignored() {
    let server = server(vec![uniform("table")]);
    let mut service = connect(server.port()).await;
    let items: Vec<_> = (0..40_000).map(|key| item("table", key, 1)).collect();
    let (keys, _) = talk(&mut service, vec![request(&[common::dm_inserts::chunk(1, &[1])], &items, &[])]).await;
    assert_eq!(keys.len(), 40_000);
    // So many that they are made on another thread.
    let updates = (0..20_000).chain([1 << 40]).map(|key| KeyWithPriority { key, priority: 3.0 }).collect();
    let delete_keys = (10_000..30_000).chain([1 << 41]).collect();
    service.mutate_priorities(MutatePrioritiesRequest { table: "table".into(), updates, delete_keys }).await.unwrap();
    let table = &server.replay().tables()[0];
    assert_eq!(table.with_table(Table::len), 20_000);
    assert_eq!(table.with_table(|table| table.get(5)).unwrap().priority, 3.0);
    assert_eq!(table.with_table(|table| table.get(35_000)).unwrap().priority, 1.0);
    service.reset(ResetRequest { table: "table".into() }).await.unwrap();
    assert_eq!(table.with_table(Table::len), 0);
}

#[tokio::test]
async fn a_checkpoint_without_a_store_is_refused() {
    let server = server(vec![uniform("table")]);
    let status = connect(server.port()).await.checkpoint(CheckpointRequest {}).await.unwrap_err();
    let expected = (Code::InvalidArgument, "no Checkpointer configured for the replay service.");
    assert_eq!((status.code(), status.message()), expected);
}

#[tokio::test]
async fn the_handshake_of_a_local_client_is_declined_at_once() {
    let server = server(vec![queue("queue", 1)]);
    let mut service = connect(server.port()).await;
    let hello = InitializeConnectionRequest { pid: 123, table_name: "queue".into(), ..Default::default() };
    // The client waits for the answer without closing its side.
    let stream = tokio_stream::StreamExt::chain(iter([hello]), pending());
    let mut answers = service.initialize_connection(stream).await.unwrap().into_inner();
    assert_eq!(answers.message().await.unwrap().unwrap().address, 0);
    assert!(answers.message().await.unwrap().is_none());
    // From now on, the server knows who calls over this connection.
    let items = [item("queue", 1, 1), item("queue", 2, 1)];
    let inserts = common::dm_inserts::Inserts::open(&mut service).await;
    inserts.send(request(&[common::dm_inserts::chunk(1, &[1])], &items, &[]));
    let table = &server.replay().tables()[0];
    common::eventually("nobody waits", || table.status().insert_peer.is_some()).await;
    let peer = table.status().insert_peer.unwrap();
    let expected = format!("dm-reverb ({}:123) over tcp", reverb_service::host_name());
    assert!(peer.starts_with(&expected), "{peer}");
}

#[tokio::test]
async fn calls_to_a_stopped_server_may_be_tried_again() {
    let server = server(vec![uniform("table")]);
    let mut service = connect(server.port()).await;
    service.server_info(ServerInfoRequest {}).await.unwrap();
    server.replay().close();
    let status = service.server_info(ServerInfoRequest {}).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
}
