//! What was counted at all shards, as far as one member knows.

use crate::{Error, Result};
use std::collections::BTreeMap;

/// One start of one shard. No two starts share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation {
    /// The id of the shard.
    pub shard: u32,
    /// Which start of the shard; a later one has a greater number.
    pub number: u64,
}

/// What one incarnation of a shard has counted since its start. None of them ever falls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of items that the shard had at its start.
    pub restored: u64,
    /// Number of new items inserted.
    pub inserts: u64,
    /// Number of items removed for any reason.
    pub deletes: u64,
    /// Number of samples.
    pub samples: u64,
}

// limit (Connections and calls): starts of shards of a cluster that the limiter of a table knows | {} |
// `ResourceExhaustedError`
/// Maximum number of incarnations in a tally.
pub const MAX_STARTS: usize = 8192;

/// Counts are below this, so that those of all shards can be added up.
pub const MAX_COUNT: u64 = 1 << 48;

impl Counts {
    /// Returns the counts.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if no shard can have reached one of them.
    pub fn checked(self) -> Result<Self> {
        let Self { restored, inserts, deletes, samples } = self;
        match [restored, inserts, deletes, samples].into_iter().find(|count| *count >= MAX_COUNT) {
            None => Ok(self),
            Some(count) => Err(Error::invalid(format!("expected a count of a shard below {MAX_COUNT}, got {count}"))),
        }
    }
}

/// The sums over all incarnations of all shards.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sums {
    /// Number of inserts.
    pub inserts: u64,
    /// Number of samples.
    pub samples: u64,
    /// Number of items in the shards of the map: those of the newest incarnation of each.
    pub items: u64,
}

/// The counts of all incarnations of all shards, none greater than the truth.
///
/// Counts only grow, so two tallies are merged by the greater count, in any order and as often as one likes. An
/// incarnation that has ended keeps the counts that were last heard of it. A shard that comes back counts from zero in
/// a new incarnation, and whatever older counts its checkpoint has change nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    incarnations: BTreeMap<Incarnation, Counts>,
}

impl Tally {
    /// Takes over what the other tally knows better.
    pub fn merge(&mut self, other: &Self) {
        self.merge_if(other, |_| true);
    }

    /// The same, of some incarnations.
    pub(super) fn merge_if(&mut self, other: &Self, is_taken: impl Fn(&Incarnation) -> bool) {
        for (incarnation, counts) in other.incarnations.iter().filter(|(incarnation, _)| is_taken(incarnation)) {
            let mine = self.incarnations.entry(*incarnation).or_default();
            mine.restored = mine.restored.max(counts.restored);
            mine.inserts = mine.inserts.max(counts.inserts);
            mine.deletes = mine.deletes.max(counts.deletes);
            mine.samples = mine.samples.max(counts.samples);
        }
    }

    /// The counts of an incarnation; zeros if nothing was heard of it.
    pub fn of(&self, incarnation: Incarnation) -> Counts {
        self.incarnations.get(&incarnation).copied().unwrap_or_default()
    }

    /// Whether something was heard of an incarnation.
    pub fn knows(&self, incarnation: Incarnation) -> bool {
        self.incarnations.contains_key(&incarnation)
    }

    /// All incarnations with their counts, by shard and start.
    pub fn incarnations(&self) -> impl Iterator<Item = (Incarnation, Counts)> + '_ {
        self.incarnations.iter().map(|(incarnation, counts)| (*incarnation, *counts))
    }

    /// The sums. Inserts and samples are those of all incarnations; items are those of the given shards only.
    pub fn sums(&self, shards: &[u32]) -> Sums {
        let mut sums = Sums::default();
        for (incarnation, counts) in &self.incarnations {
            sums.inserts += counts.inserts;
            sums.samples += counts.samples;
            let newer = Incarnation { number: incarnation.number.saturating_add(1), ..*incarnation };
            let has_newer =
                self.incarnations.range(newer..).next().is_some_and(|(next, _)| next.shard == incarnation.shard);
            if shards.contains(&incarnation.shard) && !has_newer {
                sums.items += (counts.restored + counts.inserts).saturating_sub(counts.deletes);
            }
        }
        sums
    }

    /// Number of incarnations.
    pub fn len(&self) -> usize {
        self.incarnations.len()
    }

    /// Whether nothing was counted anywhere.
    pub fn is_empty(&self) -> bool {
        self.incarnations.is_empty()
    }

    /// Checks that the incarnations of both are not too many.
    pub(super) fn check_room_for(&self, other: &Self) -> Result<()> {
        let new = other.incarnations.keys().filter(|incarnation| !self.knows(**incarnation)).count();
        if self.len() + new > MAX_STARTS {
            return Err(Error::ResourceExhausted(format!(
                "the limiter of a cluster knows at most {MAX_STARTS} starts of its shards"
            )));
        }
        Ok(())
    }

    pub(super) fn of_mut(&mut self, incarnation: Incarnation) -> &mut Counts {
        self.incarnations.entry(incarnation).or_default()
    }
}

impl FromIterator<(Incarnation, Counts)> for Tally {
    fn from_iter<T: IntoIterator<Item = (Incarnation, Counts)>>(incarnations: T) -> Self {
        Self { incarnations: incarnations.into_iter().collect() }
    }
}
