//! Merges what several servers say of their tables.
//!
//! The sum of tables has the sum of their limits, and the rate limiter of each.

use reverb_core::{Error, Result, TableConfig};
use reverb_service::peek::Peeked;
use reverb_service::{StoreLog, TableStatus};
use std::sync::Arc;

/// The beginning of errors about tables that differ.
const SAME_TABLES: &str = "the servers of one client must have the same tables";

/// A table of all servers.
struct Merged {
    /// The server from which the definition is.
    peer: Arc<str>,
    definition: TableConfig,
    /// Number of servers that have the table.
    seen: usize,
    sum: TableStatus,
}

/// Merges the tables of servers. Each figure adds up as its declaration says.
///
/// # Errors
/// [`Error::InvalidArgument`] if a server does not have a table that another has, or if definitions differ in an option.
/// [`Error::SignatureMismatch`] if signatures differ.
pub fn merge_tables(servers: Vec<(Arc<str>, Vec<TableStatus>)>) -> Result<Vec<TableStatus>> {
    let names =
        |tables: &[TableStatus]| -> Vec<_> { tables.iter().map(|table| table.info.config.name.clone()).collect() };
    let known: Vec<_> = servers.iter().map(|(peer, tables)| (peer.clone(), names(tables))).collect();
    let mut merged: Vec<Merged> = Vec::new();
    for (peer, tables) in servers {
        for mut table in tables {
            if known.len() > 1 {
                name_server(&mut table, &peer);
            }
            match merged.iter_mut().find(|merged| merged.definition.name == table.info.config.name) {
                Some(merged) => {
                    check_same(&merged.definition, &merged.peer, &table.info.config, &peer)?;
                    merged.seen += 1;
                    add(&mut merged.sum, table);
                }
                None => {
                    let definition = table.info.config.clone();
                    merged.push(Merged { peer: peer.clone(), definition, seen: 1, sum: table });
                }
            }
        }
    }
    for Merged { peer, definition, seen, .. } in &merged {
        let name = &definition.name;
        if *seen < known.len()
            && let Some((other, _)) = known.iter().find(|(_, names)| !names.contains(name))
        {
            return Err(Error::invalid(format!("{SAME_TABLES}: {peer} has table `{name}`, {other} does not")));
        }
    }
    Ok(merged.into_iter().map(|merged| merged.sum).collect())
}

/// Adds the server to the reasons of waits, and to the failure of its log.
fn name_server(table: &mut TableStatus, peer: &str) {
    let failure = table.log.as_mut().and_then(|log| log.failure.as_mut());
    for reason in [table.insert_wait.as_mut(), table.sample_wait.as_mut(), failure].into_iter().flatten() {
        reason.push_str(&format!(" (server {peer})"));
    }
}

fn check_same(known: &TableConfig, first: &str, config: &TableConfig, peer: &str) -> Result<()> {
    let of = |config: &TableConfig| {
        [
            ("sampler", format!("{:?}", config.sampler)),
            ("remover", format!("{:?}", config.remover)),
            ("max_size", config.max_size.to_string()),
            ("max_times_sampled", config.max_times_sampled.to_string()),
            ("rate_limiter", format!("{:?}", config.rate_limiter)),
            ("max_bytes", config.max_bytes.map_or_else(|| "none".into(), |bytes| bytes.to_string())),
        ]
    };
    let name = &config.name;
    let specs = |config: &TableConfig| config.signature.as_ref().map(|signature| signature.specs.clone());
    // The names of the specs contain the keys. The bytes of a mapping depend on who has written it.
    if specs(known) != specs(config) {
        return Err(Error::SignatureMismatch(format!(
            "{SAME_TABLES}: the signatures of table `{name}` at {first} and at {peer} differ"
        )));
    }
    let differs = of(known).into_iter().zip(of(config)).find(|(one, other)| one != other);
    differs.map_or(Ok(()), |((option, one), (_, other))| {
        Err(Error::invalid(format!("{SAME_TABLES}: {option} of table `{name}` is {one} at {first}, {other} at {peer}")))
    })
}

/// Adds the figures of a table to those of a table with the same definition.
fn add(sum: &mut TableStatus, table: TableStatus) {
    sum.info.add(&table.info);
    if sum.insert_wait.is_none() {
        (sum.insert_wait, sum.insert_peer) = (table.insert_wait, table.insert_peer);
    }
    if sum.sample_wait.is_none() {
        (sum.sample_wait, sum.sample_peer) = (table.sample_wait, table.sample_peer);
    }
    // A table is durable only if each of its servers is.
    sum.log = sum.log.take().zip(table.log).map(|(one, other)| worst_log(one, other));
}

/// What two logs together guarantee, and the size of both.
fn worst_log(one: StoreLog, other: StoreLog) -> StoreLog {
    StoreLog {
        mode: one.mode.min(other.mode),
        size_bytes: one.size_bytes.saturating_add(other.size_bytes),
        sync_age: one.sync_age.max(other.sync_age),
        sync_interval: one.sync_interval.max(other.sync_interval),
        is_low: one.is_low || other.is_low,
        failure: one.failure.or(other.failure),
    }
}

/// Merges items of several servers by the time of their insertion.
pub fn merge_items(servers: Vec<Vec<Peeked>>, count: u32, newest: bool) -> Vec<Peeked> {
    let mut items: Vec<_> = servers.into_iter().flatten().collect();
    // The sort is stable, so items of one server stay in order.
    items.sort_by_key(|item| if newest { u64::MAX - item.inserted_at } else { item.inserted_at });
    items.truncate(count as usize);
    items
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::config;
    use reverb_core::TableInfo;
    use reverb_service::LogMode::{self, Power, Process};
    use std::time::Duration;

    const SECOND: Duration = Duration::from_secs(1);

    fn log(mode: LogMode) -> StoreLog {
        let (sync_age, sync_interval) = (SECOND, SECOND);
        StoreLog { mode, size_bytes: 3, sync_age, sync_interval, is_low: false, failure: None }
    }

    /// The log of a table whose servers have these.
    fn merged(logs: &[Option<StoreLog>]) -> Option<StoreLog> {
        let server = |(number, log): (usize, &Option<StoreLog>)| {
            let info = TableInfo::new(config("table"));
            (Arc::from(format!("server-{number}")), vec![TableStatus { log: log.clone(), ..info.into() }])
        };
        let mut tables = merge_tables(logs.iter().enumerate().map(server).collect()).unwrap();
        tables.pop().unwrap().log
    }

    #[test]
    fn the_log_of_several_servers_has_the_worst_of_each_and_all_bytes() {
        let late = StoreLog { sync_age: 5 * SECOND, is_low: true, ..log(Power) };
        let closed = StoreLog { failure: Some("no space".into()), size_bytes: 4, ..log(Process) };
        let worst = StoreLog {
            mode: Process,
            size_bytes: 10,
            sync_age: 5 * SECOND,
            sync_interval: SECOND,
            is_low: true,
            failure: Some("no space (server server-2)".into()),
        };
        assert_eq!(merged(&[Some(log(Power)), Some(late.clone()), Some(closed.clone())]), Some(worst.clone()));
        let first = Some("no space (server server-0)".into());
        assert_eq!(merged(&[Some(closed), Some(late), Some(log(Power))]), Some(StoreLog { failure: first, ..worst }));
        let both = StoreLog { size_bytes: 6, ..log(Power) };
        assert_eq!(merged(&[Some(log(Power)), Some(log(Power))]), Some(both));
        let huge = Some(StoreLog { size_bytes: u64::MAX, ..log(Power) });
        assert_eq!(merged(&[huge.clone(), huge.clone()]), huge);
    }

    #[test]
    fn several_servers_have_no_log_if_one_of_them_has_none() {
        let log = Some(log(Process));
        assert_eq!(merged(std::slice::from_ref(&log)), log);
        assert_eq!(merged(&[log.clone(), None]), None);
        assert_eq!(merged(&[None, log.clone()]), None);
        assert_eq!(merged(&[None, log.clone(), log]), None);
    }
}
