//! Records by what they say: chunks by their content, and floats by their bits.

use bytes::Bytes;
use reverb_core::{Chunk, Counters, Effect, ItemView, Slice, Trajectory, TrajectoryColumn};
use reverb_store::effects::{EffectDecoder, Record};

/// What a record says.
pub fn show(record: &Record) -> String {
    match record {
        Record::Begin { tables, ledgers } => format!("begin {tables:?} {ledgers:?}"),
        Record::First { table, effect } => format!("first of {table}: {}", show_effect(effect)),
        Record::Effect { table, effect } => format!("{table}: {}", show_effect(effect)),
    }
}

/// What an effect says. A chunk shows its content as it is held, whether it was packed or not.
pub fn show_effect(effect: &Effect) -> String {
    match effect {
        Effect::Put(ItemView { key, priority, times_sampled, inserted_at, trajectory }) => {
            let priority = priority.to_bits();
            format!("put {key} {priority:x} {times_sampled} {inserted_at} {}", show_trajectory(trajectory))
        }
        Effect::Priorities(updates) => {
            let updates = updates.iter().map(|(key, priority)| format!("{key} {:x}", priority.to_bits()));
            format!("priorities {:?}", updates.collect::<Vec<_>>())
        }
        Effect::FlightPriority { key, inserted_at, priority } => {
            format!("flight priority {key} {inserted_at} {:x}", priority.to_bits())
        }
        Effect::Counters(counters @ Counters { largest_priority, .. }) => {
            format!("{counters:?} {:x}", largest_priority.to_bits())
        }
        other => format!("{other:?}"),
    }
}

fn show_trajectory(trajectory: &Trajectory) -> String {
    match trajectory {
        Trajectory::Rows { chunk, offset, length, squeeze } => {
            format!("rows {offset} {length} {squeeze} of {}", show_chunk(chunk))
        }
        Trajectory::Columns(columns) => {
            let column = |TrajectoryColumn { slices, squeeze }: &TrajectoryColumn| {
                let slice = |Slice { chunk, column, offset, length }: &Slice| {
                    format!("{column} {offset} {length} of {}", show_chunk(chunk))
                };
                format!("{squeeze} {:?}", slices.iter().map(slice).collect::<Vec<_>>())
            };
            format!("columns {:?}", columns.iter().map(column).collect::<Vec<_>>())
        }
    }
}

fn show_chunk(chunk: &Chunk) -> String {
    let mut scratch = Vec::new();
    let held = if chunk.is_packed() { chunk.view(&mut scratch).unwrap().data() } else { chunk.data() };
    let Chunk { key, episodes, steps, .. } = chunk;
    let hash = twox_hash::XxHash3_128::oneshot(held);
    format!("{key} {episodes:?} {steps:?} {:?} {} {hash:x}", chunk.layout(), held.len())
}

/// Decodes a frame.
pub fn decode(decoder: &mut EffectDecoder, frame: impl Into<Bytes>) -> reverb_core::Result<Vec<Record>> {
    let mut records = Vec::new();
    decoder.decode(frame.into(), &mut |record| {
        records.push(record);
        Ok(())
    })?;
    Ok(records)
}
