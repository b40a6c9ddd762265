//! One round of a draw: a race of all shards that take part.

use super::gathered::RoundPart;
use super::known::{Cluster, Probe, bounded};
use super::room::Taken;
use super::sorted::{Member, Missing};
use super::sums::Sums;
use crate::client::join::{Asking, join};
use crate::client::servers::{at_server, is_lost};
use crate::client::{DrawCall, RaceCall, RaceRequest, Road};
use reverb_core::{AfterRound, Error, Race, RaceReport, RaceRound, Result};
use reverb_service::Batch;
use std::time::{Duration, Instant};

/// What one round of a draw asks.
#[derive(Debug)]
pub struct Round<'a> {
    /// What the client knows of the cluster.
    pub cluster: &'a Cluster,
    /// The name of the table.
    pub table: &'a str,
    /// The race.
    pub race: Race,
    /// Number of draws that are wanted.
    pub wanted: usize,
    /// Number of draws below which nothing is taken, if no more can come.
    pub enough: usize,
    /// Until when the round waits for answers, if that is earlier than the time after which a shard is missing.
    pub limit: Option<Instant>,
    /// What was taken of the room of the cluster, if its shards keep a ratio together.
    pub room: Option<&'a Taken>,
}

/// How a round has ended.
#[derive(Debug)]
pub enum Ended {
    /// All shards have answered. The parts are those of the merged round.
    Whole { round: RaceRound, parts: Vec<RoundPart> },
    /// All shards have answered, and have too little together. Nothing was taken.
    Short(Sums),
    /// Shards are missing, so that nothing of the round counts. None if one was only too late to choose.
    Lost(Missing),
}

/// The answer of a shard. `None` if there was none in time.
type Answer<T> = Option<Result<T>>;

impl Round<'_> {
    /// Races the shards.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the table cannot race. [`Error::DeadlineExceeded`] if the limit passes first. The
    /// errors of shards that are not lost.
    pub async fn run(&self, members: &[Member]) -> Result<Ended> {
        let hold = 2 * self.cluster.options.shard_timeout;
        let claim = self.room.map(Taken::claim);
        let request = RaceRequest { table: self.table.to_owned(), race: self.race, squeeze_time: false, hold, claim };
        let limit = self.next_limit();
        let begun = members
            .iter()
            .map(|member| -> Asking<'_, _> { member.road.clone().call(&request, self.limit).into_future() });
        let begun = join(begun.collect(), Some(limit)).await;
        let mut calls: Vec<Option<RaceCall>> = Vec::with_capacity(members.len());
        let mut failed: Vec<Answer<RaceReport>> = Vec::with_capacity(members.len());
        for answer in begun {
            let (call, error) = answer.map_or((None, None), |answer| match answer {
                Ok(call) => (Some(call), None),
                Err(error) => (None, Some(Err(error))),
            });
            calls.push(call);
            failed.push(error);
        }
        let asked = calls.iter_mut().zip(failed).map(|(call, failed)| -> Asking<'_, _> {
            match call {
                Some(call) => Box::pin(async { call.report().await }),
                None => Box::pin(async { failed.unwrap_or_else(|| Err(silent())) }),
            }
        });
        let reports = join(asked.collect(), Some(limit)).await;
        let reports = match self.settle(members, reports, limit)? {
            Ok(reports) => reports,
            Err(lost) => return Ok(Ended::Lost(lost)),
        };
        let sums = Sums::of(self.table, &reports, |shard| self.cluster.name(&members[shard].peer))?;
        let wanted = sums.allowed(self.wanted);
        let round = self.race.merge(wanted, &reports);
        let arrivals: usize = reports.iter().map(|report| report.arrivals.len()).sum();
        let spare = arrivals - round.winners.len();
        self.cluster.note_round(self.table, (sums.weight, sums.size), spare as u64);
        if wanted == 0 || (round.next == AfterRound::Wait && round.winners.len() < self.enough) {
            // The races are dropped, and so freed.
            return Ok(Ended::Short(sums));
        }
        self.batches(members, calls, round).await
    }

    /// Chooses the winners of a round at their shards, frees all other arrivals, and waits for the batches.
    async fn batches(&self, members: &[Member], calls: Vec<Option<RaceCall>>, mut round: RaceRound) -> Result<Ended> {
        let mut chosen: Vec<(Member, Vec<usize>)> = Vec::new();
        let mut draws: Vec<Result<DrawCall>> = Vec::new();
        let mut places = vec![usize::MAX; members.len()];
        for (shard, (member, call)) in members.iter().zip(calls).enumerate() {
            let won = round.winners.iter().filter(|winner| winner.shard == shard);
            let mut winners: Vec<_> = won.map(|winner| winner.index).collect();
            // A race that is dropped is freed.
            let Some(mut call) = call.filter(|_| !winners.is_empty()) else { continue };
            winners.sort_unstable();
            places[shard] = chosen.len();
            self.room.iter().for_each(|room| room.choose(member.id, winners.len() as u64));
            draws.push(call.choose(&winners));
            chosen.push((member.clone(), winners));
        }
        round.winners.iter_mut().for_each(|winner| winner.shard = places[winner.shard]);
        let limit = self.next_limit();
        let asked = draws.iter_mut().map(|draw| -> Asking<'_, Result<Batch>> {
            match draw {
                Ok(draw) => Box::pin(async { draw.result().await }),
                Err(error) => {
                    let error = error.clone();
                    Box::pin(async { Err(error) })
                }
            }
        });
        let batches = join(asked.collect(), Some(limit)).await;
        // The choice came too late. The shard is there, and has taken its draws back.
        let is_late = |batch: &Answer<Batch>| matches!(batch, Some(Err(Error::DeadlineExceeded(_))));
        for ((member, winners), _) in chosen.iter().zip(&batches).filter(|(_, batch)| is_late(batch)) {
            self.room.iter().for_each(|room| room.lose(member.id, winners.len() as u64));
        }
        if batches.iter().any(is_late) {
            return Ok(Ended::Lost(Vec::new()));
        }
        let asked: Vec<_> = chosen.iter().map(|(member, _)| member.clone()).collect();
        let draws: Vec<_> = draws.into_iter().map(Result::ok).collect();
        let batches = match self.settle(&asked, batches, limit)? {
            Ok(batches) => batches,
            Err(lost) => return Ok(Ended::Lost(lost)),
        };
        let parts =
            chosen.into_iter().zip(batches).zip(draws).filter_map(|(((member, winners), batch), call)| {
                Some(RoundPart { member, winners, batch, call: call? })
            });
        Ok(Ended::Whole { parts: parts.collect(), round })
    }

    /// Until when answers that are asked for now are waited for.
    fn next_limit(&self) -> Instant {
        let timeout = Instant::now() + self.cluster.options.shard_timeout;
        self.limit.map_or(timeout, |limit| limit.min(timeout))
    }

    /// Returns the answers of all shards, or those that are lost.
    fn settle<T>(
        &self,
        members: &[Member],
        answers: Vec<Answer<T>>,
        limit: Instant,
    ) -> Result<std::result::Result<Vec<T>, Missing>> {
        self.check_refusals(members, &answers)?;
        let is_deadline = self.limit == Some(limit);
        let (mut answered, mut lost) = (Vec::with_capacity(answers.len()), Vec::new());
        for (member, answer) in members.iter().zip(answers) {
            let peer = &member.peer;
            match answer {
                Some(Ok(answer)) => answered.push(answer),
                Some(Err(error)) => {
                    if error.is_for_good() {
                        self.cluster.set_stopped(peer);
                    }
                    lost.push((peer.clone(), error));
                }
                None if is_deadline => {
                    let name = self.cluster.name(peer);
                    return Err(Error::DeadlineExceeded(format!("{name} has not answered a draw before its deadline")));
                }
                None => {
                    self.cluster.add_silent(peer, probe(member.road.clone(), self.table));
                    lost.push((peer.clone(), silent()));
                }
            }
        }
        Ok(if lost.is_empty() { Ok(answered) } else { Err(lost) })
    }

    /// Fails with the error of a shard that is not lost: without its name, if all shards say the same.
    fn check_refusals<T>(&self, members: &[Member], answers: &[Answer<T>]) -> Result<()> {
        let error = |answer: &Answer<T>| answer.as_ref()?.as_ref().err().filter(|error| !is_lost(error)).cloned();
        let refusals: Vec<_> = answers.iter().map(error).collect();
        let Some((member, Some(first))) = members.iter().zip(&refusals).find(|(_, refusal)| refusal.is_some()) else {
            return Ok(());
        };
        let is_of_all = refusals.iter().all(|refusal| refusal.as_ref() == Some(first));
        Err(if is_of_all { first.clone() } else { at_server(first.clone(), &member.peer) })
    }
}

/// Asks a shard that has not answered for an answer: a race that draws nothing. What the shard was asked before is
/// withdrawn, so that it gives that back by itself once it goes on.
fn probe(road: Road, table: &str) -> Probe {
    let race = bounded(Race { interval: 0.0, limit: 1, by_size: false });
    let (table, hold) = (table.to_owned(), Duration::from_secs(1));
    let request = RaceRequest { table, race, squeeze_time: false, hold, claim: None };
    Probe(Box::pin(async move {
        if let Ok(mut call) = road.call(&request, None).into_future().await {
            let _is_back = call.report().await;
        }
    }))
}

fn silent() -> Error {
    Error::Unavailable("it does not answer".into())
}
