//! Reads effects from frames. The frames may come from anywhere: what they hold is checked, and what the effects mean to
//! a table is left to its replay.

use super::chunk::ReadChunks;
use super::format::{
    BACK, BEGIN, CHUNK, COUNT, COUNTERS, EFFECTS_OF, FIRST_OF, FLIGHT_PRIORITY, FORGET, GONE, MAX_BYTES, MAX_SIZE,
    MAX_TIMES_SAMPLED, NO_MAX_BYTES, OPTIONS, PRIORITIES, PUT_COLUMNS, PUT_ROWS, RATE_LIMITER, RESET, VERSION, WRITER,
    WROTE,
};
use super::input::Input;
use bytes::Bytes;
use reverb_core::{
    Counters, Effect, Error, ItemView, RateLimiterConfig, RemovalReason, Result, Slice, TableChanges, Trajectory,
    TrajectoryColumn, WriterId,
};
use reverb_service::write_ledger::LedgerState;
use std::sync::Arc;

/// What a frame holds.
#[derive(Debug)]
pub enum Record {
    /// An epoch begins.
    Begin {
        /// The names of the tables.
        tables: Vec<String>,
        /// What is known of each writer.
        ledgers: Vec<LedgerState>,
    },
    /// An effect that only a replay repeats which begins with this epoch.
    First {
        /// Index of the table.
        table: usize,
        /// The effect.
        effect: Effect,
    },
    /// An effect.
    Effect {
        /// Index of the table.
        table: usize,
        /// The effect.
        effect: Effect,
    },
}

/// Decodes the frames of one log, in order, from the beginning of an epoch. It keeps the chunks to which later frames may
/// refer.
#[derive(Debug)]
pub struct EffectDecoder {
    chunks: ReadChunks,
    /// Number of tables of the epoch. `None` before its beginning.
    tables: Option<usize>,
}

impl Default for EffectDecoder {
    fn default() -> Self {
        Self::new()
    }
}

/// Whose effects follow in a frame.
struct Target {
    table: usize,
    is_first: bool,
    writer: Option<Arc<WriterId>>,
}

impl EffectDecoder {
    /// Expects the beginning of an epoch.
    pub fn new() -> Self {
        Self { chunks: ReadChunks::new(), tables: None }
    }

    /// Decodes a frame and calls `visit` with what it holds, in order. After an error the decoder is of no use.
    ///
    /// # Errors
    /// [`Error::DataLoss`] if the frame is damaged or a later version has written it; errors of
    /// `visit`.
    pub fn decode(&mut self, frame: Bytes, visit: &mut dyn FnMut(Record) -> Result<()>) -> Result<()> {
        let mut input = Input::new(&frame);
        let mut target = None;
        while !input.is_empty() {
            let kind = input.byte("the kind of a record")?;
            match (kind, self.tables, &mut target) {
                (BEGIN, ..) => {
                    target = None;
                    visit(self.read_begin(&mut input)?)?;
                }
                (_, None, _) => {
                    return Err(input.damaged(format_args!("expected the beginning of an epoch, got {kind}")));
                }
                (FORGET, ..) => self.chunks.forget(),
                (CHUNK, ..) => self.chunks.read(&mut input)?,
                (FIRST_OF | EFFECTS_OF, Some(tables), _) => target = Some(read_target(&mut input, kind, tables)?),
                (WRITER, _, Some(target)) => target.writer = Some(Arc::new(input.writer()?)),
                (PUT_ROWS..=WROTE, _, Some(Target { table, is_first, writer })) => {
                    let effect = self.read_effect(&mut input, kind, writer.as_ref())?;
                    let table = *table;
                    visit(if *is_first { Record::First { table, effect } } else { Record::Effect { table, effect } })?;
                }
                (PUT_ROWS..=WROTE | WRITER, ..) => return Err(input.damaged("expected a table before its effects")),
                _ => return Err(input.unknown("a kind of record", kind)),
            }
        }
        Ok(())
    }

    fn read_begin(&mut self, input: &mut Input<'_>) -> Result<Record> {
        let version: u64 = input.number("the version of the format")?;
        if version != VERSION {
            return Err(input.unknown("a version of the format", version));
        }
        let tables = input.count("tables", 1)?;
        let tables =
            (0..tables).map(|_| input.text("the name of a table").map(String::from)).collect::<Result<Vec<_>>>()?;
        let ledgers = input.count("ledgers", 12)?;
        let ledgers = (0..ledgers).map(|_| read_ledger(input)).collect::<Result<_>>()?;
        self.chunks.forget();
        self.tables = Some(tables.len());
        Ok(Record::Begin { tables, ledgers })
    }

    #[inline]
    fn read_effect(&self, input: &mut Input<'_>, kind: u8, writer: Option<&Arc<WriterId>>) -> Result<Effect> {
        Ok(match kind {
            PUT_ROWS | PUT_COLUMNS => Effect::Put(self.read_item(input, kind)?),
            GONE => {
                let (key, inserted_at) = read_flight(input)?;
                Effect::Gone { key, inserted_at, reason: read_reason(input)? }
            }
            BACK => {
                let (key, inserted_at) = read_flight(input)?;
                Effect::Back { key, inserted_at }
            }
            PRIORITIES => {
                let count = input.count("priorities", 16)?;
                let read = |_| Ok((read_key(input)?, read_priority(input)?));
                Effect::Priorities((0..count).map(read).collect::<Result<_>>()?)
            }
            FLIGHT_PRIORITY => {
                let (key, inserted_at) = read_flight(input)?;
                Effect::FlightPriority { key, inserted_at, priority: read_priority(input)? }
            }
            COUNT => {
                let (key, inserted_at) = read_flight(input)?;
                Effect::Count { key, inserted_at, times_sampled: read_times(input)? }
            }
            RESET => Effect::Reset,
            OPTIONS => Effect::Options(Box::new(read_options(input)?)),
            COUNTERS => Effect::Counters(read_counters(input)?),
            WROTE => {
                let writer = writer.ok_or_else(|| input.damaged("expected a writer before the number of its item"))?;
                Effect::Wrote { writer: writer.clone(), sequence: input.number("a sequence number")? }
            }
            _ => return Err(input.unknown("a kind of record", kind)),
        })
    }

    fn read_item(&self, input: &mut Input<'_>, kind: u8) -> Result<ItemView> {
        let (key, priority) = (read_key(input)?, read_priority(input)?);
        let (inserted_at, times_sampled) = (read_time(input)?, read_times(input)?);
        let trajectory = if kind == PUT_ROWS {
            let chunk = self.chunks.read_reference(input)?.clone();
            match read_range(input)? {
                (offset, 0) => Trajectory::squeezed_row(chunk, offset),
                (offset, length) => Trajectory::rows(chunk, offset, length),
            }
        } else {
            Trajectory::columns(self.read_columns(input)?)
        };
        let trajectory = trajectory.and_then(check_size);
        let trajectory = trajectory.map_err(|error| input.damaged(format_args!("item {key}: {error}")))?;
        Ok(ItemView { key, priority, times_sampled, inserted_at, trajectory })
    }

    fn read_columns(&self, input: &mut Input<'_>) -> Result<Vec<TrajectoryColumn>> {
        let columns = input.count("columns of an item", 1)?;
        (0..columns).map(|_| self.read_column(input)).collect()
    }

    fn read_column(&self, input: &mut Input<'_>) -> Result<TrajectoryColumn> {
        let twice = input.count("slices of a column and their flag", 1)?;
        let slices = (0..twice >> 1).map(|_| {
            let chunk = self.chunks.read_reference(input)?.clone();
            let column = input.number("a column of a chunk")?;
            let (offset, length) = read_range(input)?;
            Ok(Slice { chunk, column, offset, length })
        });
        Ok(TrajectoryColumn { slices: slices.collect::<Result<_>>()?, squeeze: twice & 1 == 1 })
    }
}

fn check_size(trajectory: Trajectory) -> Result<Trajectory> {
    match trajectory.check_size("") {
        Ok(()) => Ok(trajectory),
        Err(Error::ItemTooLarge { size_bytes, max_bytes, .. }) => {
            Err(Error::DataLoss(format!("it refers to {size_bytes} bytes, more than the maximum of {max_bytes}")))
        }
        Err(error) => Err(error),
    }
}

fn read_target(input: &mut Input<'_>, kind: u8, tables: usize) -> Result<Target> {
    let table: usize = input.number("a table")?;
    if table >= tables {
        return Err(
            input.damaged(format_args!("the epoch has begun with {tables} tables, and table {table} has effects"))
        );
    }
    Ok(Target { table, is_first: kind == FIRST_OF, writer: None })
}

#[inline]
fn read_key(input: &mut Input<'_>) -> Result<u64> {
    input.u64("the key of an item")
}

#[inline]
fn read_priority(input: &mut Input<'_>) -> Result<f64> {
    input.f64("the priority of an item")
}

#[inline]
fn read_time(input: &mut Input<'_>) -> Result<u64> {
    input.u64("the time of an insert")
}

#[inline]
fn read_times(input: &mut Input<'_>) -> Result<i32> {
    input.signed("the draws of an item")
}

#[inline]
fn read_flight(input: &mut Input<'_>) -> Result<(u64, u64)> {
    Ok((read_key(input)?, read_time(input)?))
}

#[inline]
fn read_range(input: &mut Input<'_>) -> Result<(u32, u32)> {
    Ok((input.number("the first row of a slice")?, input.number("the rows of a slice")?))
}

fn read_reason(input: &mut Input<'_>) -> Result<RemovalReason> {
    Ok(match input.byte("the reason of a removal")? {
        0 => RemovalReason::MaxSize,
        1 => RemovalReason::MaxBytes,
        2 => RemovalReason::MaxTimesSampled,
        3 => RemovalReason::Delete,
        4 => RemovalReason::Reset,
        number => return Err(input.unknown("a reason of a removal", number)),
    })
}

fn read_options(input: &mut Input<'_>) -> Result<TableChanges> {
    let flags = input.byte("the options that have changed")?;
    let known = MAX_SIZE | MAX_BYTES | NO_MAX_BYTES | MAX_TIMES_SAMPLED | RATE_LIMITER;
    if flags & !known != 0 || flags & (MAX_BYTES | NO_MAX_BYTES) == MAX_BYTES | NO_MAX_BYTES {
        return Err(input.unknown("a set of options", flags));
    }
    let has = |flag: u8| flags & flag != 0;
    let mut changes = TableChanges::default();
    if has(MAX_SIZE) {
        changes.max_size = Some(input.number("max_size")?);
    }
    if has(MAX_BYTES) {
        changes.max_bytes = Some(Some(input.number("max_bytes")?));
    } else if has(NO_MAX_BYTES) {
        changes.max_bytes = Some(None);
    }
    if has(MAX_TIMES_SAMPLED) {
        changes.max_times_sampled = Some(input.signed("max_times_sampled")?);
    }
    if has(RATE_LIMITER) {
        changes.rate_limiter = Some(RateLimiterConfig {
            samples_per_insert: input.f64("samples_per_insert")?,
            min_size_to_sample: input.signed("min_size_to_sample")?,
            min_diff: input.f64("min_diff")?,
            max_diff: input.f64("max_diff")?,
        });
    }
    Ok(changes)
}

fn read_counters(input: &mut Input<'_>) -> Result<Counters> {
    Ok(Counters {
        inserts: input.signed("the count of inserts")?,
        samples: input.signed("the count of samples")?,
        deletes_and_items: input.signed("the count of deletes and items")?,
        num_episodes: input.number("the count of episodes")?,
        num_unique_samples: input.number("the count of unique samples")?,
        largest_priority: input.f64("the largest priority")?,
    })
}

fn read_ledger(input: &mut Input<'_>) -> Result<LedgerState> {
    let writer = Arc::new(input.writer()?);
    let (through, lost) = (input.number("a sequence number")?, input.number("a sequence number")?);
    let ranges = input.count("ranges of a ledger", 2)?;
    let mut read = || input.number("a sequence number");
    let beyond = (0..ranges).map(|_| Ok((read()?, read()?))).collect::<Result<_>>()?;
    Ok(LedgerState { writer, through, beyond, lost })
}
