//! Peers: the programs that make calls, and the transports of the calls.

use crate::process_name::process_name;
use crate::tables_used::{Place, TablesUsed};
use parking_lot::Mutex;
use std::fmt::{self, Display, Formatter};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

/// The transport of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// None: the caller is in the same process as the server.
    SameProcess,
    /// A Unix socket.
    Unix,
    /// TCP.
    Tcp,
}

impl Transport {
    /// Returns the name of the transport, for display.
    pub fn name(self) -> &'static str {
        match self {
            Self::SameProcess => "same_process",
            Self::Unix => "unix",
            Self::Tcp => "tcp",
        }
    }
}

// limit (Connections and calls): characters of the name that a client gives itself | {} | cut off
/// Maximum number of characters in the name of a peer. The rest is cut off.
const MAX_NAME: usize = 100;

/// A program that makes calls over one connection, or in the same process as the server.
#[derive(Debug)]
pub struct Peer {
    name: OnceLock<String>,
    /// Who the peer has proven to be.
    identity: Mutex<Option<Identity>>,
    /// The transport of its calls.
    pub road: Transport,
    /// The remote address of its connection. Empty in the same process.
    pub address: String,
    /// Number of the peer, which no other peer of this process has.
    pub id: u64,
    /// Time at which it connected.
    pub since: SystemTime,
    /// What the peer has sent, received and made so far.
    pub traffic: Traffic,
}

/// Who a peer has proven to be, whatever name it gives itself, and what it may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The name of its token, if it has shown one.
    pub token: Option<String>,
    /// What it has shown: `token`, `certificate`, `own_user` or `none`.
    pub proof: &'static str,
    /// What it may do: `view`, `use` or `admin`.
    pub role: &'static str,
}

/// Counts of what a peer has done. Each is only added to or, for streams, also subtracted from.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Bytes that the server received from the peer.
    pub receive_bytes: AtomicU64,
    /// Bytes that the server sent to the peer.
    pub transmit_bytes: AtomicU64,
    /// Bytes of memory that the server shares with the peer.
    pub shared_bytes: AtomicU64,
    /// Items that the peer inserted.
    pub inserts: AtomicU64,
    /// Items that the peer drew.
    pub samples: AtomicU64,
    /// Open streams of the peer.
    pub streams: AtomicU64,
    /// Number of times that it has looked at the server, as `reverb top` does.
    pub looks: AtomicU64,
    /// The tables into which it has inserted.
    pub inserted: TablesUsed,
    /// The tables from which it has drawn.
    pub drawn: TablesUsed,
}

impl Traffic {
    /// Counts items that the peer has inserted into a table.
    #[inline]
    pub(crate) fn count_inserts(&self, items: usize, table: Place) {
        self.inserts.fetch_add(items as u64, Relaxed);
        if items > 0 {
            self.inserted.add(table);
        }
    }

    /// Counts items that the peer has drawn from a table.
    #[inline]
    pub(crate) fn count_samples(&self, items: usize, table: Place) {
        self.samples.fetch_add(items as u64, Relaxed);
        if items > 0 {
            self.drawn.add(table);
        }
    }
}

/// Who inserts: the program, and its client, which takes turns with others where inserts wait.
#[derive(Debug, Clone, Copy)]
pub struct Inserter<'a> {
    /// The program.
    pub peer: &'a Arc<Peer>,
    /// A number of the client, the same on all its connections. No other client has it.
    pub client: u64,
}

/// A peer whose client has told no number has one for itself.
impl<'a> From<&'a Arc<Peer>> for Inserter<'a> {
    fn from(peer: &'a Arc<Peer>) -> Self {
        Self { peer, client: peer.id }
    }
}

impl Peer {
    /// Makes a peer without a name. `address` is the remote address of its connection.
    pub fn new(road: Transport, address: String) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let (id, since) = (NEXT.fetch_add(1, Relaxed), SystemTime::now());
        Self {
            name: OnceLock::new(),
            identity: Mutex::default(),
            road,
            address,
            id,
            since,
            traffic: Traffic::default(),
        }
    }

    /// Makes a peer for the callers in the same process as a server.
    pub fn in_same_process() -> Arc<Self> {
        let peer = Arc::new(Self::new(Transport::SameProcess, String::new()));
        peer.introduce(&process_name());
        peer
    }

    /// Sets the name that the peer gives itself. Later names are ignored. The name is only displayed, and never
    /// trusted.
    pub fn introduce(&self, name: &str) {
        let _named_before = self.name.set(name.chars().filter(|c| !c.is_control()).take(MAX_NAME).collect());
    }

    /// Returns the name that the peer gives itself. Empty before it is set.
    pub fn name(&self) -> &str {
        self.name.get().map_or("", String::as_str)
    }

    /// Returns the name for display: that of the peer, or that it has none.
    pub fn shown_name(&self) -> &str {
        if self.name().is_empty() { "unnamed" } else { self.name() }
    }

    /// Returns the program in the name that the peer gives itself. Empty before it is set.
    pub fn program(&self) -> &str {
        program_of(self.name())
    }

    /// Returns what all connections of one program share: its name and its machine, which is empty for this one. A name
    /// without the number of a process may be that of several programs, so it stands for one connection only.
    pub fn process(&self) -> (&str, &str) {
        let is_one = self.name().ends_with(')') && self.name().contains(':');
        let address = self.address.parse::<SocketAddr>();
        let is_here = address.as_ref().map_or(self.road != Transport::Tcp, |address| address.ip().is_loopback());
        let machine = match (is_one, is_here) {
            (false, _) => &self.address,
            (true, true) => "",
            (true, false) => self.address.rsplit_once(':').map_or("", |(machine, _)| machine),
        };
        (self.name(), machine)
    }

    /// Notes who has made the latest call. Returns whether that is another than before.
    pub fn identify(&self, token: Option<&str>, proof: &'static str, role: &'static str) -> bool {
        let mut identity = self.identity.lock();
        let is_same = |known: &Identity| known.token.as_deref() == token && known.proof == proof && known.role == role;
        if identity.as_ref().is_some_and(is_same) {
            return false;
        }
        *identity = Some(Identity { token: token.map(str::to_owned), proof, role });
        true
    }

    /// Returns who the peer has proven to be. `None` if nobody has asked for a proof.
    pub fn identity(&self) -> Option<Identity> {
        self.identity.lock().clone()
    }
}

/// Returns the program in the name of a client: `program (host:pid)`.
pub fn program_of(name: &str) -> &str {
    name.split(" (").next().unwrap_or_default()
}

impl Display for Peer {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} over {}", self.shown_name(), self.road.name())?;
        if !self.address.is_empty() {
            write!(formatter, " from {}", self.address)?;
        }
        match self.identity().and_then(|identity| identity.token) {
            Some(token) => write!(formatter, " with token {token}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_one_program_are_told_from_those_of_others() {
        let peer = |name: &str, road, address: &str| {
            let peer = Peer::new(road, address.into());
            peer.introduce(name);
            peer
        };
        let name = "actor.py (host:17)";
        let [tcp, unix] = [(Transport::Tcp, "127.0.0.1:4711"), (Transport::Unix, "pid:17")]
            .map(|(road, address)| peer(name, road, address));
        assert_eq!((tcp.program(), tcp.process()), ("actor.py", unix.process()));
        let [far, near] = ["10.0.0.1:4711", "10.0.0.1:4712"].map(|address| peer(name, Transport::Tcp, address));
        assert_eq!(far.process(), near.process());
        assert_ne!(far.process(), tcp.process(), "containers may have the same names and numbers");
        let [one, other] = ["10.0.0.1:4711", "10.0.0.1:4712"].map(|address| peer("dm-reverb", Transport::Tcp, address));
        assert_ne!(one.process(), other.process(), "nobody knows whether they are one program");
    }

    #[test]
    fn a_peer_shows_its_name_and_its_road() {
        let peer = Peer::new(Transport::Tcp, "127.0.0.1:4711".into());
        assert_eq!(peer.to_string(), "unnamed over tcp from 127.0.0.1:4711");
        peer.introduce("actor\n7");
        peer.introduce("another");
        assert_eq!(peer.to_string(), "actor7 over tcp from 127.0.0.1:4711");
        assert!(peer.identify(Some("actors"), "token", "use") && !peer.identify(Some("actors"), "token", "use"));
        assert_eq!(peer.to_string(), "actor7 over tcp from 127.0.0.1:4711 with token actors");
        assert!(peer.identify(Some("actors"), "token", "admin"), "another role is another identity");
        let here = Peer::in_same_process();
        assert!(here.to_string().ends_with(&format!(":{}) over same_process", std::process::id())), "{here}");
    }
}
