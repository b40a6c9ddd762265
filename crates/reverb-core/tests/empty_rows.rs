//! Rows without data: what readers need for them is limited.

#[path = "../../reverb-store/tests/common/memory.rs"]
mod memory;

use memory::peak_of;
use reverb_core::{Chunk, DType, EpisodeIds, Layout, Result, Slice, StepRange, Trajectory, TrajectoryColumn, UsedRows};
use smallvec::smallvec;
use std::sync::Arc;

const MOST: usize = 1 << 16;

fn chunk(rows: usize, columns: &[(DType, usize)]) -> Result<Arc<Chunk>> {
    let columns = columns.iter().map(|&(dtype, width)| (dtype, smallvec![width], 4));
    let layout = Layout::new(rows, columns).unwrap();
    let data = vec![0; layout.size_bytes];
    Chunk::new(1, EpisodeIds::Same(1), StepRange::default(), Arc::new(layout), data.into()).map(Arc::new)
}

#[test]
fn the_bytes_of_a_chunk_limit_its_rows() {
    let (nothing, text, byte) = ((DType::Float64, 0), (DType::String, 0), (DType::UInt8, 1));
    for columns in [&[nothing][..], &[text], &[nothing, text, nothing]] {
        assert!(chunk(MOST, columns).is_ok());
        for rows in [MOST + 1, u32::MAX as usize] {
            let error = chunk(rows, columns).unwrap_err().to_string();
            assert!(error.contains(&format!("{rows} rows, more than {MOST}")), "{error}");
        }
    }
    assert!(chunk(MOST * 10, &[nothing, byte, text]).is_ok());
}

#[test]
fn slices_that_repeat_rows_take_no_memory_for_each() {
    let empty = Arc::new(chunk(MOST, &[(DType::Float64, 0)]).unwrap().interleave().unwrap());
    let slice = |offset: u32| Slice { chunk: empty.clone(), column: 0, offset, length: MOST as u32 - offset };
    let slices = (0..400).map(|index| slice(index % 2)).collect();
    let trajectory = Trajectory::columns(vec![TrajectoryColumn { slices, squeeze: false }]).unwrap();
    let (rows, peak) = peak_of(|| {
        let mut used = UsedRows::default();
        used.add(&trajectory, |chunk| chunk.is_encoded());
        used.into_iter().map(|(_, rows)| rows).collect::<Vec<_>>()
    });
    assert!(rows.into_iter().eq([(0..MOST as u32).collect::<Vec<_>>()]));
    assert!(peak < 2 << 20, "{peak} bytes");
}
