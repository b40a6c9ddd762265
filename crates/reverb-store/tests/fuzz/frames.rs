//! Frames of effects, as damaged input of their decoder.

use crate::content::{decode, show, show_effect};
use crate::world::{chunks, ledgers, put, put_slices, small_effects};
use reverb_core::{Effect, Result};
use reverb_store::effects::{Begin, EffectDecoder, EffectEncoder, Record};
use reverb_store::log::Payload;

/// Number of bytes of a frame. Compressed chunks are decoded to check them, up to 32 768 bytes for each byte.
const FRAME_BYTES: usize = 512;

/// Decodes a frame. What is accepted must survive another round of encoding and decoding.
pub fn check(input: &[u8]) -> Result<()> {
    let frame = input[..input.len().min(FRAME_BYTES)].to_vec();
    let records = decode(&mut EffectDecoder::new(), frame)?;
    let again = decode(&mut EffectDecoder::new(), encode(&records)).unwrap();
    assert!(again.iter().map(shown).eq(records.iter().map(shown)));
    Ok(())
}

fn shown(record: &Record) -> String {
    match record {
        Record::Begin { .. } => show(record),
        Record::First { table, effect } | Record::Effect { table, effect } => {
            format!("{table}: {}", show_effect(effect))
        }
    }
}

fn encode(records: &[Record]) -> Vec<u8> {
    let (mut encoder, mut payload) = (EffectEncoder::new(), Payload::default());
    for record in records {
        match record {
            Record::Begin { tables, ledgers } => {
                let tables = tables.iter().map(|name| (&name[..], &[][..])).collect();
                encoder.put_begin(&mut payload, &Begin { tables, ledgers }).unwrap();
            }
            Record::First { table, effect } | Record::Effect { table, effect } => {
                encoder.put_effects(&mut payload, *table, std::slice::from_ref(effect)).unwrap();
            }
        }
    }
    payload.to_vec()
}

/// Frames with one effect each.
pub fn seeds() -> Vec<Vec<u8>> {
    let small: Vec<_> = chunks().into_iter().filter(|chunk| chunk.size_bytes() < FRAME_BYTES - 150).collect();
    let puts = small.iter().zip(0..).map(|(chunk, key)| put(key, chunk));
    let effects = puts.chain([put_slices(8, &small[..4])]).chain(small_effects());
    let frame = |effect: Effect| {
        let (mut encoder, mut payload) = (EffectEncoder::new(), Payload::default());
        let first = [effect];
        encoder.put_begin(&mut payload, &Begin { tables: vec![("replay", &first)], ledgers: &ledgers() }).unwrap();
        encoder.put_effects(&mut payload, 0, &first).unwrap();
        payload.to_vec()
    };
    effects.map(frame).collect()
}
