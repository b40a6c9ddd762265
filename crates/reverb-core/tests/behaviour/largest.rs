//! The largest priority of a table that is one of several.

use crate::common::{config, item};
use reverb_core::SelectorKind::{Fifo, MaxHeap, Uniform};
use reverb_core::{LargestSeen, NewItem, NewPriority, Table};

const MAX: NewPriority = NewPriority { value: 0.0, takes_largest: true };

fn table(priorities: &[f64]) -> Table {
    let mut table = Table::new(config(Uniform, Fifo, 100)).unwrap();
    (1..).zip(priorities).for_each(|(key, &priority)| table.insert(item(key, priority), 0, &mut Vec::new()));
    table
}

/// The priority of a new item where other tables have seen this one.
fn enters(table: &mut Table, given: NewPriority, others: f64) -> f64 {
    let others = LargestSeen { priority: others, ..table.largest_seen() };
    let NewPriority { value: priority, takes_largest } = table.largest_of_all(given, others);
    table.insert(NewItem { takes_largest, ..item(99, priority) }, 0, &mut Vec::new());
    table.get(99).unwrap().priority
}

#[test]
fn an_item_gets_the_largest_of_all_tables_or_its_own() {
    assert_eq!(enters(&mut table(&[2.0]), MAX, 5.0), 5.0);
    assert_eq!(enters(&mut table(&[7.0]), MAX, 5.0), 7.0);
    assert_eq!(enters(&mut table(&[2.0]), NewPriority { value: 9.0, ..MAX }, 5.0), 9.0);
    assert_eq!(enters(&mut table(&[2.0]), 3.0.into(), 5.0), 3.0, "it does not take the largest");
}

#[test]
fn a_table_that_has_seen_none_says_1_only_if_others_have_seen_none() {
    assert_eq!(enters(&mut table(&[]), MAX, 0.25), 0.25);
    assert_eq!(enters(&mut table(&[0.5]), MAX, 0.25), 0.5);
    assert_eq!(enters(&mut table(&[]), MAX, 0.0), 1.0);
    assert_eq!(table(&[]).largest_seen().priority, 0.0);
}

#[test]
fn what_others_had_seen_before_a_reset_does_not_count() {
    let mut table = table(&[5.0]);
    let before = table.largest_seen();
    drop(table.reset());
    assert!(table.largest_seen().epoch > before.epoch && table.largest_seen().priority == 0.0);
    assert_eq!(table.largest_of_all(MAX, before), MAX);
}

#[test]
fn a_table_that_takes_no_largest_priority_still_refuses_it() {
    let table = Table::new(config(Uniform, MaxHeap, 100)).unwrap();
    let others = LargestSeen { priority: 0.25, ..table.largest_seen() };
    assert!(table.largest_of_all(MAX, others).takes_largest);
}
