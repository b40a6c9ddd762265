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
        _ => rates(table),
    };
    let waits = table.waits.iter().max_by_key(|wait| wait.waited).map_or("", |wait| match wait.operation {
        Operation::Sample => "; the learner waits for actors",
        Operation::Insert => "; the actors wait for the learner",
    });
    format!("Flowing: {name}{rates}{waits}")
}

/// Says how fast a table is, or when it moved last if its rates have fallen to zero since.
fn rates(table: &TableState) -> String {
    let (inserts, samples) = (table.inserts_per_second, table.samples_per_second);
    if inserts + samples == 0.0 {
        return format!("the latest insert or sample was {} ago", time(table.still));
    }
    let rate =
        |rate: f64, what| if rate == 0.0 { format!("no {what}") } else { format!("{} {what}/s", rate_text(rate)) };
    format!("{}, {}", rate(inserts, "inserts"), rate(samples, "samples"))
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
            text += &match (is_itself, count) {
                (true, 1) => ", so it waits for itself".to_owned(),
                (true, _) => ", so they wait for each other".to_owned(),
                (false, 1) => format!(", so {names} waits"),
                (false, _) => format!(", so {names} wait"),
            };
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
        if (cause.is_some() || is_stalled) && !pause.needs.was_met(state) {
            let was_before =
                if pause.needs == Need::Samples { state.was_sampled_before } else { state.was_inserted_before };
            let since = if was_before { " since it was restored" } else { "" };
            return format!("{never} {name}{since}{reason}");
        }
        if let Some(Cause::Nobody(first)) = cause
            && *first == table
        {
            let left: Vec<&LeftClient> = self.left(table).collect();
            let since = if left.is_empty() { "any more".to_owned() } else { format!("since {}", departures(&left)) };
            return format!("{does} {name} {since}{reason}");
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

/// Says who has left and how, the latest first.
fn departures(left: &[&LeftClient]) -> String {
    let mut ways: Vec<(Duration, String)> = Vec::new();
    for how in [Departure::Lost, Departure::Stopped, Departure::Closed] {
        let so = || left.iter().filter(|client| client.how == how);
        let Some(last) = so().map(|client| client.ago).min() else { continue };
        let (names, count) = grouped(so().map(|client| client.program.as_str()));
        let left = match (how, count) {
            (Departure::Closed, _) => "left",
            (Departure::Stopped, _) => "stopped answering",
            (Departure::Lost, 1) => "was lost",
            (Departure::Lost, _) => "were lost",
        };
        ways.push((last, format!("{names} {left} {} ago", time(last))));
    }
    ways.sort_by_key(|(ago, _)| *ago);
    listed(&ways.into_iter().map(|(_, text)| text).collect::<Vec<_>>())
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

fn rate_text(rate: f64) -> String {
    match rate {
        ..0.05 => "less than 0.1".into(),
        ..10.0 => plain((rate * 10.0).round() / 10.0),
        _ => number(rate.round() as u64),
    }
}
