//! What the connections of one client have in common: the number that balancers stick to, and the server behind them.

use super::receipts::Receipts;
use super::shard_priorities::ShardPriorities;
use crate::replay_v1::headers::hex;
use crate::replay_v1::proto;
use crate::replay_v1::wire::{largest_from_wire, load_from_wire};
use crate::transport::address::Endpoint;
use crate::transport::authorized::Bearer;
use arc_swap::ArcSwap;
use bytes::Bytes;
use parking_lot::Mutex;
use reverb_core::{Error, KeySlots, LargestSeen, fork, random_key};
use reverb_service::Load;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use tonic::codegen::http::HeaderValue;

/// Time after which a client does not count on it any more that inserts of a shard wait.
const WAIT_IS_KNOWN: Duration = Duration::from_secs(1);

/// The session of one client, for all its connections. A forked child has one of its own.
#[derive(Debug)]
pub struct Session {
    /// The number of the client, which servers and balancers know it by.
    pub id: u64,
    connections: ArcSwap<Connections>,
    /// The slots of the server that was reached last.
    key_slots: ArcSwap<KeySlots>,
    /// Number of keys whose shard was missing, so that calls went on without their items.
    pub keys_passed_over: AtomicU64,
    /// The servers of the address with those that were added later.
    pub added: ArcSwap<Vec<Endpoint>>,
}

/// The connections that a client has had in one process.
#[derive(Debug)]
pub struct Connections {
    generation: u32,
    /// The value of the header that balancers stick to.
    pub number: HeaderValue,
    places: Mutex<HashMap<String, Known>>,
    /// What shards have told of the largest priorities of their tables.
    pub priorities: ShardPriorities,
}

/// What is known of one place.
#[derive(Debug, Default)]
struct Known {
    /// The id of the server that the last connection reached.
    server: Bytes,
    /// Whether another server refused a call or stream of that connection.
    is_split: bool,
    open: Vec<Weak<Link>>,
}

/// One connection, as the others of its client see it.
#[derive(Debug)]
pub struct Link {
    connections: Arc<Connections>,
    place: String,
    server: Bytes,
    /// Whether the caller may see numbers only, so that the server would refuse the streams of its calls.
    pub views_only: bool,
    is_broken: AtomicBool,
    /// Whether the server has said that it was stopped for good.
    is_over: AtomicBool,
    /// The refusal of another server, if there was one.
    split: OnceLock<Error>,
    /// Those of its sample stream.
    receipts: OnceLock<Weak<Receipts>>,
    /// The token that the client has shown to the server.
    bearer: Option<Bearer>,
    /// What the server has last said of its load, and when.
    load: Mutex<Option<(Load, Instant)>>,
    has_foreign_keys: AtomicBool,
    /// The shard that the server is, and the names of its tables.
    shard: OnceLock<(u32, Vec<String>)>,
}

impl Default for Session {
    fn default() -> Self {
        let id = random_key();
        let key_slots = ArcSwap::from_pointee(KeySlots::ALL);
        Self {
            id,
            connections: ArcSwap::from_pointee(Connections::new(id)),
            key_slots,
            keys_passed_over: AtomicU64::new(0),
            added: ArcSwap::default(),
        }
    }
}

impl Session {
    /// Returns the slots in which the server that was reached last has the keys of its items; all before that.
    pub fn key_slots(&self) -> KeySlots {
        **self.key_slots.load()
    }

    /// Notes the slots of a server that was reached.
    pub fn set_key_slots(&self, slots: KeySlots) {
        if self.key_slots() != slots {
            self.key_slots.store(Arc::new(slots));
        }
    }

    /// Returns the connections of this process.
    pub fn connections(&self) -> Arc<Connections> {
        let current = self.connections.load_full();
        if current.generation == fork::generation() {
            return current;
        }
        // The lock inside may have been held at the fork. Of several threads, one replaces it.
        self.connections.compare_and_swap(&current, Arc::new(Connections::new(random_key())));
        self.connections.load_full()
    }
}

impl Connections {
    fn new(id: u64) -> Self {
        let number = hex(&id.to_be_bytes());
        Self {
            generation: fork::generation(),
            number,
            places: Mutex::default(),
            priorities: ShardPriorities::default(),
        }
    }

    /// Whether a balancer may spread the streams of a connection to this server over several: a stream was refused, or
    /// the last connection reached another server.
    pub fn is_suspect(&self, place: &str, server: &[u8]) -> bool {
        let places = self.places.lock();
        places.get(place).is_some_and(|known| known.is_split || known.server != server)
    }

    /// Whether another connection of the client is open that leads to another server.
    pub fn has_other(&self, place: &str, server: &[u8]) -> bool {
        let places = self.places.lock();
        let links = places.get(place).into_iter().flat_map(|known| &known.open);
        links.filter_map(Weak::upgrade).any(|link| !link.is_broken() && link.server != server)
    }

    /// Notes that a balancer spreads the streams of connections to this place.
    pub fn set_split(&self, place: &str) {
        self.places.lock().entry(place.to_owned()).or_default().is_split = true;
    }

    /// Adds a new connection. Those that lead to another server are given up.
    pub fn add(self: Arc<Self>, place: &str, server: &Bytes, bearer: Option<Bearer>, views_only: bool) -> Arc<Link> {
        let (place, server) = (place.to_owned(), server.clone());
        let (is_broken, is_over, split) = (AtomicBool::new(false), AtomicBool::new(false), OnceLock::new());
        let receipts = OnceLock::new();
        let link = Arc::new(Link {
            connections: self,
            place,
            server,
            views_only,
            is_broken,
            is_over,
            split,
            receipts,
            bearer,
            load: Mutex::new(None),
            has_foreign_keys: AtomicBool::new(false),
            shard: OnceLock::new(),
        });
        let mut places = link.connections.places.lock();
        let known = places.entry(link.place.clone()).or_default();
        known.open.retain(|open| {
            let open = open.upgrade().filter(|open| !open.is_broken());
            let is_same = open.as_ref().is_some_and(|open| open.server == link.server);
            open.filter(|_| !is_same).inspect(|other| other.set_broken());
            is_same
        });
        known.open.push(Arc::downgrade(&link));
        (known.server, known.is_split) = (link.server.clone(), false);
        drop(places);
        link
    }
}

impl Link {
    /// Whether the connection has failed, so that a new one is needed.
    pub fn is_broken(&self) -> bool {
        self.is_broken.load(Relaxed)
    }

    /// Marks the connection as failed.
    pub fn set_broken(&self) {
        self.is_broken.store(true, Relaxed);
    }

    /// Whether the server has said that it was stopped for good.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Relaxed)
    }

    fn set_over(&self) {
        self.is_over.store(true, Relaxed);
        self.set_broken();
        if let Some((shard, _)) = self.shard.get() {
            self.connections.priorities.end(*shard, &self.server);
        }
    }

    /// Marks the connection as failed if another server has refused a part of it, or if its server was stopped for good.
    /// Returns the error. Where the token of the connection was revoked and its file has another by now, that is a lost
    /// connection: the next one shows the new token, whose refusal is final.
    pub fn note(&self, error: Error) -> Error {
        let error = match error {
            Error::Unauthenticated(text) if self.bearer.as_ref().is_some_and(Bearer::is_outdated) => {
                self.set_broken();
                Error::Unavailable(format!("{text}; the file of the token has another one by now"))
            }
            error => error,
        };
        if error.is_for_good() {
            // Calls that connect at the same time get a connection each, of which the client keeps one.
            self.of_server().iter().for_each(|link| link.set_over());
            self.set_over();
        }
        if matches!(error, Error::SplitClient { .. }) {
            self.set_broken();
            self.connections.set_split(&self.place);
            self.split.get_or_init(|| error.clone());
        }
        error
    }

    /// Notes what the server says of its load, if it does.
    pub fn note_load(&self, load: Option<proto::Load>) {
        if let Some(load) = load {
            self.note_foreign_keys(load.has_foreign_keys);
            self.note_largest(&load.largest);
            *self.load.lock() = Some((load_from_wire(&load), Instant::now()));
        }
    }

    /// Notes what the server says of its shard, if it is one. The names of the tables, which are many bytes, are taken out.
    pub fn note_shard(&self, shard: Option<&mut proto::Shard>) {
        let Some(shard) = shard else { return };
        self.note_foreign_keys(shard.has_foreign_keys);
        let tables = std::mem::take(&mut shard.tables);
        self.shard.get_or_init(|| {
            self.connections.priorities.set_server(&shard.cluster, shard.id, &self.server);
            (shard.id, tables)
        });
        self.note_largest(&std::mem::take(&mut shard.largest));
    }

    /// Notes what a shard says of the largest priorities of its tables.
    pub fn note_largest<'a>(&self, told: impl IntoIterator<Item = &'a proto::Largest>) {
        let Some((shard, tables)) = self.shard.get() else { return };
        for largest in told {
            if let Some(table) = tables.get(largest.table as usize) {
                self.connections.priorities.note(*shard, &self.server, table, largest_from_wire(largest));
            }
        }
    }

    /// Returns the largest priority of a table that the other shards have seen, if that is above the server's own.
    pub fn others(&self, table: &str) -> Option<LargestSeen> {
        let (shard, _) = self.shard.get()?;
        self.connections.priorities.others(*shard, table)
    }

    /// Whether the server has said that an item with a key of another shard has been in one of its tables.
    pub fn has_foreign_keys(&self) -> bool {
        self.has_foreign_keys.load(Relaxed)
    }

    /// Notes whether the server says that. It never takes it back.
    pub fn note_foreign_keys(&self, has_foreign_keys: bool) {
        if has_foreign_keys {
            self.has_foreign_keys.store(true, Relaxed);
        }
    }

    /// Returns how full the server is, as far as is known. That its inserts wait is soon forgotten: a server to which
    /// nobody inserts any more could not say that they do not.
    pub fn load(&self) -> Load {
        let Some((load, told)) = *self.load.lock() else { return Load::default() };
        if told.elapsed() < WAIT_IS_KNOWN { load } else { Load { waiting_inserts: 0, ..load } }
    }

    /// Sets the receipts of the sample stream, once.
    pub fn set_receipts(&self, receipts: &Arc<Receipts>) {
        let _set_before = self.receipts.set(Arc::downgrade(receipts));
    }

    /// Returns the receipts of all connections of the client to this server.
    pub fn receipts_of_client(&self) -> Vec<Arc<Receipts>> {
        self.of_server().iter().filter_map(|link| link.receipts.get().and_then(Weak::upgrade)).collect()
    }

    /// The open connections of the client to this server.
    fn of_server(&self) -> Vec<Arc<Self>> {
        let places = self.connections.places.lock();
        let links = places.values().flat_map(|known| &known.open).filter_map(Weak::upgrade);
        links.filter(|link| link.server == self.server && !link.is_broken()).collect()
    }

    /// Returns the refusal of another server, if a part of the connection has reached one.
    pub fn split(&self) -> Option<&Error> {
        self.split.get()
    }
}
