//! Looks at items whose data is larger than what was sent for it.

mod common;
#[path = "../../reverb-store/tests/common/memory.rs"]
mod memory;

use common::{chunk, config, here, item};
use memory::peak_of;
use reverb_core::{Error, NewItem, Slice, Table, TableConfig, Trajectory, TrajectoryColumn};
use reverb_service::peek::peek;
use reverb_service::{Replay, TableHandle};

#[test]
fn a_look_at_an_item_of_many_slices_takes_no_memory_for_all_its_rows() {
    const ROWS: u32 = 1 << 17;
    let repeated = chunk(&Vec::from_iter(0..i64::from(ROWS)));
    let slices = (0..300).map(|_| Slice { chunk: repeated.clone(), column: 0, offset: 0, length: ROWS }).collect();
    let trajectory = Trajectory::columns(vec![TrajectoryColumn { slices, squeeze: false }]).unwrap();
    let large = NewItem { key: 7, priority: 1.0, takes_largest: false, others: None, times_sampled: 0, trajectory };
    let table = TableHandle::new(Table::new(TableConfig { ..config("table") }).unwrap());
    done!(table.insert(vec![large, item(8), item(9)], here()));
    let replay = Replay::new(vec![table], 1 << 20).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let newest = runtime.block_on(peek(&replay, "table", 10, true)).unwrap();
    let keys: Vec<u64> = newest.iter().map(|item| item.batch.info.keys()[0]).collect();
    assert_eq!(keys, [9, 8], "the items before the large one are shown");
    let (oldest, bytes) = peak_of(|| runtime.block_on(peek(&replay, "table", 10, false)));
    let Err(Error::ResourceExhausted(text)) = oldest else { panic!("the item of 300 MiB was copied") };
    assert!(text.contains("item 7 has 314572800 bytes"), "{text}");
    assert!(bytes < 1 << 20, "{bytes} bytes");
}
