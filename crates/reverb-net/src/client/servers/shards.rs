//! Calls to the shards of a cluster, each of which may be missing.

use super::at_server::is_lost;
use super::owners::Owners;
use super::to_all::{All, Answers, Reached, of_all, reached_and_lost};
use crate::client::call::Call;
use crate::client::join::join;
use crate::client::road::{PeerRoads, Road};
use crate::client::started::Rest;
use crate::transport::back_off::BackOff;
use crate::transport::cluster::{ClusterOptions, OnShardLoss};
use reverb_core::{Error, ItemKey, Result};
use std::time::Instant;

/// The shards of a cluster, for one call.
#[derive(Debug)]
pub struct Shards<'s> {
    all: All<'s>,
    cluster: ClusterOptions,
    /// Until when the call waits for missing shards, if it does.
    wait_until: Option<Instant>,
    roads: PeerRoads,
    owners: Owners,
}

impl<'s> All<'s> {
    /// Returns the shards if the servers are a cluster.
    ///
    /// # Errors
    /// Those of [`super::Servers::road`].
    pub async fn shards(&self) -> Result<Option<Shards<'s>>> {
        let Some(cluster) = self.servers.cluster().map(|cluster| cluster.options) else { return Ok(None) };
        let give_up = cluster.on_shard_loss.patience().map(|patience| Instant::now() + patience);
        let wait_until = give_up.map(|give_up| self.deadline.map_or(give_up, |deadline| deadline.min(give_up)));
        let (roads, owners) = loop {
            match self.servers.shards(wait_until.or(self.connect_by)).await {
                Err(error) if error.is_transient() && wait_until.is_some_and(|until| Instant::now() < until) => {}
                found => break found?,
            }
        };
        Ok(Some(Shards { all: *self, cluster, wait_until, roads, owners }))
    }
}

impl Shards<'_> {
    /// Returns the number of shards.
    pub fn len(&self) -> usize {
        self.roads.len()
    }

    /// Returns the place among all of a shard that has answered.
    pub fn place_of(&self, peer: &str) -> usize {
        self.roads.iter().position(|(other, _)| &**other == peer).expect("only these shards are asked")
    }

    /// Returns which shard owns which keys.
    pub fn owners(&self) -> &Owners {
        &self.owners
    }

    /// Makes a call of its own at each shard, and waits for all answers; those without a call are not asked. A missing
    /// shard answers with the reason, unless the call waits for it. The keys that a missing shard owns are counted.
    pub async fn ask<C: Call>(
        &self,
        call: impl Fn(usize) -> Option<C> + Sync,
        keys: impl Iterator<Item = ItemKey>,
    ) -> Answers<C::Answer> {
        let (mut places, mut calls) = (Vec::new(), Vec::<Rest<'_, C::Answer>>::new());
        let call = &call;
        for (place, (peer, road)) in self.roads.iter().enumerate() {
            if let Some(first) = call(place) {
                let again = move || call(place);
                places.push(place);
                calls.push(Box::pin(self.at_shard(peer, road.clone(), first, again)));
            }
        }
        let answers: Vec<_> = join(calls, None).await.into_iter().flatten().collect();
        let mut is_missing = vec![false; self.len()];
        for (&place, answer) in places.iter().zip(&answers) {
            is_missing[place] = answer.as_ref().is_err_and(is_lost);
        }
        if self.cluster.on_shard_loss == OnShardLoss::Continue && is_missing.contains(&true) {
            let passed_over = keys.filter(|&key| self.owners.is_at(key, |place| is_missing[place])).count();
            self.all.servers.pass_over(passed_over as u64);
        }
        places.into_iter().map(|place| self.roads[place].0.clone()).zip(answers).collect()
    }

    /// Makes a call at one shard. If the call waits for missing shards, it is made again when the shard has returned.
    async fn at_shard<C: Call>(
        &self,
        peer: &str,
        mut road: Result<Road>,
        first: C,
        again: impl Fn() -> Option<C> + Send + Sync,
    ) -> Result<C::Answer> {
        let (mut next, mut back_off) = (Some(first), BackOff::default());
        loop {
            let lost = match (road, next) {
                (Ok(road), Some(call)) => match self.answer(road, call).await {
                    Err(error) if is_lost(&error) => error,
                    answer => return answer,
                },
                (Err(error), _) => error,
                (Ok(_), None) => Error::Internal("a call to a shard cannot be made again".into()),
            };
            let Some(until) = self.wait_until else { return Err(lost) };
            // The connection may look open for a moment after a call has failed.
            tokio::time::sleep_until((Instant::now() + back_off.pause()).min(until).into()).await;
            let Some(returned) = self.all.servers.returned(peer, until).await else { return Err(lost) };
            if Instant::now() >= until {
                return Err(lost);
            }
            (road, next) = (Ok(returned), again());
        }
    }

    /// Awaits the answer of a shard for as long as it may take until the shard is missing.
    async fn answer<C: Call>(&self, road: Road, call: C) -> Result<C::Answer> {
        let now = Instant::now();
        let limit = self.wait_until.unwrap_or(now + self.cluster.shard_timeout);
        let answered = road.call(call, self.all.deadline).into_future();
        match tokio::time::timeout_at(limit.into(), answered).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::Unavailable(format!(
                "the shard has not answered within {:.1} s",
                now.elapsed().as_secs_f64()
            ))),
        }
    }

    /// Returns the answers of the shards that have answered, if the call goes on without the others.
    ///
    /// # Errors
    /// The error that a shard answered; [`Error::Unavailable`] with the missing shards if the call does not go on, or if
    /// none can be reached, or [`Error::Unreached`] if it has waited for one until its deadline; [`Error::ServerStopped`]
    /// if all were stopped for good.
    pub fn settle<T>(&self, answers: Answers<T>, what: &str) -> Result<Reached<T>> {
        let is_lost = answers.iter().any(|(_, answer)| answer.as_ref().is_err_and(is_lost));
        if is_lost && self.all.servers.are_over() {
            return Err(self.all.servers.over());
        }
        if self.cluster.on_shard_loss == OnShardLoss::Continue {
            return match reached_and_lost(answers)? {
                (reached, Some(error)) if reached.is_empty() && self.all.servers.connection().is_none() => Err(error),
                (reached, _) => Ok(reached),
            };
        }
        let is_late = self.wait_until.is_some() && self.all.deadline.is_some_and(|end| Instant::now() >= end);
        of_all(answers, what).map_err(|error| match error {
            Error::Unavailable(text) if is_late => Error::Unreached(text),
            error => error,
        })
    }
}
