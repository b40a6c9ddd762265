//! The configuration of a table, and changes of it.

use crate::selector::check_priority;
use crate::{Error, RateLimiterConfig, Result, SelectorKind, Signature, Trajectory};
use std::sync::Arc;

/// The configuration of a table.
#[derive(Debug, Clone)]
pub struct TableConfig {
    /// Name of the table; not empty.
    pub name: String,
    /// The selector that chooses items to sample.
    pub sampler: SelectorKind,
    /// The selector that chooses items to remove when the table is full.
    pub remover: SelectorKind,
    // limit (Tables): items of a table, in Python a 32-bit number | `max_size` | the remover chooses | `Table`
    /// Maximum number of items, at least 1. (No table holds 2^32 items, whatever this value.)
    pub max_size: u64,
    /// Number of draws after which an item is removed; no limit if below 1.
    pub max_times_sampled: i32,
    /// Configuration of the rate limiter.
    pub rate_limiter: RateLimiterConfig,
    /// Signature that items must match; `None` to accept any item.
    pub signature: Option<Arc<Signature>>,
    // limit (Tables): bytes of a table | no limit | the remover chooses; `ItemTooLargeError` | `Table(max_bytes=)`
    /// Maximum number of bytes that the table's items may keep alive; `None` for no limit.
    pub max_bytes: Option<u64>,
    /// Seed of the draws; `None` for a seed from the operating system.
    pub seed: Option<u64>,
}

impl TableConfig {
    /// Whether draws never remove items.
    pub fn draws_stay(&self) -> bool {
        self.max_times_sampled < 1
    }

    /// Whether a draw affects later draws: by the rate limiter, or by `max_times_sampled`.
    pub fn counts_samples(&self) -> bool {
        !self.draws_stay() || self.rate_limiter.counts_samples()
    }

    /// Checks that both selectors can take the priority.
    ///
    /// # Errors
    /// [`Error::InvalidPriority`].
    #[inline]
    pub fn check_priority(&self, priority: f64) -> Result<()> {
        check_priority(&self.sampler, priority)?;
        check_priority(&self.remover, priority)?;
        Ok(())
    }

    /// Checks that items may take the largest priority so far.
    ///
    /// # Errors
    /// [`Error::InvalidPriority`] if the remover takes the item of highest priority: it would remove each new item.
    pub fn check_takes_largest(&self) -> Result<()> {
        if !self.remover.chooses_highest() {
            return Ok(());
        }
        Err(Error::InvalidPriority(format!(
            "table `{}` does not take priority \"max\": its remover, {:?}, would remove the new items first. Give a \
             number, or take another remover.",
            self.name, self.remover
        )))
    }

    /// Checks that an item fits the signature.
    ///
    /// # Errors
    /// [`Error::SignatureMismatch`].
    pub fn check_signature(&self, trajectory: &Trajectory) -> Result<()> {
        let Some(signature) = &self.signature else { return Ok(()) };
        match trajectory {
            Trajectory::Rows { chunk, length, squeeze: false, .. } => {
                signature.check_rows(&self.name, chunk.columns(), *length as usize)
            }
            _ => signature.check_trajectory(&self.name, trajectory),
        }
    }

    /// Checks that a table can be created with this configuration.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`], naming the field.
    pub fn validate(&self) -> Result<()> {
        if self.name.is_empty() {
            return Err(Error::invalid("name must be nonempty"));
        }
        if self.max_size == 0 {
            return Err(Error::invalid("max_size (0) must be a positive integer"));
        }
        if self.max_bytes == Some(0) {
            return Err(Error::invalid("max_bytes (0) must be a positive integer"));
        }
        self.sampler.validate()?;
        self.remover.validate()?;
        self.rate_limiter.validate()
    }
}

/// New values of a table's options. `None` keeps a value.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TableChanges {
    /// [`TableConfig::max_size`].
    pub max_size: Option<u64>,
    /// [`TableConfig::max_bytes`]; `Some(None)` removes the limit.
    pub max_bytes: Option<Option<u64>>,
    /// [`TableConfig::max_times_sampled`].
    pub max_times_sampled: Option<i32>,
    /// [`TableConfig::rate_limiter`].
    pub rate_limiter: Option<RateLimiterConfig>,
}

impl TableChanges {
    pub(super) fn apply(&self, config: &TableConfig) -> Result<TableConfig> {
        let changed = TableConfig {
            max_size: self.max_size.unwrap_or(config.max_size),
            max_bytes: self.max_bytes.unwrap_or(config.max_bytes),
            max_times_sampled: self.max_times_sampled.unwrap_or(config.max_times_sampled),
            rate_limiter: self.rate_limiter.clone().unwrap_or_else(|| config.rate_limiter.clone()),
            ..config.clone()
        };
        changed.validate()?;
        let TableConfig { name, max_size, rate_limiter, .. } = &changed;
        let min_size = rate_limiter.min_size_to_sample;
        let is_concerned = self.max_size.is_some() || self.rate_limiter.is_some();
        if is_concerned && u64::try_from(min_size).is_ok_and(|min_size| min_size > *max_size) {
            return Err(Error::invalid(format!(
                "Table `{name}` could never be sampled: its rate limiter's min_size_to_sample ({min_size}) is above its \
                 max_size ({max_size})."
            )));
        }
        Ok(changed)
    }
}
