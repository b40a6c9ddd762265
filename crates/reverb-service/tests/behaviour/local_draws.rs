//! Draws and inserts of this process beside the other tasks of the thread that makes them.

use crate::common::{self, chunk_of, here, items, keys, queue};
use crate::done;
use reverb_core::{Codec, DType, Layout, NewItem, Trajectory};
use reverb_service::decoding::{ITEMS_AT_ONCE, turn};
use reverb_service::local::{
    BatchRequest, LocalDraw, RowInsert, begin_insert, draw_items, gather_in_turn, is_gathered_at_once,
};
use reverb_service::{DrawRequest, Replay, TableHandle};
use smallvec::smallvec;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

const SOON: Duration = Duration::from_secs(20);

fn one_thread() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

fn request(count: usize) -> BatchRequest {
    BatchRequest { table: "queue".into(), draw: DrawRequest::exactly(count), squeeze_time: false }
}

/// A queue with one item of a compressed chunk, which is so large that it is decoded in turn.
fn queue_of_a_large_item() -> (TableHandle, Arc<Replay>) {
    let table = queue("queue", 10);
    let layout = Layout::new(2048, [(DType::UInt8, smallvec![1024], 0)]).unwrap();
    let chunk = Arc::new(chunk_of(layout, vec![1; 2 << 20]).compress(Codec::Lz4, &[]));
    let trajectory = Trajectory::rows(chunk, 0, 1).unwrap();
    done!(table.insert(vec![NewItem { trajectory, ..common::item(1) }], here()));
    let replay = Replay::new(vec![table.clone()], 8 << 20).unwrap();
    (table, replay)
}

/// Has the only thread of a runtime do `work` while this thread holds the lock of `table`. Other tasks must run.
fn beside_other_tasks(table: &TableHandle, runtime: &Runtime, work: impl FnOnce() + Send + 'static) {
    let finished = table.with_table(|_| {
        let (begins, begun) = channel();
        let task = runtime.spawn(async move {
            begins.send(()).unwrap();
            work();
        });
        begun.recv_timeout(SOON).unwrap();
        for _ in 0..3 {
            let (done, is_done) = channel();
            runtime.spawn(async move { done.send(()) });
            is_done.recv_timeout(SOON).expect("another task does not run");
        }
        task
    });
    runtime.block_on(finished).unwrap();
}

#[test]
fn other_tasks_run_while_a_task_draws_many_items() {
    let (table, runtime) = (queue("queue", 10), one_thread());
    let drawn = table.clone();
    beside_other_tasks(&table, &runtime, move || drop(draw_items(&drawn, &request(ITEMS_AT_ONCE + 1), here())));
}

#[test]
fn other_tasks_run_while_a_task_inserts_many_items() {
    let (table, runtime) = (queue("queue", 100_000), one_thread());
    let replay = Replay::new(vec![table.clone()], 8 << 20).unwrap();
    beside_other_tasks(&table, &runtime, move || {
        let chunk = common::chunk(&vec![1; ITEMS_AT_ONCE + 1]);
        let tables = vec![("queue".into(), 1.0.into())];
        let insert = RowInsert { chunk, more: Vec::new(), rows_per_item: 1, tables };
        assert_eq!(begin_insert(&replay, &insert, 1).unwrap().1.len(), ITEMS_AT_ONCE + 1);
    });
}

#[test]
fn a_draw_from_a_large_compressed_chunk_waits_for_its_turn() {
    let (_table, replay) = queue_of_a_large_item();
    one_thread().block_on(async {
        let room = turn(u64::MAX).await;
        let mut draw = LocalDraw::begin(&replay, &request(1), None, false).unwrap();
        let early = tokio::time::timeout(Duration::from_millis(200), draw.result()).await;
        assert!(early.is_err(), "the chunk was decoded without room");
        drop(room);
        assert_eq!(draw.result().await.unwrap().info.len(), 1);
        draw.received().unwrap();
    });
}

#[test]
fn a_draw_that_is_withdrawn_before_its_turn_goes_back() {
    let (table, replay) = queue_of_a_large_item();
    one_thread().block_on(async {
        let room = turn(u64::MAX).await;
        let draw = LocalDraw::begin(&replay, &request(1), None, false).unwrap();
        assert_eq!(table.with_table(|table| table.len()), 0);
        draw.give_back().await;
        assert_eq!(table.with_table(|table| table.len()), 1);

        let drawn = done!(draw_items(&table, &request(1), here()));
        assert_eq!(keys(&drawn), [1]);
        assert!(!is_gathered_at_once(&drawn));
        let one = request(1);
        let gathered = gather_in_turn(&table, drawn, &one);
        assert!(tokio::time::timeout(Duration::from_millis(50), gathered).await.is_err());
        assert_eq!(table.with_table(|table| table.len()), 1);
        drop(room);

        let drawn = done!(draw_items(&table, &request(1), here()));
        let (batch, lease) = gather_in_turn(&table, drawn, &one).await.unwrap();
        assert_eq!(batch.info.len(), 1);
        lease.expect("the table tracks its draws").received().unwrap();
        assert_eq!(table.with_table(|table| table.len()), 0);
    });
}

/// A task that is aborted before it has begun drops what it was given, and runs nothing.
#[test]
fn a_draw_that_is_withdrawn_before_its_task_begins_goes_back() {
    let table = queue("queue", 10);
    let layout = Layout::new(1, [(DType::UInt8, smallvec![1 << 20], 0)]).unwrap();
    let trajectory = Trajectory::rows(chunk_of(layout, vec![1; 1 << 20]), 0, 1).unwrap();
    done!(table.insert(vec![NewItem { trajectory, ..common::item(1) }], here()));
    let (compressed, many) = queue_of_a_large_item();
    let runtime = one_thread();
    for (table, replay) in [(table.clone(), Replay::new(vec![table], 8 << 20).unwrap()), (compressed, many)] {
        let (hold, held) = channel::<()>();
        let busy = runtime.spawn(async move { held.recv() });
        runtime.block_on(async {
            let draw = LocalDraw::begin(&replay, &request(1), None, false).unwrap();
            assert_eq!(table.with_table(|table| table.len()), 0);
            tokio::join!(draw.give_back(), async { drop(hold) });
            assert_eq!(table.with_table(|table| table.len()), 1);
        });
        let _ended = runtime.block_on(busy);
    }
}

#[test]
fn few_small_items_are_gathered_at_once() {
    let table = queue("queue", 10);
    done!(table.insert(items([1, 2]), here()));
    assert!(is_gathered_at_once(&done!(draw_items(&table, &request(2), here()))));
}
