//! What happens to a server, for the charts of its page: each second is compared with the one before.

use crate::documents::{self, EventDocument};
use reverb_core::{RateLimiterConfig, TableConfig};
use reverb_service::{Peer, Replay, StoreStatus, TableHandle};
use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::sync::Arc;
use std::time::SystemTime;

/// Maximum number of characters of the text of an event. The rest is cut off.
pub const MAX_CHARACTERS: usize = 200;
/// Maximum number of programs that one event names.
const MAX_NAMES: usize = 4;

/// The kinds of events of clients. They are the first to be dropped, because there can be many.
pub const OF_CLIENTS: [&str; 2] = ["client_came", "client_left"];

/// Looks at a server each second, and tells what has happened since the look before.
#[derive(Debug, Default)]
pub struct Watcher {
    is_started: bool,
    is_serving: bool,
    /// Number of saves that succeeded, and of those that failed.
    saves: (u64, u64),
    /// Number of connections by the name of the client.
    clients: BTreeMap<String, usize>,
    options: Vec<TableConfig>,
}

impl Watcher {
    /// Returns what has happened since the last call.
    pub fn look(&mut self, replay: &Replay) -> Vec<EventDocument> {
        let mut events = Vec::new();
        let now = SystemTime::now();
        let facts = &replay.facts;
        if !std::mem::replace(&mut self.is_started, true) {
            events.push(event(facts.started_at, "start", "the server was started"));
        }
        // Until then a load may change the tables, and connections are not accepted.
        if facts.addresses.get().is_none() {
            return events;
        }
        let store = replay.store().map(|store| store.status()).unwrap_or_default();
        let options =
            replay.tables().iter().map(|table: &TableHandle| table.with_table(|table| table.config().clone()));
        if std::mem::replace(&mut self.is_serving, true) {
            self.see_options(options.collect(), now, &mut events);
        } else {
            if store.restored_from.is_some() {
                let items: u64 = replay.tables().iter().map(|table| table.pulse().items).sum();
                events.push(event(now, "restore", format_args!("restored {}", counted(items, "item"))));
            }
            self.options = options.collect();
        }
        self.see_saves(&store, now, &mut events);
        self.see_clients(&replay.connections.list(), now, &mut events);
        events
    }

    fn see_saves(&mut self, store: &StoreStatus, now: SystemTime, events: &mut Vec<EventDocument>) {
        let saves = (store.saves_ok, store.saves_failed);
        let before = std::mem::replace(&mut self.saves, saves);
        if saves.0 > before.0 {
            events.push(event(now, "save", "a checkpoint was saved"));
        }
        if saves.1 > before.1 {
            let reason = store.last_error.as_deref().unwrap_or("the next one succeeded");
            events.push(event(now, "save_failed", format_args!("a save failed: {reason}")));
        }
    }

    fn see_options(&mut self, options: Vec<TableConfig>, now: SystemTime, events: &mut Vec<EventDocument>) {
        for (number, (old, new)) in self.options.iter().zip(&options).enumerate() {
            let changes = changes(old, new);
            if !changes.is_empty() {
                let changed = event(now, "options", format_args!("{}: {changes}", new.name));
                events.push(EventDocument { table: Some(number), ..changed });
            }
        }
        self.options = options;
    }

    /// Notes which programs have come and gone. Connections of a program that is connected already are no events.
    fn see_clients(&mut self, peers: &[Arc<Peer>], now: SystemTime, events: &mut Vec<EventDocument>) {
        let mut clients = BTreeMap::<String, usize>::new();
        // Peers tell their names with their first call.
        for peer in peers.iter().filter(|peer| !peer.name().is_empty()) {
            *clients.entry(peer.name().to_owned()).or_default() += 1;
        }
        let before = std::mem::replace(&mut self.clients, clients);
        let missing_in = |others: &BTreeMap<String, usize>, all: &BTreeMap<String, usize>| {
            programs(all.keys().filter(|name| !others.contains_key(*name)).map(String::as_str))
        };
        let (came, left) = (missing_in(&before, &self.clients), missing_in(&self.clients, &before));
        for (kind, names, verb) in [("client_came", came, "connected"), ("client_left", left, "left")] {
            if !names.is_empty() {
                events.push(event(now, kind, format_args!("{names} {verb}")));
            }
        }
    }
}

fn event(at: SystemTime, kind: &'static str, text: impl Display) -> EventDocument {
    let text = text.to_string().chars().take(MAX_CHARACTERS).collect();
    EventDocument { at: documents::seconds(at), kind, table: None, text }
}

/// Names programs: `actor.py ×2, learner.py`. A client is named `program (host:pid)`.
fn programs<'a>(clients: impl Iterator<Item = &'a str>) -> String {
    let mut counts = BTreeMap::<&str, usize>::new();
    for client in clients {
        *counts.entry(client.split_once(" (").map_or(client, |(program, _)| program)).or_default() += 1;
    }
    let more = counts.len().saturating_sub(MAX_NAMES);
    let named = counts.iter().take(MAX_NAMES).map(|(name, count)| match count {
        1 => (*name).to_owned(),
        count => format!("{name} ×{count}"),
    });
    let mut names = named.collect::<Vec<_>>().join(", ");
    if more > 0 {
        let _infallible = write!(names, " and {more} more");
    }
    names
}

/// Says which options differ: `max_size 1000, was 500; max_bytes no limit, was 4096`.
fn changes(old: &TableConfig, new: &TableConfig) -> String {
    let mut changes = Vec::new();
    let mut compare = |name: &str, old: String, new: String| {
        if old != new {
            changes.push(format!("{name} {new}, was {old}"));
        }
    };
    let or_none = |limit: Option<u64>| limit.map_or("no limit".into(), |limit| limit.to_string());
    let times = |config: &TableConfig| or_none(u64::try_from(config.max_times_sampled).ok().filter(|&times| times > 0));
    compare("max_size", old.max_size.to_string(), new.max_size.to_string());
    compare("max_bytes", or_none(old.max_bytes), or_none(new.max_bytes));
    compare("max_times_sampled", times(old), times(new));
    let (old, new) = (&old.rate_limiter, &new.rate_limiter);
    compare("samples_per_insert", old.samples_per_insert.to_string(), new.samples_per_insert.to_string());
    compare("min_size_to_sample", old.min_size_to_sample.to_string(), new.min_size_to_sample.to_string());
    compare("error_buffer", buffer(old), buffer(new));
    changes.join("; ")
}

/// Half the width of a limiter's band, as users give it.
fn buffer(RateLimiterConfig { min_diff, max_diff, .. }: &RateLimiterConfig) -> String {
    let is_bounded = max_diff.abs() < f64::MAX && min_diff.abs() < f64::MAX;
    if is_bounded { ((max_diff - min_diff) / 2.0).to_string() } else { "no limit".into() }
}

fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_counted_by_name() {
        let names = |names: &[&str]| programs(names.iter().copied());
        assert_eq!(names(&["learner.py (a:1)", "actor.py (a:2)", "actor.py (b:2)"]), "actor.py ×2, learner.py");
        assert_eq!(names(&["a", "b", "c", "d", "e", "f"]), "a, b, c, d and 2 more");
        assert_eq!(names(&[]), "");
    }
}
