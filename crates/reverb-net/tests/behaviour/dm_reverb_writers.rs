//! Writers at a server of dm-reverb: what they send, in which order it may be confirmed, and how they go on after a loss.

use crate::common::{SOON, config, eventually, uniform};
use crate::reference::{InsertStream, Reference, chunk_keys};
use reverb_core::writer::{ChunkCompression, ColumnOptions, ColumnValue, StepBuffer, StreamChunks, Value, WriterItem};
use reverb_core::{DType, Error, KeySlots, NewPriority, SelectorKind, Table, TableConfig};
use reverb_formats::proto::schema::PrioritizedItem;
use reverb_net::client::Client;
use reverb_net::client::writer::{Session, SessionOptions};
use reverb_net::server::{ListenOptions, Server};
use reverb_service::Replay;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tonic::Status;

/// A writer whose chunks have one step each.
struct Writer {
    steps: StepBuffer,
    session: Arc<Session>,
}

impl Writer {
    fn new(address: &str, num_keep_alive_refs: u32) -> Self {
        Self::with(address, num_keep_alive_refs, SessionOptions::default())
    }

    fn with(address: &str, num_keep_alive_refs: u32, limits: SessionOptions) -> Self {
        let dropped = StreamChunks::default();
        let options = ColumnOptions { num_keep_alive_refs, max_chunk_length: Some(1) };
        let steps = StepBuffer::new(options, ChunkCompression::default(), dropped.clone()).unwrap();
        let session = Session::new(Arc::new(Client::new(address)), limits, dropped);
        Self { steps, session: Arc::new(session) }
    }

    /// Appends a step, and makes an item of the last `length` ones. Returns whether an earlier item was refused.
    fn write(&mut self, table: &str, length: u64, priority: impl Into<NewPriority>) -> bool {
        let number = self.steps.num_rows().to_le_bytes();
        let value = Value { dtype: DType::Int64, shape: &[], bytes: &number };
        self.steps.append(&[ColumnValue { column: 0, value, opens_rows: false }], false).unwrap();
        let rows = self.steps.num_rows();
        let column = self.steps.select(0, rows - length..rows, false).unwrap();
        let item =
            WriterItem::new(table.into(), priority, [column].into(), self.steps.writer(), KeySlots::ALL, None).unwrap();
        self.session.push(&Handle::current(), [item]).unwrap()
    }

    async fn flush(&self) -> Result<(), Error> {
        self.session.flush(0, Some(Instant::now() + SOON), |_| {}).await
    }
}

fn keys(items: &[PrioritizedItem]) -> Vec<u64> {
    items.iter().map(|item| item.key).collect()
}

#[tokio::test]
async fn items_are_sent_without_confirmations_and_confirmed_in_any_order() {
    let mut server = Reference::start(&["a", "b"]).await;
    let mut writer = Writer::new(&server.address(), 4);
    for step in 0..200 {
        writer.write(if step % 2 == 0 { "a" } else { "b" }, 1, 1.0);
    }
    let mut stream = server.stream().await;
    let items = stream.items(200).await;
    let tables: Vec<_> = items.iter().map(|item| &*item.table).collect();
    assert_eq!(tables[..4], ["a", "b", "a", "b"], "the order of the items is kept");
    for key in keys(&items).into_iter().rev() {
        stream.confirm([key, key ^ 1]);
    }
    writer.flush().await.unwrap();
    assert_eq!(writer.session.num_confirmed(), 200);
}

#[tokio::test]
async fn items_that_take_the_largest_priority_get_the_largest_that_the_process_has_set() {
    let mut server = Reference::start(&["a", "b"]).await;
    let mut writer = Writer::new(&server.address(), 1);
    let largest = |value| NewPriority { value, takes_largest: true };
    for (table, priority) in [("a", 3.0.into()), ("a", largest(0.0)), ("b", largest(0.0)), ("b", largest(2.0))] {
        writer.write(table, 1, priority);
    }
    let mut stream = server.stream().await;
    let items = stream.items(4).await;
    assert_eq!(items.iter().map(|item| item.priority).collect::<Vec<_>>(), [3.0, 3.0, 1.0, 2.0]);
    stream.confirm(keys(&items));
    writer.flush().await.unwrap();
}

#[tokio::test]
async fn no_more_items_are_sent_than_the_writer_may_have_unconfirmed() {
    let mut server = Reference::start(&["table"]).await;
    let options = SessionOptions { max_in_flight_items: 5, ..SessionOptions::default() };
    let mut writer = Writer::with(&server.address(), 1, options);
    let write = tokio::spawn(async move {
        for _ in 0..40 {
            writer.write("table", 1, 1.0);
            writer.session.take_room(0, None, |_| {}).await.unwrap();
        }
        writer.flush().await.unwrap();
    });
    let mut stream = server.stream().await;
    let mut unconfirmed = Vec::new();
    for _ in 0..40 {
        while unconfirmed.is_empty() {
            unconfirmed.extend(keys(&stream.receive().await.unwrap().items));
        }
        assert!(unconfirmed.len() <= 6, "the writer waits after the item that exceeds its limit");
        stream.confirm([unconfirmed.remove(0)]);
    }
    write.await.unwrap();
}

#[tokio::test]
async fn exactly_the_chunks_that_later_items_may_use_are_kept() {
    let mut server = Reference::start(&["table"]).await;
    let mut writer = Writer::new(&server.address(), 3);
    let mut stream = None;
    let mut sent: Vec<u64> = Vec::new();
    for step in 1..=10_u64 {
        writer.write("table", step.min(3), 1.0);
        if stream.is_none() {
            stream = Some(server.stream().await);
        }
        let open: &mut InsertStream = stream.as_mut().unwrap();
        let message = open.receive().await.unwrap();
        assert_eq!(message.chunks.len(), 1, "only the new chunk is sent");
        sent.push(message.chunks[0].chunk_key);
        let last: BTreeSet<u64> = sent.iter().rev().take(3).copied().collect();
        assert_eq!(message.keep, last, "step {step}");
        // Items that are not confirmed need no chunks: the server has its own references.
        if step % 4 == 0 {
            open.confirm(message.items.iter().map(|item| item.key));
        }
    }
}

#[tokio::test]
async fn unconfirmed_items_are_sent_again_with_their_keys_and_all_their_chunks() {
    let mut server = Reference::start(&["table"]).await;
    let mut writer = Writer::new(&server.address(), 3);
    for step in 1..=20_u64 {
        writer.write("table", step.min(3), 1.0);
    }
    let mut stream = server.stream().await;
    let items = stream.items(20).await;
    stream.confirm(keys(&items[5..10]));
    eventually("the confirmations arrive", || writer.session.num_confirmed() == 5).await;
    let mut left: Vec<u64> = keys(&items);
    left.drain(5..10);
    // The first loss is that of the connection, the second an end without an error, the third one with an error that
    // says nothing about the items.
    for loss in 0..3 {
        match loss {
            0 => server.lose_connections(),
            1 => drop(stream),
            _ => stream.fail(Status::unavailable("Cancelling all calls")),
        }
        stream = server.stream().await;
        // The stream checks that it has all chunks of these items.
        assert_eq!(keys(&stream.items(15).await), left);
    }
    stream.confirm(left);
    writer.flush().await.unwrap();
}

#[tokio::test]
async fn an_item_that_the_server_would_not_take_is_refused_alone() {
    let prioritized = SelectorKind::Prioritized { priority_exponent: 1.0 };
    let tables = vec![config("table"), TableConfig { sampler: prioritized, ..config("prioritized") }];
    let mut server = Reference::start_with(tables).await;
    let mut writer = Writer::new(&server.address(), 1);
    for (table, priority) in
        [("table", 1.0), ("prioritized", -1.0), ("table", 2.0), ("nowhere", 3.0), ("prioritized", 4.0)]
    {
        writer.write(table, 1, priority);
    }
    let mut stream = server.stream().await;
    let items = stream.items(3).await;
    assert_eq!(items.iter().map(|item| item.priority).collect::<Vec<_>>(), [1.0, 2.0, 4.0]);
    stream.confirm(keys(&items));
    assert!(matches!(writer.flush().await, Err(Error::InvalidPriority(_))));
    let error = writer.flush().await.unwrap_err();
    assert_eq!(error, Error::TableNotFound { table: "nowhere".into(), known: "prioritized, table".into() });
    writer.flush().await.unwrap();
}

#[tokio::test]
async fn a_table_that_was_not_there_at_first_is_asked_for() {
    let mut server = Reference::start(&["table"]).await;
    let mut writer = Writer::new(&server.address(), 1);
    writer.write("table", 1, 1.0);
    let mut stream = server.stream().await;
    stream.confirm_next(1).await;
    server.add_table("later");
    writer.write("later", 1, 1.0);
    stream.confirm_next(1).await;
    writer.flush().await.unwrap();
}

#[tokio::test]
async fn an_error_of_the_server_that_stays_ends_the_writer_with_its_text() {
    for status in [Status::not_found("Priority table x was not found"), Status::invalid_argument("no"), {
        Status::failed_precondition("ReleaseOutOfRangeChunks")
    }] {
        let mut server = Reference::start(&["table"]).await;
        let mut writer = Writer::new(&server.address(), 1);
        writer.write("table", 1, 1.0);
        let mut stream = server.stream().await;
        stream.items(1).await;
        let text = status.message().to_owned();
        stream.fail(status);
        let Err(Error::InvalidArgument(error)) = writer.flush().await else { panic!("the writer has failed") };
        assert!(
            error.contains(&text) && error.ends_with("; 1 items were not confirmed (1 for table `table`)"),
            "{error}"
        );
        assert!(writer.session.check().is_err(), "the error stays");
    }
}

#[tokio::test]
async fn an_item_of_many_bytes_takes_several_messages() {
    let mut server = Reference::start(&["table"]).await;
    let dropped = StreamChunks::default();
    let options = ColumnOptions { num_keep_alive_refs: 8, max_chunk_length: Some(1) };
    let mut steps = StepBuffer::new(options, ChunkCompression::default(), dropped.clone()).unwrap();
    let session = Session::new(Arc::new(Client::new(&server.address())), SessionOptions::default(), dropped);
    for step in 0..8_u64 {
        // Snappy makes this no smaller.
        let mut number = step + 1;
        let bytes: Vec<u8> = (0..300 << 10).map(|_| next_random(&mut number)).collect();
        let value = Value { dtype: DType::UInt8, shape: &[300 << 10], bytes: &bytes };
        steps.append(&[ColumnValue { column: 0, value, opens_rows: false }], false).unwrap();
    }
    let column = steps.select(0, 0..8, false).unwrap();
    let item = WriterItem::new("table".into(), 1.0, [column].into(), steps.writer(), KeySlots::ALL, None).unwrap();
    session.push(&Handle::current(), [item]).unwrap();
    let mut stream = server.stream().await;
    let (mut messages, mut chunks) = (0, 0);
    let item = loop {
        let message = stream.receive().await.unwrap();
        assert!(message.size_bytes < 1 << 20, "{}", message.size_bytes);
        messages += 1;
        chunks += message.chunks.len();
        if let Some(item) = message.items.into_iter().next() {
            break item;
        }
    };
    assert!(messages > 3);
    assert_eq!((chunks, chunk_keys(&item).len()), (8, 8));
    stream.confirm([item.key]);
    session.flush(0, Some(Instant::now() + SOON), |_| {}).await.unwrap();
}

fn next_random(state: &mut u64) -> u8 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 56) as u8
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_goes_on_when_a_server_of_the_other_kind_takes_the_address() {
    let mut reference = Reference::start(&["table"]).await;
    let port = reference.port;
    // With a scheme, the client does not use the tables of this process directly.
    let mut writer = Writer::new(&reference.address(), 3);
    for _ in 0..4 {
        writer.write("table", 1, 1.0);
    }
    let mut stream = reference.stream().await;
    let items = stream.items(4).await;
    stream.confirm(keys(&items[..1]));
    eventually("the confirmation arrives", || writer.session.num_confirmed() == 1).await;
    drop(reference);
    let start = || {
        let replay = Replay::new(vec![uniform("table")], 4 << 20).unwrap();
        let host = Some("127.0.0.1".parse().unwrap());
        Server::start(
            &Handle::current(),
            replay,
            &ListenOptions { host, port: Some(port), ..ListenOptions::default() },
            None,
        )
    };
    let mut ours = None;
    eventually("the port is free", || {
        ours = start().ok();
        ours.is_some()
    })
    .await;
    writer.write("table", 2, 1.0);
    writer.flush().await.unwrap();
    let ours = ours.unwrap();
    let stored = ours.replay().tables()[0].with_table(Table::len);
    assert_eq!(stored, 4, "three items that were not confirmed, and a new one");
}

#[tokio::test]
async fn a_wait_has_a_reason_from_what_the_server_says_of_the_table() {
    let mut limited = config("limited");
    limited.rate_limiter.max_diff = 1.0;
    let mut server = Reference::start_with(vec![limited]).await;
    let mut writer = Writer::new(&server.address(), 1);
    writer.write("limited", 1, 1.0);
    let mut stream = server.stream().await;
    stream.items(1).await;
    assert!(reason(&writer, "not in").await.starts_with("1 item is not in its table yet (1 for table "));
    reason(&writer, "The server has not confirmed the items yet.").await;
    server.set_inserted(1);
    let limiter = "1 more sample until an insert may go; actors may be at most 1 item ahead";
    reason(&writer, &format!("insert into table `limited` waits: {limiter}")).await;
}

/// Waits until the error of a flush says `what`. Returns its text.
async fn reason(writer: &Writer, what: &str) -> String {
    let begun = Instant::now();
    loop {
        let deadline = Some(Instant::now() + Duration::from_millis(20));
        let text = writer.session.flush(0, deadline, |_| {}).await.unwrap_err().to_string();
        if text.contains(what) {
            return text;
        }
        assert!(begun.elapsed() < SOON, "{text}");
    }
}

#[tokio::test]
async fn chunks_of_many_items_are_sent_once() {
    let mut server = Reference::start(&["table"]).await;
    let mut writer = Writer::new(&server.address(), 10);
    for step in 1..=300_u64 {
        writer.write("table", step.min(10), 1.0);
    }
    let mut stream = server.stream().await;
    let mut seen: BTreeMap<u64, usize> = BTreeMap::new();
    let mut count = 0;
    while count < 300 {
        let message = stream.receive().await.unwrap();
        message.chunks.iter().for_each(|chunk| *seen.entry(chunk.chunk_key).or_default() += 1);
        count += message.items.len();
        stream.confirm(keys(&message.items));
    }
    assert_eq!(seen.len(), 300);
    assert!(seen.values().all(|&times| times == 1));
    writer.flush().await.unwrap();
    // Only those that the writer keeps are held by the server.
    writer.write("table", 1, 1.0);
    stream.confirm_next(1).await;
    assert_eq!(stream.held.len(), 10);
    writer.flush().await.unwrap();
}
