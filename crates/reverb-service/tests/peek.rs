//! Looks at items of large tables.

mod common;
#[path = "../../reverb-store/tests/common/memory.rs"]
mod memory;

use common::{chunk, config, here};
use memory::peak_of;
use reverb_core::{NewItem, SelectorKind, Table, TableConfig, Trajectory};
use reverb_service::peek::peek;
use reverb_service::{Replay, TableHandle};

const ITEMS: u32 = 200_000;

#[test]
fn a_look_needs_no_memory_for_items_that_it_does_not_show() {
    let chunk = chunk(&Vec::from_iter(0..i64::from(ITEMS)));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    for (sampler, remover) in [
        (SelectorKind::Uniform, SelectorKind::Fifo),
        (SelectorKind::Lifo, SelectorKind::Uniform),
        (SelectorKind::Uniform, SelectorKind::MinHeap),
    ] {
        let table = Table::new(TableConfig { sampler, remover, ..config("table") }).unwrap();
        let table = TableHandle::new(table);
        let items = (0..ITEMS).map(|row| NewItem {
            key: u64::from(row),
            priority: 1.0,
            takes_largest: false,
            others: None,
            times_sampled: 0,
            trajectory: Trajectory::rows(chunk.clone(), row, 1).unwrap(),
        });
        done!(table.insert(items.collect(), here()));
        let replay = Replay::new(vec![table], 1 << 20).unwrap();
        // Buffers and threads that stay.
        runtime.block_on(peek(&replay, "table", 10, false)).unwrap();
        for newest in [false, true] {
            let (peeked, bytes) = peak_of(|| runtime.block_on(peek(&replay, "table", 10, newest)).unwrap());
            let mut keys: Vec<u32> = peeked.iter().map(|item| item.batch.info.keys()[0] as u32).collect();
            if newest {
                keys.iter_mut().for_each(|key| *key = ITEMS - 1 - *key);
            }
            assert_eq!(keys, Vec::from_iter(0..10));
            assert!(bytes < 64 << 10, "{bytes} bytes for ten items of {ITEMS}");
        }
    }
}
