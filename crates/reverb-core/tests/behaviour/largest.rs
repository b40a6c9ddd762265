//! The largest priority of a table that is one of several.

use crate::common::{config, item};
use reverb_core::SelectorKind::{Fifo, MaxHeap, Uniform};
use reverb_core::{Error, LargestSeen, NewItem, NewPriority, Table};

const MAX: NewPriority = NewPriority { value: 0.0, takes_largest: true };

fn table(priorities: &[f64]) -> Table {
    let mut table = Table::new(config(Uniform, Fifo, 100)).unwrap();
    (1..).zip(priorities).for_each(|(key, &priority)| table.insert(item(key, priority), 0, &mut Vec::new()));
    table
}

fn new(given: NewPriority, others: LargestSeen) -> NewItem {
    let NewPriority { value, takes_largest } = given;
    NewItem { takes_largest, others: Some(Box::new(others)), ..item(99, value) }
}

/// The priority of a new item where other tables have seen this one.
fn enters(table: &mut Table, given: NewPriority, others: f64) -> f64 {
    let others = LargestSeen { priority: others, ..table.largest_seen() };
    let item = new(given, others);
    table.check_item(&item).unwrap();
    table.insert(item, 0, &mut Vec::new());
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
    // The item may have waited since before the reset.
    table.insert(new(MAX, before), 0, &mut Vec::new());
    assert_eq!(table.get(99).unwrap().priority, 1.0);
    assert_eq!(table.largest_seen().priority, 1.0);
}

#[test]
fn what_others_have_seen_is_refused_where_the_table_would_refuse_it() {
    let table = table(&[5.0]);
    for priority in [f64::NAN, f64::INFINITY] {
        let others = LargestSeen { priority, ..table.largest_seen() };
        assert_eq!(table.check_item(&new(MAX, others)).is_err(), table.check_priority(priority).is_err());
    }
    assert!(table.check_priority(f64::NAN).is_err());
}

#[test]
fn a_table_that_takes_no_largest_priority_still_refuses_it() {
    let table = Table::new(config(Uniform, MaxHeap, 100)).unwrap();
    let others = LargestSeen { priority: 0.25, ..table.largest_seen() };
    assert!(matches!(table.check_item(&new(MAX, others)), Err(Error::InvalidPriority(_))));
}
