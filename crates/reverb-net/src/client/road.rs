//! The road to a server. No other module distinguishes the kinds of roads: what differs is a method of [`Call`].
//!
//! A road is a transport (the same process, a Unix socket, TCP) and a protocol over it. If tables of this process can
//! complete a call at once, the calling thread does so.

use super::call::Call;
use super::started::Started;
use crate::dm_reverb::client as dm_reverb;
use crate::replay_v1::client::Connection;
use crate::replay_v1::proto::Shard;
use reverb_core::writer::ChunkMemory;
use reverb_core::{KeySlots, Result};
use reverb_service::{Load, Replay, Transport};
use std::sync::Arc;
use std::time::Instant;

/// The address and the road of each server, or the reason why it is down.
pub type PeerRoads = Vec<(Arc<str>, Result<Road>)>;

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

impl From<Arc<Replay>> for Road {
    fn from(replay: Arc<Replay>) -> Self {
        Self::SameProcess(replay)
    }
}

impl From<Arc<Connection>> for Road {
    fn from(connection: Arc<Connection>) -> Self {
        Self::ReplayV1(connection)
    }
}

impl From<dm_reverb::Connection> for Road {
    fn from(connection: dm_reverb::Connection) -> Self {
        Self::DmReverb(Arc::new(connection))
    }
}

impl Road {
    /// Returns the transport that carries calls.
    pub fn transport(&self) -> Transport {
        match self {
            Self::SameProcess(_) => Transport::SameProcess,
            Self::ReplayV1(connection) => connection.transport,
            Self::DmReverb(connection) => connection.transport,
        }
    }

    /// Returns the name of the road, for display: its transport and, if that is not ours, its protocol; and whether a Unix
    /// socket carries all bytes, since its ends share no memory.
    pub fn name(&self) -> String {
        let remark = match self {
            Self::DmReverb(_) => " (dm-reverb)",
            Self::ReplayV1(connection) if connection.transport == Transport::Unix && !connection.shares_memory => {
                " (no shared memory)"
            }
            Self::ReplayV1(_) | Self::SameProcess(_) => "",
        };
        format!("{}{remark}", self.transport().name())
    }

    /// Returns the address of the server, for display. `None` in the same process.
    pub(super) fn peer(&self) -> Option<&str> {
        match self {
            Self::SameProcess(_) => None,
            Self::ReplayV1(connection) => Some(&connection.peer),
            Self::DmReverb(connection) => Some(&connection.peer),
        }
    }

    /// Returns the random id of a server elsewhere, which may be empty if the server has told none.
    pub(super) fn server_id(&self) -> Option<&[u8]> {
        match self {
            Self::SameProcess(_) => None,
            Self::ReplayV1(connection) => Some(&connection.hello.server_id),
            Self::DmReverb(connection) => Some(&connection.tables.server_id),
        }
    }

    /// Returns the shard that the server says to be. `None` if it is none, or in this process.
    pub(super) fn shard(&self) -> Option<&Shard> {
        let Self::ReplayV1(connection) = self else { return None };
        connection.hello.shard.as_ref()
    }

    /// Returns the slots in which items of the server have their keys.
    pub(super) fn key_slots(&self) -> KeySlots {
        match self {
            Self::SameProcess(replay) => replay.key_slots(),
            Self::ReplayV1(connection) => connection.key_slots,
            Self::DmReverb(_) => KeySlots::ALL,
        }
    }

    /// Whether the server has said that it has items whose keys are not in its slots.
    pub(super) fn has_foreign_keys(&self) -> bool {
        match self {
            Self::SameProcess(replay) => replay.has_foreign_keys(),
            Self::ReplayV1(connection) => connection.link.has_foreign_keys(),
            Self::DmReverb(_) => true,
        }
    }

    /// Returns memory that the server can read, if it shares some with this process.
    pub(super) fn chunk_memory(&self) -> Option<Arc<dyn ChunkMemory>> {
        let Self::ReplayV1(connection) = self else { return None };
        connection.chunk_memory()
    }

    /// Returns how full the server is, as far as is known.
    pub(super) fn load(&self) -> Load {
        match self {
            Self::SameProcess(replay) => replay.load(),
            Self::ReplayV1(connection) => connection.link.load(),
            Self::DmReverb(_) => Load::default(),
        }
    }

    /// Returns the path of the Unix socket that the server has told.
    pub(super) fn unix_path(&self) -> Option<&str> {
        let Self::ReplayV1(connection) = self else { return None };
        Some(&*connection.hello.unix_path).filter(|path| !path.is_empty())
    }

    /// Returns the server if it is in this process.
    pub(super) fn here(&self) -> Option<&Arc<Replay>> {
        let Self::SameProcess(replay) = self else { return None };
        Some(replay)
    }

    /// Whether the server is in this process.
    pub(super) fn is_here(&self) -> bool {
        self.here().is_some()
    }

    /// Whether the protocol is that of dm-reverb.
    pub(super) fn is_of_dm_reverb(&self) -> bool {
        matches!(self, Self::DmReverb(_))
    }

    /// Whether calls can be made over this road.
    pub(super) fn is_open(&self) -> bool {
        match self {
            Self::SameProcess(replay) => !replay.is_closed(),
            Self::ReplayV1(connection) => !connection.link.is_broken(),
            Self::DmReverb(connection) => !connection.is_broken(),
        }
    }

    /// Whether the server, which is elsewhere, has said that it was stopped for good.
    pub(super) fn is_over(&self) -> bool {
        matches!(self, Self::ReplayV1(connection) if connection.link.is_over())
    }

    /// Whether the server may not have processed all receipts of the client.
    pub(super) fn is_unsettled(&self) -> bool {
        matches!(self, Self::ReplayV1(connection) if connection.is_unsettled())
    }

    /// Waits until the server has processed the receipts of the client that are due, until `deadline` at the latest.
    pub(super) async fn settle(&self, deadline: Instant) {
        if let Self::ReplayV1(connection) = self {
            let _lost_or_late = connection.settle(deadline).await;
        }
    }

    /// Begins a call, which tables of this process may complete at once.
    pub fn call<'a, C: Call + 'a>(self, call: C, deadline: Option<Instant>) -> Started<'a, C::Answer> {
        match self {
            Self::SameProcess(replay) => call.here(replay, deadline),
            elsewhere => Started::elsewhere(elsewhere.complete(call, deadline)),
        }
    }

    /// Makes a call, and awaits its answer.
    ///
    /// # Errors
    /// Those of the call.
    pub(super) async fn complete<C: Call>(self, call: C, deadline: Option<Instant>) -> Result<C::Answer> {
        match self {
            Self::SameProcess(replay) => call.here(replay, deadline).await,
            Self::ReplayV1(connection) => call.replay_v1(&connection, deadline).await,
            // Its futures are several times as large, and callers of the others would pay for moving so much memory.
            Self::DmReverb(connection) => Box::pin(call.dm_reverb(&connection, deadline)).await,
        }
    }
}
