//! Tables and items for tests of this crate and of the crates above it.
#![allow(dead_code, reason = "each test file is a program of its own, and none uses all of this")]

use bytes::Bytes;
use reverb_core::{
    Chunk, Confirmation, DType, Drawn, Effect, EpisodeIds, Error, Layout, NewItem, RateLimiterConfig, RemovalReason,
    Result, SelectorKind, StepRange, Table, TableConfig, Trajectory, encode_strings, random_key,
};
use reverb_service::{DrawRequest, Journal, Notice, Peer, TableHandle, Waiting};
use smallvec::smallvec;
use std::fmt::{self, Debug, Formatter};
use std::sync::{Arc, LazyLock, Mutex};
use std::task::{Context, Wake};

pub fn config(name: &str) -> TableConfig {
    TableConfig {
        name: name.into(),
        sampler: SelectorKind::Uniform,
        remover: SelectorKind::Fifo,
        max_size: 1_000_000,
        max_times_sampled: 0,
        rate_limiter: RateLimiterConfig {
            samples_per_insert: 1.0,
            min_size_to_sample: 1,
            min_diff: -f64::MAX,
            max_diff: f64::MAX,
        },
        signature: None,
        max_bytes: None,
        seed: Some(1),
    }
}

/// A table whose items can be drawn any number of times.
pub fn uniform(name: &str) -> TableHandle {
    TableHandle::new(Table::new(config(name)).unwrap())
}

/// A queue: first in, first out, each item once, at most `size` items.
pub fn queue(name: &str, size: u64) -> TableHandle {
    let limiter =
        RateLimiterConfig { samples_per_insert: 1.0, min_size_to_sample: 1, min_diff: 0.0, max_diff: size as f64 };
    let sampler = SelectorKind::Fifo;
    let config = TableConfig { sampler, max_size: size, max_times_sampled: 1, rate_limiter: limiter, ..config(name) };
    TableHandle::new(Table::new(config).unwrap())
}

/// A chunk of one int64 column that holds `values`.
pub fn chunk(values: &[i64]) -> Arc<Chunk> {
    let layout = Layout::new(values.len(), [(DType::Int64, smallvec![], 0)]).unwrap();
    let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    chunk_of(layout, data)
}

pub fn chunk_of(layout: Layout, data: impl Into<Bytes>) -> Arc<Chunk> {
    let episodes = EpisodeIds::PerRow(random_key());
    Arc::new(Chunk::new(random_key(), episodes, StepRange::default(), Arc::new(layout), data.into()).unwrap())
}

/// A chunk of a column of strings.
pub fn strings(texts: &[&str]) -> Arc<Chunk> {
    let region = encode_strings(texts.iter().map(|text| text.as_bytes())).unwrap();
    let layout = Layout::new(texts.len(), [(DType::String, smallvec![], region.len())]).unwrap();
    chunk_of(layout, region)
}

pub fn item(key: u64) -> NewItem {
    let trajectory = Trajectory::rows(chunk(&[key as i64]), 0, 1).unwrap();
    NewItem { key, priority: 1.0, takes_largest: false, others: None, times_sampled: 0, trajectory }
}

pub fn items(keys: impl IntoIterator<Item = u64>) -> Vec<NewItem> {
    keys.into_iter().map(item).collect()
}

pub fn keys(drawn: &[Drawn]) -> Vec<u64> {
    drawn.iter().map(|drawn| drawn.key).collect()
}

/// Returns the result of a call that is done.
#[macro_export]
macro_rules! done {
    ($call:expr) => {
        match $call {
            reverb_service::Call::Done(result) => result.unwrap(),
            reverb_service::Call::Waiting(_) => panic!("the call waits"),
        }
    };
}

/// Returns the waiting request of a call that is not done.
#[macro_export]
macro_rules! waits {
    ($call:expr) => {
        match $call {
            reverb_service::Call::Done(_) => panic!("the call does not wait"),
            reverb_service::Call::Waiting(waiting) => waiting,
        }
    };
}

pub fn silent(_: &Notice) {}

/// The peer of the callers in this process.
pub fn here() -> &'static Arc<Peer> {
    static HERE: LazyLock<Arc<Peer>> = LazyLock::new(Peer::in_same_process);
    &HERE
}

pub fn exactly(count: usize) -> DrawRequest {
    DrawRequest::exactly(count)
}

/// Calls `look` in the thread that sends the answer of a draw, once the answer is there.
pub fn on_answer(mut waiting: Waiting<Vec<Drawn>>, look: impl FnOnce() + Send + 'static) -> Waiting<Vec<Drawn>> {
    struct OnWake<F>(Mutex<Option<F>>);

    impl<F: FnOnce() + Send + 'static> Wake for OnWake<F> {
        fn wake(self: Arc<Self>) {
            let look = self.0.lock().unwrap().take();
            look.into_iter().for_each(|look| look());
        }
    }

    let waker = Arc::new(OnWake(Mutex::new(Some(look)))).into();
    assert!(waiting.poll_result(&mut Context::from_waker(&waker)).is_pending());
    waiting
}

type Look = Box<dyn FnMut() + Send>;

/// An effect, as tests compare it.
#[derive(Debug, Clone, PartialEq)]
pub enum Told {
    Put(u64),
    Gone(u64, RemovalReason),
    Back(u64),
    Priority(u64, f64),
    /// Of an item that draws in flight have taken.
    FlightPriority(u64, f64),
    Count(u64, i32),
    Reset,
    Options,
    /// The id of the writer, and its number.
    Wrote(u64, u64),
}

impl Told {
    /// What an effect tells: one or more, or nothing.
    fn of(effect: &Effect) -> Vec<Self> {
        vec![match effect {
            Effect::Put(item) => Self::Put(item.key),
            Effect::Gone { key, reason, .. } => Self::Gone(*key, *reason),
            Effect::Back { key, .. } => Self::Back(*key),
            Effect::Priorities(updates) => return updates.iter().map(|(key, to)| Self::Priority(*key, *to)).collect(),
            Effect::FlightPriority { key, priority, .. } => Self::FlightPriority(*key, *priority),
            Effect::Count { key, times_sampled, .. } => Self::Count(*key, *times_sampled),
            Effect::Reset => Self::Reset,
            Effect::Options(_) => Self::Options,
            Effect::Wrote { writer, sequence } => Self::Wrote(writer.id, *sequence),
            Effect::Counters(_) => return Vec::new(),
        }]
    }

    /// An item that was received for the last time.
    pub fn received(key: u64) -> Self {
        Self::Gone(key, RemovalReason::MaxTimesSampled)
    }

    pub fn deleted(key: u64) -> Self {
        Self::Gone(key, RemovalReason::Delete)
    }
}

/// Gives a table a journal that may have the table itself, so that they keep each other alive. LeakSanitizer does not take
/// what a static has for a leak.
pub fn set_journal(table: &TableHandle, journal: Arc<dyn Journal>) {
    static ALL: Mutex<Vec<Arc<dyn Journal>>> = Mutex::new(Vec::new());
    ALL.lock().unwrap().push(journal.clone());
    table.set_journal(journal);
}

/// A journal that can be asked what it has committed, and that calls a function when it does.
pub struct Recorder {
    table: TableHandle,
    committed: Mutex<Committed>,
    look: Mutex<Option<Look>>,
}

/// The commits since the last [`Recorder::take`].
#[derive(Default)]
struct Committed {
    effects: Vec<Effect>,
    confirmations: Vec<Confirmation>,
    /// The error of all commits.
    error: Option<Error>,
    /// The error of all checks.
    refusal: Option<Error>,
}

impl Recorder {
    pub fn of(table: &TableHandle) -> Arc<Self> {
        let recorder = Arc::new(Self { table: table.clone(), committed: Mutex::default(), look: Mutex::default() });
        set_journal(table, recorder.clone());
        recorder
    }

    /// Returns the effects since the last call. All of them that answers wait for must be committed.
    pub fn take(&self) -> Vec<Told> {
        self.take_effects().iter().flat_map(Told::of).collect()
    }

    pub fn take_effects(&self) -> Vec<Effect> {
        let mut committed = self.committed.lock().unwrap();
        let before = committed.effects.len();
        self.table.drain_effects(&mut committed.effects);
        let left = committed.effects[before..].iter().filter(|effect| effect.confirmation() > Confirmation::Nothing);
        assert_eq!(left.flat_map(Told::of).collect::<Vec<_>>(), [], "not committed");
        committed.confirmations.clear();
        std::mem::take(&mut committed.effects)
    }

    /// How safe each commit since the last call of [`Recorder::take`] had to be.
    pub fn confirmations(&self) -> Vec<Confirmation> {
        self.committed.lock().unwrap().confirmations.clone()
    }

    /// Calls `look` before each commit is done.
    pub fn at_commit(&self, look: impl FnMut() + Send + 'static) {
        *self.look.lock().unwrap() = Some(Box::new(look));
    }

    /// Lets all commits fail from now on.
    pub fn fail(&self, error: &Error) {
        self.committed.lock().unwrap().error = Some(error.clone());
    }

    /// Lets all checks fail from now on, or none.
    pub fn refuse(&self, error: Option<&Error>) {
        self.committed.lock().unwrap().refusal = error.cloned();
    }
}

impl Debug for Recorder {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("Recorder")
    }
}

impl Journal for Recorder {
    fn check(&self) -> Result<()> {
        self.committed.lock().unwrap().refusal.clone().map_or(Ok(()), Err)
    }

    fn commit(&self, confirmation: Confirmation) -> Result<()> {
        if let Some(look) = &mut *self.look.lock().unwrap() {
            look();
        }
        let mut committed = self.committed.lock().unwrap();
        self.table.drain_effects(&mut committed.effects);
        committed.confirmations.push(confirmation);
        committed.error.clone().map_or(Ok(()), Err)
    }
}
