//! What a table is made of, and what it takes.

use super::Table;
use crate::selector::check_priority;
use crate::{Error, ItemKey, RateLimiterConfig, Result, SelectorKind, Signature, Trajectory};
use std::sync::Arc;

/// What makes one table differ from another.
#[derive(Debug, Clone)]
pub struct TableConfig {
    /// Name of the table; not empty.
    pub name: String,
    /// Chooses the items to sample.
    pub sampler: SelectorKind,
    /// Chooses the items to remove when the table is full.
    pub remover: SelectorKind,
    /// Items the table holds at most; at least 1. (No table holds 2^32 of them, whatever this says.)
    pub max_size: u64,
    /// Draws after which an item is removed; below 1 for no limit.
    pub max_times_sampled: i32,
    /// When inserts and samples may go.
    pub rate_limiter: RateLimiterConfig,
    /// What items must look like; `None` for anything.
    pub signature: Option<Arc<Signature>>,
    /// Bytes of data the table's items may keep alive; `None` for no limit.
    pub max_bytes: Option<u64>,
    /// Seed of the draws; `None` for one from the operating system.
    pub seed: Option<u64>,
}

impl TableConfig {
    /// Whether a table can be made of it.
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

/// An item that is not in a table yet.
#[derive(Debug, Clone)]
pub struct NewItem {
    /// Name of the item.
    pub key: ItemKey,
    /// What the selectors go by.
    pub priority: f64,
    /// How often it counts as drawn already: 0 but for restored items.
    pub times_sampled: i32,
    /// The data.
    pub trajectory: Trajectory,
}

impl NewItem {
    /// Whether both are as many rows of the same chunk, with the same count of draws.
    fn is_like(&self, other: &NewItem) -> bool {
        match (&self.trajectory, &other.trajectory) {
            (
                Trajectory::Rows { chunk: a, length: rows, .. },
                Trajectory::Rows { chunk: b, length: other_rows, .. },
            ) => Arc::ptr_eq(a, b) && rows == other_rows && self.times_sampled == other.times_sampled,
            _ => false,
        }
    }
}

impl Table {
    /// Whether both selectors can take the priority.
    ///
    /// # Errors
    /// [`Error::InvalidPriority`].
    #[inline]
    pub fn check_priority(&self, priority: f64) -> Result<()> {
        check_priority(&self.config.sampler, priority)?;
        check_priority(&self.config.remover, priority)?;
        Ok(())
    }

    /// Whether the table can take the item; changes nothing.
    ///
    /// # Errors
    /// [`Error::InvalidPriority`]; [`Error::InvalidArgument`] if `times_sampled` is negative;
    /// [`Error::SignatureMismatch`]; [`Error::ItemTooLarge`] if the chunks it refers to alone pass `max_bytes`.
    pub fn check_item(&self, item: &NewItem) -> Result<()> {
        self.check_signature(&item.trajectory)?;
        self.check_not_validated(item)
    }

    /// As [`Table::check_item`], but for the signature: of an item whose writer does not want it compared with that.
    ///
    /// # Errors
    /// Those of [`Table::check_item`], but for [`Error::SignatureMismatch`].
    pub fn check_not_validated(&self, item: &NewItem) -> Result<()> {
        self.check_priority(item.priority)?;
        if item.times_sampled < 0 {
            return Err(Error::invalid(format!("times_sampled must not be negative, got {}", item.times_sampled)));
        }
        self.check_size(&item.trajectory)
    }

    /// As [`Table::check_item`] for all of a batch: the index of the first item that may not be inserted, and why.
    ///
    /// What an item shares with the one before, as rows of one chunk do, is not looked at again.
    ///
    /// # Errors
    /// Those of [`Table::check_item`]; then no item may be inserted.
    pub fn check_items(&self, items: &[NewItem]) -> std::result::Result<(), (usize, Error)> {
        let mut before: Option<&NewItem> = None;
        for (index, item) in items.iter().enumerate() {
            let is_alike = before.is_some_and(|before| before.is_like(item));
            if is_alike {
                if before.is_none_or(|before| before.priority != item.priority) {
                    self.check_priority(item.priority).map_err(|error| (index, error))?;
                }
            } else {
                self.check_item(item).map_err(|error| (index, error))?;
            }
            before = Some(item);
        }
        Ok(())
    }

    fn check_signature(&self, trajectory: &Trajectory) -> Result<()> {
        let Some(signature) = &self.config.signature else {
            return Ok(());
        };
        let table = &self.config.name;
        match trajectory {
            Trajectory::Rows { chunk, length, .. } => signature.check_rows(table, chunk.columns(), *length as usize),
            Trajectory::Columns(_) => signature.check_trajectory(table, trajectory),
        }
    }

    fn check_size(&self, trajectory: &Trajectory) -> Result<()> {
        let Some(max_bytes) = self.config.max_bytes else {
            return Ok(());
        };
        let size_bytes = match trajectory {
            Trajectory::Rows { chunk, .. } => chunk.size_bytes() as u64,
            Trajectory::Columns(_) => {
                let chunks = trajectory.chunks();
                chunks.iter().map(|chunk| chunk.size_bytes() as u64).sum()
            }
        };
        if size_bytes > max_bytes {
            return Err(Error::ItemTooLarge { table: self.config.name.clone(), size_bytes, max_bytes });
        }
        Ok(())
    }
}
