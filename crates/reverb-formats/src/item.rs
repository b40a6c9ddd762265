//! Converts items to `PrioritizedItem` messages and back.

use crate::wire::{Value, fields, put_bytes, put_double, put_int32, put_length, put_number, varint};
use reverb_core::{
    Chunk, ChunkKey, Drawn, Error, ItemKey, ItemView, MAX_ITEM_SLICES, NewItem, Result, Slice, Trajectory,
    TrajectoryColumn,
};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

const NANOS: u64 = 1_000_000_000;

/// How many chunks a [`ChunkFinder`] compares after and before the position of the last match.
const AHEAD: usize = 2;
const BACK: usize = 14;

/// The chunks of a checkpoint, in the order of their file.
#[derive(Debug, Default)]
pub struct Chunks {
    keys: Vec<u64>,
    chunks: Vec<Arc<Chunk>>,
    /// Built when a search near the last match first fails, because this takes seconds for millions of chunks.
    by_key: OnceLock<HashMap<u64, u32, foldhash::fast::RandomState>>,
}

impl Chunks {
    /// Reserves memory for `count` more chunks.
    pub fn reserve(&mut self, count: usize) {
        self.keys.reserve_exact(count);
        self.chunks.reserve_exact(count);
    }

    /// Appends a chunk.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there are 2^32 chunks already.
    pub fn push(&mut self, chunk: Arc<Chunk>) -> Result<()> {
        if self.keys.len() >= u32::MAX as usize {
            return Err(Error::invalid("cannot load a checkpoint with more than 2^32 chunks"));
        }
        self.keys.push(chunk.key);
        self.chunks.push(chunk);
        Ok(())
    }

    /// Replaces each chunk whose key occurred before by the first one. The reference sometimes writes a chunk twice.
    pub fn share_duplicates(&mut self) {
        for index in 0..self.keys.len() {
            if let Some(first) = self.look_up(self.keys[index]).filter(|&first| first < index) {
                self.chunks[index] = self.chunks[first].clone();
            }
        }
    }

    /// Returns a finder, which looks up chunks by key.
    pub fn finder(&self) -> ChunkFinder<'_> {
        ChunkFinder { chunks: self, next: 0 }
    }

    fn look_up(&self, key: u64) -> Option<usize> {
        let by_key = self.by_key.get_or_init(|| {
            let mut by_key = HashMap::with_capacity_and_hasher(self.keys.len(), foldhash::fast::RandomState::default());
            for (index, &key) in (0..).zip(&self.keys) {
                by_key.entry(key).or_insert(index);
            }
            by_key
        });
        by_key.get(&key).map(|&index| index as usize)
    }
}

/// Looks up the chunks that items name.
pub trait FindChunk {
    /// Returns the chunk of a key.
    ///
    /// # Errors
    /// An error that says that there is none. [`ItemMessage::resolve`] adds the item to an [`Error::DataLoss`].
    fn find(&mut self, key: u64) -> Result<&Arc<Chunk>>;
}

/// Finds chunks by key. Items are mostly saved in the order of their chunks, so it searches near the last match first.
#[derive(Debug)]
pub struct ChunkFinder<'a> {
    chunks: &'a Chunks,
    next: usize,
}

impl FindChunk for ChunkFinder<'_> {
    fn find(&mut self, key: u64) -> Result<&Arc<Chunk>> {
        let keys = &self.chunks.keys;
        let ahead = self.next..(self.next + AHEAD).min(keys.len());
        let back = (self.next.saturating_sub(BACK)..self.next.min(keys.len())).rev();
        let near = ahead.chain(back).find(|&index| keys[index] == key);
        let index = near.or_else(|| self.chunks.look_up(key));
        let index = index.ok_or_else(|| Error::DataLoss(format!("chunk {key} is missing")))?;
        self.next = index + 1;
        Ok(&self.chunks.chunks[index])
    }
}

/// Encodes items. Reuses its buffers from message to message.
#[derive(Debug, Default)]
pub struct ItemEncoder {
    trajectory: Vec<u8>,
    column: Vec<u8>,
    slice: Vec<u8>,
}

impl ItemEncoder {
    /// Appends the message of an item to `out`. `name` returns the key under which a chunk is saved.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the number of a row does not fit into the 31 bits of the message.
    pub fn encode(
        &mut self,
        item: &ItemView,
        table: &str,
        mut name: impl FnMut(&Arc<Chunk>) -> u64,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let &ItemView { key, priority, times_sampled, inserted_at, .. } = item;
        self.put_trajectory(&item.trajectory, |chunk| (name(chunk), 0))?;
        self.put_item(&ItemHead { key, table, priority, times_sampled, inserted_at }, out);
        Ok(())
    }

    /// Appends the message of a drawn item. `place` returns the key under which a part of a chunk is sent, and the row of
    /// the chunk that is the first row of this part.
    ///
    /// # Errors
    /// Those of [`ItemEncoder::encode`].
    pub fn encode_drawn(
        &mut self,
        drawn: &Drawn,
        table: &str,
        place: impl FnMut(&Arc<Chunk>) -> (ChunkKey, u32),
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let &Drawn { key, priority, times_sampled, inserted_at, .. } = drawn;
        self.put_trajectory(&drawn.trajectory, place)?;
        self.put_item(&ItemHead { key, table, priority, times_sampled, inserted_at }, out);
        Ok(())
    }

    fn put_trajectory(
        &mut self,
        trajectory: &Trajectory,
        mut place: impl FnMut(&Arc<Chunk>) -> (ChunkKey, u32),
    ) -> Result<()> {
        match trajectory {
            &Trajectory::Rows { ref chunk, offset, length, squeeze } => {
                let (key, first) = place(chunk);
                self.put_rows(key, chunk.columns().len(), (offset - first, length), squeeze)?;
            }
            Trajectory::Columns(columns) => {
                self.trajectory.clear();
                for column in columns.iter() {
                    self.column.clear();
                    for slice in &column.slices {
                        let (key, first) = place(&slice.chunk);
                        self.put_slice(key, slice.offset - first, slice.length, slice.column)?;
                    }
                    put_number(&mut self.column, 2, u64::from(column.squeeze));
                    put_bytes(&mut self.trajectory, 1, &self.column);
                }
            }
        }
        Ok(())
    }

    /// Appends the message of a new item, which consists of the first `rows` rows of all columns of a chunk.
    ///
    /// # Errors
    /// Those of [`ItemEncoder::encode`].
    pub fn encode_rows(
        &mut self,
        (key, priority): (ItemKey, f64),
        table: &str,
        (chunk, columns, rows): (ChunkKey, usize, u32),
        out: &mut Vec<u8>,
    ) -> Result<()> {
        self.put_rows(chunk, columns, (0, rows), false)?;
        self.put_item(&ItemHead { key, table, priority, times_sampled: 0, inserted_at: 0 }, out);
        Ok(())
    }

    fn put_rows(&mut self, chunk: ChunkKey, columns: usize, rows: (u32, u32), squeeze: bool) -> Result<()> {
        self.trajectory.clear();
        for index in 0..columns {
            self.column.clear();
            self.put_slice(chunk, rows.0, rows.1, index as u32)?;
            put_number(&mut self.column, 2, u64::from(squeeze));
            put_bytes(&mut self.trajectory, 1, &self.column);
        }
        Ok(())
    }

    /// Appends an item with the trajectory that was encoded last.
    fn put_item(&mut self, item: &ItemHead<'_>, out: &mut Vec<u8>) {
        put_number(out, 1, item.key);
        put_bytes(out, 2, item.table.as_bytes());
        put_double(out, 5, item.priority);
        put_int32(out, 6, item.times_sampled);
        self.slice.clear();
        put_number(&mut self.slice, 1, item.inserted_at / NANOS);
        put_number(&mut self.slice, 2, item.inserted_at % NANOS);
        put_bytes(out, 7, &self.slice);
        put_length(out, 8, self.trajectory.len());
        out.extend_from_slice(&self.trajectory);
    }

    fn put_slice(&mut self, key: u64, offset: u32, length: u32, column: u32) -> Result<()> {
        if offset.saturating_add(length) > i32::MAX as u32 {
            return Err(Error::invalid(format!(
                "{length} rows from row {offset} of chunk {key} exceed the 2^31 rows that a checkpoint can address"
            )));
        }
        self.slice.clear();
        put_number(&mut self.slice, 1, key);
        put_number(&mut self.slice, 2, u64::from(offset));
        put_number(&mut self.slice, 3, u64::from(length));
        put_number(&mut self.slice, 4, u64::from(column));
        put_bytes(&mut self.column, 1, &self.slice);
        Ok(())
    }
}

/// The fields of an item beside its trajectory.
struct ItemHead<'a> {
    key: ItemKey,
    table: &'a str,
    priority: f64,
    times_sampled: i32,
    inserted_at: u64,
}

/// An item that was parsed, but whose chunks were not looked up yet.
#[derive(Debug)]
pub struct ItemMessage<'a> {
    key: u64,
    /// Name of the table that holds the item.
    pub table: &'a str,
    priority: f64,
    times_sampled: i32,
    inserted_at: u64,
    trajectory: Option<&'a [u8]>,
    old_keys: Vec<u64>,
    old_range: Option<&'a [u8]>,
}

impl<'a> ItemMessage<'a> {
    /// Reads a serialised `PrioritizedItem`.
    ///
    /// # Errors
    /// [`Error::DataLoss`] if the message does not parse.
    pub fn read(message: &'a [u8]) -> Result<Self> {
        let mut item = Self {
            key: 0,
            table: "",
            priority: 0.0,
            times_sampled: 0,
            inserted_at: 0,
            trajectory: None,
            old_keys: Vec::new(),
            old_range: None,
        };
        for field in fields(message) {
            match field? {
                (1, value) => item.key = value.varint()?,
                (2, value) => {
                    let name = str::from_utf8(value.bytes()?);
                    item.table =
                        name.map_err(|_| Error::DataLoss("the table name of an item is not valid UTF-8".into()))?;
                }
                (3, Value::Bytes(mut packed)) => {
                    while !packed.is_empty() {
                        item.push_old_key(varint(&mut packed)?)?;
                    }
                }
                (3, value) => item.push_old_key(value.varint()?)?,
                (4, value) => item.old_range = Some(value.bytes()?),
                (5, value) => item.priority = value.double()?,
                (6, value) => item.times_sampled = value.int32()?,
                (7, value) => item.inserted_at = read_timestamp(value.bytes()?)?,
                (8, value) => item.trajectory = Some(value.bytes()?),
                _ => {}
            }
        }
        Ok(item)
    }

    fn push_old_key(&mut self, key: u64) -> Result<()> {
        if self.old_keys.len() == MAX_ITEM_SLICES {
            return Err(Error::DataLoss(format!("item {} has more than {MAX_ITEM_SLICES} chunks", self.key)));
        }
        self.old_keys.push(key);
        Ok(())
    }

    /// Looks up the chunks. Returns the item and its time of insertion in nanoseconds since the Unix epoch.
    ///
    /// # Errors
    /// [`Error::DataLoss`] if a chunk is missing or a slice exceeds its chunk, naming the item and the table.
    pub fn resolve(&self, chunks: &mut impl FindChunk) -> Result<(NewItem, u64)> {
        let trajectory = self.trajectory(chunks).map_err(|error| match error {
            Error::DataLoss(reason) | Error::InvalidArgument(reason) => {
                Error::DataLoss(format!("item {} of table `{}`: {reason}", self.key, self.table))
            }
            error => error,
        })?;
        let Self { key, priority, times_sampled, .. } = *self;
        Ok((NewItem { key, priority, takes_largest: false, others: None, times_sampled, trajectory }, self.inserted_at))
    }

    /// Looks up the chunks of an item that a client inserts. Ignores the deprecated fields, as servers of the reference
    /// do.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the trajectory is empty or damaged, or a slice exceeds its chunk, naming the item
    /// and the table; [`Error::ItemTooLarge`]; the errors of `chunks`.
    pub fn resolve_inserted(&self, chunks: &mut impl FindChunk) -> Result<NewItem> {
        let columns = self.trajectory.map_or(Ok(Vec::new()), |message| read_columns(message, chunks));
        let is_empty = |columns: &Vec<TrajectoryColumn>| columns.iter().all(|column| column.slices.is_empty());
        if columns.as_ref().is_ok_and(is_empty) {
            return Err(Error::invalid("Item trajectory must not be empty."));
        }
        let trajectory = columns.and_then(Trajectory::columns).map_err(|error| match error {
            Error::DataLoss(reason) | Error::InvalidArgument(reason) => {
                Error::invalid(format!("item {} of table `{}`: {reason}", self.key, self.table))
            }
            error => error,
        })?;
        let Self { key, priority, times_sampled, .. } = *self;
        Ok(NewItem { key, priority, takes_largest: false, others: None, times_sampled, trajectory })
    }

    fn trajectory(&self, chunks: &mut impl FindChunk) -> Result<Trajectory> {
        let trajectory = match (self.trajectory, self.old_range) {
            (Some(trajectory), None) if self.old_keys.is_empty() => {
                Trajectory::columns(read_columns(trajectory, chunks)?)?
            }
            (None, range) if !self.old_keys.is_empty() => self.old_trajectory(range.unwrap_or_default(), chunks)?,
            (None, _) => return Err(Error::DataLoss("the trajectory is missing".into())),
            _ => return Err(Error::DataLoss("it has both `flat_trajectory` and the deprecated fields".into())),
        };
        match trajectory.check_size(self.table) {
            Ok(()) => Ok(trajectory),
            Err(Error::ItemTooLarge { size_bytes, max_bytes, .. }) => {
                Err(Error::DataLoss(format!("it refers to {size_bytes} bytes, more than the maximum of {max_bytes}")))
            }
            Err(error) => Err(error),
        }
    }

    /// The trajectory of an old item: `length` rows of all columns of its chunks, from row `offset` of the first chunk.
    fn old_trajectory(&self, range: &[u8], chunks: &mut impl FindChunk) -> Result<Trajectory> {
        let (mut offset, mut left) = (0, 0);
        for field in fields(range) {
            match field? {
                (1, value) => offset = as_row(value.varint()?)?,
                (2, value) => left = as_row(value.varint()?)?,
                _ => {}
            }
        }
        let mut rows = Vec::new();
        for &key in &self.old_keys {
            let chunk = chunks.find(key)?.clone();
            let length = chunk.rows().saturating_sub(offset).min(left);
            if length > 0 {
                rows.push((chunk, offset, length));
            }
            left -= length;
            offset = 0;
        }
        if left > 0 {
            return Err(Error::DataLoss(format!("its chunks have {left} rows too few")));
        }
        let num_columns = rows.first().map_or(0, |(chunk, ..)| chunk.columns().len());
        let column = |column: usize| TrajectoryColumn {
            slices: rows
                .iter()
                .map(|(chunk, offset, length)| Slice {
                    chunk: chunk.clone(),
                    column: column as u32,
                    offset: *offset,
                    length: *length,
                })
                .collect(),
            squeeze: false,
        };
        Trajectory::columns((0..num_columns).map(column).collect())
    }
}

fn read_timestamp(message: &[u8]) -> Result<u64> {
    let (mut seconds, mut nanos) = (0, 0);
    for field in fields(message) {
        match field? {
            (1, value) => seconds = value.varint()?,
            (2, value) => nanos = value.varint()?,
            _ => {}
        }
    }
    let time = seconds.checked_mul(NANOS).filter(|_| nanos < NANOS).and_then(|time| time.checked_add(nanos));
    time.ok_or_else(|| Error::DataLoss(format!("invalid insertion time of an item: {seconds} s and {nanos} ns")))
}

fn read_columns(message: &[u8], chunks: &mut impl FindChunk) -> Result<Vec<TrajectoryColumn>> {
    let mut columns = Vec::new();
    let mut left = MAX_ITEM_SLICES;
    for field in fields(message) {
        if let (1, column) = field? {
            columns.push(read_column(column.bytes()?, chunks, &mut left)?);
        }
    }
    Ok(columns)
}

fn read_column(message: &[u8], chunks: &mut impl FindChunk, left: &mut usize) -> Result<TrajectoryColumn> {
    let mut slices = SmallVec::new();
    let mut squeeze = false;
    let mut take = || {
        *left =
            left.checked_sub(1).ok_or_else(|| Error::DataLoss(format!("it has more than {MAX_ITEM_SLICES} slices")))?;
        Ok::<_, Error>(())
    };
    take()?;
    for field in fields(message) {
        match field? {
            (1, slice) => {
                take()?;
                slices.push(read_slice(slice.bytes()?, chunks)?);
            }
            (2, value) => squeeze = value.varint()? != 0,
            _ => {}
        }
    }
    Ok(TrajectoryColumn { slices, squeeze })
}

fn read_slice(message: &[u8], chunks: &mut impl FindChunk) -> Result<Slice> {
    let (mut key, mut offset, mut length, mut column) = (0, 0, 0, 0);
    for field in fields(message) {
        match field? {
            (1, value) => key = value.varint()?,
            (2, value) => offset = as_row(value.varint()?)?,
            (3, value) => length = as_row(value.varint()?)?,
            (4, value) => column = as_row(value.varint()?)?,
            _ => {}
        }
    }
    Ok(Slice { chunk: chunks.find(key)?.clone(), column, offset, length })
}

fn as_row(number: u64) -> Result<u32> {
    u32::try_from(number).map_err(|_| Error::DataLoss(format!("{number} is not a valid number of a row or column")))
}
