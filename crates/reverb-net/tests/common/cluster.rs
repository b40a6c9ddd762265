//! Shards of a cluster, and clients of all of them.

use super::{MAX_MESSAGE_SIZE, SOON, config, here, item};
use crate::done;
use reverb_core::{MAX_SHARDS, NewItem, RateLimiterConfig, SelectorKind, Table, TableConfig};
use reverb_net::Endpoint;
use reverb_net::client::Client;
use reverb_net::server::{ListenOptions, Server};
use reverb_net::transport::cluster::{ClusterOptions, OnShardLoss, Placement};
use reverb_service::{Replay, Shard, TableHandle};

use std::time::{Duration, Instant};
use tokio::runtime::Handle;

pub fn soon() -> Option<Instant> {
    Some(Instant::now() + SOON)
}

/// The name of a cluster that no other process has. A client that tries an address again which its shard has left does not
/// take the shard of another test, which has the port now, for its own.
pub fn own_name(cluster: &str) -> String {
    format!("{cluster}-{}", std::process::id())
}

/// A shard on a port, or on a free one.
pub fn shard_of(cluster: &str, id: u32, table: &TableHandle, port: Option<u16>) -> Server {
    let shard = Shard::new(id, MAX_SHARDS, own_name(cluster)).unwrap();
    let replay = Replay::of_shard(vec![table.clone()], MAX_MESSAGE_SIZE, Some(shard)).unwrap();
    Server::start(&Handle::current(), replay, &ListenOptions { port, ..ListenOptions::default() }, None).unwrap()
}

pub fn shard(id: u32, table: &TableHandle) -> Server {
    shard_of("replay", id, table, None)
}

/// Shards 0, 1 and so on with these tables.
pub fn shards(tables: &[TableHandle]) -> Vec<Server> {
    (0..).zip(tables).map(|(id, table)| shard(id, table)).collect()
}

/// A client of the shards on these ports.
pub fn client(ports: &[u16], on_shard_loss: OnShardLoss, shard_timeout: Duration) -> Client {
    let ports: Vec<_> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    let options = ClusterOptions { on_shard_loss, shard_timeout, placement: Placement::Episode };
    Client::new(Endpoint { cluster: Some(options), ..Endpoint::from(&format!("ipv4:{}", ports.join(","))) })
}

pub fn client_of(shards: &[Server]) -> Client {
    let ports: Vec<_> = shards.iter().map(Server::port).collect();
    client(&ports, OnShardLoss::Continue, SOON)
}

/// A table with a seed of its own.
pub fn seeded(seed: u64, sampler: SelectorKind, max_times_sampled: i32) -> TableHandle {
    let config = TableConfig { seed: Some(seed), sampler, max_times_sampled, ..config("table") };
    TableHandle::new(Table::new(config).unwrap())
}

/// A table with a seed of its own, from which items are drawn as soon as so many lie in all shards.
pub fn with_min_size(seed: u64, min_size: i64, max_times_sampled: i32) -> TableHandle {
    let plain = config("table");
    let rate_limiter = RateLimiterConfig { min_size_to_sample: min_size, ..plain.rate_limiter.clone() };
    let config = TableConfig { seed: Some(seed), rate_limiter, max_times_sampled, ..plain };
    TableHandle::new(Table::new(config).unwrap())
}

/// Inserts items whose values are their keys.
pub fn fill(table: &TableHandle, weights: impl IntoIterator<Item = (u64, f64)>) {
    let weigh = |(key, priority)| NewItem { priority, ..item(key) };
    done!(table.insert(weights.into_iter().map(weigh).collect(), here()));
}
