//! A draw from all shards of a cluster.

use super::gathered::Gathered;
use super::known::{Cluster, bounded};
use super::members::members;
use super::round::{Ended, Round};
use super::sorted::{Members, Missing};
use super::wait::Wait;
use crate::client::pending_draw::{BegunDraw, Draw, PendingDraw, Sampled};
use crate::client::servers::{LOSS_TIME, Servers};
use crate::replay_v1::client::GRACE;
use crate::transport::cluster::OnShardLoss;
use reverb_core::words::counted;
use reverb_core::{AfterRound, Error, Race, Result};
use reverb_service::local::BatchRequest;
use reverb_service::{MAX_DRAWN, TIMED_OUT};
use std::sync::Arc;
use std::time::Instant;

/// Maximum number of items of a round: what a table draws under one lock.
const MAX_ROUND: usize = 1 << 14;

/// Draws a batch from all shards of a cluster as from one table.
///
/// # Errors
/// Errors of the table. [`Error::Unavailable`] with the names of missing shards, if the options say so or if none is left.
/// [`Error::ServerStopped`] if all were stopped for good. [`Error::DeadlineExceeded`] if the shards together had no items
/// in time. [`Error::InvalidArgument`] if the servers are no shards of one cluster, or if the table cannot race.
pub async fn sample(servers: &Arc<Servers>, request: &BatchRequest, deadline: Option<Instant>) -> Result<Sampled> {
    let cluster = servers.cluster().ok_or_else(|| Error::Internal("the servers are no cluster".into()))?;
    request.draw.check()?;
    let begun = Instant::now();
    let wanted = request.draw.at_most.min(MAX_DRAWN);
    let wait = Wait::default();
    let gathered = Gathered::default();
    let mut draw =
        ClusterDraw { servers, cluster, request, deadline, wanted, wait, missing_since: None, gathered, next: None };
    while !draw.step().await? {}
    let ClusterDraw { wait, gathered, .. } = draw;
    wait.end(&request.table);
    let (batch, parts) = gathered.finish(request.squeeze_time, wait.paused())?;
    Ok(Sampled { batch, draw: Some(PendingDraw::new(Draw::Parts(parts), begun)) })
}

/// As [`sample`], by a task of the current runtime.
pub fn begin_sample(servers: Arc<Servers>, request: BatchRequest, deadline: Option<Instant>) -> PendingDraw {
    let draw = BegunDraw::spawn(async move { sample(&servers, &request, deadline).await });
    PendingDraw::new(Draw::Begun(draw), Instant::now())
}

struct ClusterDraw<'a> {
    servers: &'a Arc<Servers>,
    cluster: &'a Cluster,
    request: &'a BatchRequest,
    deadline: Option<Instant>,
    wanted: usize,
    wait: Wait,
    /// Since when the draw waits for a missing shard.
    missing_since: Option<Instant>,
    gathered: Gathered,
    /// The next race, if the last round has said which.
    next: Option<Race>,
}

impl ClusterDraw<'_> {
    /// Makes a round. Returns whether the batch is complete.
    async fn step(&mut self) -> Result<bool> {
        let found = members(self.servers, self.cluster, self.deadline).await?;
        if !self.may_race(&found).await? {
            return Ok(false);
        }
        if self.gathered.is_lost() {
            self.begin_again();
        }
        let (cluster, table) = (self.cluster, &*self.request.table);
        let wanted = (self.wanted - self.gathered.len()).min(MAX_ROUND);
        let race = self.next.take().unwrap_or_else(|| cluster.race(table, wanted));
        let limit = self.deadline.and_then(|deadline| deadline.max(Instant::now()).checked_add(GRACE));
        match (Round { cluster, table, race, wanted: race.limit, limit }).run(&found.present).await? {
            Ended::Lost(lost) => self.after_loss(lost).await.map(|()| false),
            Ended::Whole { round, parts, size } => {
                self.gathered.add(parts, &round.winners)?;
                if self.gathered.len() == self.wanted {
                    return Ok(true);
                }
                match round.next {
                    AfterRound::Done => Ok(false),
                    AfterRound::Race(race) => {
                        self.next = Some(bounded(race));
                        Ok(false)
                    }
                    AfterRound::Wait => self.wait_for_items(&found, size).await,
                }
            }
        }
    }

    /// Whether the shards that take part may race, although others are missing.
    async fn may_race(&mut self, Members { present, missing }: &Members) -> Result<bool> {
        let new = self.cluster.note_missing(missing.iter().map(|(peer, _)| peer.clone()).collect());
        if missing.is_empty() {
            self.missing_since = None;
            return Ok(true);
        }
        match self.cluster.options.on_shard_loss {
            OnShardLoss::Continue if !present.is_empty() => {
                for (peer, error) in missing.iter().filter(|(peer, _)| new.contains(peer)) {
                    self.servers.tell_loss(peer, error);
                }
                Ok(true)
            }
            OnShardLoss::Continue | OnShardLoss::Raise => Err(Error::Unavailable(self.cluster.names(missing))),
            OnShardLoss::Wait => {
                let since = *self.missing_since.get_or_insert_with(Instant::now);
                let (now, names) = (Instant::now(), self.cluster.names(missing));
                if self.deadline.is_some_and(|deadline| now >= deadline) {
                    return Err(Error::DeadlineExceeded(names));
                }
                if now >= since + LOSS_TIME {
                    let waited = LOSS_TIME.as_secs();
                    return Err(Error::Unavailable(format!("{names} (waited for {waited} s)")));
                }
                self.begin_again();
                self.wait.pause(&self.request.table, self.deadline, || names).await;
                Ok(false)
            }
        }
    }

    /// Decides what becomes of the draw after shards were lost within a round.
    async fn after_loss(&mut self, lost: Missing) -> Result<()> {
        if self.cluster.is_stopped() {
            return Err(self.servers.over());
        }
        if self.cluster.options.on_shard_loss == OnShardLoss::Raise && !lost.is_empty() {
            return Err(Error::Unavailable(self.cluster.names(&lost)));
        }
        self.begin_again();
        // A server that is about to stop refuses calls for a moment before it closes its connections.
        let names = self.cluster.names(&lost);
        self.wait.pause(&self.request.table, self.deadline, || names).await;
        Ok(())
    }

    /// Waits for a moment, because the shards together have no items left. Returns whether what was drawn is the batch.
    async fn wait_for_items(&mut self, Members { present, missing }: &Members, size: u64) -> Result<bool> {
        let drawn = self.gathered.len();
        if drawn >= self.request.draw.at_least.max(1) {
            return Ok(true);
        }
        let reason = || {
            let (items, shards) = (counted(size, "item"), counted(present.len() as u64, "shard"));
            let wanted = self.request.draw.at_least.max(1);
            let missing = if missing.is_empty() { String::new() } else { format!("; {}", self.cluster.names(missing)) };
            format!("{wanted} to be drawn, and {shards} together have {items}{missing}")
        };
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return match drawn {
                0 => Err(Error::DeadlineExceeded(format!(
                    "sample of table `{}` waits: {}\n{TIMED_OUT}",
                    self.request.table,
                    reason()
                ))),
                _ => Ok(true),
            };
        }
        let reason = reason();
        // Draws that each hold a part of the last items would wait for each other.
        self.begin_again();
        self.wait.pause(&self.request.table, self.deadline, || reason).await;
        Ok(false)
    }

    /// Gives back what was drawn.
    fn begin_again(&mut self) {
        (self.gathered, self.next) = (Gathered::default(), None);
    }
}
