//! What is known of each shard of a cluster.

use super::sorted::{Members, sorted};
use crate::client::join::{Asking, join};
use crate::client::road::Road;
use crate::client::servers::Servers;
use crate::client::unary::Observe;
use reverb_core::{Error, Result};
use std::sync::Arc;
use std::time::Instant;

/// A shard of a cluster.
#[derive(Debug)]
pub struct ListedShard {
    /// Its number in the cluster. `None` if it was never reached.
    pub id: Option<u32>,
    /// Its address.
    pub address: Arc<str>,
    /// Its answer to [`Observe`], or the reason why it is missing.
    pub observed: Result<Vec<u8>>,
}

/// Asks all shards to describe themselves, in the order of their ids. Those that were never reached are last.
///
/// # Errors
/// [`Error::InvalidArgument`] with the name of a server that is no shard of the same cluster, and errors of shards that are
/// not missing.
pub async fn listed(servers: &Arc<Servers>, deadline: Option<Instant>) -> Result<Vec<ListedShard>> {
    let cluster = servers.cluster().ok_or_else(|| Error::Internal("the servers are no cluster".into()))?;
    let Members { present, missing } = sorted(cluster, servers.all_or_none(deadline).await)?;
    let timeout = Instant::now() + cluster.options.shard_timeout;
    let limit = deadline.map_or(timeout, |deadline| deadline.min(timeout));
    // Without a limit of its own: at the limit, a shard is missing, and no error.
    let ask = |road: Road| -> Asking<'_, _> { road.call(Observe, None).into_future() };
    let answers = join(present.iter().map(|member| ask(member.road.clone())).collect(), Some(limit)).await;
    let silent = || Err(Error::Unavailable("it does not answer".into()));
    let answered = present.into_iter().zip(answers).map(|(member, answer)| ListedShard {
        id: Some(member.id),
        address: member.peer,
        observed: answer.unwrap_or_else(silent),
    });
    let missing = missing.into_iter().map(|(address, error)| ListedShard {
        id: cluster.id(&address),
        address,
        observed: Err(error),
    });
    let mut all: Vec<_> = answered.chain(missing).collect();
    all.sort_by_key(|shard| (shard.id.is_none(), shard.id));
    Ok(all)
}
