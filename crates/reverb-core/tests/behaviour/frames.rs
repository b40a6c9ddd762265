//! Frames against a plain model: a list of all frames that were added.

use bytes::Bytes;
use proptest::prelude::*;
use reverb_core::frames::{FrameId, Frames};
use reverb_core::{Buffer, Chunk, DType, EpisodeIds, Layout, Shape, StepRange};
use std::sync::Arc;

fn chunk(numbers: &[i64]) -> Chunk {
    let shape = Shape::from_slice(&[2]);
    let columns = [(DType::Int64, Shape::new(), 0), (DType::UInt8, shape, 0)];
    let layout = Arc::new(Layout::new(numbers.len(), columns).unwrap());
    let mut data: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    data.extend(numbers.iter().flat_map(|&number| [number as u8, number as u8 ^ 255]));
    Chunk::new(1, EpisodeIds::PerRow(1), StepRange::default(), layout, Bytes::from(data)).unwrap()
}

fn frames(segments: u64, length: u64, exponent: Option<f64>) -> Frames {
    let columns = vec![(DType::Int64, Shape::new()), (DType::UInt8, Shape::from_slice(&[2]))];
    Frames::new(columns, segments, length, exponent, Some(1)).unwrap()
}

fn numbers(buffer: &Buffer, count: usize) -> Vec<i64> {
    // SAFETY: a gathered buffer is written completely, and its first column has `count` numbers.
    unsafe { std::slice::from_raw_parts(buffer.as_ptr().cast::<i64>(), count) }.to_vec()
}

proptest! {
    #[test]
    fn gathered_sequences_are_what_was_added(
        (segments, length) in (1_u64..4, 1_u64..40),
        adds in prop::collection::vec(1_usize..60, 1..8),
        steps in 1_u64..6,
    ) {
        let mut frames = frames(segments, length, None);
        let mut added: i64 = 0;
        for count in adds {
            let rows: Vec<i64> = (0..count as i64 * segments as i64).map(|row| {
                (added + row / segments as i64) * 10 + row % segments as i64
            }).collect();
            frames.add(&chunk(&rows), &[1.0]).unwrap();
            added += count as i64;
        }
        prop_assert_eq!(frames.added(), added as u64);
        prop_assert_eq!(frames.oldest(), (added as u64).saturating_sub(length));
        let stored = frames.added() - frames.oldest();
        let drawn = frames.draw(20, steps);
        if stored < steps {
            prop_assert!(drawn.is_err());
            return Ok(());
        }
        let (starts, probabilities) = drawn.unwrap();
        let (_, buffer) = frames.gather(&starts, steps, &[20, steps as usize]).unwrap();
        for (start, sequence) in starts.iter().zip(numbers(&buffer, 20 * steps as usize).chunks(steps as usize)) {
            prop_assert!(start.id >= frames.oldest() && start.id + steps <= frames.added());
            for (step, number) in sequence.iter().enumerate() {
                prop_assert_eq!(*number, (start.id as i64 + step as i64) * 10 + i64::from(start.segment));
            }
        }
        let expected = 1.0 / ((stored - steps + 1) * segments) as f64;
        prop_assert!(probabilities.iter().all(|p| (p - expected).abs() < 1e-12));
    }
}

#[test]
fn priorities_follow_rows_that_are_overwritten() {
    let mut frames = frames(1, 4, Some(1.0));
    frames.add(&chunk(&[0, 1, 2, 3]), &[1.0, 1.0, 1.0, 1.0]).unwrap();
    frames.add(&chunk(&[4, 5]), &[0.0]).unwrap();
    let (starts, probabilities) = frames.draw(50, 1).unwrap();
    assert!(starts.iter().all(|start| [2, 3].contains(&start.id)), "{starts:?}");
    assert!(probabilities.iter().all(|&p| p == 0.5));
    // Frame 0 was overwritten; its row belongs to frame 4.
    frames.update_priorities(&[FrameId { segment: 0, id: 0 }], &[9.0]).unwrap();
    assert!(frames.draw(50, 1).unwrap().0.iter().all(|start| start.id != 4));
}

#[test]
fn a_clear_with_a_new_first_id_forgets_all_and_counts_on() {
    let mut frames = frames(1, 4, Some(1.0));
    frames.add(&chunk(&[0, 1, 2, 3, 4]), &[1.0]).unwrap();
    frames.clear(7);
    assert!(frames.draw(1, 1).is_err());
    assert_eq!(frames.add(&chunk(&[7, 8]), &[1.0]), Ok(7));
    assert_eq!((frames.oldest(), frames.added()), (7, 9));
    assert!(frames.draw(20, 2).unwrap().0.iter().all(|start| start.id == 7));
}

#[test]
fn nonsense_is_refused() {
    let mut frames = frames(2, 4, Some(1.0));
    assert!(frames.add(&chunk(&[1, 2, 3]), &[1.0]).is_err(), "three rows for two segments");
    assert!(frames.add(&chunk(&[1, 2]), &[1.0, 2.0, 3.0]).is_err(), "three priorities for two rows");
    assert!(frames.add(&chunk(&[1, 2]), &[f64::NAN]).is_err());
    assert_eq!(frames.added(), 0, "what was refused has changed nothing");
    assert!(frames.gather(&[FrameId { segment: 2, id: 0 }], 1, &[1]).is_err(), "no such segment");
    assert!(frames.gather(&[FrameId { segment: 0, id: 0 }], 1, &[2]).is_err(), "the shape has two frames");
    for (segments, length) in [(0, 1), (1, 0), (u64::MAX, 2), (1 << 20, 1 << 20)] {
        assert!(Frames::new(vec![(DType::UInt8, Shape::new())], segments, length, None, None).is_err());
    }
    assert!(Frames::new(vec![(DType::String, Shape::new())], 1, 1, None, None).is_err());
}
