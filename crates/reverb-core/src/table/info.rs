//! What can be asked of a table.

use super::{Table, TableConfig};
use crate::slab::Item;
use crate::{ItemKey, Trajectory};

/// An item as it was when it was looked at.
#[derive(Debug, Clone)]
pub struct ItemView {
    /// Name of the item.
    pub key: ItemKey,
    /// What the selectors go by.
    pub priority: f64,
    /// How often it was drawn.
    pub times_sampled: i32,
    /// When it was inserted, in nanoseconds since the epoch.
    pub inserted_at: u64,
    /// The data.
    pub trajectory: Trajectory,
}

impl From<&Item> for ItemView {
    fn from(item: &Item) -> Self {
        Self {
            key: item.key,
            priority: item.priority,
            times_sampled: item.times_sampled,
            inserted_at: item.inserted_at,
            trajectory: item.trajectory.clone(),
        }
    }
}

/// The configuration of a table and its counts at one moment.
#[derive(Debug, Clone)]
pub struct TableInfo {
    /// What the table was made of.
    pub config: TableConfig,
    /// Items in the table.
    pub current_size: u64,
    /// Distinct episodes that items refer to.
    pub num_episodes: u64,
    /// Episodes of which the last item has left.
    pub num_deleted_episodes: u64,
    /// Items that were drawn at least once.
    pub num_unique_samples: u64,
    /// New items inserted.
    pub inserts: i64,
    /// Items drawn.
    pub samples: i64,
    /// Items removed, for whatever reason.
    pub deletes: i64,
    /// Bytes of the chunks that items refer to, each chunk once.
    pub bytes: u64,
}

impl Table {
    /// What the table was made of.
    pub fn config(&self) -> &TableConfig {
        &self.config
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// Whether there is no item.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the chunks that items refer to, each chunk once.
    pub fn bytes(&self) -> u64 {
        self.usage.bytes()
    }

    /// Whether an item has the key.
    pub fn contains(&self, key: ItemKey) -> bool {
        self.slab.find(key).is_some()
    }

    /// The item with the key.
    pub fn get(&self, key: ItemKey) -> Option<ItemView> {
        let slot = self.slab.find(key)?;
        Some(self.slab.get(slot).into())
    }

    /// Configuration and counts.
    pub fn info(&self) -> TableInfo {
        TableInfo {
            config: self.config.clone(),
            current_size: self.len() as u64,
            num_episodes: self.usage.num_episodes(),
            num_deleted_episodes: self.usage.num_deleted_episodes(),
            num_unique_samples: self.num_unique_samples,
            inserts: self.limiter.inserts,
            samples: self.limiter.samples,
            deletes: self.limiter.deletes,
            bytes: self.bytes(),
        }
    }

    /// What an insert that may not go waits for, as the middle of a sentence.
    pub fn explain_insert(&self) -> String {
        self.limiter.explain_insert()
    }

    /// What a sample that may not go waits for, as the middle of a sentence.
    pub fn explain_sample(&self) -> String {
        if self.is_empty() && self.limiter.can_sample(1) {
            return "the table is empty".into();
        }
        self.limiter.explain_sample()
    }
}
