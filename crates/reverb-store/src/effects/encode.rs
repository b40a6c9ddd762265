//! Puts effects into payloads.

use super::chunk::LoggedChunks;
use super::format::{
    BACK, BEGIN, COUNT, COUNTERS, EFFECTS_OF, FIRST_OF, FLIGHT_PRIORITY, GONE, MAX_BYTES, MAX_SIZE, MAX_TIMES_SAMPLED,
    NO_MAX_BYTES, OPTIONS, PRIORITIES, PUT_COLUMNS, PUT_ROWS, RATE_LIMITER, RESET, VERSION, WRITER, WROTE,
};
use super::output::{put_f64, put_signed, put_text, put_u64, put_varint, put_writer};
use crate::log::Payload;
use reverb_core::{
    Counters, Effect, Error, ItemView, RateLimiterConfig, RemovalReason, Result, TableChanges, Trajectory,
    TrajectoryColumn, WriterId,
};
use reverb_service::write_ledger::LedgerState;

/// What begins an epoch.
#[derive(Debug)]
pub struct Begin<'a> {
    /// The names of the tables, and the effects that only a replay which begins here repeats.
    pub tables: Vec<(&'a str, &'a [Effect])>,
    /// What is known of each writer.
    pub ledgers: &'a [LedgerState],
}

/// Encodes the effects of one log. It remembers which chunks the log has in this epoch, so what it has encoded must get
/// into the log, in this order, or a new epoch must begin.
#[derive(Debug)]
pub struct EffectEncoder {
    chunks: LoggedChunks,
    /// Number of tables of the epoch; 0 before [`EffectEncoder::put_begin`].
    tables: usize,
    /// The numbers of the chunks of the slices of an item.
    numbers: Vec<u64>,
}

impl Default for EffectEncoder {
    fn default() -> Self {
        Self::new()
    }
}

impl EffectEncoder {
    /// Begins with an epoch that has no chunks.
    pub fn new() -> Self {
        Self { chunks: LoggedChunks::new(), tables: 0, numbers: Vec::new() }
    }

    /// Begins an epoch, in which no chunk counts as logged yet, and puts its first record into the payload.
    ///
    /// # Errors
    /// Those of [`EffectEncoder::put_effects`].
    pub fn put_begin(&mut self, payload: &mut Payload, begin: &Begin<'_>) -> Result<()> {
        self.chunks.forget();
        self.tables = begin.tables.len();
        let out = payload.own();
        out.push(BEGIN);
        put_varint(out, VERSION);
        put_varint(out, begin.tables.len() as u64);
        begin.tables.iter().for_each(|(name, _)| put_text(out, name));
        put_varint(out, begin.ledgers.len() as u64);
        begin.ledgers.iter().for_each(|ledger| put_ledger(out, ledger));
        let mut tables = begin.tables.iter().enumerate();
        tables.try_for_each(|(table, (_, effects))| self.put_all(payload, FIRST_OF, table, effects))
    }

    /// Puts effects of the table with this index in [`Begin::tables`] into the payload.
    ///
    /// # Errors
    /// [`Error::Internal`] if the epoch has not begun with such a table.
    pub fn put_effects(&mut self, payload: &mut Payload, table: usize, effects: &[Effect]) -> Result<()> {
        if table >= self.tables {
            return Err(Error::Internal(format!(
                "effects of table {table} do not fit an epoch that has begun with {} tables",
                self.tables
            )));
        }
        self.put_all(payload, EFFECTS_OF, table, effects)
    }

    fn put_all(&mut self, payload: &mut Payload, kind: u8, table: usize, effects: &[Effect]) -> Result<()> {
        if effects.is_empty() {
            return Ok(());
        }
        payload.own().push(kind);
        put_varint(payload.own(), table as u64);
        let mut last_writer = None;
        effects.iter().try_for_each(|effect| self.put(payload, effect, &mut last_writer))
    }

    #[inline]
    fn put<'a>(
        &mut self,
        payload: &mut Payload,
        effect: &'a Effect,
        last_writer: &mut Option<&'a WriterId>,
    ) -> Result<()> {
        match effect {
            Effect::Put(item) => return self.put_item(payload, item),
            Effect::Wrote { writer, sequence } => {
                if *last_writer != Some(&**writer) {
                    payload.own().push(WRITER);
                    put_writer(payload.own(), writer);
                    *last_writer = Some(writer);
                }
                payload.own().push(WROTE);
                put_varint(payload.own(), *sequence);
            }
            effect => put_small(payload.own(), effect),
        }
        Ok(())
    }

    fn put_item(&mut self, payload: &mut Payload, item: &ItemView) -> Result<()> {
        self.chunks.begin_item(payload);
        match &item.trajectory {
            &Trajectory::Rows { ref chunk, offset, length, squeeze } => {
                let number = self.chunks.put(payload, chunk)?;
                let out = payload.own();
                put_fields(out, PUT_ROWS, item);
                put_varint(out, self.chunks.distance(number));
                put_varint(out, offset.into());
                put_varint(out, if squeeze { 0 } else { length.into() });
                Ok(())
            }
            Trajectory::Columns(columns) => self.put_columns(payload, item, columns),
        }
    }

    fn put_columns(&mut self, payload: &mut Payload, item: &ItemView, columns: &[TrajectoryColumn]) -> Result<()> {
        // Another log of this process may have the chunk as well, so its place is read only once.
        self.numbers.clear();
        for slice in columns.iter().flat_map(|column| &column.slices) {
            self.numbers.push(self.chunks.put(payload, &slice.chunk)?);
        }
        let out = payload.own();
        put_fields(out, PUT_COLUMNS, item);
        put_varint(out, columns.len() as u64);
        let mut numbers = self.numbers.iter();
        for TrajectoryColumn { slices, squeeze } in columns {
            put_varint(out, (slices.len() as u64) << 1 | u64::from(*squeeze));
            for (slice, &number) in slices.iter().zip(&mut numbers) {
                put_varint(out, self.chunks.distance(number));
                put_varint(out, slice.column.into());
                put_varint(out, slice.offset.into());
                put_varint(out, slice.length.into());
            }
        }
        Ok(())
    }
}

/// Appends a kind of record, and the fields of an item but for its data.
#[inline]
fn put_fields(out: &mut Vec<u8>, kind: u8, item: &ItemView) {
    let ItemView { key, priority, times_sampled, inserted_at, trajectory: _ } = item;
    out.push(kind);
    put_u64(out, *key);
    put_f64(out, *priority);
    put_u64(out, *inserted_at);
    put_signed(out, (*times_sampled).into());
}

/// Appends an effect that needs no more than itself.
fn put_small(out: &mut Vec<u8>, effect: &Effect) {
    match effect {
        Effect::Put(_) | Effect::Wrote { .. } => unreachable!("they are encoded by `put`"),
        Effect::Gone { key, inserted_at, reason } => {
            put_flight(out, GONE, *key, *inserted_at);
            out.push(reason_number(*reason));
        }
        Effect::Back { key, inserted_at } => put_flight(out, BACK, *key, *inserted_at),
        Effect::Priorities(updates) => {
            out.push(PRIORITIES);
            put_varint(out, updates.len() as u64);
            for (key, priority) in updates {
                put_u64(out, *key);
                put_f64(out, *priority);
            }
        }
        Effect::FlightPriority { key, inserted_at, priority } => {
            put_flight(out, FLIGHT_PRIORITY, *key, *inserted_at);
            put_f64(out, *priority);
        }
        Effect::Count { key, inserted_at, times_sampled } => {
            put_flight(out, COUNT, *key, *inserted_at);
            put_signed(out, (*times_sampled).into());
        }
        Effect::Reset => out.push(RESET),
        Effect::Options(changes) => put_options(out, changes),
        Effect::Counters(counters) => put_counters(out, counters),
    }
}

/// Appends a kind of record, and what tells an item from others with its key.
fn put_flight(out: &mut Vec<u8>, kind: u8, key: u64, inserted_at: u64) {
    out.push(kind);
    put_u64(out, key);
    put_u64(out, inserted_at);
}

fn reason_number(reason: RemovalReason) -> u8 {
    match reason {
        RemovalReason::MaxSize => 0,
        RemovalReason::MaxBytes => 1,
        RemovalReason::MaxTimesSampled => 2,
        RemovalReason::Delete => 3,
        RemovalReason::Reset => 4,
    }
}

fn put_options(out: &mut Vec<u8>, changes: &TableChanges) {
    let TableChanges { max_size, max_bytes, max_times_sampled, rate_limiter } = changes;
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    let flags = flag(max_size.is_some(), MAX_SIZE)
        | flag(matches!(max_bytes, Some(Some(_))), MAX_BYTES)
        | flag(matches!(max_bytes, Some(None)), NO_MAX_BYTES)
        | flag(max_times_sampled.is_some(), MAX_TIMES_SAMPLED)
        | flag(rate_limiter.is_some(), RATE_LIMITER);
    out.extend_from_slice(&[OPTIONS, flags]);
    if let Some(max_size) = max_size {
        put_varint(out, *max_size);
    }
    if let Some(Some(max_bytes)) = max_bytes {
        put_varint(out, *max_bytes);
    }
    if let Some(times) = max_times_sampled {
        put_signed(out, (*times).into());
    }
    if let Some(RateLimiterConfig { samples_per_insert, min_size_to_sample, min_diff, max_diff }) = rate_limiter {
        put_f64(out, *samples_per_insert);
        put_signed(out, *min_size_to_sample);
        put_f64(out, *min_diff);
        put_f64(out, *max_diff);
    }
}

fn put_counters(out: &mut Vec<u8>, counters: &Counters) {
    let Counters { inserts, samples, deletes_and_items, num_episodes, num_unique_samples, largest_priority } = counters;
    out.push(COUNTERS);
    [inserts, samples, deletes_and_items].into_iter().for_each(|count| put_signed(out, *count));
    [num_episodes, num_unique_samples].into_iter().for_each(|count| put_varint(out, *count));
    put_f64(out, *largest_priority);
}

fn put_ledger(out: &mut Vec<u8>, LedgerState { writer, through, beyond, lost }: &LedgerState) {
    put_writer(out, writer);
    put_varint(out, *through);
    put_varint(out, *lost);
    put_varint(out, beyond.len() as u64);
    for (first, last) in beyond {
        put_varint(out, *first);
        put_varint(out, *last);
    }
}
