//! The shards that take part, and those that are missing.

use super::first::check;
use super::known::Cluster;
use crate::client::road::{PeerRoads, Road};
use crate::replay_v1::proto::Shard;
use reverb_core::{Error, Result};
use reverb_service::warn;
use std::sync::Arc;

/// A shard that takes part.
#[derive(Debug, Clone)]
pub struct Member {
    /// Its address.
    pub peer: Arc<str>,
    /// Its number in the cluster.
    pub id: u32,
    /// The road to it.
    pub road: Road,
}

/// Shards that do not take part, with the reasons.
pub type Missing = Vec<(Arc<str>, Error)>;

/// All shards of a cluster.
#[derive(Debug)]
pub struct Members {
    /// Those that take part.
    pub present: Vec<Member>,
    /// Those that do not.
    pub missing: Missing,
}

/// Returns the shards that take part, of all that were found.
///
/// # Errors
/// Those of [`sorted`]. [`Error::Unavailable`] if none takes part.
pub fn present(cluster: &Cluster, found: PeerRoads) -> Result<Vec<(Arc<str>, Road)>> {
    let Members { present, missing } = sorted(cluster, found)?;
    if present.is_empty() {
        return Err(Error::Unavailable(cluster.names(&missing)));
    }
    Ok(present.into_iter().map(|member| (member.peer, member.road)).collect())
}

/// As [`present`], for a client that has reached its cluster before: a server that is no shard of it is left out. It may
/// have got the address of a lost shard, and must not hide the others.
pub fn own(cluster: &Cluster, mut found: PeerRoads) -> Vec<Road> {
    for (peer, road) in &mut found {
        if let Err(error) = road.as_ref().map_or(Ok(()), |road| check(peer, road, cluster.first.get()).map(drop)) {
            *road = Err(error);
        }
    }
    present(cluster, found).unwrap_or_default().into_iter().map(|(_, road)| road).collect()
}

/// Tells the shards that take part from those that are missing. Of two servers that are the same shard, the one that was
/// seen first is older, and is neither.
///
/// # Errors
/// [`Error::InvalidArgument`] with the name of a server that is no shard of the same cluster.
pub fn sorted(cluster: &Cluster, found: PeerRoads) -> Result<Members> {
    cluster.set_addresses(found.iter().map(|(peer, _)| peer.clone()).collect());
    let mut seen: Vec<(usize, Member)> = Vec::with_capacity(found.len());
    let mut missing = Missing::new();
    let mut first: Option<(Arc<str>, Shard)> = None;
    for (peer, road) in found {
        let road = match road {
            Ok(road) => road,
            Err(error) => {
                missing.push((peer, error));
                continue;
            }
        };
        let shard = check(&peer, &road, first.as_ref())?.clone();
        let number = cluster.see(&peer, &shard, road.server_id().unwrap_or_default());
        let member = Member { peer: peer.clone(), id: shard.id, road };
        match seen.iter_mut().find(|(_, other)| other.id == shard.id) {
            None => seen.push((number, member)),
            Some(other) if other.0 < number => refuse(cluster, &std::mem::replace(other, (number, member)).1, &peer),
            Some((_, other)) => refuse(cluster, &member, &other.peer),
        }
        first.get_or_insert((peer, shard));
    }
    if let Some(first) = first {
        cluster.first.get_or_init(|| first);
    }
    let (silent, present): (Vec<_>, Vec<_>) =
        seen.into_iter().map(|(_, member)| member).partition(|member| cluster.is_silent(&member.peer));
    let silence = |member: Member| (member.peer, Error::Unavailable("it does not answer".into()));
    missing.extend(silent.into_iter().map(silence));
    Ok(Members { present, missing })
}

/// Checks that all servers that were reached are shards of one cluster.
///
/// # Errors
/// [`Error::InvalidArgument`] with the name of one that is not.
pub fn check_shards(found: &PeerRoads) -> Result<()> {
    let mut first = None;
    for (peer, road) in found {
        let Ok(road) = road else { continue };
        let shard = check(peer, road, first.as_ref())?;
        first.get_or_insert_with(|| (peer.clone(), shard.clone()));
    }
    Ok(())
}

fn refuse(cluster: &Cluster, older: &Member, newer: &str) {
    if cluster.is_new_refusal(older.road.server_id().unwrap_or_default()) {
        let Member { peer, id, .. } = older;
        warn(&format!("the server at {peer} is refused: {newer} is shard {id} too, and newer; stop the older one"));
    }
}
