//! Waits at the shards until one of them has more, or until a missing one has returned.

use super::known::Cluster;
use super::sorted::{Member, Members};
use crate::client::StockRequest;
use crate::client::join::Asking;
use crate::client::servers::Servers;
use reverb_core::{Error, Result};
use reverb_service::Stock;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// Time between two looks, without a message, whether a shard has answered that is connected but silent.
const SILENCE_PAUSE: Duration = Duration::from_millis(100);

/// What a draw waits for.
#[derive(Debug)]
pub struct Shortage<'a> {
    /// The servers of the cluster.
    pub servers: &'a Arc<Servers>,
    /// What the client knows of it.
    pub cluster: &'a Cluster,
    /// The name of the table.
    pub table: &'a str,
    /// Whether a loader waits that draws ahead of its program.
    pub is_ahead: bool,
    /// What each shard that takes part must have.
    pub stocks: &'a [Stock],
    /// Number of connections before the missing shards were found.
    pub connections: Option<u32>,
}

impl Shortage<'_> {
    /// Waits until a shard has its stock, or a missing one has returned. One request goes to each shard. When one has
    /// answered, or when the future is dropped, the requests at the others are withdrawn.
    ///
    /// # Errors
    /// The error of the first shard that fails, with the shard.
    pub async fn ended(&self, Members { present, missing }: &Members) -> std::result::Result<(), (Member, Error)> {
        let requests: Vec<_> = self.stocks.iter().map(|&stock| self.request(stock)).collect();
        let waits = present.iter().zip(&requests).map(|(member, request)| -> Asking<'_, _> {
            Box::pin(async move { wait_at(member, request).await.map_err(|error| (member.clone(), error)) })
        });
        let connections = if missing.is_empty() { self.servers.connection() } else { self.connections };
        let silent: Vec<_> = missing.iter().map(|(peer, _)| peer).filter(|peer| self.cluster.is_silent(peer)).collect();
        tokio::select! {
            first = first_of(waits.collect()) => first,
            () = self.servers.reached_since(connections) => Ok(()),
            () = self.answered(&silent), if !silent.is_empty() => Ok(()),
        }
    }

    fn request(&self, stock: Stock) -> StockRequest {
        StockRequest { table: self.table.to_owned(), stock, is_ahead: self.is_ahead }
    }

    async fn answered(&self, silent: &[&Arc<str>]) {
        while silent.iter().all(|peer| self.cluster.is_silent(peer)) {
            tokio::time::sleep(SILENCE_PAUSE).await;
        }
    }
}

async fn wait_at(member: &Member, request: &StockRequest) -> Result<()> {
    member.road.clone().call(request, None).into_future().await?.stocked().await
}

/// Awaits the first of several futures, and drops the others.
async fn first_of<T>(mut futures: Vec<Asking<'_, T>>) -> T {
    std::future::poll_fn(|context| {
        for future in &mut futures {
            if let Poll::Ready(first) = future.as_mut().poll(context) {
                return Poll::Ready(first);
            }
        }
        Poll::Pending
    })
    .await
}
