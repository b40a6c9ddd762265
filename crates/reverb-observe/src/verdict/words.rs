//! The sentences of verdicts. No other file makes any.

use super::chain::{Cause, Need, Waits};
use super::state::{LeftClient, ServerState, TableState};
use reverb_core::words::{counted, listed, number, time};
use reverb_service::{Departure, Operation, Verdict};
use std::collections::BTreeSet;
use std::time::Duration;

/// Maximum number of programs that a sentence names.
const MAX_NAMES: usize = 3;

/// Says that a server flows, by its busiest table.
pub fn flowing(table: &TableState, is_only: bool) -> String {
    let name = if is_only { String::new() } else { format!("{} ", table.name) };
    let rates = match (table.ratio, table.wanted_ratio) {
        (Some(ratio), Some(wanted)) => format!("{} of {} samples per insert", ratio_text(ratio), plain(wanted)),
        _ => {
            let (inserts, samples) = (rate(table.inserts_per_second), rate(table.samples_per_second));
            format!("{inserts} inserts/s, {samples} samples/s")
        }
    };
    let waits = table.waits.iter().max_by_key(|wait| wait.waited).map_or("", |wait| match wait.operation {
        Operation::Sample => "; the learner waits for actors",
        Operation::Insert => "; the actors wait for the learner",
    });
    format!("Flowing: {name}{rates}{waits}")
}

/// Says that nobody asks for anything.
pub fn idle(clients: usize, lasted: Duration) -> String {
    let who = match clients {
        0 => "nobody is connected".into(),
        1 => "the client that is connected asks for nothing".into(),
        _ => format!("the {} that are connected ask for nothing", counted(clients as u64, "client")),
    };
    format!("Idle {}: {who}", time(lasted))
}

/// Says that clients wait for a newer version.
pub fn version(state: &ServerState, table: usize, clients: impl Iterator<Item = usize>, lasted: Duration) -> String {
    let clients: BTreeSet<usize> = clients.collect();
    let (names, count) = grouped(clients.into_iter().map(|client| state.clients[client].program.as_str()));
    let s = if count == 1 { "s" } else { "" };
    format!("Waiting {}: {names} wait{s} for a newer version of {}", time(lasted), state.tables[table].name)
}

/// Whether a verdict says something else than the one before it, beside how long it lasts.
pub fn differs(before: &Verdict, after: &Verdict) -> bool {
    let kinds = |verdict: &Verdict| verdict.troubles.iter().map(std::mem::discriminant).collect::<Vec<_>>();
    (before.progress, before.level, &before.tables) != (after.progress, after.level, &after.tables)
        || kinds(before) != kinds(after)
}

impl Waits<'_> {
    /// Says why a wait lasts that begins at a table, and who waits because of it.
    pub fn chain(&self, first: usize, cause: Option<&Cause>, is_stalled: bool) -> String {
        let steps = self.followers(first);
        let mut text = self.clause(first, cause, is_stalled);
        for (place, step) in steps.iter().enumerate() {
            if place > 0 {
                text += &self.consequence(step);
            }
            let waiters = step.iter().filter_map(|&table| self.pause(table)).flat_map(|pause| pause.waiters.clone());
            let (names, count) = self.programs(waiters);
            // A program that could go on in another thread.
            let is_itself = place == 0 && self.programs(self.free_helpers(first).into_iter()).0 == names;
            let names = match (is_itself, count) {
                (false, _) => names,
                (true, 1) => "its own request".into(),
                (true, _) => "their own requests".into(),
            };
            text += &format!(", so {names} wait{}", if count == 1 { "s" } else { "" });
        }
        text
    }

    /// Says why a table stands still. A program that has never done what a stalled table needs may have nothing to do with
    /// it, and is not named.
    pub fn clause(&self, table: usize, cause: Option<&Cause>, is_stalled: bool) -> String {
        let (Some(pause), Some(state)) = (self.pause(table), self.state.tables.get(table)) else {
            return String::new();
        };
        let name = &state.name;
        let reason = format!(" ({})", why(state, pause.needs));
        if pause.needs == Need::Buffer {
            return format!("the error buffer of {name} is smaller than one insert and one sample");
        }
        let (never, did, does) = match pause.needs {
            Need::Samples => ("nobody has sampled", "drawn from", "nobody draws from"),
            _ => ("nobody has inserted into", "inserted into", "nobody inserts into"),
        };
        let was_helped = if pause.needs == Need::Samples { state.was_sampled } else { state.was_inserted };
        if (cause.is_some() || is_stalled) && !was_helped {
            return format!("{never} {name}{reason}");
        }
        if let Some(Cause::Nobody(_)) = cause {
            let left: Vec<&LeftClient> = self.left(table).collect();
            return match left.iter().min_by_key(|client| client.ago) {
                Some(last) => {
                    let (names, count) = grouped(left.iter().map(|client| client.program.as_str()));
                    let was = if count == 1 { "was" } else { "were" };
                    let how = match last.how {
                        Departure::Closed => "left".into(),
                        Departure::Lost => format!("{was} lost"),
                        Departure::Stopped => "stopped answering".to_owned(),
                    };
                    format!("{does} {name} since {names} {how} {} ago{reason}", time(last.ago))
                }
                None => format!("{does} {name} any more{reason}"),
            };
        }
        let (names, count) = self.programs(self.free_helpers(table).into_iter());
        format!("{names} {} not {did} {name}{reason}", if count == 1 { "has" } else { "have" })
    }

    fn consequence(&self, step: &[usize]) -> String {
        let of = |needs: Need| {
            let names = step.iter().filter(|&&table| self.pause(table).is_some_and(|pause| pause.needs == needs));
            names.map(|&table| self.state.tables[table].name.clone()).collect::<Vec<_>>()
        };
        let (unfilled, undrawn) = (of(Need::Inserts), of(Need::Samples));
        let mut text = String::new();
        if !unfilled.is_empty() {
            text += &format!(", so {} get{} nothing", listed(&unfilled), if unfilled.len() == 1 { "s" } else { "" });
        }
        if !undrawn.is_empty() {
            text += &format!(", so nobody draws from {}", listed(&undrawn));
        }
        text
    }

    fn programs(&self, clients: impl Iterator<Item = usize>) -> (String, usize) {
        grouped(clients.map(|client| self.state.clients[client].program.as_str()))
    }
}

fn why(table: &TableState, needs: Need) -> &str {
    if needs == Need::Samples { &table.why_inserts_wait } else { &table.why_samples_wait }
}

/// Lists programs, those of one name once, and counts them.
pub fn grouped<'a>(programs: impl Iterator<Item = &'a str>) -> (String, usize) {
    let mut groups: Vec<(&str, usize)> = Vec::new();
    for program in programs {
        match groups.iter_mut().find(|(name, _)| *name == program) {
            Some((_, count)) => *count += 1,
            None => groups.push((program, 1)),
        }
    }
    let total = groups.iter().map(|(_, count)| count).sum();
    let name = |(name, count): &(&str, usize)| match (*name, *count) {
        ("", 1) => "an unnamed client".to_owned(),
        ("", count) => format!("{count} unnamed clients"),
        (name, 1) => name.to_owned(),
        (name, count) => format!("{name} ×{count}"),
    };
    let mut names: Vec<String> = groups.iter().take(MAX_NAMES).map(name).collect();
    let others: usize = groups.iter().skip(MAX_NAMES).map(|(_, count)| count).sum();
    if others > 0 {
        names.push(counted(others as u64, "other"));
    }
    (listed(&names), total)
}

/// A ratio of samples to inserts with as many digits as it has a meaning.
fn ratio_text(ratio: f64) -> String {
    if ratio >= 1.0 { format!("{ratio:.1}") } else { format!("{ratio:.2}") }
}

fn plain(ratio: f64) -> String {
    let text = format!("{ratio:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn rate(rate: f64) -> String {
    if rate < 10.0 { plain((rate * 10.0).round() / 10.0) } else { number(rate.round() as u64) }
}
