//! The road to the server of a client, or those to all its servers. No other module distinguishes the two.

use super::cluster;
use super::explained::explain_draws;
use super::pending_draw::Sampled;
use super::road::Road;
use super::servers::{All, Servers, ToAll, Turn};
use super::started::Started;
use super::streamed::{Insert, Sample};
use crate::replay_v1::client::Session;
use crate::transport::address::Endpoint;
use reverb_core::{ItemKeys, Result};
use reverb_service::local::BatchRequest;
use reverb_service::{Transport, registry};
use std::sync::Arc;
use std::time::Instant;

/// How a client reaches its server, or its servers.
#[derive(Debug, Clone)]
pub enum Roads {
    /// The address names one server.
    One(Road),
    /// The address names several.
    Several(Arc<Servers>),
}

impl From<Road> for Roads {
    fn from(road: Road) -> Self {
        Self::One(road)
    }
}

impl Roads {
    /// Returns the roads that need no new connection: those to several servers, each of which connects by itself, or
    /// that to a server of this process.
    pub fn at_once(endpoint: &Endpoint, session: &Arc<Session>) -> Option<Self> {
        if endpoint.has_several() {
            return Some(Self::Several(Arc::new(Servers::new(endpoint.clone(), session.clone()))));
        }
        let (hosts, port) = endpoint.address.loopback()?;
        let server = registry::find(hosts, port)?;
        server.enter();
        Some(Self::One(server.into()))
    }

    fn either<T>(&self, one: impl FnOnce(&Road) -> T, several: impl FnOnce(&Servers) -> T) -> T {
        match self {
            Self::One(road) => one(road),
            Self::Several(servers) => several(servers),
        }
    }

    /// Whether calls can be made. Several servers find their connections themselves.
    pub fn are_open(&self) -> bool {
        self.either(Road::is_open, |_| true)
    }

    /// Whether there was a connection to a server elsewhere, and all such connections are lost.
    pub fn are_lost(&self) -> bool {
        self.either(|road| !road.is_here() && !road.is_open(), Servers::are_lost)
    }

    /// Returns the id of the only server, which is elsewhere, if it has said that it was stopped for good.
    pub fn ended_server(&self) -> Option<Vec<u8>> {
        self.only().filter(|road| road.is_over())?.server_id().map(<[u8]>::to_vec)
    }

    /// Returns the transport. `None` before a server was reached.
    pub fn transport(&self) -> Option<Transport> {
        self.either(|road| Some(road.transport()), Servers::transport)
    }

    /// Returns the name of the roads, for display. `None` before a server was reached.
    pub fn name(&self) -> Option<String> {
        self.either(|road| Some(road.name()), Servers::road_name)
    }

    /// Returns a number that changes when a server was reached again. `None` if no server is connected.
    pub fn connection(&self) -> Option<u32> {
        self.either(|road| road.is_open().then_some(0), Servers::connection)
    }

    /// Returns the road if there is only one.
    pub fn only(&self) -> Option<&Road> {
        if let Self::One(road) = self { Some(road) } else { None }
    }

    /// Returns the servers if there are several.
    pub fn servers(&self) -> Option<&Arc<Servers>> {
        if let Self::Several(servers) = self { Some(servers) } else { None }
    }

    /// Whether the only server is in this process.
    pub fn is_here(&self) -> bool {
        self.only().is_some_and(Road::is_here)
    }

    /// Returns the road for a call to one server; of several, to the one whose turn it is. A writer keeps its `home` as
    /// long as that can be reached.
    pub async fn one(&self, turn: Turn, home: Option<&str>, deadline: Option<Instant>) -> Result<Road> {
        match self {
            Self::One(road) => Ok(road.clone()),
            Self::Several(servers) => {
                let road = servers.road(turn, home, deadline).await;
                if turn == Turn::Draw {
                    explain_draws(servers);
                }
                road
            }
        }
    }

    /// Inserts items: of several servers, at one that can be reached.
    pub async fn insert(self, call: Insert, deadline: Option<Instant>) -> Result<ItemKeys> {
        match self {
            Self::One(road) => road.complete(call, deadline).await,
            Self::Several(servers) => servers.insert(call, deadline).await,
        }
    }

    /// Draws a batch: from all shards of a cluster as from one table. Of several other servers, another one is asked if the
    /// first is lost.
    pub fn sample(self, request: &BatchRequest, deadline: Option<Instant>) -> Started<'_, Sampled> {
        match self {
            Self::One(road) => road.call(Sample(request), deadline),
            Self::Several(servers) => Started::elsewhere(async move {
                match servers.cluster() {
                    Some(_) => cluster::sample(&servers, request, deadline).await,
                    None => {
                        let sampled = servers.sample(request, deadline).await;
                        explain_draws(&servers);
                        sampled
                    }
                }
            }),
        }
    }

    /// Draws a batch over one of these roads; from a cluster, over all.
    pub async fn sample_on(&self, road: Road, request: &BatchRequest, deadline: Option<Instant>) -> Result<Sampled> {
        match self {
            Self::One(_) => road.complete(Sample(request), deadline).await,
            Self::Several(servers) => match servers.cluster() {
                Some(_) => cluster::sample(servers, request, deadline).await,
                None => Servers::sample_on(road, request, deadline).await,
            },
        }
    }

    /// Returns the roads to the servers that are connected now.
    pub fn reached(&self) -> Vec<Road> {
        self.either(|road| vec![road.clone()], Servers::reached)
    }

    /// Makes a call that goes to all servers.
    pub async fn call<C: ToAll>(
        &self,
        call: C,
        connect_by: Option<Instant>,
        deadline: Option<Instant>,
    ) -> Result<C::Answer> {
        match self {
            Self::One(road) => road.clone().complete(call, deadline).await,
            Self::Several(servers) => call.to_all(All { servers, connect_by, deadline }).await,
        }
    }
}
