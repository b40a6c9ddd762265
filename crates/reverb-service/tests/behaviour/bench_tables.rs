//! Tables for measurements: they are found by streams alone, and go with what holds them.

use reverb_core::Error;
use reverb_service::{Call, Replay};
use std::sync::Arc;

fn replay() -> Arc<Replay> {
    Replay::new(Vec::new(), 1 << 20).unwrap()
}

#[test]
fn table_is_found_and_shown_nowhere_until_it_is_dropped() {
    let replay = replay();
    let made = replay.bench.make().unwrap();
    let name = made.name().to_owned();
    assert_eq!(replay.served(&name).unwrap().name(), name);
    assert!(replay.table(&name).is_err());
    assert!(replay.tables().is_empty() && replay.status().is_empty());
    let held = replay.served(&name).unwrap();
    drop(made);
    assert!(matches!(replay.served(&name), Err(Error::TableNotFound { .. })));
    assert!(matches!(held.insert(Vec::new(), replay.this_process()), Call::Done(Err(Error::Cancelled(_)))));
}

#[test]
fn number_of_tables_is_limited() {
    let replay = replay();
    let mut made: Vec<_> = (0..4).map(|_| replay.bench.make().unwrap()).collect();
    assert!(matches!(replay.bench.make(), Err(Error::ResourceExhausted(_))));
    made.pop();
    replay.bench.make().unwrap();
}
