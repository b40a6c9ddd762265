//! Shards of a cluster that note what they are asked, and clients of all of them.

use super::cluster::own_name;
use super::{MAX_MESSAGE_SIZE, Recorder, SOON, Told, addresses, rows, uniform};
use reverb_core::{KeySlots, MAX_SHARDS};
use reverb_net::Endpoint;
use reverb_net::client::Client;
use reverb_net::server::{ListenOptions, Server};
use reverb_net::transport::cluster::{ClusterOptions, OnShardLoss, Placement};
use reverb_service::{Replay, Shard, TableHandle};
use std::sync::Arc;
use std::time::Instant;
use tokio::runtime::Handle;

/// A shard with a table called `table`, and what that table has noted.
pub struct TestShard {
    pub id: u32,
    pub server: Server,
    pub table: TableHandle,
    pub journal: Arc<Recorder>,
}

pub fn slots(id: u32) -> KeySlots {
    KeySlots::of_shard(id, MAX_SHARDS).unwrap()
}

impl TestShard {
    pub fn start(id: u32) -> Self {
        Self::of(id, uniform("table"), None)
    }

    pub fn of(id: u32, table: TableHandle, port: Option<u16>) -> Self {
        Self::with(id, table, vec![], port)
    }

    /// A shard that has other tables, too.
    pub fn with(id: u32, table: TableHandle, mut others: Vec<TableHandle>, port: Option<u16>) -> Self {
        let journal = Recorder::of(&table);
        let shard = Shard::new(id, MAX_SHARDS, own_name("replay")).unwrap();
        others.push(table.clone());
        let replay = Replay::of_shard(others, MAX_MESSAGE_SIZE, Some(shard)).unwrap();
        let options = ListenOptions { port, ..ListenOptions::default() };
        Self { id, server: Server::start(&Handle::current(), replay, &options, None).unwrap(), table, journal }
    }

    /// Ends the server, and starts another with the same table at its address.
    pub fn restart(self) -> Self {
        let (id, table, port) = (self.id, self.table.clone(), self.server.port());
        drop(self);
        Self::of(id, table, Some(port))
    }

    /// Inserts items of one step. Returns their keys.
    pub async fn fill(&self, values: &[i64]) -> Vec<u64> {
        let client = Client::new(&addresses(&self.server)[0]);
        client.insert(rows("table", values), Some(Instant::now() + SOON)).await.unwrap().into_vec()
    }

    pub fn priority(&self, key: u64) -> Option<f64> {
        self.table.with_table(|table| Some(table.get(key)?.priority))
    }

    pub fn keys(&self) -> Vec<u64> {
        self.table.with_table(|table| table.keys().collect())
    }

    /// Returns the keys of the items that were updated or deleted since the last call.
    pub fn changed_keys(&self) -> Vec<u64> {
        let changes = self.journal.take().into_iter().filter_map(|told| match told {
            Told::Priority(key, _) | Told::Gone(key, _) => Some(key),
            _ => None,
        });
        changes.collect()
    }

    /// Returns the number of calls that may have changed the table since the last call.
    pub fn num_calls(&self) -> usize {
        let calls = self.journal.confirmations().len();
        self.journal.take();
        calls
    }

    /// The name by which clients of the cluster know the shard.
    pub fn peer(&self) -> String {
        format!("ipv4:127.0.0.1:{}", self.server.port())
    }
}

pub fn options(on_shard_loss: OnShardLoss) -> ClusterOptions {
    ClusterOptions { on_shard_loss, shard_timeout: SOON, placement: Placement::Episode }
}

/// Makes a client of shards at these ports.
pub fn client_of(ports: impl IntoIterator<Item = u16>, options: ClusterOptions) -> Client {
    let entries: Vec<_> = ports.into_iter().map(|port| format!("127.0.0.1:{port}")).collect();
    Client::new(Endpoint { cluster: Some(options), ..Endpoint::from(&format!("ipv4:{}", entries.join(","))) })
}

pub fn cluster(shards: &[TestShard], on_shard_loss: OnShardLoss) -> Client {
    client_of(shards.iter().map(|shard| shard.server.port()), options(on_shard_loss))
}
