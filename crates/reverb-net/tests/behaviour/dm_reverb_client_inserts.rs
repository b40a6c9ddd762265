//! Inserts of our client at a server of dm-reverb: what they send, and what they say when they fail.

use crate::common::{SOON, chunk_of, config, rows, strings};
use crate::reference::{Reference, chunk_keys};
use prost::bytes::Bytes;
use reverb_core::{DType, Error, Layout, SelectorKind, Signature, TableConfig, TensorSpec};
use reverb_formats::chunk::ChunkDecoder;
use reverb_formats::proto::schema::ChunkData;
use reverb_net::client::Client;
use reverb_service::RowInsert;
use reverb_service::local::Priorities;
use smallvec::smallvec;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tonic::Status;

fn soon() -> Option<Instant> {
    Some(Instant::now() + SOON)
}

fn decode(chunk: &ChunkData) -> Vec<u8> {
    use prost::Message;
    let chunk = ChunkDecoder::new(1 << 30).decode(&chunk.encode_to_vec(), reverb_core::EpisodeIds::Same).unwrap();
    chunk.data().to_vec()
}

/// An insert in a task of its own.
fn insert(client: &Arc<Client>, insert: RowInsert) -> tokio::task::JoinHandle<Result<(), Error>> {
    let client = client.clone();
    tokio::spawn(async move { client.insert(insert, soon()).await.map(drop) })
}

#[tokio::test]
async fn each_row_is_a_chunk_with_an_item_in_each_table() {
    let mut server = Reference::start(&["a", "b"]).await;
    let client = Arc::new(Client::new(&server.address()));
    let tables = vec![("a".into(), vec![1.0, 2.0, 3.0].into()), ("b".into(), vec![5.0].into())];
    let call = insert(&client, RowInsert { tables, ..rows("a", &[10, 11, 12]) });
    let mut stream = server.stream().await;
    let message = stream.receive().await.unwrap();
    assert_eq!(message.chunks.len(), 3);
    let values: Vec<_> = message.chunks.iter().map(|chunk| decode(chunk)[0]).collect();
    assert_eq!(values, [10, 11, 12]);
    let episodes: BTreeSet<_> =
        message.chunks.iter().map(|chunk| chunk.sequence_range.as_ref().unwrap().episode_id).collect();
    assert_eq!(episodes.len(), 3, "rows of a batch are unrelated");
    assert!(message.chunks.iter().all(|chunk| chunk.data_tensors_len == 1 && chunk.data_uncompressed_size == 8));
    let items: Vec<_> = message.items.iter().map(|item| (&*item.table, item.priority, chunk_keys(item))).collect();
    let key = |index: usize| vec![message.chunks[index].chunk_key];
    let expected = [
        ("a", 1.0, key(0)),
        ("b", 5.0, key(0)),
        ("a", 2.0, key(1)),
        ("b", 5.0, key(1)),
        ("a", 3.0, key(2)),
        ("b", 5.0, key(2)),
    ];
    assert_eq!(items, expected);
    assert!(message.keep.is_empty(), "the server keeps nothing for later");
    let mut keys: Vec<_> = message.items.iter().map(|item| item.key).collect();
    let last = keys.pop().unwrap();
    stream.confirm(keys.into_iter().rev());
    assert!(!call.is_finished());
    stream.confirm([last]);
    call.await.unwrap().unwrap();
    // The next call uses the same stream.
    let call = insert(&client, rows("a", &[13]));
    stream.confirm_next(1).await;
    call.await.unwrap().unwrap();
}

#[tokio::test]
async fn items_that_take_the_largest_priority_get_the_largest_that_the_client_has_set() {
    let mut server = Reference::start(&["a", "b"]).await;
    let client = Arc::new(Client::new(&server.address()));
    let mut stream = None;
    for (given, sent) in [
        (Priorities::largest(), [1.0, 1.0]),
        (vec![0.5, 0.25].into(), [0.5, 0.25]),
        (Priorities::largest(), [1.0, 1.0]),
        (vec![5.0, 3.0].into(), [5.0, 3.0]),
        (vec![f64::INFINITY, 2.0].into(), [f64::INFINITY, 2.0]),
        (Priorities::largest(), [5.0, 5.0]),
    ] {
        let tables = vec![("a".into(), given), ("b".into(), Priorities::largest())];
        let call = insert(&client, RowInsert { tables, ..rows("a", &[10, 11]) });
        if stream.is_none() {
            stream = Some(server.stream().await);
        }
        let open = stream.as_mut().unwrap();
        let message = open.receive().await.unwrap();
        let of = |name: &str| -> Vec<f64> {
            message.items.iter().filter(|item| item.table == name).map(|item| item.priority).collect()
        };
        assert_eq!((of("a"), of("b")), (sent.to_vec(), vec![1.0; 2]));
        open.confirm(message.items.iter().map(|item| item.key));
        call.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn strings_and_interleaved_rows_keep_their_values() {
    let mut server = Reference::start(&["table"]).await;
    let client = Arc::new(Client::new(&server.address()));
    let texts = RowInsert {
        chunk: strings(&["one", "", "three"]),
        more: Vec::new(),
        rows_per_item: 1,
        tables: vec![("table".into(), vec![1.0].into())],
    };
    let call = insert(&client, texts);
    let mut stream = server.stream().await;
    let message = stream.receive().await.unwrap();
    let content = |chunk: &ChunkData| chunk.data.as_ref().unwrap().tensors[0].tensor_content.to_vec();
    assert_eq!(message.chunks.iter().map(content).collect::<Vec<_>>(), [&b"\x03one"[..], b"\x00", b"\x05three"]);
    stream.confirm(message.items.iter().map(|item| item.key));
    call.await.unwrap().unwrap();

    let layout = Layout::new(2, [(DType::UInt8, smallvec![], 0), (DType::UInt8, smallvec![2], 0)]).unwrap();
    let size = layout.size_bytes;
    let (first, second) = (layout.columns[0].offset, layout.columns[1].offset);
    let mut data = vec![0; size];
    data[first..first + 2].copy_from_slice(&[1, 2]);
    data[second..second + 4].copy_from_slice(&[3, 4, 5, 6]);
    let chunk = Arc::new(chunk_of(layout, data).interleave().unwrap());
    let call = insert(
        &client,
        RowInsert { chunk, more: Vec::new(), rows_per_item: 1, tables: vec![("table".into(), vec![1.0].into())] },
    );
    let message = stream.receive().await.unwrap();
    let tensors = |chunk: &ChunkData| -> Vec<Vec<u8>> {
        let tensors = &chunk.data.as_ref().unwrap().tensors;
        tensors.iter().map(|tensor| tensor.tensor_content[2..].to_vec()).collect()
    };
    let expected = [vec![vec![1], vec![3, 4]], vec![vec![2], vec![5, 6]]];
    assert_eq!(message.chunks.iter().map(tensors).collect::<Vec<_>>(), expected);
    stream.confirm(message.items.iter().map(|item| item.key));
    call.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_large_batch_is_sent_in_messages_of_bounded_size_without_a_wait_for_confirmations() {
    let mut server = Reference::start(&["table"]).await;
    let client = Arc::new(Client::new(&server.address()));
    let values: Vec<i64> = (0..5000).collect();
    let layout = Layout::new(5000, [(DType::Int64, smallvec![128], 0)]).unwrap();
    let data: Bytes =
        (0..5000 * 128_u64).map(|value| value.wrapping_mul(0x9e37_79b9_7f4a_7c15)).flat_map(u64::to_le_bytes).collect();
    let chunk = chunk_of(layout, data);
    let call = insert(&client, RowInsert { chunk, ..rows("table", &values) });
    let mut stream = server.stream().await;
    let (mut keys, mut messages) = (Vec::new(), 0);
    while keys.len() < 5000 {
        let message = stream.receive().await.unwrap();
        assert!(message.size_bytes < 1 << 20, "{}", message.size_bytes);
        keys.extend(message.items.iter().map(|item| item.key));
        messages += 1;
    }
    assert!(messages > 4);
    assert!(!call.is_finished());
    stream.confirm(keys);
    call.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_call_that_waits_holds_up_no_other_and_a_withdrawn_one_ends_its_stream() {
    let mut server = Reference::start(&["full", "open"]).await;
    let client = Arc::new(Client::new(&server.address()));
    let blocked = insert(&client, rows("full", &[1]));
    let mut first = server.stream().await;
    first.items(1).await;
    let call = insert(&client, rows("open", &[2]));
    let mut second = server.stream().await;
    second.confirm_next(1).await;
    call.await.unwrap().unwrap();
    assert!(!blocked.is_finished());
    blocked.abort();
    first.ended().await;
    // An error ends a stream, and only its own call.
    let failing = insert(&client, rows("open", &[3]));
    second.items(1).await;
    let other = insert(&client, rows("open", &[4]));
    let mut third = server.stream().await;
    third.items(1).await;
    second.fail(Status::invalid_argument("no such thing"));
    let error = failing.await.unwrap().unwrap_err();
    assert!(matches!(&error, Error::InvalidArgument(text) if text.contains("no such thing")), "{error:?}");
    assert!(!other.is_finished());
    let again = insert(&client, rows("open", &[5]));
    server.stream().await.confirm_next(1).await;
    again.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_deadline_says_how_many_items_are_confirmed() {
    let mut server = Reference::start(&["table"]).await;
    let client = Client::new(&server.address());
    let deadline = Some(Instant::now() + Duration::from_secs(5));
    let (result, ()) = tokio::join!(client.insert(rows("table", &[1, 2, 3]), deadline).into_future(), async {
        let mut stream = server.stream().await;
        let items = stream.items(3).await;
        stream.confirm([items[1].key]);
        stream.ended().await;
    });
    let Err(Error::DeadlineExceeded(text)) = result else { panic!("{result:?}") };
    assert!(text.starts_with("1 of 3 items were inserted; "), "{text}");
}

#[tokio::test]
async fn a_lost_connection_leaves_items_unconfirmed_and_the_next_call_opens_another() {
    let mut server = Reference::start(&["table"]).await;
    let client = Arc::new(Client::new(&server.address()));
    for loss in 0..2 {
        let call = insert(&client, rows("table", &[1]));
        let mut stream = server.stream().await;
        stream.items(1).await;
        match loss {
            0 => server.lose_connections(),
            _ => drop(stream),
        }
        let error = call.await.unwrap().unwrap_err();
        assert!(matches!(error, Error::Unconfirmed(_)), "{error:?}");
    }
    let call = insert(&client, rows("table", &[2]));
    server.stream().await.confirm_next(1).await;
    call.await.unwrap().unwrap();
}

#[tokio::test]
async fn what_the_server_would_not_check_is_checked_before_anything_is_sent() {
    let prioritized = SelectorKind::Prioritized { priority_exponent: 1.0 };
    let spec = TensorSpec { name: "x".into(), dtype: DType::Float32, shape: Some(vec![]) };
    let tables = vec![
        TableConfig { sampler: prioritized, ..config("prioritized") },
        TableConfig { signature: Some(signature(spec)), ..config("signed") },
    ];
    let mut server = Reference::start_with(tables).await;
    let client = Arc::new(Client::new(&server.address()));
    let priorities = |table: &str, priorities: &[f64]| RowInsert {
        tables: vec![(table.into(), priorities.to_vec().into())],
        ..rows(table, &[1, 2])
    };
    let refused = |request| {
        let client = client.clone();
        async move { client.insert(request, soon()).await.unwrap_err() }
    };
    let error = refused(priorities("prioritized", &[1.0, -1.0])).await;
    assert!(matches!(error, Error::InvalidRow { row: 1, .. }), "{error:?}");
    assert!(refused(priorities("prioritized", &[f64::NAN])).await.to_string().contains("must not be NaN"));
    let error = refused(priorities("nowhere", &[1.0])).await;
    assert_eq!(error, Error::TableNotFound { table: "nowhere".into(), known: "prioritized, signed".into() });
    let error = refused(priorities("signed", &[1.0])).await;
    assert!(matches!(error, Error::SignatureMismatch(_)), "{error:?}");
    // A table that was not there when the connection was made is found.
    server.add_table("later");
    let call = insert(&client, priorities("later", &[1.0]));
    server.stream().await.confirm_next(2).await;
    call.await.unwrap().unwrap();
}

fn signature(spec: TensorSpec) -> Arc<Signature> {
    use prost::Message;
    use reverb_formats::proto::tensorflow::{StructuredValue, TensorShapeProto, TensorSpecProto, structured_value};
    let spec = TensorSpecProto { name: spec.name, shape: Some(TensorShapeProto::default()), dtype: spec.dtype as i32 };
    let value = StructuredValue { kind: Some(structured_value::Kind::TensorSpecValue(spec)) };
    Arc::new(reverb_formats::signature::read_signature(&value.encode_to_vec()).unwrap())
}
