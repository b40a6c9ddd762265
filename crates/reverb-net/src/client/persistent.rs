//! Draws that outlive their server: they go on with the next server at its address.

use super::{Client, Sampled, Started, Turn};
use crate::transport::back_off::BackOff;
use crate::transport::cluster::OnShardLoss;
use reverb_core::{Error, Result};
use reverb_service::local::BatchRequest;
use reverb_service::warn;
use std::time::{Duration, Instant};

/// A draw that ran this long had reached a server; the reconnect timer restarts.
const FOUND: Duration = Duration::from_secs(2);

impl Client {
    /// As [`Client::sample`], but a draw whose server elsewhere is lost waits for the next server at the address, up to
    /// `reconnect_timeout`. A server that was never reached is not waited for that long, nor is a shard of a cluster whose
    /// loss is to fail the draw.
    ///
    /// # Errors
    /// The errors of [`Client::sample`].
    pub fn sample_persistently<'a>(
        &'a self,
        request: &'a BatchRequest,
        deadline: Option<Instant>,
        reconnect_timeout: Duration,
    ) -> Started<'a, Sampled> {
        if self.raises_losses() {
            return self.sample(request, deadline);
        }
        let roads = match self.roads_now() {
            Some(roads) if roads.is_here() => return roads.sample(request, deadline),
            roads => roads,
        };
        let is_lost = self.with_current(|current| Some(current.roads.are_lost())).unwrap_or(false);
        Started::elsewhere(async move {
            let lost = if is_lost {
                Error::Unavailable(format!("the connection to the server at {} was lost", self.address()))
            } else {
                let roads = match roads {
                    Some(roads) => roads,
                    None => self.roads(deadline).await?,
                };
                let road = roads.one(Turn::Draw, None, deadline).await?;
                let is_here = road.is_here();
                match roads.sample_on(road, request, deadline).await {
                    Err(error) if !is_here => self.after_end_of_draw(error, deadline).await,
                    sampled => return sampled,
                }
            };
            Box::pin(self.resume(lost, request, deadline, reconnect_timeout)).await
        })
    }

    /// Whether the loss of a shard is to fail calls.
    fn raises_losses(&self) -> bool {
        self.endpoint.cluster.is_some_and(|options| options.on_shard_loss == OnShardLoss::Raise)
    }

    /// Draws again after a draw has failed, if it failed because the server was lost.
    async fn resume(
        &self,
        mut lost: Error,
        request: &BatchRequest,
        deadline: Option<Instant>,
        reconnect_timeout: Duration,
    ) -> Result<Sampled> {
        let (mut lost_at, mut back_off, mut is_told) = (Instant::now(), BackOff::default(), false);
        while lost.is_transient() {
            let give_up = lost_at.checked_add(reconnect_timeout);
            let limit = [deadline, give_up].into_iter().flatten().min();
            let now = Instant::now();
            if limit.is_some_and(|limit| now >= limit) {
                return Err(lost);
            }
            let next = now + back_off.pause();
            tokio::time::sleep_until(limit.map_or(next, |limit| next.min(limit)).into()).await;
            let found = async {
                let roads = self.roads(limit).await?;
                roads.one(Turn::Draw, None, limit).await.map(|road| (roads, road))
            };
            let (roads, road) = match found.await {
                Ok(found) => found,
                Err(error @ Error::Unreached(_)) if limit == deadline => return Err(error),
                Err(Error::Unreached(reason) | Error::Unavailable(reason)) => {
                    if !std::mem::replace(&mut is_told, true) {
                        let (address, table) = (self.address(), &request.table);
                        warn(&format!("a draw from table `{table}` waits for the lost server at {address}: {reason}"));
                    }
                    lost = Error::Unavailable(reason);
                    continue;
                }
                Err(error) => return Err(error),
            };
            let (is_here, begun) = (road.is_here(), Instant::now());
            match roads.sample_on(road, request, deadline).await {
                Err(error) if !is_here => lost = self.after_end_of_draw(error, deadline).await,
                sampled => return sampled,
            }
            if begun.elapsed() > FOUND {
                (lost_at, back_off, is_told) = (Instant::now(), BackOff::default(), false);
            }
        }
        Err(lost)
    }
}
