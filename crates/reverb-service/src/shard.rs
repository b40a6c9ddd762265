//! Which shard of a cluster a server is, and whether items with keys of other shards are in its tables.

use reverb_core::{Error, ItemKey, KeySlots, Result};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

// limit (Connections and calls): name of a cluster | {} | `InvalidArgumentError`
/// Maximum size of the name of a cluster in bytes.
const MAX_NAME_BYTES: usize = 256;

/// A shard of a cluster: one of several servers that together are one buffer. A server is the same shard for ever.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shard {
    id: u32,
    max_shards: u32,
    cluster: String,
    slots: KeySlots,
}

impl Shard {
    /// Returns shard `id` of a cluster that is made for `max_shards` shards.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for those of [`KeySlots::of_shard`], or if the name of the cluster is empty, too long, or
    /// has control characters.
    pub fn new(id: u32, max_shards: u32, cluster: String) -> Result<Self> {
        let slots = KeySlots::of_shard(id, max_shards)?;
        let refused = |got: &str| {
            let expected = format!("expected a printable name of 1 to {MAX_NAME_BYTES} bytes");
            Err(Error::invalid(format!("cluster: {expected}, got {got}")))
        };
        if cluster.len() > MAX_NAME_BYTES {
            return refused(&format!("{} bytes", cluster.len()));
        }
        if cluster.is_empty() || cluster.contains(char::is_control) {
            return refused(&format!("{cluster:?}"));
        }
        Ok(Self { id, max_shards, cluster, slots })
    }

    /// Returns the number of the shard in its cluster.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Returns the number of shards that the cluster is made for.
    pub fn max_shards(&self) -> u32 {
        self.max_shards
    }

    /// Returns the name of the cluster.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// Returns the slots of the keys of its items.
    pub fn slots(&self) -> KeySlots {
        self.slots
    }
}

/// How full a server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    /// Size in bytes of the chunks that the items of all tables refer to.
    pub bytes: u64,
    /// Number of inserts that wait.
    pub waiting_inserts: u64,
}

/// What the tables of a shard know of the keys of their items.
#[derive(Debug)]
pub(crate) struct ShardKeys {
    slots: KeySlots,
    /// Whether an item with a key of another shard has ever been in a table.
    has_foreign: AtomicBool,
}

impl ShardKeys {
    /// The keys of a shard that owns these slots, before any item.
    pub fn new(slots: KeySlots) -> Self {
        Self { slots, has_foreign: AtomicBool::new(false) }
    }

    /// Returns the id of the shard.
    pub fn shard_id(&self) -> u32 {
        self.slots.id()
    }

    /// Notes the key of an item that enters a table.
    #[inline]
    pub fn note(&self, key: ItemKey) {
        if !self.slots.contains(key) {
            self.has_foreign.store(true, Relaxed);
        }
    }

    /// Whether an item with a key of another shard has ever been in a table.
    pub fn has_foreign(&self) -> bool {
        self.has_foreign.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reverb_core::MAX_SHARDS;

    #[test]
    fn a_cluster_has_a_name_that_can_be_shown() {
        let longest = "n".repeat(MAX_NAME_BYTES);
        for name in ["replay", "Übung 7", &longest] {
            let shard = Shard::new(3, MAX_SHARDS, name.into()).unwrap();
            assert_eq!((shard.id(), shard.cluster(), shard.slots().shard_of(3 << 56)), (3, name, 3));
        }
        for name in ["", "a\nb", "\u{7f}", &format!("{longest}n")] {
            let error = Shard::new(3, MAX_SHARDS, name.into()).unwrap_err().to_string();
            assert!(error.starts_with("cluster: expected a printable name of 1 to 256 bytes, got "), "{error}");
        }
        assert!(Shard::new(256, MAX_SHARDS, "replay".into()).is_err());
    }
}
