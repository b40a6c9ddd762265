//! The road to a server, and all calls over it. No other module distinguishes the kinds of roads.
//!
//! A road is a transport (the same process, a Unix socket, TCP) and a protocol over it. If tables of this process can
//! complete a call at once, the calling thread does so.

use super::pending_draw::PendingDraw;
use super::started::Started;
use crate::dm_reverb::client as dm_reverb;
use crate::replay_v1::client::{BenchHold, Connection};
use reverb_core::{Drawn, Error, Result, TableChanges};
use reverb_observe::documents::observed;
use reverb_service::insert::wait_for_inserts;
use reverb_service::local::{BatchRequest, LocalDraw, RowInsert, begin_insert, gather, sample_copied};
use reverb_service::peek::{Peeked, peek};
use reverb_service::{Batch, Call, Notice, Replay, TableStatus, Transport, Waiting};
use std::sync::Arc;
use std::time::Instant;
use tokio::runtime::Handle;

/// How a client reaches its server.
#[derive(Debug, Clone)]
pub enum Road {
    /// The server is in this process, and calls use its tables directly.
    SameProcess(Arc<Replay>),
    /// A connection over a Unix socket or TCP that uses our protocol.
    ReplayV1(Arc<Connection>),
    /// A connection to a server of dm-reverb 0.14, with its protocol.
    DmReverb(Arc<dm_reverb::Connection>),
}

impl Road {
    /// Returns the transport that carries calls.
    pub fn transport(&self) -> Transport {
        match self {
            Self::SameProcess(_) => Transport::SameProcess,
            Self::ReplayV1(connection) => connection.transport(),
            Self::DmReverb(connection) => connection.transport(),
        }
    }

    /// Returns the name of the road, for display: its transport and, if that is not ours, its protocol.
    pub fn name(&self) -> String {
        match self {
            Self::SameProcess(_) | Self::ReplayV1(_) => self.transport().name().into(),
            Self::DmReverb(_) => format!("{} (dm-reverb)", self.transport().name()),
        }
    }

    /// Returns the address of the server, for display. `None` in the same process.
    pub(super) fn peer(&self) -> Option<&str> {
        match self {
            Self::SameProcess(_) => None,
            Self::ReplayV1(connection) => Some(connection.peer()),
            Self::DmReverb(connection) => Some(connection.peer()),
        }
    }

    /// Returns the random id of a server elsewhere, which may be empty if the server has told none.
    pub(super) fn server_id(&self) -> Option<&[u8]> {
        match self {
            Self::SameProcess(_) => None,
            Self::ReplayV1(connection) => Some(connection.server_id()),
            Self::DmReverb(connection) => Some(connection.tables().server_id()),
        }
    }

    /// Whether the protocol is that of dm-reverb.
    pub(super) fn is_of_dm_reverb(&self) -> bool {
        matches!(self, Self::DmReverb(_))
    }

    /// Whether calls can be made over this road.
    pub(super) fn is_open(&self) -> bool {
        match self {
            Self::SameProcess(replay) => !replay.is_closed(),
            Self::ReplayV1(connection) => !connection.is_broken(),
            Self::DmReverb(connection) => !connection.is_broken(),
        }
    }

    /// See [`super::Client::insert`].
    pub fn insert<'a>(self, insert: RowInsert, deadline: Option<Instant>) -> Started<'a, ()> {
        let replay = match self {
            Self::SameProcess(replay) => replay,
            Self::ReplayV1(connection) => {
                return Started::elsewhere(async move { connection.insert(insert, deadline).await });
            }
            Self::DmReverb(connection) => {
                return Started::elsewhere(async move { connection.insert(insert, deadline).await });
            }
        };
        match begin_insert(&replay, &insert) {
            Err(error) => Started::Done(Err(error)),
            Ok(calls) if calls.iter().all(|call| matches!(call, Call::Done(Ok(())))) => Started::Done(Ok(())),
            Ok(calls) => Started::here(async move {
                wait_for_inserts(calls, deadline, Notice::warn).await.map_err(Error::of_sent_insert)
            }),
        }
    }

    /// See [`super::Client::sample`].
    pub fn sample(self, request: &BatchRequest, deadline: Option<Instant>) -> Started<'_, Batch> {
        let replay = match self {
            Self::SameProcess(replay) => replay,
            Self::ReplayV1(connection) => {
                return Started::elsewhere(async move { connection.sample(request, deadline).await });
            }
            Self::DmReverb(connection) => {
                return Started::elsewhere(async move { connection.sample(request, deadline).await });
            }
        };
        match sample_now(&replay, request) {
            Ok(Sampled::Now(batch)) => Started::Done(Ok(batch)),
            Err(error) => Started::Done(Err(error)),
            Ok(Sampled::Later(waiting)) => Started::here(async move {
                let drawn = waiting.reported_result(deadline, Notice::warn).await?;
                gather(replay.table(&request.table)?, drawn, request)
            }),
        }
    }

    /// See [`super::Client::begin_sample`].
    pub fn begin_sample(
        self,
        request: &BatchRequest,
        deadline: Option<Instant>,
        at_once: bool,
    ) -> Started<'_, PendingDraw> {
        match self {
            Self::SameProcess(replay) => {
                let begin = move || {
                    let begun = Instant::now();
                    let draw = LocalDraw::begin(&replay, request, deadline, at_once);
                    draw.map(|draw| PendingDraw::local(draw, begun))
                };
                // A draw that waits or copies much data runs as a task on the runtime of the process.
                match Handle::try_current() {
                    Ok(_) => Started::Done(begin()),
                    Err(_) => Started::here(async move { begin() }),
                }
            }
            Self::ReplayV1(connection) => {
                Started::elsewhere(
                    async move { connection.begin_sample(request, deadline).await.map(PendingDraw::remote) },
                )
            }
            Self::DmReverb(connection) => Started::elsewhere(async move {
                connection.begin_sample(request, deadline).await.map(PendingDraw::dm_reverb)
            }),
        }
    }

    /// See [`super::Client::mutate`].
    pub fn mutate<'a>(
        self,
        table: &'a str,
        updates: &'a [(u64, f64)],
        deletes: &'a [u64],
        deadline: Option<Instant>,
    ) -> Started<'a, Option<u64>> {
        match self {
            Self::SameProcess(replay) => {
                Started::Done(replay.table(table).and_then(|table| table.mutate(updates, deletes).map(Some)))
            }
            Self::ReplayV1(connection) => Started::elsewhere(async move {
                of_same_server(&connection, connection.mutate(table, updates, deletes, deadline)).await
            }),
            Self::DmReverb(connection) => {
                Started::elsewhere(async move { connection.mutate(table, updates, deletes, deadline).await })
            }
        }
    }

    /// See [`super::Client::reset`].
    pub fn reset(self, table: &str, deadline: Option<Instant>) -> Started<'_, ()> {
        match self {
            Self::SameProcess(replay) => Started::Done(replay.table(table).map(|table| table.reset())),
            Self::ReplayV1(connection) => {
                Started::elsewhere(async move { of_same_server(&connection, connection.reset(table, deadline)).await })
            }
            Self::DmReverb(connection) => Started::elsewhere(async move { connection.reset(table, deadline).await }),
        }
    }

    /// See [`super::Client::configure`].
    pub fn configure<'a>(
        self,
        table: &'a str,
        changes: &'a TableChanges,
        deadline: Option<Instant>,
    ) -> Started<'a, ()> {
        match self {
            Self::SameProcess(replay) => Started::Done(replay.table(table).and_then(|table| table.configure(changes))),
            Self::ReplayV1(connection) => Started::elsewhere(async move {
                of_same_server(&connection, connection.configure(table, changes, deadline)).await
            }),
            Self::DmReverb(connection) => Started::elsewhere(async move { connection.configure(table).await }),
        }
    }

    /// See [`super::Client::info`].
    pub fn info<'a>(self, deadline: Option<Instant>) -> Started<'a, Vec<TableStatus>> {
        match self {
            Self::SameProcess(replay) => Started::Done(Ok(replay.status())),
            Self::ReplayV1(connection) => {
                Started::elsewhere(async move { of_same_server(&connection, connection.info(deadline)).await })
            }
            Self::DmReverb(connection) => Started::elsewhere(async move { connection.info(deadline).await }),
        }
    }

    /// See [`super::Client::checkpoint`].
    pub fn checkpoint<'a>(self, deadline: Option<Instant>) -> Started<'a, String> {
        match self {
            Self::SameProcess(replay) => Started::here(async move {
                let saving = replay.checkpoint();
                let saved = match deadline {
                    None => saving.await,
                    Some(deadline) => tokio::time::timeout_at(deadline.into(), saving).await.unwrap_or_else(|_| {
                        Err(Error::DeadlineExceeded("the checkpoint was not saved in time; the save continues".into()))
                    }),
                };
                saved.map(|path| path.to_string_lossy().into_owned())
            }),
            Self::ReplayV1(connection) => {
                Started::elsewhere(async move { of_same_server(&connection, connection.checkpoint(deadline)).await })
            }
            Self::DmReverb(connection) => Started::elsewhere(async move { connection.checkpoint(deadline).await }),
        }
    }

    /// See [`super::Client::peek`].
    pub fn peek(self, table: &str, count: u32, newest: bool, deadline: Option<Instant>) -> Started<'_, Vec<Peeked>> {
        match self {
            Self::SameProcess(replay) => Started::here(async move {
                let peeked = peek(&replay, table, count as usize, newest);
                let late = |_| Err(Error::DeadlineExceeded("the items were not read in time".into()));
                match deadline {
                    None => peeked.await,
                    Some(deadline) => tokio::time::timeout_at(deadline.into(), peeked).await.unwrap_or_else(late),
                }
            }),
            Self::ReplayV1(connection) => Started::elsewhere(async move {
                of_same_server(&connection, connection.peek(table, count, newest, deadline)).await
            }),
            Self::DmReverb(connection) => {
                Started::elsewhere(async move { connection.peek(table, count, newest, deadline).await })
            }
        }
    }

    /// See [`super::Client::bench_table`].
    pub async fn bench_table(self, deadline: Option<Instant>) -> Result<BenchHold> {
        match self {
            Self::SameProcess(_) => {
                Err(Error::invalid("a server of this process cannot be measured; measure it from another process"))
            }
            Self::ReplayV1(connection) => of_same_server(&connection, connection.bench_table(deadline)).await,
            Self::DmReverb(connection) => Err(Error::Unimplemented(format!(
                "the server at {} is one of dm-reverb 0.14, which has no tables for measurements",
                connection.peer()
            ))),
        }
    }

    /// See [`super::Client::observe`].
    pub fn observe<'a>(self, deadline: Option<Instant>) -> Started<'a, Vec<u8>> {
        match self {
            Self::SameProcess(replay) => Started::Done(Ok(observed(&replay))),
            Self::ReplayV1(connection) => {
                Started::elsewhere(async move { of_same_server(&connection, connection.observe(deadline)).await })
            }
            Self::DmReverb(connection) => Started::elsewhere(async move { connection.observe().await }),
        }
    }
}

/// Makes a call over a connection that has found our service before. If the server is lost, the channel may have opened
/// another connection, to a server of dm-reverb that has taken its place.
async fn of_same_server<T>(connection: &Connection, call: impl Future<Output = Result<T>>) -> Result<T> {
    match call.await {
        Err(Error::Unimplemented(_)) if connection.is_broken() => Err(Error::Unavailable(format!(
            "the connection to the server at {} was lost; another server listens there, which the next call finds",
            connection.peer()
        ))),
        result => result,
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
        Call::Done(drawn) => gather(table, drawn?, request).map(Sampled::Now),
        Call::Waiting(waiting) => Ok(Sampled::Later(waiting)),
    }
}
