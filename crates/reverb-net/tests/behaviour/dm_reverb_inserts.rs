//! The rules of an insert stream of dm-reverb: which chunks it holds, what it inserts, confirms and refuses.

use crate::common::dm_inserts::{
    Inserts, chunk, chunk_of, connect, from_hex, golden, item, item_of, literal, request, slice, talk, tensor,
};
use crate::common::{self, SOON, assert_serves, config, eventually, exactly, here, queue, server, silent, uniform};
use crate::done;
use prost::Message;
use reverb_core::{SelectorKind, Table, TableConfig};
use reverb_formats::item::ItemEncoder;
use reverb_formats::proto::schema::{ChunkData, PrioritizedItem, SliceRange};
use reverb_net::dm_reverb::proto::{InsertStreamRequest, InsertStreamResponse};
use reverb_net::server::Server;
use reverb_service::TableHandle;
use tonic::Code;

fn table(server: &Server) -> &TableHandle {
    &server.replay().tables()[0]
}

fn len(server: &Server) -> usize {
    table(server).with_table(Table::len)
}

#[tokio::test]
async fn recorded_conversations_have_the_recorded_confirmations_and_items() {
    for vector in golden(include_str!("../../../../tests/data/insert_stream.json")) {
        let name = vector["name"].as_str().unwrap();
        let prioritized =
            TableConfig { sampler: SelectorKind::Prioritized { priority_exponent: 1.0 }, ..config("prio") };
        let server = server(vec![uniform("t"), TableHandle::new(Table::new(prioritized).unwrap())]);
        let (mut requests, mut expected) = (Vec::new(), Vec::new());
        for event in vector["events"].as_array().unwrap() {
            match event["message"].as_str().unwrap_or_default() {
                "deepmind.reverb.InsertStreamRequest" => {
                    let bytes = from_hex(&event["hex"]);
                    let request = InsertStreamRequest::decode(&*bytes).unwrap();
                    assert_eq!(request.encode_to_vec(), bytes, "{name}");
                    requests.push(request);
                }
                "deepmind.reverb.InsertStreamResponse" => {
                    expected.extend(InsertStreamResponse::decode(&*from_hex(&event["hex"])).unwrap().keys);
                }
                _ => {}
            }
        }
        expected.sort_unstable();
        let (keys, status) = talk(&mut connect(server.port()).await, requests.clone()).await;
        assert!(status.is_none(), "{name}: {status:?}");
        assert_eq!(keys, expected, "{name}");
        for message in requests.iter().flat_map(|request| &request.items) {
            let mut sent = PrioritizedItem::decode(message.clone()).unwrap();
            let table = server.replay().table(&sent.table).unwrap();
            let stored = table.with_table(|table| table.get(sent.key)).expect(name);
            let mut message = Vec::new();
            ItemEncoder::default().encode(&stored, &sent.table, |chunk| chunk.key, &mut message).unwrap();
            let mut stored = PrioritizedItem::decode(&*message).unwrap();
            // The server sets it.
            (sent.inserted_at, stored.inserted_at) = (None, None);
            assert_eq!(stored, sent, "{name}");
        }
    }
}

#[tokio::test]
async fn a_message_needs_chunks_or_items() {
    let server = server(vec![uniform("table")]);
    let mut service = connect(server.port()).await;
    for (keys, shown) in [(&[][..], ""), (&[5, 6], "keep_chunk_keys: 5 keep_chunk_keys: 6")] {
        let status = talk(&mut service, vec![request(&[], &[], keys)]).await.1.unwrap();
        assert_eq!(status.code(), Code::InvalidArgument);
        let text = "ProcessIncomingRequest: Request lacks both chunks and item.  Request: ";
        assert_eq!(status.message(), format!("{text}{shown}"));
    }
}

#[tokio::test]
async fn of_chunks_with_the_same_key_the_first_is_held() {
    let server = server(vec![uniform("table")]);
    let mut service = connect(server.port()).await;
    // The content of the second is damaged, but is not read.
    let damaged = chunk_of(1, vec![tensor(9, &[2], vec![0xff])]);
    let messages = vec![
        request(&[chunk(1, &[10, 11])], &[], &[]),
        request(&[damaged], &[item("table", 5, 1)], &[1]),
        request(&[chunk(1, &[20, 21])], &[item("table", 6, 1)], &[]),
    ];
    let (keys, status) = talk(&mut service, messages).await;
    assert!(status.is_none(), "{status:?}");
    assert_eq!(keys, [5, 6]);
    let item = table(&server).with_table(|table| table.get(5)).unwrap();
    let chunk = item.trajectory.chunks()[0].clone();
    assert_eq!(chunk.rows_of(0, 0, 1), 10_i64.to_le_bytes());
}

#[tokio::test]
async fn messages_without_items_drop_no_chunk() {
    let server = server(vec![uniform("table")]);
    let mut service = connect(server.port()).await;
    let messages = vec![
        request(&[chunk(1, &[1])], &[], &[]),
        request(&[chunk(2, &[2])], &[], &[2]),
        request(&[], &[item("table", 5, 1)], &[1, 2]),
    ];
    let (keys, status) = talk(&mut service, messages).await;
    assert!(status.is_none(), "{status:?}");
    assert_eq!(keys, [5]);
}

#[tokio::test]
async fn chunks_that_are_not_listed_are_dropped_after_the_items() {
    let server = server(vec![uniform("table")]);
    let mut service = connect(server.port()).await;
    let messages = vec![
        request(&[chunk(1, &[1]), chunk(2, &[2])], &[item("table", 5, 1)], &[2]),
        request(&[], &[item("table", 6, 2)], &[2]),
        request(&[], &[item("table", 7, 1)], &[2]),
    ];
    let (keys, status) = talk(&mut service, messages).await;
    let status = status.unwrap();
    assert_eq!((status.code(), status.message()), (Code::Internal, "Could not find sequence chunk 1."));
    assert_eq!(keys, [5, 6]);
    // Items keep their chunks.
    assert_eq!(len(&server), 2);
}

#[tokio::test]
async fn unknown_and_repeated_keys_of_chunks_to_keep_are_an_error_after_the_items() {
    let server = server(vec![uniform("table")]);
    let mut service = connect(server.port()).await;
    for (key, keep) in [(5, [1, 99]), (6, [1, 1])] {
        let message = request(&[chunk(1, &[1])], &[item("table", key, 1)], &keep);
        let (keys, status) = talk(&mut service, vec![message]).await;
        let status = status.unwrap();
        assert_eq!(status.code(), Code::FailedPrecondition);
        let text =
            "ReleaseOutOfRangeChunks: Kept less chunks than expected.  chunks_.size() == 1 != keep_keys.size() == 2";
        assert_eq!(status.message(), text);
        assert_eq!(keys, [key]);
    }
    assert_eq!(len(&server), 2);
}

#[tokio::test]
async fn items_before_a_refused_one_are_inserted_and_confirmed() {
    let prioritized = TableConfig { sampler: SelectorKind::Prioritized { priority_exponent: 1.0 }, ..config("prio") };
    let server = server(vec![uniform("table"), TableHandle::new(Table::new(prioritized).unwrap())]);
    let mut service = connect(server.port()).await;
    let bad_priority = |priority| PrioritizedItem { priority, ..item("prio", 99, 1) };
    let empty = PrioritizedItem { flat_trajectory: None, ..item("table", 99, 1) };
    let outside = item_of("table", 99, vec![slice(1, 2, 5)]);
    let cases = [
        (item("nowhere", 99, 1), Code::NotFound, "Priority table nowhere was not found"),
        (item("table", 99, 77), Code::Internal, "Could not find sequence chunk 77."),
        (item_of("table", 99, vec![]), Code::InvalidArgument, "Item trajectory must not be empty."),
        (empty, Code::InvalidArgument, "Item trajectory must not be empty."),
        (bad_priority(-1.0), Code::InvalidArgument, "Priority must not be negative."),
        (bad_priority(f64::NAN), Code::InvalidArgument, "Priority must not be NaN."),
        (outside, Code::InvalidArgument, "item 99 of table `table`: Cannot slice (2, 7) out of chunk 1 with 3 rows."),
    ];
    for (index, (bad, code, text)) in cases.into_iter().enumerate() {
        let key = index as u64;
        let items = [item("table", key, 1), bad, item("table", 98, 1)];
        let (keys, status) = talk(&mut service, vec![request(&[chunk(1, &[1, 2, 3])], &items, &[1])]).await;
        let status = status.unwrap();
        assert_eq!((status.code(), status.message()), (code, text));
        assert_eq!(keys, [key]);
        assert_eq!(len(&server), index + 1, "{text}");
    }
    assert_serves(&server, "prio").await;
}

#[tokio::test]
async fn an_existing_key_changes_the_priority_and_is_confirmed_each_time() {
    let server = server(vec![uniform("table")]);
    let mut service = connect(server.port()).await;
    let again = PrioritizedItem { priority: 7.0, ..item("table", 5, 2) };
    let message = request(&[chunk(1, &[1]), chunk(2, &[2])], &[item("table", 5, 1), again], &[]);
    let (keys, status) = talk(&mut service, vec![message]).await;
    assert!(status.is_none(), "{status:?}");
    assert_eq!(keys, [5, 5]);
    let item = table(&server).with_table(|table| table.get(5)).unwrap();
    assert_eq!((item.priority, item.trajectory.chunks()[0].key), (7.0, 1));
}

#[tokio::test]
async fn deprecated_fields_and_unpacked_lists_are_tolerated_and_draws_so_far_are_taken() {
    let server = server(vec![uniform("table")]);
    let mut service = connect(server.port()).await;
    let both = PrioritizedItem {
        deprecated_chunk_keys: vec![99],
        deprecated_sequence_range: Some(SliceRange { offset: 0, length: 5 }),
        times_sampled: 5,
        ..item("table", 5, 1)
    };
    let (keys, status) = talk(&mut service, vec![request(&[chunk(1, &[1])], std::slice::from_ref(&both), &[1])]).await;
    assert!(status.is_none(), "{status:?}");
    assert_eq!(keys, [5]);
    assert_eq!(table(&server).with_table(|table| table.get(5)).unwrap().times_sampled, 5);

    let only_deprecated =
        PrioritizedItem { flat_trajectory: None, deprecated_chunk_keys: vec![1], key: 6, ..both.clone() };
    let status = talk(&mut service, vec![request(&[chunk(1, &[1])], &[only_deprecated], &[1])]).await.1.unwrap();
    assert_eq!(status.message(), "Item trajectory must not be empty.");

    let old_chunk = ChunkData { data: None, deprecated_data: chunk(1, &[1]).data.unwrap().tensors, ..chunk(1, &[1]) };
    let (keys, status) = talk(&mut service, vec![request(&[old_chunk], &[item("table", 7, 1)], &[1])]).await;
    assert!(status.is_none(), "{status:?}");
    assert_eq!(keys, [7]);
}

#[tokio::test]
async fn items_of_a_stream_go_to_several_tables_in_order() {
    let server = server(vec![queue("first", 10), queue("second", 10)]);
    let mut service = connect(server.port()).await;
    let items: Vec<_> = (0..8).map(|key| item(["first", "second"][key as usize % 2], key, 1)).collect();
    let (keys, status) = talk(&mut service, vec![request(&[chunk(1, &[1])], &items, &[])]).await;
    assert!(status.is_none(), "{status:?}");
    assert_eq!(keys, (0..8).collect::<Vec<_>>());
    for (table, expected) in server.replay().tables().iter().zip([[0, 2, 4, 6], [1, 3, 5, 7]]) {
        assert_eq!(common::keys(&done!(table.sample(exactly(4), here()))), expected);
    }
}

#[tokio::test]
async fn a_stream_that_was_half_closed_ends_once_all_items_are_confirmed() {
    let server = server(vec![queue("queue", 2)]);
    let mut service = connect(server.port()).await;
    let items: Vec<_> = (0..10).map(|key| item("queue", key, 1)).collect();
    let inserts = Inserts::open(&mut service).await;
    inserts.send(request(&[chunk(1, &[1])], &items, &[]));
    let finishing = tokio::spawn(inserts.finish());
    for key in 0..10 {
        assert_eq!(common::keys(&draw(table(&server)).await), [key]);
    }
    let (keys, status) = tokio::time::timeout(SOON, finishing).await.expect("the stream stands still").unwrap();
    assert!(status.is_none(), "{status:?}");
    assert_eq!(keys, (0..10).collect::<Vec<_>>());
}

async fn draw(table: &TableHandle) -> Vec<reverb_core::Drawn> {
    match table.sample(exactly(1), here()) {
        reverb_service::Call::Done(drawn) => drawn.unwrap(),
        reverb_service::Call::Waiting(waiting) => waiting.result(None, silent).await.unwrap(),
    }
}

#[tokio::test]
async fn a_stream_that_its_client_drops_leaves_no_waiting_item() {
    let server = server(vec![queue("queue", 1)]);
    let mut service = connect(server.port()).await;
    let mut inserts = Inserts::open(&mut service).await;
    inserts.send(request(&[chunk(1, &[1])], &[item("queue", 1, 1), item("queue", 2, 1), item("queue", 3, 1)], &[]));
    assert_eq!(inserts.keys().await, [1]);
    eventually("no item waits", || table(&server).status().info.waiting_inserts == Some(1)).await;
    drop(inserts);
    eventually("an item still waits", || table(&server).status().info.waiting_inserts == Some(0)).await;
    assert_eq!(common::keys(&draw(table(&server)).await), [1]);
    // The client sends unconfirmed items again, with the same keys.
    let (keys, _) = talk(&mut service, vec![request(&[chunk(1, &[1])], &[item("queue", 2, 1)], &[])]).await;
    assert_eq!(keys, [2]);
}

#[tokio::test]
async fn columns_of_strings_are_inserted() {
    let server = server(vec![uniform("table")]);
    let mut service = connect(server.port()).await;
    let texts = tensor(7, &[2], [&[5, 2][..], b"hellohi"].concat());
    let chunk = chunk_of(1, vec![texts, tensor(9, &[2], literal(&[7; 16]))]);
    let (keys, status) =
        talk(&mut service, vec![request(&[chunk], &[item_of("table", 5, vec![slice(1, 0, 2)])], &[])]).await;
    assert!(status.is_none(), "{status:?}");
    assert_eq!(keys, [5]);
    let item = table(&server).with_table(|table| table.get(5)).unwrap();
    let texts: Vec<_> = item.trajectory.chunks()[0].strings_of(0, 0, 2).map(<[u8]>::to_vec).collect();
    assert_eq!(texts, [b"hello".to_vec(), b"hi".to_vec()]);
}
