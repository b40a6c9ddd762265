//! The verdict on a server and on each of its tables, from plain data.

use super::chain::{Cause, Waits};
use super::state::{STILL, ServerState, TableState};
use super::words;
use reverb_service::{Level, Progress, TableVerdict, Verdict, WaitKind};
use std::time::Duration;

/// Time after which a stall is an alarm.
const ALARM: Duration = Duration::from_secs(60);

/// Judges a server.
pub fn judge(state: &ServerState) -> Verdict {
    let waits = Waits::new(state);
    let of_tables: Vec<TableVerdict> = (0..state.tables.len()).map(|table| judge_table(&waits, table)).collect();
    let is_long = |table: usize| waits.pause(table).is_some_and(|pause| pause.stops_programs && pause.lasted >= STILL);
    let verdict = stall(&waits).or_else(|| wait(&waits, is_long)).or_else(|| flow(state));
    let verdict = verdict.or_else(|| wait(&waits, |_| true)).or_else(|| wait_for_version(state));
    let mut verdict = verdict.unwrap_or_else(|| idle(state));
    for trouble in &state.troubles {
        verdict.line += &format!("; {trouble}");
        verdict.level = verdict.level.max(trouble.level());
    }
    Verdict { troubles: state.troubles.clone(), of_tables, ..verdict }
}

/// A table that stalls: where it begins, how bad it is, and for how long.
struct Stall {
    first: usize,
    cause: Option<Cause>,
    level: Level,
    lasted: Duration,
}

/// Whether a table stalls.
fn stall_of(waits: &Waits<'_>, table: usize) -> Option<Stall> {
    let pause = waits.pause(table)?;
    let cause = waits.cause(table);
    let (lasted, limit) = match &cause {
        Some(cause) if waits.stalls(cause) => (waits.held(cause), STILL),
        Some(_) => return None,
        None if pause.stops_programs => (pause.lasted, waits.state.tables[table].stall_after),
        None => return None,
    };
    if lasted < limit {
        return None;
    }
    // An ordinary wait has been a stall since its limit only.
    let alarm = if cause.is_some() { ALARM } else { limit + ALARM };
    let level = if lasted < alarm { Level::Warning } else { Level::Alarm };
    let first = cause.as_ref().map_or_else(|| waits.origin(table), |cause| start_of(waits, cause));
    Some(Stall { first, cause, level, lasted })
}

/// The table with which the tale of a cause begins. In a circle, one that was never served explains the most.
fn start_of(waits: &Waits<'_>, cause: &Cause) -> usize {
    let tables = cause.tables();
    let was_never_sampled = |table: &&usize| !waits.state.tables[**table].was_sampled && waits.needs_samples(**table);
    let longest = || tables.iter().max_by_key(|&&table| waits.pause(table).map(|pause| pause.lasted));
    tables.iter().find(was_never_sampled).or_else(longest).copied().unwrap_or_default()
}

fn judge_table(waits: &Waits<'_>, table: usize) -> TableVerdict {
    let state = &waits.state.tables[table];
    let verdict = |progress, level, paused, cause| TableVerdict { progress, level, paused, cause };
    let Some(pause) = waits.pause(table) else {
        return match state.flows() {
            true => verdict(Progress::Flowing, Level::Good, None, String::new()),
            false => verdict(Progress::Idle, Level::Quiet, None, String::new()),
        };
    };
    let cause = waits.cause(table);
    let stall = stall_of(waits, table);
    let clause = waits.clause(table, cause.as_ref(), stall.is_some());
    match stall {
        Some(stall) => verdict(Progress::Stalled, stall.level, Some(pause.lasted), clause),
        None if state.flows() => verdict(Progress::Flowing, Level::Good, None, String::new()),
        None => verdict(Progress::Waiting, Level::Quiet, Some(pause.lasted), clause),
    }
}

/// The worst stall.
fn stall(waits: &Waits<'_>) -> Option<Verdict> {
    let stalls = (0..waits.paused.len()).filter_map(|table| stall_of(waits, table));
    let Stall { first, cause, level, lasted } = stalls.max_by_key(|stall| (stall.level, stall.lasted))?;
    Some(tell(waits, Progress::Stalled, level, lasted, (first, cause.as_ref())))
}

/// The longest ordinary wait at the tables that `is_shown` names.
fn wait(waits: &Waits<'_>, is_shown: impl Fn(usize) -> bool) -> Option<Verdict> {
    let shown = (0..waits.paused.len()).filter(|&table| is_shown(table) && waits.pause(table).is_some());
    let table = shown.max_by_key(|&table| waits.pause(table).map(|pause| pause.lasted))?;
    let cause = waits.cause(table);
    let first = cause.as_ref().map_or_else(|| waits.origin(table), |cause| start_of(waits, cause));
    Some(tell(waits, Progress::Waiting, Level::Quiet, waits.pause(first)?.lasted, (first, cause.as_ref())))
}

fn wait_for_version(state: &ServerState) -> Option<Verdict> {
    let waits = |table: usize| state.tables[table].waits.iter().filter(|wait| wait.kind == WaitKind::Newer);
    let longest = |table: usize| waits(table).map(|wait| wait.waited).max();
    let table =
        (0..state.tables.len()).filter(|&table| longest(table).is_some()).max_by_key(|&table| longest(table))?;
    let lasted = longest(table)?;
    let line = words::version(state, table, waits(table).map(|wait| wait.client), lasted);
    let tables = vec![table];
    Some(Verdict { progress: Progress::Waiting, lasted: Some(lasted), line, tables, ..Verdict::default() })
}

fn tell(
    waits: &Waits<'_>,
    progress: Progress,
    level: Level,
    lasted: Duration,
    (first, cause): (usize, Option<&Cause>),
) -> Verdict {
    let line = format!(
        "{} {}: {}",
        progress.word(),
        reverb_core::words::time(lasted),
        waits.chain(first, cause, progress == Progress::Stalled)
    );
    let tables = waits.followers(first).concat();
    Verdict { progress, level, lasted: Some(lasted), line, tables, ..Verdict::default() }
}

fn flow(state: &ServerState) -> Option<Verdict> {
    let rate = |table: &&TableState| table.inserts_per_second + table.samples_per_second;
    let flowing = state.tables.iter().filter(|table| table.flows());
    let busiest = flowing.max_by(|one, other| rate(one).total_cmp(&rate(other)))?;
    let line = words::flowing(busiest, state.tables.len() == 1);
    Some(Verdict { progress: Progress::Flowing, level: Level::Good, lasted: None, line, ..Verdict::default() })
}

fn idle(state: &ServerState) -> Verdict {
    let lasted = state.tables.iter().map(|table| table.still).min().unwrap_or_default();
    let clients = state.clients.iter().filter(|client| !client.only_looks).count();
    Verdict { lasted: Some(lasted), line: words::idle(clients, lasted), ..Verdict::default() }
}
