//! Finds the shards that take part in a round.

use super::known::Cluster;
use super::sorted::{Members, sorted};
use crate::client::servers::Servers;
use crate::transport::cluster::OnShardLoss;
use reverb_core::Result;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time for which a draw looks for servers after all were stopped for good.
const SUCCESSOR_TIME: Duration = Duration::from_millis(500);

/// Finds the shards of a cluster.
///
/// # Errors
/// Those of [`sorted`] and of [`Servers::road`], and [`reverb_core::Error::ServerStopped`] if all were stopped for good.
pub async fn members(servers: &Arc<Servers>, cluster: &Cluster, deadline: Option<Instant>) -> Result<Members> {
    for road in servers.reached().iter().filter(|road| road.is_over()) {
        road.peer().into_iter().for_each(|peer| cluster.set_stopped(&peer.into()));
    }
    let was_stopped = cluster.is_stopped();
    let soon = Instant::now() + SUCCESSOR_TIME;
    let limit = if was_stopped { Some(deadline.map_or(soon, |deadline| deadline.min(soon))) } else { deadline };
    let found = match cluster.options.on_shard_loss {
        // No draw waits for the attempts to reach one that is missing.
        OnShardLoss::Continue => servers.known(limit).await,
        OnShardLoss::Wait | OnShardLoss::Raise => servers.all(limit).await,
    };
    match found {
        Err(error) if was_stopped && error.is_transient() => Err(servers.over()),
        found => sorted(cluster, found?),
    }
}
