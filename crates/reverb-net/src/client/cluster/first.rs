//! Which servers are shards of one cluster.

use crate::client::road::Road;
use crate::replay_v1::proto::Shard;
use reverb_core::{Error, Result};
use std::sync::{Arc, OnceLock};

/// The first shard that was seen of a cluster, with its address. The others must agree with it.
pub type First = OnceLock<(Arc<str>, Shard)>;

/// Returns the shard that a server is.
///
/// # Errors
/// [`Error::InvalidArgument`] if it is none, or if it is of another cluster than the first.
pub fn check<'a>(peer: &str, road: &'a Road, first: Option<&(Arc<str>, Shard)>) -> Result<&'a Shard> {
    let shard = road.shard().ok_or_else(|| {
        Error::invalid(format!("expected shards of a cluster, but the server at {peer} is none; start it as a shard"))
    })?;
    match first {
        Some((other, of)) if (&of.cluster, of.max_shards) != (&shard.cluster, shard.max_shards) => {
            Err(Error::invalid(format!(
                "expected shards of one cluster, but {peer} is shard {} of cluster `{}` for {} shards, and {other} is shard \
                 {} of cluster `{}` for {} shards",
                shard.id, shard.cluster, shard.max_shards, of.id, of.cluster, of.max_shards
            )))
        }
        _ => Ok(shard),
    }
}
