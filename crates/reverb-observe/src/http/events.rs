//! What happens to a server, for the charts of its page: each second is compared with the one before.

use crate::documents::{self, EventDocument};
use crate::verdict::grouped;
use reverb_core::words::{counted, number, time};
use reverb_core::{RateLimiterConfig, TableConfig};
use reverb_service::{Peer, Replay, ServerFacts, StoreStatus, TableHandle, program_of};
use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::Arc;
use std::time::SystemTime;

/// Maximum number of characters of the text of an event. The rest is cut off.
pub const MAX_CHARACTERS: usize = 200;

/// The kinds of events of clients. They are the first to be dropped, because there can be many.
pub const OF_CLIENTS: [&str; 2] = ["client_came", "client_left"];

/// Looks at a server each second, and tells what has happened since the look before.
#[derive(Debug, Default)]
pub struct Watcher {
    is_started: bool,
    is_serving: bool,
    /// Number of saves that succeeded, and of those that failed.
    saves: (u64, u64),
    /// Whether the log is closed by a failure.
    is_log_closed: bool,
    /// The names of the clients that are connected.
    clients: BTreeSet<String>,
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
                let restored = format_args!("restored {}{}", counted(items, "item"), saved_before(&store, facts));
                events.push(event(now, "restore", restored));
            }
            self.options = options.collect();
        }
        self.see_saves(&store, now, &mut events);
        self.see_log(&store, now, &mut events);
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

    fn see_log(&mut self, store: &StoreStatus, now: SystemTime, events: &mut Vec<EventDocument>) {
        let failure = store.log.as_ref().and_then(|log| log.failure.as_ref());
        match (std::mem::replace(&mut self.is_log_closed, failure.is_some()), failure) {
            (false, Some(failure)) => {
                events.push(event(now, "log_closed", format_args!("the log was closed: {failure}")));
            }
            (true, None) => events.push(event(now, "log_opened", "the log is open again")),
            _ => {}
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
        // Peers tell their names with their first call.
        let names = peers.iter().map(|peer| peer.name()).filter(|name| !name.is_empty());
        let before = std::mem::replace(&mut self.clients, names.map(str::to_owned).collect());
        let changes = [
            ("client_came", self.clients.difference(&before), "connected"),
            ("client_left", before.difference(&self.clients), "left"),
        ];
        for (kind, names, verb) in changes {
            let (names, count) = grouped(names.map(|name| program_of(name)));
            if count > 0 {
                events.push(event(now, kind, format_args!("{names} {verb}")));
            }
        }
    }
}

/// Says how old the checkpoint was that a server began with: what was inserted later is lost.
fn saved_before(store: &StoreStatus, facts: &ServerFacts) -> String {
    let age = store.restored_saved_at.and_then(|saved_at| facts.started_at.duration_since(saved_at).ok());
    age.map_or_else(String::new, |age| format!(", saved {} before the start", time(age)))
}

fn event(at: SystemTime, kind: &'static str, text: impl Display) -> EventDocument {
    let text = text.to_string().chars().take(MAX_CHARACTERS).collect();
    EventDocument { at: documents::seconds(at), kind, table: None, text }
}

/// Says which options differ: `max_size 1,000, was 500; max_bytes no limit, was 4,096`.
fn changes(old: &TableConfig, new: &TableConfig) -> String {
    let mut changes = Vec::new();
    let mut compare = |name: &str, old: String, new: String| {
        if old != new {
            changes.push(format!("{name} {new}, was {old}"));
        }
    };
    let or_none = |limit: Option<u64>| limit.map_or("no limit".into(), number);
    let times = |config: &TableConfig| or_none(u64::try_from(config.max_times_sampled).ok().filter(|&times| times > 0));
    compare("max_size", number(old.max_size), number(new.max_size));
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
