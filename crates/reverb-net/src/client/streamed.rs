//! The calls of the data path. Over a network they share the streams of a connection.

use super::call::Call;
use super::pending_draw::PendingDraw;
use super::started::Started;
use crate::dm_reverb::client as dm_reverb;
use crate::replay_v1::client::Connection;
use reverb_core::{Drawn, Error, Result};
use reverb_service::insert::wait_for_inserts;
use reverb_service::local::{BatchRequest, LocalDraw, RowInsert, begin_insert, gather, sample_copied};
use reverb_service::{Batch, Call as TableCall, Notice, Replay, Waiting};
use std::sync::Arc;
use std::time::Instant;
use tokio::runtime::Handle;

/// See [`super::Client::insert`].
pub struct Insert(pub RowInsert);

/// See [`super::Client::sample`].
pub struct Sample<'a>(pub &'a BatchRequest);

/// See [`super::Client::begin_sample`].
pub struct BeginSample<'a> {
    pub request: &'a BatchRequest,
    pub at_once: bool,
}

impl Call for Insert {
    type Answer = ();

    fn here<'a>(self, replay: Arc<Replay>, deadline: Option<Instant>) -> Started<'a, ()> {
        match begin_insert(&replay, &self.0) {
            Err(error) => Started::Done(Err(error)),
            Ok(calls) if calls.iter().all(|call| matches!(call, TableCall::Done(Ok(())))) => Started::Done(Ok(())),
            Ok(calls) => Started::here(async move {
                wait_for_inserts(calls, deadline, Notice::warn).await.map_err(Error::of_sent_insert)
            }),
        }
    }

    fn replay_v1(self, connection: &Connection, deadline: Option<Instant>) -> impl Future<Output = Result<()>> + Send {
        connection.insert(self.0, deadline)
    }

    fn dm_reverb(
        self,
        connection: &dm_reverb::Connection,
        deadline: Option<Instant>,
    ) -> impl Future<Output = Result<()>> + Send {
        connection.insert(self.0, deadline)
    }
}

impl Call for Sample<'_> {
    type Answer = Batch;

    fn here<'a>(self, replay: Arc<Replay>, deadline: Option<Instant>) -> Started<'a, Batch>
    where
        Self: 'a,
    {
        let request = self.0;
        match sample_now(&replay, request) {
            Ok(Sampled::Now(batch)) => Started::Done(Ok(batch)),
            Err(error) => Started::Done(Err(error)),
            Ok(Sampled::Later(waiting)) => Started::here(async move {
                let drawn = waiting.reported_result(deadline, Notice::warn).await?;
                gather(replay.table(&request.table)?, drawn, request)
            }),
        }
    }

    fn replay_v1(
        self,
        connection: &Connection,
        deadline: Option<Instant>,
    ) -> impl Future<Output = Result<Batch>> + Send {
        connection.sample(self.0, deadline)
    }

    fn dm_reverb(
        self,
        connection: &dm_reverb::Connection,
        deadline: Option<Instant>,
    ) -> impl Future<Output = Result<Batch>> + Send {
        connection.sample(self.0, deadline)
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
            draw.map(|draw| PendingDraw::local(draw, begun))
        };
        // A draw that waits or copies much data runs as a task on the runtime of the process.
        match Handle::try_current() {
            Ok(_) => Started::Done(begin()),
            Err(_) => Started::here(async move { begin() }),
        }
    }

    async fn replay_v1(self, connection: &Connection, deadline: Option<Instant>) -> Result<PendingDraw> {
        connection.begin_sample(self.request, deadline).await.map(PendingDraw::remote)
    }

    async fn dm_reverb(self, connection: &dm_reverb::Connection, deadline: Option<Instant>) -> Result<PendingDraw> {
        connection.begin_sample(self.request, deadline).await.map(PendingDraw::dm_reverb)
    }
}

/// The result of an attempt to draw without a wait.
enum Sampled {
    Now(Batch),
    Later(Waiting<Vec<Drawn>>),
}

fn sample_now(replay: &Replay, request: &BatchRequest) -> Result<Sampled> {
    let table = replay.table(&request.table)?;
    if let Some(batch) = sample_copied(table, request, None) {
        return Ok(Sampled::Now(batch));
    }
    match table.sample(request.draw) {
        TableCall::Done(drawn) => gather(table, drawn?, request).map(Sampled::Now),
        TableCall::Waiting(waiting) => Ok(Sampled::Later(waiting)),
    }
}
