//! Which chunks are in the log, and which memory a decoded chunk keeps.

use crate::content::{decode, show, show_effect};
use crate::world::{chunks, put, put_slices, transition, transition_layout};
use bytes::Bytes;
use reverb_core::{
    Chunk, DType, Effect, EpisodeIds, Error, ItemView, Layout, Slice, StepRange, Trajectory, TrajectoryColumn,
};
use reverb_store::effects::{Begin, EffectDecoder, EffectEncoder, Record};
use reverb_store::log::Payload;
use std::sync::Arc;

/// A log of one table.
struct OneTable(EffectEncoder);

impl OneTable {
    fn new() -> Self {
        Self(EffectEncoder::new())
    }

    fn begin(&mut self) -> Vec<u8> {
        let mut payload = Payload::default();
        self.0.put_begin(&mut payload, &Begin { tables: vec![("replay", &[])], ledgers: &[] }).unwrap();
        payload.to_vec()
    }

    fn frame(&mut self, effects: &[Effect]) -> Vec<u8> {
        let mut payload = Payload::default();
        self.0.put_effects(&mut payload, 0, effects).unwrap();
        payload.to_vec()
    }
}

fn chunk_of(record: &Record) -> Arc<Chunk> {
    match record {
        Record::Effect { effect: Effect::Put(item), .. } => item.trajectory.chunks()[0].clone(),
        other => panic!("{}", show(other)),
    }
}

#[test]
fn an_epoch_has_a_chunk_once_and_needs_no_other_epoch() {
    let mut log = OneTable::new();
    let layout = transition_layout();
    let chunk = transition(1, &layout);
    log.begin();
    let first = log.frame(&[put(1, &chunk)]);
    let second = log.frame(&[put(2, &chunk)]);
    assert!(first.len() > 280 && second.len() < 60, "{} and {} bytes", first.len(), second.len());
    let begin = log.begin();
    let again = log.frame(&[put(3, &chunk)]);
    assert_eq!(again.len(), first.len(), "the chunk is logged again, and its layout");
    let mut decoder = EffectDecoder::new();
    decode(&mut decoder, begin).unwrap();
    let records = decode(&mut decoder, again).unwrap();
    assert_eq!(show(&records[0]), format!("0: {}", show_effect(&put(3, &chunk))));
    // The frame refers to a chunk that its own epoch does not have.
    let error = decode(&mut decoder, with_older_chunk(&second)).unwrap_err().to_string();
    assert!(error.contains("refers to chunk 1 before the newest of 1 chunks"), "{error}");
}

/// The same put of the chunk before the newest.
fn with_older_chunk(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let at = frame.len() - 3;
    // The chunk, the row, and that it is squeezed.
    assert_eq!(frame[at..], [0, 0, 0]);
    frame[at] = 1;
    frame
}

#[test]
fn logs_of_one_process_have_chunks_of_their_own() {
    let mut logs = [OneTable::new(), OneTable::new()];
    let mut decoders = [EffectDecoder::new(), EffectDecoder::new()];
    for (log, decoder) in logs.iter_mut().zip(&mut decoders) {
        decode(decoder, log.begin()).unwrap();
    }
    let chunks = chunks();
    for turn in 0..6 {
        for (index, (log, decoder)) in logs.iter_mut().zip(&mut decoders).enumerate() {
            let some = &chunks[turn..turn + 3 + index];
            let effects = [put(turn as u64, &chunks[turn + index]), put_slices(7, some)];
            let records = decode(decoder, log.frame(&effects)).unwrap();
            let expected = effects.iter().map(|effect| format!("0: {}", show_effect(effect)));
            assert!(records.iter().map(show).eq(expected), "log {index} in turn {turn}");
        }
    }
}

#[test]
fn chunks_before_the_end_of_a_window_are_forgotten() {
    let mut log = OneTable::new();
    let chunk = transition(1, &transition_layout());
    let mut decoder = EffectDecoder::new();
    let frames = [log.begin(), log.frame(&[put(1, &chunk)]), vec![2], log.frame(&[put(2, &chunk)])];
    let results = frames.map(|frame| decode(&mut decoder, frame).map(|records| records.len()));
    let error = results[3].as_ref().unwrap_err().to_string();
    assert!(results[..3].iter().all(Result::is_ok) && error.contains("of 0 chunks"), "{error}");
}

/// The memory of the chunks is never touched: they are not copied, and nothing reads them.
#[test]
fn chunks_are_logged_again_once_a_reader_had_to_keep_many_bytes() {
    let layout = Arc::new(Layout::new(1, [(DType::UInt8, smallvec::smallvec![64 << 20], 0)]).unwrap());
    let data = Bytes::from(vec![0; 64 << 20]);
    let chunk = |key| {
        let (episodes, steps) = (EpisodeIds::Same(key), StepRange::default());
        Arc::new(Chunk::new(key, episodes, steps, layout.clone(), data.clone()).unwrap())
    };
    let chunks: Vec<_> = (0..5).map(chunk).collect();
    let mut log = OneTable::new();
    log.begin();
    let mut size = |effect: Effect| {
        let mut payload = Payload::default();
        log.0.put_effects(&mut payload, 0, &[effect]).unwrap();
        (payload.len() / data.len(), payload.own()[..3].to_vec())
    };
    (0..3).for_each(|index| assert_eq!(size(put(1, &chunks[index])).0, 1));
    assert_eq!(size(put(2, &chunks[0])), (0, vec![4, 0, 16]));
    assert_eq!(size(put(3, &chunks[3])).0, 1);
    assert_eq!(size(put(4, &chunks[0])), (1, vec![4, 0, 2]), "the window was full");
    let slices = chunks.iter().map(|chunk| Slice { chunk: chunk.clone(), column: 0, offset: 0, length: 1 });
    let columns = vec![TrajectoryColumn { slices: slices.collect(), squeeze: false }];
    let trajectory = Trajectory::columns(columns).unwrap();
    let item = ItemView { key: 5, priority: 1.0, times_sampled: 0, inserted_at: 5, trajectory };
    assert_eq!(size(Effect::Put(item.clone())).0, 4, "an item does not end a window");
    assert_eq!(size(Effect::Put(item)), (5, vec![4, 0, 2]));
}

#[test]
fn effects_of_an_epoch_that_has_not_begun_are_refused() {
    let mut encoder = EffectEncoder::new();
    let effects = [Effect::Reset];
    let refusal = |encoder: &mut EffectEncoder, table| encoder.put_effects(&mut Payload::default(), table, &effects);
    assert!(matches!(refusal(&mut encoder, 0), Err(Error::Internal(_))));
    let tables = vec![("replay", &[][..])];
    encoder.put_begin(&mut Payload::default(), &Begin { tables, ledgers: &[] }).unwrap();
    assert!(refusal(&mut encoder, 0).is_ok() && refusal(&mut encoder, 1).is_err());
}

#[test]
fn a_small_chunk_keeps_no_frame_and_a_large_one_is_not_copied() {
    let mut log = OneTable::new();
    let layout = transition_layout();
    let mut decoder = EffectDecoder::new();
    decode(&mut decoder, log.begin()).unwrap();
    let effects: Vec<_> = (0..3).map(|key| put(key, &transition(key, &layout))).collect();
    let frame = Bytes::from(log.frame(&effects));
    let records = decode(&mut decoder, frame.clone()).unwrap();
    assert!(records.len() == 3 && frame.is_unique());
    let frame = Bytes::from(log.frame(&[put(9, &transition(9, &layout))]));
    let records = decode(&mut decoder, frame.clone()).unwrap();
    assert!(frame.as_ptr_range().contains(&chunk_of(&records[0]).data().as_ptr()));
}

#[test]
fn large_data_is_written_from_the_memory_of_its_chunk() {
    let mut log = OneTable::new();
    log.begin();
    let chunks = chunks();
    let large = chunks.iter().find(|chunk| !chunk.is_packed() && chunk.data().len() > 16 << 10).unwrap();
    let mut payload = Payload::default();
    log.0.put_effects(&mut payload, 0, &[put(1, large)]).unwrap();
    assert!(payload.own().len() < 200 && payload.len() > 16 << 10);
}
