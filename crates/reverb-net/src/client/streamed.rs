//! The calls of the data path. Over a network they share the streams of a connection.

use super::call::Call;
use super::pending_draw::{Draw, PendingDraw, Sampled};
use super::started::Started;
use crate::dm_reverb::client as dm_reverb;
use crate::replay_v1::client::{Connection, RaceCall, RaceRequest, StockCall, StockRequest};
use reverb_core::{Error, ItemKeys, Result};
use reverb_service::insert::wait_for_inserts;
use reverb_service::lease::Lease;
use reverb_service::local::{
    BatchRequest, LocalDraw, RowInsert, begin_insert, draw_items, gather, gather_in_turn, is_gathered_at_once,
    sample_leased,
};
use reverb_service::{Batch, Call as TableCall, Notice, Replay};
use std::sync::Arc;
use std::time::Instant;
use tokio::runtime::Handle;

/// See [`super::Client::insert`].
#[derive(Clone)]
pub struct Insert {
    pub rows: RowInsert,
    /// The number of the client.
    pub client: u64,
}

/// See [`super::Client::sample`].
pub struct Sample<'a>(pub &'a BatchRequest);

/// See [`super::Client::begin_sample`].
pub struct BeginSample<'a> {
    pub request: &'a BatchRequest,
    pub at_once: bool,
}

impl Call for Insert {
    type Answer = ItemKeys;

    fn here<'a>(self, replay: Arc<Replay>, deadline: Option<Instant>) -> Started<'a, ItemKeys> {
        match begin_insert(&replay, &self.rows, self.client) {
            Err(error) => Started::Done(Err(error)),
            Ok((calls, keys)) if calls.iter().all(|call| matches!(call, TableCall::Done(Ok(())))) => {
                Started::Done(Ok(keys))
            }
            Ok((calls, keys)) => Started::here(async move {
                wait_for_inserts(calls, deadline, Notice::warn).await.map_err(Error::of_sent_insert)?;
                Ok(keys)
            }),
        }
    }

    async fn replay_v1(self, connection: &Connection, deadline: Option<Instant>) -> Result<ItemKeys> {
        connection.insert(self.rows, deadline).await
    }

    async fn dm_reverb(self, connection: &dm_reverb::Connection, deadline: Option<Instant>) -> Result<ItemKeys> {
        connection.insert(self.rows, deadline).await
    }
}

/// See [`super::Client::sample_at_once`].
pub fn sample_at_once(replay: &Replay, request: &BatchRequest) -> Option<Sampled> {
    sample_leased(replay, replay.table(&request.table).ok()?, request).map(sampled)
}

/// See [`super::Client::begin_at_once`].
pub fn begin_at_once(replay: &Replay, request: &BatchRequest) -> Option<PendingDraw> {
    let begun = Instant::now();
    let draw = LocalDraw::copied(replay, replay.table(&request.table).ok()?, request)?;
    Some(PendingDraw::new(Draw::Local(draw), begun))
}

fn sampled((batch, lease): (Batch, Option<Lease>)) -> Sampled {
    let draw = lease.map(|lease| PendingDraw::new(Draw::Local(LocalDraw::taken(lease)), Instant::now()));
    Sampled { batch, draw }
}

impl Call for Sample<'_> {
    type Answer = Sampled;

    fn here<'a>(self, replay: Arc<Replay>, deadline: Option<Instant>) -> Started<'a, Sampled>
    where
        Self: 'a,
    {
        let request = self.0;
        let table = match replay.table(&request.table) {
            Ok(table) => table,
            Err(error) => return Started::Done(Err(error)),
        };
        if let Some(copied) = sample_leased(&replay, table, request) {
            return Started::Done(Ok(sampled(copied)));
        }
        let table = table.clone();
        match draw_items(&table, request, replay.this_process()) {
            TableCall::Done(Err(error)) => Started::Done(Err(error)),
            // A thread that serves clients must not be held up; that of the caller has nothing else to do.
            TableCall::Done(Ok(drawn)) if Handle::try_current().is_ok() && !is_gathered_at_once(&drawn) => {
                Started::here(async move { gather_in_turn(&table, drawn, request).await.map(sampled) })
            }
            TableCall::Done(Ok(drawn)) => Started::Done(gather(&table, drawn, request).map(sampled)),
            TableCall::Waiting(waiting) => Started::here(async move {
                let drawn = waiting.result(deadline, Notice::warn).await?;
                gather_in_turn(&table, drawn, request).await.map(sampled)
            }),
        }
    }

    async fn replay_v1(self, connection: &Connection, deadline: Option<Instant>) -> Result<Sampled> {
        let begun = Instant::now();
        let (batch, call) = connection.sample(self.0, deadline).await?;
        Ok(Sampled { batch, draw: Some(PendingDraw::new(Draw::Remote(call), begun)) })
    }

    async fn dm_reverb(self, connection: &dm_reverb::Connection, deadline: Option<Instant>) -> Result<Sampled> {
        let batch = connection.sample(self.0, deadline).await?;
        Ok(Sampled { batch, draw: None })
    }
}

impl Call for BeginSample<'_> {
    type Answer = PendingDraw;

    fn here<'a>(self, replay: Arc<Replay>, deadline: Option<Instant>) -> Started<'a, PendingDraw>
    where
        Self: 'a,
    {
        let begin = move || {
            let begun = Instant::now();
            let draw = LocalDraw::begin(&replay, self.request, deadline, self.at_once);
            draw.map(|draw| PendingDraw::new(Draw::Local(draw), begun))
        };
        // A draw that waits or copies much data runs as a task on the runtime of the process.
        match Handle::try_current() {
            Ok(_) => Started::Done(begin()),
            Err(_) => Started::here(async move { begin() }),
        }
    }

    async fn replay_v1(self, connection: &Connection, deadline: Option<Instant>) -> Result<PendingDraw> {
        connection
            .begin_sample(self.request, deadline)
            .await
            .map(|call| PendingDraw::new(Draw::Remote(call), Instant::now()))
    }

    async fn dm_reverb(self, connection: &dm_reverb::Connection, deadline: Option<Instant>) -> Result<PendingDraw> {
        connection
            .begin_sample(self.request, deadline)
            .await
            .map(|call| PendingDraw::new(Draw::DmReverb(call), Instant::now()))
    }
}

/// Begins a race. See [`super::Client::begin_race`].
impl Call for &RaceRequest {
    type Answer = RaceCall;

    fn here<'a>(self, _replay: Arc<Replay>, _deadline: Option<Instant>) -> Started<'a, RaceCall>
    where
        Self: 'a,
    {
        Started::Done(Err(Error::Unimplemented("a client cannot race tables of its own process".into())))
    }

    async fn replay_v1(self, connection: &Connection, _deadline: Option<Instant>) -> Result<RaceCall> {
        connection.begin_race(self).await
    }
}

/// Begins a wait for a stock of a table.
impl Call for &StockRequest {
    type Answer = StockCall;

    fn here<'a>(self, _replay: Arc<Replay>, _deadline: Option<Instant>) -> Started<'a, StockCall>
    where
        Self: 'a,
    {
        Started::Done(Err(Error::Unimplemented("a client cannot race tables of its own process".into())))
    }

    async fn replay_v1(self, connection: &Connection, _deadline: Option<Instant>) -> Result<StockCall> {
        connection.begin_wait(self).await
    }
}
