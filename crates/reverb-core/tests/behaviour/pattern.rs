//! The steps at which patterns create items, and the rows of the items.

use crate::steps::{Row, Rows, Value, Writer};
use proptest::prelude::*;
use reverb_core::DType;
use reverb_core::pattern::{
    Comparison, ConditionConfig, Evaluator, Left, NodeConfig, Pass, Pattern, PatternConfig, PriorityFn, StepId,
};

const A: i32 = 0;
const B: i32 = 1;

/// A node in Python's notation: `-2`, `-3:`, `-3:-1`, `-5::2`.
fn node(source: i32, key: &str) -> NodeConfig {
    let parts: Vec<Option<i32>> = key.split(':').map(|part| part.parse().ok()).collect();
    match parts[..] {
        [stop] => NodeConfig { source, stop, ..NodeConfig::default() },
        [start, stop] => NodeConfig { source, start, stop, step: None },
        [start, stop, step] => NodeConfig { source, start, stop, step },
        _ => panic!("no key: {key}"),
    }
}

fn pattern(nodes: &[NodeConfig], conditions: &[ConditionConfig]) -> PatternConfig {
    PatternConfig {
        nodes: nodes.into(),
        table: "t".into(),
        priority: Some(PriorityFn::Constant(1.0)),
        conditions: conditions.into(),
    }
}

fn when(left: Left, comparison: Comparison) -> ConditionConfig {
    ConditionConfig { left: Some(left), comparison: Some(comparison), inverse: false }
}

fn unless(left: Left, comparison: Comparison) -> ConditionConfig {
    ConditionConfig { inverse: true, ..when(left, comparison) }
}

fn end() -> ConditionConfig {
    when(Left::IsEndEpisode, Comparison::Eq(1))
}

/// Runs a script. `3` is a step with a = 3 and b = 30; `3/_` is a step with a = 3 and no b. A `+` at its end leaves the
/// step open. `E` ends the episode; `e` ends it and keeps the rows. Returns the items, with columns joined by `|`.
fn run(patterns: Vec<PatternConfig>, script: &str) -> Vec<String> {
    let mut writer = Writer::new(Evaluator::new(patterns).unwrap());
    for word in script.split_whitespace() {
        match word {
            "E" | "e" => writer.end_episode(word == "E").unwrap(),
            _ => writer.append(row(word.trim_end_matches('+')), word.ends_with('+')).unwrap(),
        }
    }
    let text = |values: &Vec<i64>| values.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
    writer.items.iter().map(|item| item.columns.iter().map(text).collect::<Vec<_>>().join("|")).collect()
}

fn row(word: &str) -> Row {
    let value = |text: &str| text.parse::<i64>().ok().map(Value::from);
    match word.split_once('/') {
        Some((a, b)) => vec![value(a), value(b)],
        None => vec![value(word), value(word).and_then(|_| value(&format!("{word}0")))],
    }
}

#[test]
fn rows_are_counted_back_from_the_newest() {
    let steps = "0 1 2 3 4";
    let one = |key| run(vec![pattern(&[node(A, key)], &[])], steps);
    assert_eq!(one("-3:"), ["0,1,2", "1,2,3", "2,3,4"]);
    assert_eq!(one("-3:0"), one("-3:"));
    assert_eq!(one("-2"), ["0", "1", "2", "3"]);
    assert_eq!(one(":-2"), one("-2"));
    assert_eq!(one("-5::2"), ["0,2,4"]);
    assert_eq!(one("-5:-1:2"), ["0,2"]);
    assert_eq!(one("-4::3"), ["0,3", "1,4"]);
    let both = pattern(&[node(A, "-3:-1"), node(B, "-1")], &[]);
    assert_eq!(run(vec![both], steps), ["0,1|20", "1,2|30", "2,3|40"]);
}

#[test]
fn only_a_node_without_start_has_no_time_axis() {
    let squeezed = |key| Pattern::try_from(pattern(&[node(A, key)], &[])).unwrap().columns[0].squeeze;
    assert!(squeezed("-2") && squeezed(":-2"));
    assert!(!squeezed("-1:") && !squeezed("-2:-1"));
}

#[test]
fn windows_stop_at_the_end_of_an_episode_unless_rows_are_kept() {
    let window = || vec![pattern(&[node(A, "-2:")], &[])];
    assert_eq!(run(window(), "0 1 2 E 0 1 2"), ["0,1", "1,2", "0,1", "1,2"]);
    assert_eq!(run(window(), "0 1 2 e 0 1 2"), ["0,1", "1,2", "2,0", "0,1", "1,2"]);
}

#[test]
fn the_end_of_an_episode_makes_items_only_of_patterns_that_made_none_of_the_step() {
    assert_eq!(run(vec![pattern(&[node(A, "-2:")], &[end()])], "0 1 2 E 0 1 2 3 E"), ["1,2", "2,3"]);
    assert!(run(vec![pattern(&[node(A, "-4:")], &[end()])], "0 1 2 E").is_empty());
    assert_eq!(run(vec![pattern(&[node(A, "-1")], &[])], "0 1 E"), ["0", "1"]);
    assert_eq!(run(vec![pattern(&[node(A, "-1")], &[end()])], "0 1 e e E E"), ["1"]);
}

#[test]
fn steps_since_applied_counts_on_across_episodes() {
    let every = |key, steps| vec![pattern(&[node(A, key)], &[when(Left::StepsSinceApplied, Comparison::Ge(steps))])];
    assert_eq!(run(every("-1", 2), "0 1 2 3 4 5 6"), ["1", "3", "5"]);
    assert_eq!(run(every("-2:", 3), "0 1 2 3 4 5 6 7 8"), ["1,2", "4,5", "7,8"]);
    assert_eq!(run(every("-1", 3), "0 1 E 2 3 4 E 5 6"), ["2", "5"]);
}

#[test]
fn step_index_begins_anew_with_each_episode() {
    let at = |comparison| vec![pattern(&[node(A, "-1")], &[when(Left::StepIndex, comparison)])];
    assert_eq!(run(at(Comparison::Eq(0)), "0 1 e 2 3"), ["0", "2"]);
    assert_eq!(run(at(Comparison::ModEq { modulus: 2, eq: 1 }), "0 1 2 3 4"), ["1", "3"]);
}

#[test]
fn conditions_read_the_newest_row() {
    let one = Comparison::Eq(1);
    assert_eq!(
        run(vec![pattern(&[node(A, "-1")], &[when(Left::Source(B), one)])], "0/0 1/1 2/0 3/1"),
        ["1", "3"],
        "equal"
    );
    let below = unless(Left::Source(B), Comparison::Ge(1));
    assert_eq!(run(vec![pattern(&[node(A, "-1")], &[below])], "0/_ 1/1 2/_ 3/0"), ["3"], "absent is neither");
    let odd = when(Left::Source(B), Comparison::ModEq { modulus: 2, eq: 1 });
    assert_eq!(run(vec![pattern(&[node(A, "-1")], &[odd])], "0/-1 1/1 2/-3"), ["1"], "remainders have the left's sign");
    let wide = when(Left::Source(B), one);
    assert!(run(vec![pattern(&[node(A, "-1")], &[wide])], &format!("0/{}", (1_i64 << 32) + 1)).is_empty(), "64 bits");
}

#[test]
fn absent_rows_make_no_item() {
    assert_eq!(run(vec![pattern(&[node(B, "-2:")], &[])], "0/1 1/_ 2/3 3/4 4/5"), ["3,4", "4,5"]);
    assert_eq!(run(vec![pattern(&[node(B, "-3::2")], &[])], "0/1 1/_ 2/3 3/_ 4/5"), ["1,3", "3,5"]);
}

#[test]
fn parts_of_steps_make_items_as_soon_as_they_can() {
    let both = pattern(&[node(A, "-1"), node(B, "-1")], &[]);
    assert_eq!(run(vec![both], "1/_+ _/2 2/_+ _/3"), ["1|2", "2|3"]);
    assert_eq!(run(vec![pattern(&[node(A, "-1")], &[])], "1/_+ _/2"), ["1"]);
}

#[test]
fn patterns_are_asked_in_order() {
    let patterns = vec![pattern(&[node(A, "-1")], &[]), pattern(&[node(B, "-1")], &[])];
    assert_eq!(run(patterns, "1 2"), ["1", "10", "2", "20"]);
}

#[test]
fn buffer_length_stops_at_what_the_longest_pattern_needs() {
    let raw = pattern(&[node(A, "-1")], &[when(Left::BufferLength, Comparison::Eq(2))]);
    let long = pattern(&[node(A, "-4:")], &[end()]);
    assert_eq!(run(vec![raw.clone(), long], "0 1 2 3 4 5"), ["1"]);
    assert!(run(vec![raw], "0 1 2 3").is_empty());
}

#[test]
fn an_inverted_buffer_length_never_reaches_before_the_first_row() {
    let inverted = unless(Left::BufferLength, Comparison::Ge(3));
    assert!(run(vec![pattern(&[node(A, "-3:")], &[inverted])], "0 1 2 3").is_empty());
    assert_eq!(run(vec![pattern(&[node(A, "-2:")], &[inverted])], "0 1 2"), ["0,1", "1,2"]);
}

#[test]
fn steps_without_a_used_column_do_not_count() {
    let every_other = || vec![pattern(&[node(A, "-1")], &[when(Left::StepsSinceApplied, Comparison::Ge(2))])];
    assert_eq!(run(every_other(), "0 _/9 1 _/9 2 3"), ["1", "3"]);
    let first = vec![pattern(&[node(A, "-1")], &[when(Left::StepIndex, Comparison::Eq(1))])];
    assert_eq!(run(first, "_/9 5"), ["5"], "the index counts all steps");
}

fn td(columns: &[NodeConfig], weight: f64, source: i32) -> Evaluator {
    let priority = Some(PriorityFn::TdError { max_weight: weight, source });
    Evaluator::new([PatternConfig { priority, ..pattern(columns, &[]) }]).unwrap()
}

fn value(dtype: DType, elements: usize, bytes: &[u8]) -> Row {
    vec![Some(Value { dtype, elements, bytes: bytes.to_vec() })]
}

#[test]
fn td_errors_give_a_mix_of_maximum_and_mean() {
    let priorities = |evaluator, word: &str| -> Vec<f64> {
        let mut writer = Writer::new(evaluator);
        word.split(' ').for_each(|word| writer.append(row(word), false).unwrap());
        writer.items.iter().map(|item| item.priority).collect()
    };
    let [mixed] = priorities(td(&[node(A, "-3:")], 0.75, A), "1 -4 2")[..] else { panic!("one item") };
    assert!((mixed - (0.75 * 4.0 + 0.25 * 7.0 / 3.0)).abs() < 1e-12);
    assert_eq!(priorities(td(&[node(A, "-1:")], 0.75, B), "1"), [0.0], "no such column in the item");
    assert_eq!(priorities(td(&[node(A, "-2:"), node(A, "-1:")], 1.0, A), "-9 1"), [1.0], "the last of several");
}

#[test]
fn td_errors_are_numbers_of_four_types() {
    let made = |row: Row| {
        let mut writer = Writer::new(td(&[node(A, "-1")], 0.5, A));
        writer.append(row, false).map(|()| writer.items[0].priority).map_err(|error| error.to_string())
    };
    assert_eq!(made(value(DType::Float32, 1, &(-1.5_f32).to_le_bytes())), Ok(1.5));
    assert_eq!(made(value(DType::Float64, 1, &2.5_f64.to_le_bytes())), Ok(2.5));
    assert_eq!(made(value(DType::Int32, 1, &(-3_i32).to_le_bytes())), Ok(3.0));
    assert!(made(value(DType::Float64, 1, &f64::NAN.to_le_bytes())).unwrap().is_nan());
    let error = made(value(DType::Int8, 1, &[1])).unwrap_err();
    assert_eq!(error, "TD Error expects a double/float/int tensor and it is 6");
    let error = made(value(DType::Float32, 2, &[0; 8])).unwrap_err();
    assert_eq!(error, "TD Error expects a scalar tensor");
}

#[test]
fn a_condition_on_what_is_no_integer_says_so() {
    let read = |row: Row| {
        let reads = pattern(&[node(A, "-1")], &[when(Left::Source(A), Comparison::Ge(1))]);
        let mut writer = Writer::new(Evaluator::new([reads]).unwrap());
        writer.append(row, false).map(|()| writer.items.len()).map_err(|error| error.to_string())
    };
    assert_eq!(read(value(DType::Bool, 1, &[1])), Ok(1));
    assert_eq!(read(value(DType::UInt64, 1, &u64::MAX.to_le_bytes())), Ok(1), "no sign");
    assert_eq!(read(value(DType::Int16, 1, &(-1_i16).to_le_bytes())), Ok(0));
    let text = |got: &str| format!("A condition reads column 0, which must hold one bool or integer, got {got}.");
    assert_eq!(read(value(DType::Float32, 1, &[0; 4])), Err(text("1 of type float")));
    assert_eq!(read(value(DType::Int32, 3, &[0; 12])), Err(text("3 of type int32")));
}

#[test]
fn a_pattern_whose_item_was_not_made_is_asked_again() {
    let rows = Rows(vec![(StepId { episode: 0, index: 0 }, row("7"))]);
    let mut evaluator = Evaluator::new([pattern(&[node(A, "-1")], &[])]).unwrap();
    assert!(evaluator.next_item(&mut Pass::new(false), &rows).unwrap().is_some());
    let mut pass = Pass::new(true);
    assert!(evaluator.next_item(&mut pass, &rows).unwrap().is_some(), "the first one was never made");
    assert!(evaluator.next_item(&mut pass, &rows).unwrap().is_none());
    assert!(evaluator.next_item(&mut Pass::new(false), &rows).unwrap().is_none(), "now it was");
}

#[test]
fn the_columns_that_are_needed_are_known() {
    let reads_b = when(Left::Source(7), Comparison::Eq(1));
    let patterns = [pattern(&[node(A, "-3:"), node(B, "-1")], &[reads_b]), pattern(&[node(B, "-2")], &[])];
    let evaluator = Evaluator::new(patterns).unwrap();
    assert_eq!(evaluator.max_age(), 3);
    assert_eq!((0..10).filter(|&column| evaluator.uses(column)).collect::<Vec<_>>(), [0, 1, 7]);
}

#[test]
fn extreme_numbers_are_taken_as_they_are() {
    let longest = NodeConfig { source: 0, start: Some(i32::MIN), stop: Some(0), step: Some(i32::MAX) };
    let checked = Pattern::try_from(pattern(&[longest], &[])).unwrap();
    assert_eq!(checked.columns[0].ages().collect::<Vec<_>>(), [1 << 31, 1]);
    assert_eq!(checked.max_age(), 1 << 31);
}

proptest! {
    /// Each pattern creates at most one item for each step, of exactly the rows that the slice of a list would have.
    #[test]
    fn rows_are_those_of_a_slice_of_a_list(
        start in 1_i32..8, length in 1_i32..8, step in 1_i32..5, steps in 0_i64..30, cuts in prop::collection::vec(any::<bool>(), 30),
    ) {
        let stop = (length - start).min(0);
        let key = NodeConfig { source: A, start: Some(-start), stop: Some(stop), step: Some(step) };
        let mut writer = Writer::new(Evaluator::new([pattern(&[key], &[])]).unwrap());
        let (mut episode, mut expected) = (Vec::new(), Vec::new());
        for value in 0..steps {
            writer.append(row(&value.to_string()), false).unwrap();
            episode.push(value);
            if let Some(first) = episode.len().checked_sub(start as usize) {
                let end = episode.len() - stop.unsigned_abs() as usize;
                expected.push(episode[first..end].iter().copied().step_by(step as usize).collect::<Vec<_>>());
            }
            if cuts[value as usize] && value % 5 == 0 {
                writer.end_episode(true).unwrap();
                episode.clear();
            }
        }
        prop_assert_eq!(writer.items.iter().map(|item| item.columns[0].clone()).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn only_an_order_of_its_columns_reorders_a_pattern() {
    let mut evaluator = Evaluator::new([pattern(&[node(A, "-1"), node(B, "-2:")], &[])]).unwrap();
    for (place, order) in [(1, &[0, 1][..]), (0, &[0]), (0, &[1, 1]), (0, &[1, 2]), (0, &[0, 1, 2])] {
        assert!(evaluator.reorder(place, order).is_err(), "{order:?}");
    }
    evaluator.reorder(0, &[1, 0]).unwrap();
    let mut writer = Writer::new(evaluator);
    ["1", "2"].into_iter().for_each(|word| writer.append(row(word), false).unwrap());
    assert_eq!(writer.items[0].columns, [vec![10, 20], vec![2]]);
}
