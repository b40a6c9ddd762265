//! The limiters that the shards of a cluster keep together, by the names of their tables.

use super::super::super::road::Road;
use super::super::first::First;
use super::ask::KeepsRatio;
use super::link::{ASK_AGAIN, keep};
use super::member::{RoomMember, RoomUse};
use crate::replay_v1::client::GRACE;
use crate::transport::address::Endpoint;
use parking_lot::Mutex;
use reverb_core::{Error, Result};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout_at;

/// Time between two looks at the addresses of the shards.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What a client knows of the limiters of its cluster.
#[derive(Debug, Default)]
pub struct Rooms {
    /// A shard of the cluster, once it is known.
    first: Arc<First>,
    known: Mutex<HashMap<String, Known>>,
    /// Tells the thread of new rooms. Its end is the end of the thread.
    thread: Mutex<Option<mpsc::UnboundedSender<Arc<RoomMember>>>>,
}

#[derive(Debug, Clone)]
enum Known {
    /// The limiter did not keep a ratio then.
    NoRatio(Instant),
    /// It does. The addresses were looked at then.
    Room(Arc<RoomMember>, Instant),
}

impl Rooms {
    /// Makes those of a cluster whose first shard will be known there.
    pub fn new(first: Arc<First>) -> Self {
        Self { first, ..Self::default() }
    }

    /// Begins to use the limiter of a table, if the shards keep a ratio together: asks one of the roads if that is not
    /// known yet. The first calls wait, but no longer than `patience`, until all shards have answered.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the bounds are too narrow for so many shards.
    pub async fn of(
        &self,
        table: &str,
        roads: Vec<Road>,
        endpoints: impl FnOnce() -> Vec<Endpoint>,
        patience: Duration,
        deadline: Option<Instant>,
    ) -> Result<Option<RoomUse>> {
        let now = Instant::now();
        let known = self.known.lock().get(table).cloned();
        let room = match known {
            Some(Known::NoRatio(asked)) if now < asked + ASK_AGAIN => return Ok(None),
            Some(Known::Room(room, looked)) if now < looked + LOOK_EVERY => room,
            Some(Known::Room(room, _)) => {
                room.set_endpoints(endpoints());
                self.known.lock().insert(table.to_owned(), Known::Room(room.clone(), now));
                room
            }
            _ => {
                if !ask(table, roads, deadline).await? {
                    self.known.lock().insert(table.to_owned(), Known::NoRatio(now));
                    return Ok(None);
                }
                let room = self.open(table, now)?;
                room.set_endpoints(endpoints());
                room
            }
        };
        let used = RoomUse::new(room);
        let room = used.room();
        if !room.has_begun.load(Relaxed) {
            let patience = deadline.map_or(patience, |deadline| patience.min(deadline.saturating_duration_since(now)));
            let _late = timeout_at((now + patience).into(), room.all_reached(true)).await;
            room.has_begun.store(true, Relaxed);
        }
        match room.refusal() {
            Some(refusal) => Err(refusal),
            None => Ok(room.keeps_ratio().then_some(used)),
        }
    }

    /// Returns the room of a table that keeps a ratio, and makes it if it is new.
    fn open(&self, table: &str, now: Instant) -> Result<Arc<RoomMember>> {
        let mut known = self.known.lock();
        if let Some(Known::Room(room, _)) = known.get(table) {
            return Ok(room.clone());
        }
        let room = Arc::new(RoomMember::new(table, self.first.clone()));
        let mut thread = self.thread.lock();
        if thread.is_none() {
            *thread = Some(start()?);
        }
        let sent = thread.as_ref().map(|thread| thread.send(room.clone()));
        if !matches!(sent, Some(Ok(()))) {
            return Err(Error::Internal("the thread of the limiters of a cluster has ended".into()));
        }
        known.insert(table.to_owned(), Known::Room(room.clone(), now));
        Ok(room)
    }
}

/// Asks one of several shards. If a table cannot be asked, the call itself says why.
async fn ask(table: &str, roads: Vec<Road>, deadline: Option<Instant>) -> Result<bool> {
    let mut lost = None;
    let limit = deadline.and_then(|deadline| deadline.max(Instant::now()).checked_add(GRACE));
    for road in roads {
        match road.complete(KeepsRatio(table), limit).await {
            Err(error) if error.is_transient() => lost = Some(error),
            Err(_) => return Ok(false),
            answer => return answer,
        }
    }
    lost.map_or(Ok(false), Err)
}

/// Starts the thread.
fn start() -> Result<mpsc::UnboundedSender<Arc<RoomMember>>> {
    let failed =
        |error| Error::ResourceExhausted(format!("cannot start a thread for the limiter of a cluster: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let (rooms, mut new) = mpsc::unbounded_channel();
    let run = move || {
        runtime.block_on(async {
            let mut tasks = JoinSet::new();
            while let Some(room) = new.recv().await {
                tasks.spawn(keep(room));
            }
        });
        runtime.shutdown_background();
    };
    std::thread::Builder::new().name("reverb-room".into()).spawn(run).map_err(failed)?;
    Ok(rooms)
}
