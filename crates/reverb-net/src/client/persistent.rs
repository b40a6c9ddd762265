//! Draws that outlive their server: they go on with the next server at its address.

use super::{Client, Road, Started, Turn};
use crate::transport::back_off::BackOff;
use reverb_core::{Error, Result, fork};
use reverb_service::local::BatchRequest;
use reverb_service::{Batch, Transport, warn};
use std::time::{Duration, Instant};

/// A draw that ran this long had reached a server; the reconnect timer restarts.
const FOUND: Duration = Duration::from_secs(2);

impl Client {
    /// As [`Client::sample`], but a draw whose server elsewhere is lost waits for the next server at the address, up to
    /// `reconnect_timeout`. A server that was never reached is not waited for that long.
    ///
    /// # Errors
    /// The errors of [`Client::sample`].
    pub fn sample_persistently<'a>(
        &'a self,
        request: &'a BatchRequest,
        deadline: Option<Instant>,
        reconnect_timeout: Duration,
    ) -> Started<'a, Batch> {
        let resume = move |lost| Box::pin(self.resume(lost, request, deadline, reconnect_timeout));
        match self.road_now() {
            Some(Road::ReplayV1(connection)) => Started::elsewhere(async move {
                match connection.sample(request, deadline).await {
                    Err(error) => resume(error).await,
                    sampled => sampled,
                }
            }),
            Some(Road::DmReverb(connection)) => Started::elsewhere(async move {
                match connection.sample(request, deadline).await {
                    Err(error) => resume(error).await,
                    sampled => sampled,
                }
            }),
            Some(here) => here.sample(request, deadline),
            None if self.was_connected() => Started::elsewhere(async move { resume(self.lost()).await }),
            None => Started::elsewhere(async move {
                let road = self.road(Turn::Draw, deadline).await?;
                let is_here = road.transport() == Transport::SameProcess;
                match self.sample_on(road, request, deadline).await {
                    Err(error) if !is_here => resume(error).await,
                    sampled => sampled,
                }
            }),
        }
    }

    /// Whether the client has had a connection to a server elsewhere, and has none now.
    fn was_connected(&self) -> bool {
        if let Some(servers) = &self.servers {
            return servers.are_lost();
        }
        self.current.load().as_ref().is_some_and(|current| {
            current.generation == fork::generation() && !matches!(current.road, Road::SameProcess(_))
        })
    }

    fn lost(&self) -> Error {
        Error::Unavailable(format!("the connection to the server at {} was lost", self.address.text()))
    }

    /// Draws again after a draw has failed, if it failed because the server was lost.
    async fn resume(
        &self,
        mut lost: Error,
        request: &BatchRequest,
        deadline: Option<Instant>,
        reconnect_timeout: Duration,
    ) -> Result<Batch> {
        let (mut lost_at, mut back_off, mut is_told) = (Instant::now(), BackOff::default(), false);
        while matches!(lost, Error::Unavailable(_) | Error::Cancelled(_)) {
            let give_up = lost_at.checked_add(reconnect_timeout);
            let limit = [deadline, give_up].into_iter().flatten().min();
            let now = Instant::now();
            if limit.is_some_and(|limit| now >= limit) {
                return Err(lost);
            }
            let next = now + back_off.pause();
            tokio::time::sleep_until(limit.map_or(next, |limit| next.min(limit)).into()).await;
            let road = match self.road(Turn::Draw, limit).await {
                Ok(road) => road,
                Err(error @ Error::Unreached(_)) if limit == deadline => return Err(error),
                Err(Error::Unreached(reason) | Error::Unavailable(reason)) => {
                    if !std::mem::replace(&mut is_told, true) {
                        let (address, table) = (self.address.text(), &request.table);
                        warn(&format!("a draw from table `{table}` waits for the lost server at {address}: {reason}"));
                    }
                    lost = Error::Unavailable(reason);
                    continue;
                }
                Err(error) => return Err(error),
            };
            let is_here = road.transport() == Transport::SameProcess;
            let begun = Instant::now();
            match self.sample_on(road, request, deadline).await {
                Err(error) if !is_here => lost = error,
                sampled => return sampled,
            }
            if begun.elapsed() > FOUND {
                (lost_at, back_off, is_told) = (Instant::now(), BackOff::default(), false);
            }
        }
        Err(lost)
    }
}
