//! Items that refer to more bytes than a batch can have: they are refused before they enter a table.

use crate::common::{here, strings, uniform};
use reverb_core::{Chunk, Codec, Error, MAX_ITEM_BYTES, NewItem, Slice, Table, Trajectory, TrajectoryColumn};
use reverb_service::write_queue::{Done, WriteQueue};
use reverb_service::{Arrival, InsertGroup, Replay};
use std::sync::Arc;

const TEXT: usize = 1 << 20;

/// An item that names one long string of a chunk many times. All other strings of the chunk are empty.
fn item(chunk: &Arc<Chunk>, times: usize) -> NewItem {
    let slice = Slice { chunk: chunk.clone(), column: 0, offset: 0, length: 1 };
    let columns = vec![TrajectoryColumn { slices: vec![slice; times].into(), squeeze: false }];
    NewItem {
        key: 1,
        priority: 1.0,
        takes_largest: false,
        others: None,
        times_sampled: 0,
        trajectory: Trajectory::columns(columns).unwrap(),
    }
}

fn chunks() -> [Arc<Chunk>; 2] {
    let text = "a".repeat(TEXT);
    let mut texts = vec![""; 100_000];
    texts[0] = &text;
    let plain = strings(&texts);
    let encoded = plain.compress(Codec::Lz4, &[]);
    assert!(encoded.is_compressed());
    [plain, Arc::new(encoded)]
}

#[test]
fn strings_count_with_their_own_sizes_on_each_road() {
    let size = |times: usize| times * (TEXT + 4) + 4;
    let most = (MAX_ITEM_BYTES as usize - 4) / (TEXT + 4);
    for chunk in chunks() {
        for (times, is_too_large) in [(most, false), (most + 1, true)] {
            let tables = [uniform("insert"), uniform("queue")];
            let replay = Replay::new(tables.to_vec(), 1 << 30).unwrap();
            let group = InsertGroup { table: tables[0].clone(), items: vec![item(&chunk, times)] };
            let inserted = replay.insert(vec![group], here()).map(|_| ());
            let (mut queue, mut done) = (WriteQueue::new(here(), None), Done::new());
            let arrival = Arrival { sequence: 1, item: item(&chunk, times), is_validated: true };
            queue.push_all(&tables[1], vec![arrival], &mut done);
            let queued = done.pop().unwrap().1;
            for (table, result) in tables.iter().zip([inserted, queued]) {
                match result {
                    Ok(()) => assert!(!is_too_large),
                    Err(Error::ItemTooLarge { max_bytes: MAX_ITEM_BYTES, size_bytes, .. }) => {
                        assert!(is_too_large && size_bytes == size(times) as u64);
                    }
                    Err(error) => panic!("{error}"),
                }
                assert_eq!(table.with_table(Table::len), usize::from(!is_too_large));
            }
        }
    }
}
