//! How many items each client has inserted into a table.

use crate::peer::Peer;
use reverb_core::ClientCounts;
use std::collections::HashMap;

// limit (Tables): clients of `inserts_by_client` | {} | further ones count as `others`
/// Maximum number of clients that are counted one by one.
const MAX_CLIENTS: usize = 1024;
/// The name of all further clients.
const OTHERS: &str = "others";

/// Counts of inserted items by the names of their clients.
#[derive(Debug, Default)]
pub struct InsertsByClient {
    counts: Vec<u64>,
    indices: HashMap<String, usize>,
    /// The peer that was asked for last, and its index.
    last: Option<(u64, usize)>,
}

impl InsertsByClient {
    /// Returns the index of the count of a peer. Peers of one name share it.
    #[inline]
    pub fn index_of(&mut self, peer: &Peer) -> usize {
        match self.last {
            Some((id, index)) if id == peer.id => index,
            _ => self.find(peer),
        }
    }

    #[inline(never)]
    fn find(&mut self, peer: &Peer) -> usize {
        let index = match self.indices.get(peer.shown_name()) {
            Some(index) => *index,
            None => {
                let is_full = self.indices.len() >= MAX_CLIENTS;
                let name = if is_full { OTHERS } else { peer.shown_name() };
                let counts = &mut self.counts;
                *self.indices.entry(name.to_owned()).or_insert_with(|| {
                    counts.push(0);
                    counts.len() - 1
                })
            }
        };
        self.last = Some((peer.id, index));
        index
    }

    /// Adds inserted items to a count.
    #[inline]
    pub fn add(&mut self, index: usize, items: usize) {
        self.counts[index] += items as u64;
    }

    /// Returns the counts by name.
    pub fn counts(&self) -> ClientCounts {
        ClientCounts(self.indices.iter().map(|(name, &index)| (name.clone(), self.counts[index])).collect())
    }
}
