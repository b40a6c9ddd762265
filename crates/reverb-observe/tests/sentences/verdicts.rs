//! What is said of servers.

use super::check;
use super::states::Limited;
use reverb_core::words::time;
use reverb_observe::verdict::{ClientState, LeftClient, ServerState, TableState, WaitState, judge};
use reverb_service::{Departure, Level, Operation, Progress, Trouble, Verdict, WaitKind};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

#[test]
fn verdicts_name_the_cause_and_who_waits() {
    check("verdicts.txt", |lines| {
        let state = read(lines);
        let verdict = judge(&state);
        let Verdict { progress, level, line, tables, of_tables, .. } = &verdict;
        let mut said = vec![line.clone()];
        let names: Vec<&str> = tables.iter().map(|&table| state.tables[table].name.as_str()).collect();
        let of_chain = if names.is_empty() { String::new() } else { format!(": {}", names.join(", ")) };
        said.push(format!("{}, {}{of_chain}", progress.name(), level.name()));
        for (table, of_table) in state.tables.iter().zip(of_tables) {
            let paused = of_table.paused.map_or_else(String::new, |paused| format!(" {}", time(paused)));
            let cause = if of_table.cause.is_empty() { String::new() } else { format!(", {}", of_table.cause) };
            said.push(format!(
                "{}: {}, {}{paused}{cause}",
                table.name,
                of_table.progress.name(),
                of_table.level.name()
            ));
        }
        said
    });
}

/// The blocks whose title begins with a word: the mistakes of operators, and healthy programs.
fn blocks(word: &str) -> Vec<(String, ServerState)> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/sentences/verdicts.txt");
    let text = std::fs::read_to_string(path).unwrap();
    let of_word = text.trim().split("\n\n").filter_map(|block| {
        let title = block.lines().next().unwrap().strip_prefix("# ")?.strip_prefix(word)?;
        let lines: Vec<&str> = block.lines().filter(|line| !line.starts_with(['#', '>'])).collect();
        Some((title.to_owned(), read(&lines)))
    });
    of_word.collect()
}

#[test]
fn the_mistakes_of_operators_are_stalls_that_become_alarms() {
    let mistakes = blocks("mistake");
    assert!(mistakes.len() >= 5, "{}", mistakes.len());
    for (title, mut state) in mistakes {
        let verdict = judge(&state);
        assert_eq!((verdict.progress, verdict.level), (Progress::Stalled, Level::Alarm), "{title}: {}", verdict.line);
        wait_for(&mut state, Duration::from_secs(15));
        let verdict = judge(&state);
        assert_eq!((verdict.progress, verdict.level), (Progress::Stalled, Level::Warning), "{title}: {}", verdict.line);
        wait_for(&mut state, Duration::from_secs(5));
        assert!(judge(&state).level <= Level::Quiet, "{title}: {}", judge(&state).line);
    }
}

#[test]
fn healthy_programs_never_stall_at_any_moment_of_their_pauses() {
    let programs = blocks("healthy");
    assert!(programs.len() >= 12, "{}", programs.len());
    for (title, state) in programs {
        let longest = state.tables.iter().map(|table| table.still).max().unwrap_or_default();
        for seconds in 0..=longest.as_secs() {
            let mut state = state.clone();
            wait_for(&mut state, Duration::from_secs(seconds));
            let verdict = judge(&state);
            assert!(verdict.level <= Level::Quiet, "{title}, {seconds} s: {}", verdict.line);
            assert!(verdict.of_tables.iter().all(|table| table.level <= Level::Quiet), "{title}, {seconds} s");
        }
    }
}

/// Lets the state be that of an earlier moment: no wait and no pause is longer than this.
fn wait_for(state: &mut ServerState, most: Duration) {
    let longest = state.tables.iter().map(|table| table.still).max().unwrap_or_default();
    let earlier = longest.saturating_sub(most);
    for table in &mut state.tables {
        table.still = table.still.min(most);
        table.waits.iter_mut().for_each(|wait| wait.waited = wait.waited.min(most));
    }
    state.left.iter_mut().for_each(|client| client.ago = client.ago.min(most));
    for client in &mut state.clients {
        client.connected = client.connected.saturating_sub(earlier);
        client.still = client.still.saturating_sub(earlier);
    }
}

/// Reads a server.
pub fn read(lines: &[&str]) -> ServerState {
    let mut state = ServerState::default();
    for line in lines {
        let (head, rest) = line.split_once(": ").unwrap_or((line, ""));
        let (kind, name) = head.split_once(' ').unwrap();
        match kind {
            "table" => state.tables.push(table(name, rest)),
            "client" => {
                let (program, count) = name.split_once(" x").unwrap_or((name, "1"));
                let longest = state.tables.iter().map(|table| table.still).max().unwrap_or_default();
                let time = |what| rest.split(", ").find_map(|part| part.strip_prefix(what)).map_or(longest, seconds);
                let client = ClientState {
                    program: program.into(),
                    inserted: places(&state, "wrote", rest),
                    drawn: places(&state, "drew", rest),
                    connected: time("for "),
                    still: time("still "),
                    only_looks: rest.contains("looks"),
                };
                state.clients.extend(vec![client; count.parse().unwrap()]);
            }
            "wait" => wait(&mut state, name, rest),
            "left" => {
                let (how, ago) = rest.rsplit_once(", ").unwrap().1.split_once(' ').unwrap();
                let client = LeftClient {
                    program: name.into(),
                    inserted: places(&state, "wrote", rest),
                    drawn: places(&state, "drew", rest),
                    ago: seconds(ago),
                    how: match how {
                        "closed" => Departure::Closed,
                        "lost" => Departure::Lost,
                        _ => Departure::Stopped,
                    },
                };
                state.left.push(client);
            }
            "trouble" if name == "save" => state.troubles.push(Trouble::SaveFailed(rest.into())),
            "trouble" if name == "log" => state.troubles.push(Trouble::LogClosed(rest.into())),
            "trouble" if name == "sync" => state.troubles.push(Trouble::LogLate(seconds(rest))),
            "trouble" if name == "disk" => state.troubles.push(Trouble::DiskLow),
            "trouble" => {
                let mut gib = rest.split(' ').map(|gib| (gib.parse::<f64>().unwrap() * f64::from(1 << 30)) as u64);
                state.troubles.push(Trouble::Memory { used: gib.next().unwrap(), limit: gib.next().unwrap() });
            }
            _ => panic!("not a part of a state: {line}"),
        }
    }
    state
}

/// Reads where a client did something, such as `wrote replay episodes, drew parameters`. Without a name, that is at the
/// only table.
fn places(state: &ServerState, what: &str, text: &str) -> BTreeSet<usize> {
    let place =
        |name: &str| state.tables.iter().position(|table| table.name == name).unwrap_or_else(|| panic!("{name}"));
    let Some(names) = text.split(", ").find_map(|part| part.strip_prefix(what)) else { return BTreeSet::new() };
    assert!(!names.is_empty() || state.tables.len() == 1, "{what} at which table? {text}");
    if names.is_empty() { BTreeSet::from([0]) } else { names.split_whitespace().map(place).collect() }
}

/// Reads a table: its limiter, what that counts, and then `still`, `after`, `rates`, `of` (a ratio) or `restored`.
fn table(name: &str, text: &str) -> TableState {
    let mut parts = text.split(", ");
    let limited = Limited::new(name, parts.next().unwrap(), parts.next().unwrap());
    let since_start = |count: i64| if text.ends_with("restored") { 0 } else { count as u64 };
    let (inserts, samples) = (since_start(limited.limiter.inserts), since_start(limited.limiter.samples));
    let mut table = TableState::new(&limited.view(), inserts, samples);
    table.stall_after = Duration::from_secs(600);
    for part in parts {
        match *part.split(' ').collect::<Vec<_>>() {
            ["still", time] => table.still = seconds(time),
            ["after", time] => table.stall_after = seconds(time),
            ["rates", inserts, samples] => {
                table.inserts_per_second = inserts.parse().unwrap();
                table.samples_per_second = samples.parse().unwrap();
            }
            ["of", ratio] => table.ratio = Some(ratio.parse().unwrap()),
            ["restored"] => {}
            _ => panic!("not a part of a table: {part}"),
        }
    }
    table
}

fn wait(state: &mut ServerState, program: &str, text: &str) {
    let [what, table, waited] = *text.split(' ').collect::<Vec<_>>() else { panic!("not a wait: {text}") };
    let (operation, kind) = match what {
        "insert" => (Operation::Insert, WaitKind::Call),
        "sample" => (Operation::Sample, WaitKind::Call),
        "load" => (Operation::Sample, WaitKind::Ahead),
        "version" => (Operation::Sample, WaitKind::Newer),
        _ => panic!("not an operation: {text}"),
    };
    let clients: Vec<usize> = (0..state.clients.len()).filter(|&one| state.clients[one].program == program).collect();
    assert!(!clients.is_empty(), "{program} is not a client");
    let table = state.tables.iter_mut().find(|one| one.name == table).unwrap();
    table.waits.extend(clients.into_iter().map(|client| WaitState {
        client,
        operation,
        kind,
        waited: seconds(waited),
    }));
}

fn seconds(text: &str) -> Duration {
    Duration::from_secs(text.parse().unwrap_or_else(|_| panic!("not a time: {text}")))
}
