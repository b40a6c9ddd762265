//! What the documentation has a remedy for: `tests/house/remedies.py` makes its table of these sentences.

use super::check;
use super::states::Limited;
use super::verdicts::read;
use reverb_observe::verdict::judge;

#[test]
fn remedies_are_for_what_is_said() {
    check("remedies.txt", |lines| match lines {
        [limiter, counts, request] if !limiter.starts_with("table ") => vec![waits_for(limiter, counts, request)],
        _ => vec![trouble(lines)],
    });
}

/// What a request waits for: `insert 8` or `sample 256`.
fn waits_for(limiter: &str, counts: &str, request: &str) -> String {
    let limited = Limited::new("replay", limiter, counts);
    let (operation, batch) = request.split_once(' ').unwrap();
    let batch = batch.parse().unwrap();
    match operation {
        "insert" => limited.view().insert_waits_for(batch),
        "sample" => limited.view().sample_waits_for(batch),
        _ => panic!("not a request: {request}"),
    }
}

/// What is wrong with a server: beside its tables, or else with that where the wait begins.
fn trouble(lines: &[&str]) -> String {
    let state = read(lines);
    let verdict = judge(&state);
    let of_first = || verdict.tables.first().map(|&table| verdict.of_tables[table].cause.clone());
    verdict.troubles.first().map(ToString::to_string).or_else(of_first).expect("something is wrong")
}
