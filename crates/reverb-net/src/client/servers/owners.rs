//! Which shard of a cluster has an item, by its key.

use super::routing::Route;
use reverb_core::{ItemKey, KeySlots};

/// What is known of the keys of a server's items.
#[derive(Debug, Clone, Copy)]
pub struct Keys {
    slots: KeySlots,
    has_foreign: bool,
}

impl Keys {
    /// The keys of a server that owns these slots, and may have items with other keys, too.
    pub fn new(slots: KeySlots, has_foreign: bool) -> Self {
        Self { slots, has_foreign }
    }
}

/// The shards that own keys, by their places among all.
#[derive(Debug)]
pub struct Owners {
    /// The slots of one of the shards, which tell the id of the shard that owns a key. `None` if no shard was reached.
    slots: Option<KeySlots>,
    /// The place of each shard, by its id.
    places: Vec<Option<usize>>,
    /// The places of the servers of which nothing is known.
    unknown: Vec<usize>,
    /// Whether a server may have items whose keys another owns.
    has_foreign: bool,
}

impl Owners {
    /// Makes the owners of what is known of each server; `None` before it was reached.
    pub fn new(servers: impl Iterator<Item = Option<Keys>>) -> Self {
        let mut owners = Self { slots: None, places: Vec::new(), unknown: Vec::new(), has_foreign: false };
        for (place, keys) in servers.enumerate() {
            let Some(Keys { slots, has_foreign }) = keys else {
                owners.unknown.push(place);
                continue;
            };
            let max_shards = owners.slots.get_or_insert(slots).max_shards();
            owners.places.resize(max_shards as usize, None);
            let owned = owners.places.get_mut(slots.id() as usize).filter(|owned| owned.is_none());
            match owned {
                Some(owned) if slots.max_shards() == max_shards => *owned = Some(place),
                // Two servers own a key: they are not shards of one cluster.
                _ => owners.has_foreign = true,
            }
            owners.has_foreign |= has_foreign;
        }
        owners
    }

    /// Returns the place of the shard that owns a key. `None` if no known shard does.
    fn owner(&self, key: ItemKey) -> Option<usize> {
        self.places[self.slots?.shard_of(key) as usize]
    }

    /// Returns the route of a key: to its owner, or to all servers if there is none, or if one has foreign keys.
    pub fn route(&self, key: ItemKey) -> Route {
        if self.has_foreign { Route::All } else { self.owner(key).map_or(Route::All, Route::Member) }
    }

    /// Whether the item with a key is at a server for which this holds, as far as keys tell.
    pub fn is_at(&self, key: ItemKey, is_one: impl Fn(usize) -> bool) -> bool {
        match self.owner(key) {
            Some(owner) => is_one(owner),
            None => self.unknown.iter().any(|&place| is_one(place)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(id: u32, max_shards: u32, has_foreign: bool) -> Option<Keys> {
        Some(Keys::new(KeySlots::of_shard(id, max_shards).unwrap(), has_foreign))
    }

    fn routes(servers: &[Option<Keys>], keys: &[ItemKey]) -> Vec<Route> {
        let owners = Owners::new(servers.iter().copied());
        keys.iter().map(|&key| owners.route(key)).collect()
    }

    #[test]
    fn a_key_leads_to_its_owner_or_to_all_if_nobody_is_known_to_own_it() {
        let servers = [keys(3, 256, false), None, keys(255, 256, false)];
        let expected = [Route::Member(0), Route::Member(2), Route::All, Route::All];
        assert_eq!(routes(&servers, &[3 << 56 | 9, 255 << 56, 0, 4 << 56]), expected);
        assert_eq!(routes(&[None, None], &[7]), [Route::All]);
        assert_eq!(routes(&[], &[7]), [Route::All]);
    }

    #[test]
    fn all_keys_lead_to_all_if_a_server_may_have_keys_of_others() {
        let all = [Route::All, Route::All];
        for servers in [
            [keys(3, 256, false), keys(7, 256, true)],
            [keys(3, 256, false), keys(3, 256, false)],
            [keys(3, 256, false), keys(7, 16, false)],
            [keys(3, 16, false), keys(7, 256, false)],
            // Servers that are no shards.
            [keys(3, 256, false), keys(0, 1, false)],
            [keys(0, 1, false), keys(0, 1, false)],
        ] {
            assert_eq!(routes(&servers, &[3 << 56, 7 << 56]), all, "{servers:?}");
        }
        assert_eq!(routes(&[keys(0, 1, false)], &[3 << 56]), [Route::Member(0)]);
    }

    #[test]
    fn an_item_is_at_the_owner_of_its_key_or_maybe_at_a_server_that_was_never_reached() {
        let owners = Owners::new([keys(3, 256, true), None].into_iter());
        assert!(owners.is_at(3 << 56, |place| place == 0) && !owners.is_at(3 << 56, |place| place == 1));
        assert!(owners.is_at(4 << 56, |place| place == 1) && !owners.is_at(4 << 56, |place| place == 0));
    }
}
