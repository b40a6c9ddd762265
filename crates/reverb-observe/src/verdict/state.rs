//! What a verdict rests on: a server at one moment, as plain data.

use reverb_core::{LimiterKind, LimiterView};
use reverb_service::{Departure, Operation, Trouble, WaitKind};
use std::collections::BTreeSet;
use std::time::Duration;

/// Time after which a table that had no progress does not flow any more, and after which a stall is a warning.
pub const STILL: Duration = Duration::from_secs(10);

/// A server at one moment.
#[derive(Debug, Clone, Default)]
pub struct ServerState {
    /// Its tables, in their order.
    pub tables: Vec<TableState>,
    /// Its clients, by process.
    pub clients: Vec<ClientState>,
    /// Clients that have left lately.
    pub left: Vec<LeftClient>,
    /// What is wrong beside the tables.
    pub troubles: Vec<Trouble>,
}

/// A table at one moment.
#[derive(Debug, Clone, Default)]
pub struct TableState {
    /// Its name.
    pub name: String,
    /// Time since its last insert or sample, or since the start of the server if it has had none.
    pub still: Duration,
    /// Whether anything was inserted since the start.
    pub was_inserted: bool,
    /// Whether anything was sampled since the start.
    pub was_sampled: bool,
    /// Whether anything was inserted before it was restored, and nothing since.
    pub was_inserted_before: bool,
    /// Whether anything was sampled before it was restored, and nothing since.
    pub was_sampled_before: bool,
    /// The longest pause that somebody who is connected may make.
    pub stall_after: Duration,
    /// Inserts a second.
    pub inserts_per_second: f64,
    /// Samples a second.
    pub samples_per_second: f64,
    /// Samples per insert of late.
    pub ratio: Option<f64>,
    /// Samples per insert that its limiter keeps. `None` if it keeps none.
    pub wanted_ratio: Option<f64>,
    /// Whether the limiter holds back inserts and samples at once.
    pub both_wait: bool,
    /// Why inserts wait, in a few words.
    pub why_inserts_wait: String,
    /// Why samples wait, in a few words.
    pub why_samples_wait: String,
    /// The requests that wait.
    pub waits: Vec<WaitState>,
}

impl TableState {
    /// Makes the state of a table of whose requests and rates nothing is known. `inserts` and `samples` count those since
    /// the start, and the limiter also those before it was restored.
    pub fn new(view: &LimiterView<'_>, inserts: u64, samples: u64) -> Self {
        let is_ratio = view.kind() == LimiterKind::Ratio;
        Self {
            name: view.table.name.clone(),
            was_inserted: inserts > 0,
            was_sampled: samples > 0,
            was_inserted_before: inserts == 0 && view.limiter.inserts > 0,
            was_sampled_before: samples == 0 && view.limiter.samples > 0,
            wanted_ratio: is_ratio.then_some(view.limiter.config.samples_per_insert),
            both_wait: view.both_wait(),
            why_inserts_wait: view.why_inserts_wait(),
            why_samples_wait: view.why_samples_wait(),
            ..Self::default()
        }
    }

    /// Whether items are inserted or sampled.
    pub fn flows(&self) -> bool {
        (self.was_inserted || self.was_sampled) && self.still < STILL
    }
}

/// A request that waits.
#[derive(Debug, Clone, Copy)]
pub struct WaitState {
    /// The place of its client in [`ServerState::clients`].
    pub client: usize,
    /// Whether it is an insert or a draw.
    pub operation: Operation,
    /// Who waits for it.
    pub kind: WaitKind,
    /// Time that it has waited.
    pub waited: Duration,
}

/// A client at one moment.
#[derive(Debug, Clone, Default)]
pub struct ClientState {
    /// The name of its program.
    pub program: String,
    /// The places of the tables into which it has inserted.
    pub inserted: BTreeSet<usize>,
    /// The places of the tables from which it has drawn.
    pub drawn: BTreeSet<usize>,
    /// Time since it connected.
    pub connected: Duration,
    /// Time since it last inserted or drew anything, or connected.
    pub still: Duration,
    /// Whether it looks at the server only, as `reverb top` does.
    pub only_looks: bool,
}

/// A client that has left.
#[derive(Debug, Clone)]
pub struct LeftClient {
    /// The name of its program.
    pub program: String,
    /// The places of the tables into which it had inserted.
    pub inserted: BTreeSet<usize>,
    /// The places of the tables from which it had drawn.
    pub drawn: BTreeSet<usize>,
    /// Time since then.
    pub ago: Duration,
    /// How it left.
    pub how: Departure,
}
