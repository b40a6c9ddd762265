//! Converts the shard that a server is to a message and back.

use super::races::report_to_wire;
use crate::replay_v1::proto as replay;
use reverb_core::{Error, KeySlots, LargestSeen, RaceReport, Result};
use reverb_service::{Load, Replay, Shard, TableHandle};

/// Says which shard a server is. `None` if it is none.
pub fn shard_to_wire(server: &Replay) -> Option<replay::Shard> {
    let shard = server.shard()?;
    Some(replay::Shard {
        id: shard.id(),
        max_shards: shard.max_shards(),
        cluster: shard.cluster().into(),
        has_foreign_keys: server.has_foreign_keys(),
        tables: server.tables().iter().map(|table| table.name().into()).collect(),
        largest: all_largest(server, server.tables()),
    })
}

/// Says how full a shard is, and the largest priorities of these tables. `None` if the server is none.
pub fn load_to_wire(server: &Replay, tables: &[TableHandle]) -> Option<replay::Load> {
    server.shard()?;
    let Load { bytes, waiting_inserts } = server.load();
    let (has_foreign_keys, largest) = (server.has_foreign_keys(), all_largest(server, tables));
    Some(replay::Load { bytes, waiting_inserts, has_foreign_keys, largest })
}

fn all_largest(server: &Replay, tables: &[TableHandle]) -> Vec<replay::Largest> {
    tables.iter().filter_map(|table| largest_to_wire(server, table)).collect()
}

/// Says what the largest priority of a table is. `None` if the server is no shard.
pub fn largest_to_wire(server: &Replay, table: &TableHandle) -> Option<replay::Largest> {
    server.shard()?;
    let number = table.number()?;
    let LargestSeen { priority, epoch } = table.with_table(|table| table.largest_seen());
    Some(replay::Largest { table: number, priority, epoch })
}

/// Makes the message of a report of a race, with what a shard tells.
pub fn report_of_server(server: &Replay, table: &TableHandle, report: &RaceReport) -> replay::RaceReport {
    let (has_foreign_keys, largest) = (server.has_foreign_keys(), largest_to_wire(server, table));
    replay::RaceReport { has_foreign_keys, largest, ..report_to_wire(report) }
}

/// Returns the largest priority of a table.
pub fn largest_from_wire(&replay::Largest { priority, epoch, .. }: &replay::Largest) -> LargestSeen {
    LargestSeen { priority, epoch }
}

/// Says what a client knows of the other shards.
pub fn others_to_wire(LargestSeen { priority, epoch }: LargestSeen) -> replay::OtherShards {
    replay::OtherShards { largest_priority: priority, epoch }
}

/// Returns what the client of an item knows of the other shards.
pub fn others_from_wire(others: Option<&replay::OtherShards>) -> Option<Box<LargestSeen>> {
    others.map(|&replay::OtherShards { largest_priority: priority, epoch }| Box::new(LargestSeen { priority, epoch }))
}

/// Returns how full a shard is.
pub fn load_from_wire(load: &replay::Load) -> Load {
    Load { bytes: load.bytes, waiting_inserts: load.waiting_inserts }
}

/// Returns the slots in which items of a server at `peer` have their keys: all, unless it is a shard.
///
/// # Errors
/// [`Error::DataLoss`] if there is no such shard.
pub fn slots_from_wire(shard: Option<&replay::Shard>, peer: &str) -> Result<KeySlots> {
    let Some(replay::Shard { id, max_shards, cluster, .. }) = shard else { return Ok(KeySlots::ALL) };
    let shard = Shard::new(*id, *max_shards, cluster.clone());
    let shard = shard.map_err(|error| Error::DataLoss(format!("the server at {peer} is no valid shard: {error}")))?;
    Ok(shard.slots())
}

#[cfg(test)]
mod tests {
    use super::*;
    use reverb_core::MAX_SHARDS;

    #[test]
    fn the_slots_of_a_server_are_those_of_its_shard_and_all_if_it_is_none() {
        assert_eq!(slots_from_wire(None, "here"), Ok(KeySlots::ALL));
        let shard = |id, max_shards, cluster: &str| replay::Shard {
            id,
            max_shards,
            cluster: cluster.into(),
            has_foreign_keys: true,
            ..replay::Shard::default()
        };
        let slots = slots_from_wire(Some(&shard(7, 16, "replay")), "here").unwrap();
        assert_eq!(slots, KeySlots::of_shard(7, 16).unwrap());
        let wrong =
            [(7, 0, "replay"), (7, 24, "replay"), (16, 16, "replay"), (u32::MAX, u32::MAX, "replay"), (7, 16, "")];
        for (id, max_shards, cluster) in wrong {
            let error = slots_from_wire(Some(&shard(id, max_shards, cluster)), "here").unwrap_err();
            let says = |text: &str| text.starts_with("the server at here is no valid shard: ");
            assert!(matches!(&error, Error::DataLoss(text) if says(text)), "{error:?}");
        }
        assert!(slots_from_wire(Some(&shard(255, MAX_SHARDS, "replay")), "here").is_ok());
    }
}
