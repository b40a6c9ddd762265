//! What is decoded is what was encoded.

use crate::content::{decode, show, show_effect};
use crate::world::{chunks, ledgers, put, put_slices, small_effects, transition, transition_layout};
use proptest::prelude::*;
use reverb_core::{Chunk, Effect, Trajectory};
use reverb_store::effects::{Begin, EffectDecoder, EffectEncoder, Record};
use reverb_store::log::Payload;
use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

const TABLES: [&str; 3] = ["replay", "", "tänze"];

/// Puts the beginning of an epoch in which table 1 has first effects.
fn begin(encoder: &mut EffectEncoder, payload: &mut Payload, first: &[Effect]) {
    let tables = vec![(TABLES[0], &[][..]), (TABLES[1], first), (TABLES[2], &[])];
    encoder.put_begin(payload, &Begin { tables, ledgers: &ledgers() }).unwrap();
}

fn shown_begin(first: &[Effect]) -> Vec<String> {
    let begin = Record::Begin { tables: TABLES.map(String::from).into(), ledgers: ledgers() };
    let first = first.iter().map(|effect| format!("first of 1: {}", show_effect(effect)));
    std::iter::once(show(&begin)).chain(first).collect()
}

#[test]
fn effects_of_every_kind_come_back() {
    let (mut encoder, mut payload) = (EffectEncoder::new(), Payload::default());
    let chunks = chunks();
    let mut effects = small_effects();
    effects.push(put_slices(5, &chunks));
    effects.extend(chunks.iter().enumerate().map(|(key, chunk)| put(key as u64, chunk)));
    begin(&mut encoder, &mut payload, &effects);
    encoder.put_effects(&mut payload, 2, &effects).unwrap();
    encoder.put_effects(&mut payload, 0, &[]).unwrap();
    let mut expected = shown_begin(&effects);
    expected.extend(effects.iter().map(|effect| format!("2: {}", show_effect(effect))));
    let records = decode(&mut EffectDecoder::new(), payload.to_vec()).unwrap();
    assert_eq!(records.iter().map(show).collect::<Vec<_>>(), expected);
    assert!(chunks[10].is_packed() && chunks[11].is_packed(), "they stay packed");
}

#[test]
fn a_small_put_takes_few_bytes_beside_its_data() {
    let (mut encoder, mut payload) = (EffectEncoder::new(), Payload::default());
    begin(&mut encoder, &mut payload, &[]);
    let layout = transition_layout();
    encoder.put_effects(&mut payload, 0, &[put(0, &transition(0, &layout))]).unwrap();
    for key in 1..1000 {
        let before = payload.len();
        encoder.put_effects(&mut payload, 0, &[put(key, &transition(key, &layout))]).unwrap();
        assert!(payload.len() - before <= 280 + 60, "{} bytes", payload.len() - before);
    }
}

#[test]
fn layouts_that_share_a_slot_replace_each_other() {
    let (mut encoder, mut payload) = (EffectEncoder::new(), Payload::default());
    begin(&mut encoder, &mut payload, &[]);
    let layouts: Vec<_> = (0..600).map(|_| transition_layout()).collect();
    let effects: Vec<_> = (0..1200).map(|key| put(key, &transition(key, &layouts[key as usize / 2]))).collect();
    encoder.put_effects(&mut payload, 0, &effects).unwrap();
    let records = decode(&mut EffectDecoder::new(), payload.to_vec()).unwrap();
    let expected = effects.iter().map(|effect| format!("0: {}", show_effect(effect)));
    assert!(records[1..].iter().map(show).eq(expected));
    let chunk_of = |record: &Record| match record {
        Record::Effect { effect: Effect::Put(item), .. } => item.trajectory.chunks()[0].clone(),
        other => panic!("{}", show(other)),
    };
    let decoded: Vec<_> = records[1..].iter().map(|record| chunk_of(record).layout().clone()).collect();
    assert!(decoded.chunks(2).all(|two| Arc::ptr_eq(&two[0], &two[1])), "neighbours share a layout");
}

/// A step of a log.
#[derive(Debug, Clone)]
enum Step {
    NextFrame,
    NextEpoch(Vec<Drawn>),
    Effects(usize, Vec<Drawn>),
}

/// An effect, by indices into what [`crate::world`] makes.
#[derive(Debug, Clone)]
enum Drawn {
    Small(usize),
    Rows(usize),
    Slices(Vec<usize>),
}

impl Drawn {
    fn effect(&self, chunks: &[Arc<Chunk>], small: &[Effect]) -> Effect {
        match self {
            Self::Small(index) => small[index % small.len()].clone(),
            Self::Rows(index) => put((index % 5) as u64, &chunks[index % chunks.len()]),
            Self::Slices(indices) => {
                let chosen: Vec<_> = indices.iter().map(|index| chunks[index % chunks.len()].clone()).collect();
                put_slices(indices.len() as u64, &chosen)
            }
        }
    }
}

fn drawn() -> impl Strategy<Value = Vec<Drawn>> {
    let one = prop_oneof![
        any::<usize>().prop_map(Drawn::Small),
        any::<usize>().prop_map(Drawn::Rows),
        prop::collection::vec(any::<usize>(), 1..5).prop_map(Drawn::Slices),
    ];
    prop::collection::vec(one, 0..6)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => Just(Step::NextFrame),
        1 => drawn().prop_map(Step::NextEpoch),
        6 => (0..3_usize, drawn()).prop_map(|(table, effects)| Step::Effects(table, effects)),
    ];
    prop::collection::vec(step, 0..40)
}

/// The chunks of items, each once.
fn distinct_chunks<'a>(trajectories: impl Iterator<Item = &'a Trajectory>) -> usize {
    let mut addresses = HashSet::new();
    trajectories.for_each(|trajectory| addresses.extend(trajectory.chunks().iter().map(Arc::as_ptr)));
    addresses.len()
}

fn trajectory(effect: &Effect) -> Option<&Trajectory> {
    if let Effect::Put(item) = effect { Some(&item.trajectory) } else { None }
}

fn effect_of(record: &Record) -> Option<&Effect> {
    match record {
        Record::Begin { .. } => None,
        Record::First { effect, .. } | Record::Effect { effect, .. } => Some(effect),
    }
}

/// An epoch of a log: its frames, what they say, and the effects in them.
#[derive(Default)]
struct Epoch {
    frames: Vec<Payload>,
    shown: Vec<String>,
    effects: Vec<Effect>,
}

impl Epoch {
    fn begin(encoder: &mut EffectEncoder, first: Vec<Effect>) -> Self {
        let mut payload = Payload::default();
        begin(encoder, &mut payload, &first);
        Self { frames: vec![payload], shown: shown_begin(&first), effects: first }
    }

    fn check(&self, decoder: &mut EffectDecoder) {
        let mut records = Vec::new();
        self.frames.iter().for_each(|frame| records.extend(decode(decoder, frame.to_vec()).unwrap()));
        assert_eq!(records.iter().map(show).collect::<Vec<_>>(), self.shown);
        let decoded = distinct_chunks(records.iter().filter_map(effect_of).filter_map(trajectory));
        assert_eq!(decoded, distinct_chunks(self.effects.iter().filter_map(trajectory)), "each is in the epoch once");
    }
}

/// What all cases share. So the chunks of a case are in the logs of others.
static MADE: OnceLock<(Vec<Arc<Chunk>>, Vec<Effect>)> = OnceLock::new();

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// All epochs decode one after another, and each without the others.
    #[test]
    fn any_effects_in_any_frames_come_back(steps in steps()) {
        let made = MADE.get_or_init(|| (chunks(), small_effects()));
        let effects = |drawn: &[Drawn]| drawn.iter().map(|drawn| drawn.effect(&made.0, &made.1)).collect::<Vec<_>>();
        let mut encoder = EffectEncoder::new();
        let mut epochs = vec![Epoch::begin(&mut encoder, Vec::new())];
        for step in &steps {
            let epoch = epochs.last_mut().unwrap();
            match step {
                Step::NextFrame => epoch.frames.push(Payload::default()),
                Step::NextEpoch(first) => epochs.push(Epoch::begin(&mut encoder, effects(first))),
                Step::Effects(table, drawn) => {
                    let new = effects(drawn);
                    encoder.put_effects(epoch.frames.last_mut().unwrap(), *table, &new).unwrap();
                    epoch.shown.extend(new.iter().map(|effect| format!("{table}: {}", show_effect(effect))));
                    epoch.effects.extend(new);
                }
            }
        }
        let mut decoder = EffectDecoder::new();
        epochs.iter().for_each(|epoch| epoch.check(&mut decoder));
        epochs.iter().for_each(|epoch| epoch.check(&mut EffectDecoder::new()));
    }
}
