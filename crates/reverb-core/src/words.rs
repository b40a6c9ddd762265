//! Numbers in sentences for people.

use std::time::Duration;

/// Writes a count with commas: `1,234,567`.
pub fn number(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Writes a count with its noun: `1 item`, `1,234 items`.
pub fn counted(count: u64, noun: &str) -> String {
    format!("{} {noun}{}", number(count), if count == 1 { "" } else { "s" })
}

/// Writes how many more are needed: `1 more insert`, `32 more inserts`.
pub fn more(count: u64, noun: &str) -> String {
    format!("{} more {noun}{}", number(count), if count == 1 { "" } else { "s" })
}

/// Says that so many may go: `an insert may go`, `32 samples may go`.
pub fn may_go(count: u64, noun: &str) -> String {
    match (count, noun) {
        (0 | 1, "insert") => "an insert may go".into(),
        (0 | 1, _) => format!("a {noun} may go"),
        _ => format!("{} may go", counted(count, noun)),
    }
}

/// Writes a time in its two largest units: `40 s`, `1 min 26 s`, `2 h 5 min`, `3 d 4 h`.
pub fn time(time: Duration) -> String {
    let seconds = time.as_secs();
    let units = [("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)];
    let first = units.iter().position(|(_, size)| seconds >= *size).unwrap_or(3);
    let mut rest = seconds;
    let parts = units[first..].iter().take(2).filter_map(|(unit, size)| {
        let count = rest / size;
        rest %= size;
        (count > 0 || *size == 1 && first == 3).then(|| format!("{count} {unit}"))
    });
    parts.collect::<Vec<_>>().join(" ")
}

/// Joins names: `a`, `a and b`, `a, b and c`.
pub fn listed(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_commas_and_nouns_their_plural() {
        let cases = [(0, "0"), (999, "999"), (1000, "1,000"), (12_345, "12,345"), (1_234_567, "1,234,567")];
        for (count, text) in cases {
            assert_eq!(number(count), text);
        }
        assert_eq!((counted(1, "item"), counted(1200, "item")), ("1 item".into(), "1,200 items".into()));
        assert_eq!((more(1, "insert"), more(32, "insert")), ("1 more insert".into(), "32 more inserts".into()));
    }

    #[test]
    fn times_have_their_two_largest_units() {
        let cases = [(0, "0 s"), (59, "59 s"), (60, "1 min"), (86, "1 min 26 s"), (3600, "1 h"), (7505, "2 h 5 min")];
        for (seconds, text) in cases {
            assert_eq!(time(Duration::from_secs(seconds)), text);
        }
        assert_eq!(time(Duration::from_secs(3 * 86_400 + 4 * 3600 + 59)), "3 d 4 h");
    }

    #[test]
    fn names_are_listed_as_in_a_sentence() {
        let names = |all: &[&str]| listed(&all.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!((names(&[]), names(&["a"])), (String::new(), "a".into()));
        assert_eq!((names(&["a", "b"]), names(&["a", "b", "c"])), ("a and b".into(), "a, b and c".into()));
    }
}
