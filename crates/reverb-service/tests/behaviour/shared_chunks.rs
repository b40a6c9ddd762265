//! Two tables that share chunks: the memory of each after the other has let go of them.

use crate::common::{chunk_of, config, here};
use crate::done;
use reverb_core::{DType, Layout, NewItem, SelectorKind, Table, TableConfig, Trajectory};
use reverb_service::maintenance::run_maintenance;
use reverb_service::{Replay, TableHandle};
use smallvec::smallvec;
use std::sync::Arc;
use std::time::{Duration, Instant};

const ROWS: u64 = 100;
const ROW_BYTES: usize = 64 << 10;

/// Tables of one service with its maintenance.
fn serve(tables: Vec<TableHandle>) -> Arc<Replay> {
    let replay = Replay::new(tables, 1 << 30).unwrap();
    for table in replay.tables() {
        tokio::spawn(run_maintenance(table.clone(), replay.clone()));
    }
    replay
}

/// Items of all rows of a new chunk, with keys from `first` on. Every tenth has a high priority.
fn rows(first: u64) -> Vec<NewItem> {
    let layout = Layout::new(ROWS as usize, [(DType::UInt8, smallvec![ROW_BYTES], 0)]).unwrap();
    let chunk = chunk_of(layout, vec![1; ROWS as usize * ROW_BYTES]);
    let item = |row: u64| NewItem {
        key: first + row,
        priority: if row.is_multiple_of(10) { 1.0 } else { 0.0 },
        takes_largest: false,
        others: None,
        times_sampled: 0,
        trajectory: Trajectory::rows(chunk.clone(), row as u32, 1).unwrap(),
    };
    (0..ROWS).map(item).collect()
}

async fn wait_for_bytes(table: &TableHandle, most: u64) {
    let begun = Instant::now();
    while table.with_table(Table::bytes) > most {
        assert!(begun.elapsed() < Duration::from_secs(120), "{} bytes", table.with_table(Table::bytes));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_limit_of_bytes_holds_after_the_table_that_owns_the_chunks_has_let_go_of_them() {
    const LIMIT: u64 = 8 << 20;
    let owner = TableHandle::new(Table::new(TableConfig { max_size: 300, ..config("owner") }).unwrap());
    let remover = SelectorKind::MinHeap;
    let best = TableConfig { remover, max_bytes: Some(LIMIT), ..config("best") };
    let replay = serve(vec![owner, TableHandle::new(Table::new(best).unwrap())]);
    let [owner, best] = replay.tables() else { panic!("two tables") };
    for batch in 0..40 {
        let items = rows(batch * ROWS);
        done!(owner.insert(items.clone(), here()));
        done!(best.insert(items, here()));
    }
    // The chunks that the owner still has are not copied.
    wait_for_bytes(best, 2 * LIMIT + 3 * ROWS * ROW_BYTES as u64).await;
    replay.close();
}

#[tokio::test]
async fn a_table_that_does_not_change_frees_the_chunks_that_a_reset_of_another_leaves() {
    let tables = ["owner", "other"].map(|name| TableHandle::new(Table::new(config(name)).unwrap()));
    let replay = serve(tables.to_vec());
    let [owner, other] = &tables;
    for batch in 0..4 {
        let items = rows(batch * ROWS);
        done!(owner.insert(items.clone(), here()));
        done!(other.insert(items, here()));
    }
    other.mutate(&[], &(0..4 * ROWS).filter(|key| !key.is_multiple_of(10)).collect::<Vec<_>>()).unwrap();
    let all = 4 * ROWS * ROW_BYTES as u64;
    assert_eq!(other.with_table(Table::bytes), all);
    owner.reset().unwrap();
    wait_for_bytes(other, all / 10).await;
    replay.close();
}
