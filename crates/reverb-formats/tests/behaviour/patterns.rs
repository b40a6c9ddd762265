//! Pattern configurations that the reference serialised, its error texts, and the items that it made.

use crate::steps::{Made, Value, Writer};
use reverb_formats::patterns::evaluator_from_bytes;

/// Lines of a serialised configuration in hex, a tab, and the error text of the reference, empty if it accepted the
/// configuration. Made with dm-reverb 0.14 from random configurations, most of them invalid.
const CONFIGS: &str = include_str!("../../../../tests/data/pattern_configs.tsv");

fn from_hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn configs_are_refused_with_the_words_of_the_reference() {
    let mut refused = 0;
    for line in CONFIGS.lines() {
        let (config, complaint) = line.split_once('\t').unwrap();
        let said = evaluator_from_bytes([from_hex(config)]).err().map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(said, complaint, "{config}");
        refused += usize::from(!complaint.is_empty());
    }
    assert!(refused > 80 && refused < CONFIGS.lines().count());
}

#[test]
fn the_position_of_a_bad_config_is_named() {
    let good = from_hex(CONFIGS.lines().find_map(|line| line.strip_suffix('\t')).unwrap());
    let said = |bad: &[u8]| evaluator_from_bytes([&good[..], bad]).unwrap_err().to_string();
    assert_eq!(said(&[]), "Invalid configuration at position 1: `flat` must not be empty.");
    assert!(said(&[0xff]).starts_with("Invalid configuration at position 1: it does not parse: "), "{}", said(&[0xff]));
    let none: [&[u8]; 0] = [];
    assert_eq!(evaluator_from_bytes(none).unwrap_err().to_string(), "At least one config must be provided.");
}

#[test]
fn a_config_without_priority_is_refused() {
    // One node (stop -1) and the table `t`.
    let config = from_hex("0a0b18ffffffffffffffffff011a0174");
    let said = evaluator_from_bytes([config]).unwrap_err().to_string();
    assert_eq!(said, "Invalid configuration at position 0: `priority` must be specified.");
}

/// Lines of configurations in hex, a script, and the items that dm-reverb 0.14 made of it, separated by tabs. `a1,_,3`
/// appends a step of three columns, the second of which is absent; `p` instead of `a` leaves the step open; `E` ends
/// the episode; `e` ends it and keeps the rows. The columns of an item are joined by `;`, squeezed columns begin with
/// `s`, and the priority follows `@`.
const RUNS: &str = include_str!("../../../../tests/data/pattern_runs.tsv");

fn run(configs: &str, script: &str) -> Vec<String> {
    let mut writer = Writer::new(evaluator_from_bytes(configs.split(' ').map(from_hex)).unwrap());
    for word in script.split(' ') {
        match word.split_at(1) {
            ("E" | "e", _) => writer.end_episode(word == "E").unwrap(),
            (kind, row) => {
                let row = row.split(',').map(|value| value.parse::<i64>().ok().map(Value::from)).collect();
                writer.append(row, kind == "p").unwrap();
            }
        }
    }
    writer.items.iter().map(item_text).collect()
}

fn item_text(item: &Made) -> String {
    let column = |(values, &squeezed): (&Vec<i64>, _)| {
        let values: Vec<_> = values.iter().map(i64::to_string).collect();
        format!("{}{}", if squeezed { "s" } else { "" }, values.join(","))
    };
    let columns: Vec<_> = item.columns.iter().zip(&item.squeezed).map(column).collect();
    format!("{}@{:.9}", columns.join(";"), item.priority)
}

/// Rounds the priority of a recorded item to the digits that `run` prints.
fn rounded(item: &str) -> String {
    let (columns, priority) = item.split_once('@').unwrap();
    format!("{columns}@{:.9}", priority.parse::<f64>().unwrap())
}

#[test]
fn patterns_make_the_items_that_the_reference_makes() {
    let mut made = 0;
    for line in RUNS.lines() {
        let [configs, script, items] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let expected: Vec<_> = items.split_whitespace().map(rounded).collect();
        assert_eq!(run(configs, script), expected, "{configs} {script}");
        made += expected.len();
    }
    assert!(made > 500, "{made}");
}
