//! What programs are told of draws from several servers that are no cluster.

use super::road::Road;
use super::servers::Servers;
use super::unary::Info;
use parking_lot::Mutex;
use reverb_core::{SelectorKind, fork};
use reverb_service::warn;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Time within which a server says which tables it has.
const INFO_TIME: Duration = Duration::from_secs(10);

/// The addresses of which draws were explained.
static EXPLAINED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Says once in this process that draws from these servers are not those of one table, if they are no cluster, and if a
/// table has priorities. Asks a server for its tables, by a task of the current runtime.
pub fn explain_draws(servers: &Servers) {
    let Some(road) = servers.first_draw() else { return };
    let address = servers.address().to_owned();
    let is_new = EXPLAINED.try_lock_for(fork::LOCK_TIME).is_some_and(|mut known| known.insert(address.clone()));
    if is_new {
        tokio::spawn(explain(address, road));
    }
}

async fn explain(address: String, road: Road) {
    let Ok(tables) = road.complete(Info, Some(Instant::now() + INFO_TIME)).await else { return };
    let mut configs = tables.iter().map(|table| &table.info.config);
    if let Some(table) = configs.find(|config| matches!(config.sampler, SelectorKind::Prioritized { .. })) {
        warn(&format!(
            "a client of {address} draws from these servers in turn, so its draws from prioritized tables, such as `{}`, \
             are not those of one table; reverb.cluster.connect draws from the shards of a cluster as from one",
            table.name
        ));
    }
}
