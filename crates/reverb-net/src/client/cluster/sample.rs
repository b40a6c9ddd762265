//! A draw from all shards of a cluster.

use super::gathered::Gathered;
use super::known::{Cluster, bounded};
use super::members::members;
use super::room::{Ask, Taken};
use super::round::{Ended, Round};
use super::shortage::Shortage;
use super::sorted::{Members, Missing};
use super::sums::{Lack, Sums};
use super::wait::Wait;
use crate::client::pending_draw::{BegunDraw, Draw, PendingDraw, Sampled};
use crate::client::servers::{Servers, at_server, is_lost};
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
    let (missing_since, next, last, room) = (None, None, None, None);
    let mut draw =
        ClusterDraw { servers, cluster, request, deadline, wanted, wait, missing_since, gathered, next, last, room };
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
    /// What the shards had when they last had too little.
    last: Option<Sums>,
    /// What was taken of the room of the cluster, if its shards keep a ratio together.
    room: Option<Taken>,
}

impl ClusterDraw<'_> {
    /// Makes a round. Returns whether the batch is complete.
    async fn step(&mut self) -> Result<bool> {
        let connections = self.servers.connection();
        let found = members(self.servers, self.cluster, self.deadline).await?;
        if !self.may_race(&found).await? {
            return Ok(false);
        }
        if self.gathered.is_lost() {
            self.begin_again();
        }
        let (cluster, table) = (self.cluster, &*self.request.table);
        if !self.take_room(&found).await? {
            return Ok(true);
        }
        let wanted = (self.wanted - self.gathered.len()).min(MAX_ROUND);
        let race = self.next.take().unwrap_or_else(|| cluster.race(table, wanted));
        let limit = self.deadline.and_then(|deadline| deadline.max(Instant::now()).checked_add(GRACE));
        // At the deadline, the draw takes what there is.
        let is_late = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        let at_least = if is_late { 1 } else { self.request.draw.at_least.max(1) };
        let enough = at_least.saturating_sub(self.gathered.len());
        let room = self.room.as_ref();
        match (Round { cluster, table, race, wanted: race.limit, enough, limit, room }).run(&found.present).await? {
            Ended::Lost(lost) => self.after_loss(lost).await.map(|()| false),
            Ended::Short(_) if self.gathered.len() >= at_least => Ok(true),
            Ended::Short(sums) => self.wait_for_items(&found, sums, connections, is_late).await.map(|()| false),
            Ended::Whole { round, parts } => {
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
                    // Otherwise nothing was taken.
                    AfterRound::Wait => Ok(true),
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
        let policy = self.cluster.options.on_shard_loss;
        if policy == OnShardLoss::Continue && !present.is_empty() {
            for (peer, error) in missing.iter().filter(|(peer, _)| new.contains(peer)) {
                self.servers.tell_loss(peer, error);
            }
            return Ok(true);
        }
        let names = self.cluster.names(missing);
        let Some(patience) = policy.patience() else { return Err(Error::Unavailable(names)) };
        let now = Instant::now();
        let since = *self.missing_since.get_or_insert(now);
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            return Err(Error::DeadlineExceeded(names));
        }
        if now >= since + patience {
            return Err(Error::Unavailable(format!("{names} (waited for {} s)", patience.as_secs())));
        }
        self.begin_again();
        self.wait.pause(&self.request.table, self.deadline, || names).await;
        Ok(false)
    }

    /// Takes what the next round draws from the room of the cluster, if its shards keep a ratio together, and waits for it.
    /// Returns whether there is more to draw; the batch is then at most what was taken.
    async fn take_room(&mut self, Members { present, .. }: &Members) -> Result<bool> {
        let (drawn, at_least) = (self.gathered.len(), self.request.draw.at_least.max(1));
        let ask = Ask {
            table: &self.request.table,
            drawn: drawn as u64,
            at_least: at_least as u64,
            wanted: self.wanted as u64,
            deadline: self.deadline,
        };
        let room = match self.room.take() {
            Some(room) => Some(room),
            None => {
                let roads = present.iter().map(|member| member.road.clone()).collect();
                self.servers.room_of(&self.request.table, roads, self.deadline).await?.map(Taken::new)
            }
        };
        let Some(room) = room else { return Ok(true) };
        let taken = room.fill(ask, &mut self.wait).await?;
        self.room = Some(room);
        self.wanted = taken as usize;
        Ok(self.wanted > drawn)
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

    /// Waits until the shards together may have enough, or until a missing one has returned.
    ///
    /// # Errors
    /// [`Error::DeadlineExceeded`] if it `is_late`, and that of a shard at which the draw cannot wait.
    async fn wait_for_items(
        &mut self,
        found: &Members,
        sums: Sums,
        connections: Option<u32>,
        is_late: bool,
    ) -> Result<()> {
        let held: Vec<_> = found.present.iter().map(|member| self.gathered.held(member.id)).collect();
        let Lack { stocks, words } = sums.lack(self.request.draw.at_least.max(1) as u64, &held);
        let reason = || {
            let shards = counted(found.present.len() as u64, "shard");
            let missing = if found.missing.is_empty() {
                String::new()
            } else {
                format!("; {}", self.cluster.names(&found.missing))
            };
            format!("{words} over {shards}{missing}")
        };
        let (table, deadline, reason) = (&*self.request.table, self.deadline, reason());
        if is_late {
            return Err(Error::DeadlineExceeded(format!("sample of table `{table}` waits: {reason}\n{TIMED_OUT}")));
        }
        // Draws that each hold a part of the last items would wait for each other.
        self.begin_again();
        let is_in_vain = self.last.as_ref().is_some_and(|last| !sums.exceeds(last));
        self.last = Some(sums);
        if is_in_vain {
            self.wait.pause(table, deadline, || reason.clone()).await;
        }
        let (servers, cluster, is_ahead) = (self.servers, self.cluster, self.request.draw.is_ahead);
        let shortage = Shortage { servers, cluster, table, is_ahead, stocks: &stocks, connections };
        match self.wait.during(table, deadline, || reason, shortage.ended(found)).await {
            None | Some(Ok(())) => Ok(()),
            Some(Err((member, error))) if is_lost(&error) => {
                if error.is_for_good() {
                    cluster.set_stopped(&member.peer);
                }
                self.after_loss(vec![(member.peer, error)]).await
            }
            Some(Err((member, error))) => Err(at_server(error, &member.peer)),
        }
    }

    /// Gives back what was drawn.
    fn begin_again(&mut self) {
        (self.gathered, self.next) = (Gathered::default(), None);
    }
}
