//! Converts tables to `PriorityTableCheckpoint` messages and back.

use crate::definitions::{read_selector, selector_options};
use crate::proto::schema::RateLimiterCheckpoint;
use crate::signature::read_signature;
use crate::wire::{Value, fields, put_bytes, put_int32, put_number};
use prost::Message;
use reverb_core::{Error, RateLimiterConfig, Result, TableConfig, TableSnapshot};
use std::sync::Arc;

/// The counts in a checkpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of new items inserted.
    pub inserts: i64,
    /// Number of items drawn.
    pub samples: i64,
    /// Number of items removed.
    pub deletes: i64,
    /// Number of episodes whose last item has been removed.
    pub num_deleted_episodes: u64,
    /// Number of items that were drawn at least once.
    pub num_unique_samples: u64,
}

/// Maximum of each count, so that a table can count on without an overflow.
const MAX_COUNT: i64 = i64::MAX / 2;

impl Counts {
    /// Checks that a table can count on from here.
    fn check(&self) -> Result<()> {
        let Self { inserts, samples, deletes, num_deleted_episodes, num_unique_samples } = *self;
        let unsigned = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let counts = [
            ("insert_count", inserts),
            ("sample_count", samples),
            ("delete_count", deletes),
            ("num_deleted_episodes", unsigned(num_deleted_episodes)),
            ("num_unique_samples", unsigned(num_unique_samples)),
        ];
        match counts.iter().find(|(_, count)| !(0..=MAX_COUNT).contains(count)) {
            Some((name, count)) => {
                Err(Error::DataLoss(format!("{name} must be between 0 and {MAX_COUNT}, got {count}")))
            }
            None => Ok(()),
        }
    }
}

/// A table of a checkpoint, without its items.
#[derive(Debug, Clone)]
pub struct TableRecord {
    /// The definition of the table. The record of the reference has neither `max_bytes` nor a seed.
    pub config: TableConfig,
    /// The counts of the table.
    pub counts: Counts,
    /// The whole message, if it holds items, as in old checkpoints.
    message_with_items: Option<Vec<u8>>,
}

impl TableRecord {
    /// Whether the record itself holds the items, as in old checkpoints.
    pub fn has_items(&self) -> bool {
        self.message_with_items.is_some()
    }

    /// The items in the record, each a serialised `PrioritizedItem`.
    pub fn items(&self) -> impl Iterator<Item = &[u8]> {
        let all = fields(self.message_with_items.as_deref().unwrap_or_default());
        all.filter_map(|field| if let Ok((2, Value::Bytes(item))) = field { Some(item) } else { None })
    }
}

/// Encodes the record of a table that holds `items` items.
pub fn encode_table(snapshot: &TableSnapshot, items: u64) -> Vec<u8> {
    let TableSnapshot { config, limiter, .. } = snapshot;
    let RateLimiterConfig { samples_per_insert, min_size_to_sample, min_diff, max_diff } = config.rate_limiter;
    let limiter = RateLimiterCheckpoint {
        samples_per_insert,
        min_diff,
        max_diff,
        min_size_to_sample,
        sample_count: limiter.samples.min(MAX_COUNT),
        insert_count: limiter.inserts.min(MAX_COUNT),
        delete_count: limiter.deletes.min(MAX_COUNT),
    };
    let mut out = Vec::new();
    put_bytes(&mut out, 1, config.name.as_bytes());
    put_bytes(&mut out, 3, &limiter.encode_to_vec());
    put_bytes(&mut out, 4, &selector_options(&config.sampler).encode_to_vec());
    put_bytes(&mut out, 5, &selector_options(&config.remover).encode_to_vec());
    // The reference refuses a table that holds more than its maximum size. The sidecar states the true maximum.
    put_number(&mut out, 6, config.max_size.max(items).min(i64::MAX as u64));
    put_int32(&mut out, 7, config.max_times_sampled);
    put_number(&mut out, 8, snapshot.num_deleted_episodes.min(MAX_COUNT as u64));
    if let Some(signature) = &config.signature {
        put_bytes(&mut out, 9, &signature.structure);
    }
    put_number(&mut out, 10, snapshot.num_unique_samples.min(MAX_COUNT as u64));
    out
}

/// Reads a serialised `PriorityTableCheckpoint`.
///
/// # Errors
/// [`Error::DataLoss`] if the message does not parse, [`Error::InvalidArgument`] if it does not define a valid table.
/// Both name the table.
pub fn decode_table(message: &[u8]) -> Result<TableRecord> {
    let mut parts = TableParts::default();
    for field in fields(message) {
        match field? {
            (1, value) => parts.name = String::from_utf8_lossy(value.bytes()?).into_owned(),
            (2, value) => {
                value.bytes()?;
                parts.message_with_items = Some(message);
            }
            (3, value) => parts.limiter = value.bytes()?,
            (4, value) => parts.sampler = value.bytes()?,
            (5, value) => parts.remover = value.bytes()?,
            (6, value) => parts.max_size = value.varint()?,
            (7, value) => parts.max_times_sampled = value.int32()?,
            (8, value) => parts.num_deleted_episodes = value.varint()?,
            (9, value) => parts.signature = Some(value.bytes()?),
            (10, value) => parts.num_unique_samples = value.varint()?,
            _ => {}
        }
    }
    let name = parts.name.clone();
    parts.into_record().map_err(|error| match error {
        Error::DataLoss(reason) => Error::DataLoss(format!("table `{name}`: {reason}")),
        Error::InvalidArgument(reason) => Error::InvalidArgument(format!("table `{name}`: {reason}")),
        error => error,
    })
}

#[derive(Default)]
struct TableParts<'a> {
    name: String,
    message_with_items: Option<&'a [u8]>,
    limiter: &'a [u8],
    sampler: &'a [u8],
    remover: &'a [u8],
    max_size: u64,
    max_times_sampled: i32,
    num_deleted_episodes: u64,
    signature: Option<&'a [u8]>,
    num_unique_samples: u64,
}

impl TableParts<'_> {
    fn into_record(self) -> Result<TableRecord> {
        let unreadable = |error: prost::DecodeError| Error::DataLoss(error.to_string());
        let limiter = RateLimiterCheckpoint::decode(self.limiter).map_err(unreadable)?;
        let counts = Counts {
            inserts: limiter.insert_count,
            samples: limiter.sample_count,
            deletes: limiter.delete_count,
            num_deleted_episodes: self.num_deleted_episodes,
            num_unique_samples: self.num_unique_samples,
        };
        counts.check()?;
        let config = TableConfig {
            sampler: read_selector("sampler", self.sampler)?,
            remover: read_selector("remover", self.remover)?,
            max_size: i64::try_from(self.max_size).map_or(0, |size| size as u64),
            max_times_sampled: self.max_times_sampled,
            rate_limiter: RateLimiterConfig {
                samples_per_insert: limiter.samples_per_insert,
                min_size_to_sample: limiter.min_size_to_sample,
                min_diff: limiter.min_diff,
                max_diff: limiter.max_diff,
            },
            signature: self.signature.map(read_signature).transpose()?.map(Arc::new),
            max_bytes: None,
            seed: None,
            name: self.name,
        };
        config.validate()?;
        Ok(TableRecord { config, counts, message_with_items: self.message_with_items.map(<[u8]>::to_vec) })
    }
}
