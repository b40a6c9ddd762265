//! The memory that writers and their server use over time. Clients, writers and the server share one process, so one
//! count covers all of them.

mod common;
#[path = "../../reverb-store/tests/common/memory.rs"]
#[allow(dead_code, reason = "not all of it is used")]
mod memory;

use common::{SOON, addresses, config, queue, server};
use memory::allocated_bytes;
use reverb_core::writer::{ChunkCompression, ColumnOptions, ColumnValue, StepBuffer, StreamChunks, Value, WriterItem};
use reverb_core::{DType, KeySlots, Table, TableConfig};
use reverb_net::client::Client;
use reverb_net::client::writer::{Session, SessionOptions};
use reverb_net::server::Server;
use reverb_service::TableHandle;
use std::sync::Arc;
use std::time::Instant;
use tokio::runtime::Handle;
use tokio::sync::Mutex;

/// Number of items whose memory is measured, and the number of items before that.
const ITEMS: u64 = 20_000;
const WARM_UP: u64 = 2000;
/// Number of items that are written between two waits.
const BATCH: u64 = 100;
/// Bytes that may be kept for each of the measured items: far below the size of one number.
const BYTES_PER_ITEM: usize = 3;

/// Only one measurement may run at a time.
static MEASURING: Mutex<()> = Mutex::const_new(());

/// Returns by how many bytes memory grows in a measurement, the least of three: buffers of a connection grow once now and
/// then, and what is kept for each item grows each time.
async fn growth(mut work: impl AsyncFnMut()) -> usize {
    let mut least = usize::MAX;
    for _ in 0..3 {
        let before = allocated_bytes();
        work().await;
        least = least.min(allocated_bytes().saturating_sub(before));
        if least < ITEMS as usize * BYTES_PER_ITEM {
            break;
        }
    }
    least
}

/// A table that keeps ten items, so that its memory does not grow.
fn flowing() -> TableHandle {
    TableHandle::new(Table::new(TableConfig { max_size: 10, ..config("flows") }).unwrap())
}

/// A writer whose chunks have one step each.
struct Writer {
    steps: StepBuffer,
    session: Session,
}

impl Writer {
    fn new(address: &str) -> Self {
        let dropped = StreamChunks::default();
        let options = ColumnOptions { num_keep_alive_refs: 1, max_chunk_length: Some(1) };
        let steps = StepBuffer::new(options, ChunkCompression::default(), dropped.clone()).unwrap();
        let client = Arc::new(Client::new(address));
        Self { steps, session: Session::new(client, SessionOptions::default(), dropped) }
    }

    fn append(&mut self) {
        let value = Value { dtype: DType::Int64, shape: &[], bytes: &7_i64.to_le_bytes() };
        self.steps.append(&[ColumnValue { column: 0, value, opens_rows: false }], false).unwrap();
    }

    /// Writes items of one step each, and waits now and then until all but `but_last` items are confirmed, so that
    /// queues stay short. The last item carries the news of the chunks that were dropped before it.
    async fn write(&mut self, table: &str, items: u64, but_last: usize) {
        for _ in 0..items / BATCH {
            self.write_once(table, BATCH, but_last).await;
        }
        self.write_once(table, 1, but_last).await;
    }

    async fn write_once(&mut self, table: &str, items: u64, but_last: usize) {
        let table: Arc<str> = table.into();
        for _ in 0..items {
            self.append();
            let row = self.steps.num_rows() - 1;
            let column = self.steps.select(0, row..row + 1, false).unwrap();
            let item =
                WriterItem::new(table.clone(), 1.0, [column].into(), self.steps.writer(), KeySlots::ALL, None).unwrap();
            self.session.push(&Handle::current(), [item]).unwrap();
            self.session.take_room(0, None, |_| {}).await.unwrap();
        }
        self.session.flush(but_last, Some(Instant::now() + SOON), |_| {}).await.unwrap();
    }
}

fn roads(server: &Server) -> Vec<String> {
    [format!("localhost:{}", server.port())].into_iter().chain(addresses(server)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn confirmed_items_behind_a_blocked_one_take_no_memory() {
    let _turn = MEASURING.lock().await;
    let server = server(vec![queue("blocked", 1), flowing()]);
    for road in roads(&server) {
        let mut writer = Writer::new(&road);
        writer.write_once("blocked", 4, 4).await;
        writer.write("flows", WARM_UP, 4).await;
        let grown = growth(async || writer.write("flows", ITEMS, 4).await).await;
        assert!(grown < ITEMS as usize * BYTES_PER_ITEM, "{road}: {ITEMS} confirmed items hold {grown} bytes");
        assert!((3..=4).contains(&writer.session.num_pending()), "items of the blocked table are unconfirmed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_that_are_gone_take_no_memory() {
    let _turn = MEASURING.lock().await;
    let server = server(vec![flowing()]);
    for road in roads(&server) {
        let mut writer = Writer::new(&road);
        writer.write("flows", WARM_UP, 0).await;
        let written = growth(async || writer.write("flows", ITEMS, 0).await).await;
        assert!(written < ITEMS as usize * BYTES_PER_ITEM, "{road}: {ITEMS} written chunks hold {written} bytes");
        let unused = growth(async || (0..ITEMS).for_each(|_| writer.append())).await;
        assert!(unused < ITEMS as usize * BYTES_PER_ITEM, "{road}: {ITEMS} chunks without items hold {unused} bytes");
    }
}
