//! Frames that are damaged, or that another version has written.

use crate::content::{decode, show};
use crate::world::{chunks, ledgers, put, put_slices, small_effects};
use reverb_core::{
    Chunk, Codec, DType, Effect, EpisodeIds, Error, ItemView, Layout, Slice, StepRange, Trajectory, TrajectoryColumn,
};
use reverb_store::effects::{Begin, EffectDecoder, EffectEncoder};
use reverb_store::log::Payload;
use std::sync::Arc;

/// A frame that begins an epoch with every kind of record. Its chunks are small.
fn small_frame() -> Vec<u8> {
    let (mut encoder, mut payload) = (EffectEncoder::new(), Payload::default());
    let chunks: Vec<_> = chunks().into_iter().filter(|chunk| chunk.size_bytes() < 400).collect();
    let first = [put(1, &chunks[0])];
    encoder
        .put_begin(&mut payload, &Begin { tables: vec![("replay", &first), ("", &[])], ledgers: &ledgers() })
        .unwrap();
    let mut effects = small_effects();
    effects.push(put_slices(2, &chunks));
    effects.push(put(3, &chunks[1]));
    encoder.put_effects(&mut payload, 1, &effects).unwrap();
    payload.to_vec()
}

/// What a frame says, or its error, which is one of its bytes.
fn shown(frame: Vec<u8>) -> Result<Vec<String>, String> {
    match decode(&mut EffectDecoder::new(), frame) {
        Ok(records) => Ok(records.iter().map(show).collect()),
        Err(Error::DataLoss(text)) => Err(text),
        Err(error) => panic!("{error:?}"),
    }
}

#[test]
fn a_frame_that_was_cut_says_no_more_than_the_whole_one() {
    let frame = small_frame();
    let whole = shown(frame.clone()).unwrap();
    let mut errors = 0;
    for length in 0..frame.len() {
        match shown(frame[..length].to_vec()) {
            Ok(records) => assert_eq!(records, whole[..records.len()], "{length} bytes"),
            Err(_) => errors += 1,
        }
    }
    assert!(errors > frame.len() / 2, "{errors} errors in {} cuts", frame.len());
}

#[test]
fn no_damaged_byte_makes_the_decoder_panic() {
    let frame = small_frame();
    let whole = shown(frame.clone()).unwrap();
    let (mut errors, mut others) = (0, 0);
    for (at, flipped) in (0..frame.len()).flat_map(|at| [(at, 1), (at, 0x80), (at, 0xff)]) {
        let mut damaged = frame.clone();
        damaged[at] ^= flipped;
        match shown(damaged) {
            Ok(records) => others += usize::from(records != whole),
            Err(_) => errors += 1,
        }
    }
    assert!(
        errors > frame.len() / 2 && others > frame.len() / 2,
        "{errors} errors, and {others} frames that say other things"
    );
}

#[test]
fn what_a_later_version_writes_is_named() {
    let begin = |version| vec![1, version, 1, 0, 0];
    assert_eq!(shown(begin(1)).unwrap().len(), 1);
    let effect = |bytes: &[u8]| shown([&begin(1), bytes].concat()).unwrap_err();
    let later = "that is known; a later version of this package may have written it";
    let cases = [
        (shown(begin(2)).unwrap_err(), "2 is not a version of the format"),
        (effect(&[7]), "7 is not a kind of record"),
        (effect(&[4, 0, 27]), "27 is not a kind of record"),
        (effect(&[5, 8]), "8 is not a set of flags of a chunk"),
        (effect(&[5, 1, 0, 1, 9, 0]), "9 is not an arrangement of chunks"),
        (effect(&[5, 1, 0, 1, 0, 1, 99, 0]), "99 is not a dtype"),
        (effect(&[[&[4, 0, 18][..], &[0; 16], &[5]].concat()].concat()), "5 is not a reason of a removal"),
        (effect(&[4, 0, 24, 32]), "32 is not a set of options"),
    ];
    for (error, expected) in cases {
        assert!(error.contains(&format!("{expected} {later}")), "{error}");
    }
}

#[test]
fn errors_say_what_was_expected() {
    let begin = [1, 1, 1, 0, 0];
    let effect = |bytes: &[u8]| shown([&begin, bytes].concat()).unwrap_err();
    let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
    let cases = [
        (shown(vec![4, 0]).unwrap_err(), "before byte 1: expected the beginning of an epoch, got 4"),
        (effect(&[4, 1]), "the epoch has begun with 1 tables, and table 1 has effects"),
        (effect(&[16]), "expected a table before its effects"),
        (effect(&[&[4, 0][..], &begin, &[23]].concat()), "expected a table before its effects"),
        (effect(&[4, 0, 26, 1]), "expected a writer before the number of its item"),
        (effect(&[4, 0, 19, 1, 2]), "expected the key of an item in the next 8 bytes, but only 2 follow"),
        (
            effect(&[&[5, 1, 9, 1, 0, 1, 4, 0][..], &[0; 16], &[2, 0xfe, 0xff, 0xff, 0xff, 0x0f]].concat()),
            "a chunk has 2147483647 steps after step 1",
        ),
        (effect(&[5, 0, 9]), "a chunk has a layout that was not read before"),
        (shown([&[1, 1][..], &huge].concat()).unwrap_err(), "expected at most 0 tables in the rest of the frame"),
        (
            shown([&[1, 1, 1][..], &huge].concat()).unwrap_err(),
            "expected the name of a table in the next 18446744073709551615",
        ),
        (effect(&[&[4][..], &[0xff; 11]].concat()), "a table: invalid message: a number has more than 64 bits"),
    ];
    for (error, expected) in cases {
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn data_that_cannot_decode_to_its_size_is_refused_before_it_is_decoded() {
    let layout = Arc::new(Layout::new(1, [(DType::UInt8, smallvec::smallvec![1 << 22], 0)]).unwrap());
    for codec in [Codec::Lz4, Codec::Zstd] {
        let (episodes, steps) = (EpisodeIds::Same(1), StepRange::default());
        let chunk = Chunk::new(1, episodes, steps, layout.clone(), vec![0; 1 << 22].into()).unwrap();
        let chunk = Arc::new(chunk.compress(codec, &[]));
        let (mut encoder, mut payload) = (EffectEncoder::new(), Payload::default());
        encoder.put_begin(&mut payload, &Begin { tables: vec![("", &[])], ledgers: &[] }).unwrap();
        encoder.put_effects(&mut payload, 0, &[put(1, &chunk)]).unwrap();
        let frame = payload.to_vec();
        assert!(chunk.is_compressed() && shown(frame.clone()).is_ok(), "nothing can be compressed better");
        // Behind the number of rows: the codec, and one column.
        let rest = [codec as u8, 1, DType::UInt8 as u8];
        let rows = frame.windows(3).position(|bytes| bytes == rest).expect("it has a layout") - 1;
        let mut damaged = frame;
        damaged.splice(rows..=rows, [0xff, 0x07]);
        let error = shown(damaged).unwrap_err();
        let expected = format!("bytes of {} data cannot decode to {} bytes", codec.name(), 1023_usize << 22);
        assert!(error.contains(&expected), "{error}");
    }
}

#[test]
fn an_item_that_no_table_would_take_is_refused() {
    let layout = Arc::new(Layout::new(1, [(DType::UInt8, smallvec::smallvec![1 << 20], 0)]).unwrap());
    let chunk = Chunk::new(1, EpisodeIds::Same(1), StepRange::default(), layout, vec![0; 1 << 20].into()).unwrap();
    let slice = Slice { chunk: Arc::new(chunk), column: 0, offset: 0, length: 1 };
    let slices = std::iter::repeat_n(slice, 1 << 12).collect();
    let trajectory = Trajectory::columns(vec![TrajectoryColumn { slices, squeeze: false }]).unwrap();
    let item = ItemView { key: 7, priority: 1.0, times_sampled: 0, inserted_at: 1, trajectory };
    let (mut encoder, mut payload) = (EffectEncoder::new(), Payload::default());
    encoder.put_begin(&mut payload, &Begin { tables: vec![("", &[Effect::Put(item)])], ledgers: &[] }).unwrap();
    let error = shown(payload.to_vec()).unwrap_err();
    assert!(error.contains("item 7: it refers to 4294967296 bytes, more than the maximum of 4294967295"), "{error}");
}
