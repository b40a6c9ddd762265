//! Where servers are: endpoints, and their addresses, which are `host:port` or a gRPC target with a scheme.

use super::cluster::ClusterOptions;
use reverb_core::{Error, Result};
use reverb_secure::{ClientTls, TokenSource};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Where a server is, and what a client needs to be let in there. Whatever connects to a server takes one, so that all its
/// connections are made in the same way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The address of the server, or of several.
    pub address: Address,
    /// Whom the client trusts, and its own certificate, for an address with `grpcs://`.
    pub tls: ClientTls,
    /// The token that the client shows, if it has one.
    pub token: Option<TokenSource>,
    /// Whether the token may be sent over TCP without TLS, where others may read it.
    pub allow_insecure: bool,
    /// Users whose servers the client trusts at Unix sockets, beside its own user and root.
    pub unix_peers: Vec<u32>,
    /// Number of bytes of shared memory in which the client finds its batches, at most. 0: it shares none.
    pub max_shared_bytes: u64,
    /// How to use several servers as one buffer. `None` if they are used as they are.
    pub cluster: Option<ClusterOptions>,
}

impl Endpoint {
    /// Checks the address, and a token that the program has given.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if one is not valid.
    pub fn check(&self) -> Result<()> {
        if let Some(token @ TokenSource::Given(_)) = &self.token {
            token.read()?;
        }
        self.address.place().map(drop)
    }

    /// Whether there may be several servers. The shards of a cluster are several, however many there are.
    pub fn has_several(&self) -> bool {
        self.cluster.is_some() || self.address.several().is_some()
    }

    /// Returns the endpoints of the servers that the address lists. `None` for a name, which is looked up.
    pub fn listed(&self) -> Option<Vec<Self>> {
        match self.address.several() {
            Some(Several::List(entries)) => Some(entries.iter().map(|(host, port)| self.member(host, *port)).collect()),
            Some(Several::Name(..)) => None,
            None => Some(vec![Self { cluster: None, ..self.clone() }]),
        }
    }

    /// Returns why the token may not be sent over TCP. `None` if it may, or if there is none.
    pub fn refusal_of_plaintext(&self) -> Option<Error> {
        (self.token.is_some() && !self.address.is_tls && !self.allow_insecure).then(|| {
            Error::invalid(format!(
                "the client has a token, which it does not send to {self} without TLS, where others may read it: use \
                 grpcs:// in front of the address; if that is intended, pass allow_insecure=True, or set \
                 REVERB_ALLOW_INSECURE=1 in the environment"
            ))
        })
    }

    /// Returns the endpoint of one of several servers, which lets a client in as the others do. Servers of one name have
    /// certificates of that name.
    #[must_use]
    pub fn member(&self, host: &str, port: u16) -> Self {
        let is_tls = self.address.is_tls;
        let or_shorter = matches!(self.address.target, Target::List { or_shorter: true, .. });
        let scheme = if is_tls { TLS_SCHEME } else { "" };
        let text = match (host.contains(':'), or_shorter) {
            (true, true) => format!("[{host}]:{port}"),
            (false, true) => format!("{host}:{port}"),
            (true, false) => format!("{scheme}ipv6:[{host}]:{port}"),
            (false, false) => format!("{scheme}ipv4:{host}:{port}"),
        };
        let mut tls = self.tls.clone();
        if let Some(Several::Name(name, _)) = self.address.several() {
            tls.server_name.get_or_insert_with(|| name.to_owned());
        }
        let host = host.to_owned();
        let target = if or_shorter { Target::Any { host, port } } else { Target::Tcp { host, port } };
        Self { address: Address { text, target, is_tls }, tls, cluster: None, ..self.clone() }
    }
}

impl<T: AsRef<str> + ?Sized> From<&T> for Endpoint {
    fn from(address: &T) -> Self {
        Self {
            address: Address::parse(address.as_ref()),
            tls: ClientTls::default(),
            token: None,
            allow_insecure: false,
            unix_peers: Vec::new(),
            max_shared_bytes: MAX_SHARED_BYTES,
            cluster: None,
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.address.text)
    }
}

// limit (Shared memory): bytes of shared memory of one client | {:bytes}, and half of the server's | the data of batches
// travels over the socket | `Client(max_shared_bytes=)`
/// Default of [`Endpoint::max_shared_bytes`].
const MAX_SHARED_BYTES: u64 = 1 << 30;

/// What an address over TLS begins with.
pub const TLS_SCHEME: &str = "grpcs://";

/// What an address begins with that has a scheme.
const SCHEMES: [&str; 5] = [TLS_SCHEME, "ipv4:", "ipv6:", "dns:", "unix:"];

/// A parsed address. An invalid address is kept, because a client reports it on its first call and not when it is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    text: String,
    target: Target,
    /// Whether connections are made over TLS, which is always over TCP.
    is_tls: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Target {
    /// `host:port`: the client chooses the shortest road.
    Any { host: String, port: u16 },
    /// `ipv4:`, `ipv6:`, `dns:`: always TCP.
    Tcp { host: String, port: u16 },
    /// Several different entries: with `ipv4:` or `ipv6:` always TCP. With `or_shorter`, the client chooses the shortest
    /// road to each.
    List { entries: Vec<(String, u16)>, or_shorter: bool },
    /// `dns:` with a name, which may have several addresses: always TCP.
    Name { host: String, port: u16 },
    /// `unix:path`.
    Unix(String),
    /// The entry of a list that is not valid; `None` if the address is not a list.
    Bad(Option<String>),
}

/// The servers of an address that names more than one, or may do so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Several<'a> {
    /// Hosts and ports, each once.
    List(&'a [(String, u16)]),
    /// A name of which all addresses are servers.
    Name(&'a str, u16),
}

/// The place to which a client connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place<'a> {
    /// A TCP port. With `or_shorter`, a Unix socket of the same server may be used instead.
    Tcp { host: &'a str, port: u16, or_shorter: bool },
    /// The path of a Unix socket.
    Unix(&'a str),
}

impl Place<'_> {
    /// Returns the name of the place, under which a session keeps its connections.
    pub fn name(&self) -> String {
        match self {
            Self::Unix(path) => (*path).to_owned(),
            Self::Tcp { host, port, .. } => format!("{host}:{port}"),
        }
    }
}

impl Address {
    /// Parses an address. [`Address::place`] reports an invalid one.
    pub fn parse(text: &str) -> Self {
        let rest = text.strip_prefix(TLS_SCHEME);
        let target = match (Self::target(rest.unwrap_or(text)), rest) {
            (target, None) => target,
            (Target::Any { host, port }, _) => Target::Tcp { host, port },
            (Target::Unix(_), _) => Target::Bad(None),
            (Target::Bad(None), Some(rest)) if rest.contains(',') => list(rest),
            (target, _) => target,
        };
        Self { text: text.to_owned(), target, is_tls: rest.is_some() }
    }

    /// Parses the address of a cluster, which may also be `host:port,host:port`: the client then chooses the shortest road
    /// to each shard, as it does for the only entry of a list.
    pub fn of_cluster(text: &str) -> Self {
        let address = Self::parse(text);
        if address.target != Target::Bad(None)
            || !text.contains(',')
            || SCHEMES.iter().any(|scheme| text.starts_with(scheme))
        {
            return address;
        }
        let target = match list(text) {
            Target::List { entries, .. } => Target::List { entries, or_shorter: true },
            Target::Tcp { host, port } => Target::Any { host, port },
            target => target,
        };
        Self { target, ..address }
    }

    /// Parses an address without the scheme of TLS.
    fn target(text: &str) -> Target {
        match text.split_once(':') {
            Some(("unix", path)) => Target::Unix(path.strip_prefix("//").unwrap_or(path).to_owned()),
            Some(("ipv4" | "ipv6", rest)) => list(rest),
            Some(("dns", rest)) => match split(rest.trim_start_matches('/')) {
                Some((host, port)) if host.parse::<IpAddr>().is_ok() => Target::Tcp { host, port },
                Some((host, port)) if !host.contains([',', '/']) => Target::Name { host, port },
                _ => Target::Bad(None),
            },
            // A colon or a slash in the host belongs to a scheme, such as `http://`, unless it is an IPv6 address.
            _ => match split(text) {
                Some((host, port)) if !host.contains([':', ',', '/']) || host.parse::<Ipv6Addr>().is_ok() => {
                    Target::Any { host, port }
                }
                _ => Target::Bad(None),
            },
        }
    }

    /// Returns the text that was parsed.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether connections are made over TLS.
    pub fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// Whether this is one address of IPv6.
    pub fn is_ipv6(&self) -> bool {
        matches!(&self.target, Target::Tcp { host, .. } if host.contains(':'))
    }

    /// Returns the loopback addresses and the port of a server that may be in this process. `None` for all other
    /// addresses.
    pub fn loopback(&self) -> Option<(&[IpAddr], u16)> {
        const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
        const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);
        let Target::Any { host, port } = &self.target else { return None };
        let hosts: &[IpAddr] = match host.as_str() {
            "localhost" | "0.0.0.0" | "::" => &[V4, V6],
            "127.0.0.1" => &[V4],
            "::1" => &[V6],
            _ => return None,
        };
        Some((hosts, *port))
    }

    /// Returns the servers of a list or of a name. `None` for an address of one server.
    pub fn several(&self) -> Option<Several<'_>> {
        match &self.target {
            Target::List { entries, .. } => Some(Several::List(entries)),
            Target::Name { host, port } => Some(Several::Name(host, *port)),
            _ => None,
        }
    }

    /// Returns the place to connect to. Of a list, that is the first.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the address is not valid.
    pub fn place(&self) -> Result<Place<'_>> {
        match &self.target {
            Target::Any { host, port } => Ok(Place::Tcp { host, port: *port, or_shorter: true }),
            Target::Tcp { host, port } | Target::Name { host, port } => {
                Ok(Place::Tcp { host, port: *port, or_shorter: false })
            }
            Target::List { entries, .. } => match entries.first() {
                Some((host, port)) => Ok(Place::Tcp { host, port: *port, or_shorter: false }),
                None => Err(self.invalid("a list needs an entry")),
            },
            Target::Unix(path) => Ok(Place::Unix(path)),
            Target::Bad(Some(entry)) => {
                Err(self.invalid(&format!("expected host:port, such as 10.0.0.1:8000, got the entry `{entry}`")))
            }
            Target::Bad(None) => Err(self.invalid(
                "expected host:port, such as localhost:8000, or unix:path; the schemes are ipv4:, ipv6:, dns: and unix:, \
                 ipv4:host:port,host:port names several servers, and grpcs:// in front, but not of unix:, means TLS",
            )),
        }
    }

    fn invalid(&self, reason: &str) -> Error {
        Error::invalid(format!("`{}` is not a valid server address: {reason}", self.text))
    }
}

/// Splits `host:port` or `[host]:port`.
fn split(text: &str) -> Option<(String, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    Some((host.to_owned(), port.parse().ok()?))
}

/// Parses entries that commas separate. Those that name the same host and port count once.
fn list(text: &str) -> Target {
    let mut entries = Vec::new();
    let is_list = text.contains(',');
    for entry in text.split(',') {
        let is_host = |host: &str| !host.is_empty() && (!host.contains([':', '/']) || host.parse::<Ipv6Addr>().is_ok());
        match split(entry).filter(|(host, _)| !is_list || is_host(host)) {
            Some(found) if entries.contains(&found) => {}
            Some(found) => entries.push(found),
            None => return Target::Bad(is_list.then(|| entry.to_owned())),
        }
    }
    match entries.len() {
        1 => entries.pop().map_or(Target::Bad(None), |(host, port)| Target::Tcp { host, port }),
        _ => Target::List { entries, or_shorter: false },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::cluster::{OnShardLoss, Placement};
    use std::time::Duration;

    #[test]
    fn addresses_are_parsed_like_those_of_grpc() {
        let tcp = |host, or_shorter| Place::Tcp { host, port: 80, or_shorter };
        for (text, place) in [
            ("localhost:80", tcp("localhost", true)),
            ("[::1]:80", tcp("::1", true)),
            ("::1:80", tcp("::1", true)),
            ("ipv4:127.0.0.1:80", tcp("127.0.0.1", false)),
            ("ipv6:[::1]:80", tcp("::1", false)),
            ("dns:///name:80", tcp("name", false)),
            ("unix:/a/b", Place::Unix("/a/b")),
            ("unix:///a/b", Place::Unix("/a/b")),
        ] {
            assert_eq!(Address::parse(text).place(), Ok(place), "{text}");
        }
        for text in ["", "not a address", "host:", "host:99999", "http://host:80", "grpc://host:80", "tcp:host:80"] {
            assert!(Address::parse(text).place().is_err(), "{text}");
        }
    }

    #[test]
    fn lists_and_names_may_have_several_servers() {
        let list = |entries: &[(&str, u16)]| entries.iter().map(|&(host, port)| (host.to_owned(), port)).collect();
        for (text, entries) in [
            ("ipv4:10.0.0.1:1,10.0.0.2:2", [("10.0.0.1", 1), ("10.0.0.2", 2)]),
            ("ipv4:10.0.0.1:1,10.0.0.2:2,10.0.0.1:1", [("10.0.0.1", 1), ("10.0.0.2", 2)]),
            ("ipv6:[::1]:1,[::1]:2", [("::1", 1), ("::1", 2)]),
            ("ipv4:a:1,b:2", [("a", 1), ("b", 2)]),
        ] {
            let entries: Vec<_> = list(&entries);
            assert_eq!(Address::parse(text).several(), Some(Several::List(&entries)), "{text}");
        }
        for text in ["dns:///name:80", "dns:name:80"] {
            assert_eq!(Address::parse(text).several(), Some(Several::Name("name", 80)), "{text}");
        }
        let one = ["localhost:80", "ipv4:a:80", "ipv4:a:80,a:80", "ipv6:[::1]:80", "dns:///127.0.0.1:80", "unix:/a,b"];
        for text in one {
            assert_eq!(Address::parse(text).several(), None, "{text}");
            assert!(Address::parse(text).place().is_ok(), "{text}");
        }
    }

    #[test]
    fn shards_are_reached_over_the_shortest_road_unless_a_scheme_says_tcp() {
        let listed = |text: &str| {
            let options = ClusterOptions {
                on_shard_loss: OnShardLoss::Continue,
                shard_timeout: Duration::from_secs(1),
                placement: Placement::Episode,
            };
            let endpoint =
                Endpoint { address: Address::of_cluster(text), cluster: Some(options), ..Endpoint::from("a:1") };
            let is_short = |place: &Place<'_>| matches!(place, Place::Tcp { or_shorter: true, .. });
            endpoint.listed().map(|all| {
                let all = all.iter().map(|one| (one.to_string(), is_short(&one.address.place().unwrap())));
                all.collect::<Vec<_>>()
            })
        };
        let all =
            |texts: &[&str], is_short| Some(texts.iter().map(|&text| (text.into(), is_short)).collect::<Vec<_>>());
        assert_eq!(listed("a:1,b:2"), all(&["a:1", "b:2"], true));
        assert_eq!(listed("a:1,[::1]:2"), all(&["a:1", "[::1]:2"], true));
        assert_eq!(listed("a:1"), all(&["a:1"], true));
        assert_eq!(listed("a:1,a:1"), all(&["a:1,a:1"], true));
        assert_eq!(listed("ipv4:a:1,b:2"), all(&["ipv4:a:1", "ipv4:b:2"], false));
        assert_eq!(listed("grpcs://a:1,b:2"), all(&["grpcs://ipv4:a:1", "grpcs://ipv4:b:2"], false));
        assert_eq!(listed("dns:///name:1"), None);
        for text in ["a:1,b", "a:1,", "http://a:1,b:2", "dns:///a:1,b:2", "a:1,unix:/b"] {
            assert!(Address::of_cluster(text).place().is_err(), "{text}");
        }
    }

    #[test]
    fn errors_name_the_entry_that_is_not_valid() {
        for (text, entry) in [
            ("ipv4:a:1,b", "b"),
            ("ipv4:a:1,", ""),
            ("ipv4:a:1,:2", ":2"),
            ("ipv4:a:1,b:99999", "b:99999"),
            ("ipv6:[::1]:1,[::2]", "[::2]"),
            ("ipv4:a:1,ipv4:b:2", "ipv4:b:2"),
        ] {
            let error = Address::parse(text).place().unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")) && error.ends_with(&format!("`{entry}`")), "{error}");
            assert_eq!(Address::parse(text).several(), None, "{text}");
        }
        for text in ["a:1,b:2", "a,b:2", "dns:///a:1,b:2", "dns://10.0.0.1/a:2"] {
            assert!(Address::parse(text).place().is_err(), "{text}");
        }
    }

    #[test]
    fn tls_goes_in_front_of_any_address_but_a_unix_socket() {
        for text in ["localhost:80", "[::1]:80", "ipv4:a:80", "dns:///name:80", "ipv4:a:1,b:2"] {
            let (plain, secure) = (Address::parse(text), Address::parse(&format!("grpcs://{text}")));
            assert!(secure.is_tls() && !plain.is_tls(), "{text}");
            assert_eq!(secure.several(), plain.several(), "{text}");
            let Ok(Place::Tcp { or_shorter, .. }) = secure.place() else { panic!("{text}") };
            assert!(!or_shorter && secure.loopback().is_none(), "{text}");
        }
        let entries = [("a".to_owned(), 1), ("b".to_owned(), 2)];
        assert_eq!(Address::parse("grpcs://a:1,b:2").several(), Some(Several::List(&entries)));
        for text in ["grpcs://", "grpcs://unix:/a", "grpcs://grpcs://a:1", "grpcs:a:1", "grpcs://a:1,b", "http://a:1"] {
            assert!(Address::parse(text).place().is_err(), "{text}");
        }
    }

    #[test]
    fn members_have_tls_and_those_of_a_name_its_certificate() {
        let member = |address: &str| Endpoint::from(address).member("10.0.0.1", 80);
        assert_eq!(member("grpcs://dns:///name:80").tls.server_name.as_deref(), Some("name"));
        assert_eq!(member("grpcs://dns:///name:80").to_string(), "grpcs://ipv4:10.0.0.1:80");
        assert_eq!(member("grpcs://10.0.0.1:80,10.0.0.2:80").tls.server_name, None);
        assert!(member("grpcs://a:1,b:2").address.is_tls() && !member("ipv4:a:1,b:2").address.is_tls());
        let named = ClientTls { server_name: Some("other".into()), ..ClientTls::default() };
        let endpoint = Endpoint { tls: named.clone(), ..Endpoint::from("grpcs://dns:///name:80") };
        assert_eq!(endpoint.member("::1", 80).tls, named);
        assert_eq!(endpoint.member("::1", 80).to_string(), "grpcs://ipv6:[::1]:80");
    }

    #[test]
    fn only_plain_loopback_addresses_can_be_this_process() {
        let port = |text: &str| Address::parse(text).loopback().map(|(hosts, port)| (hosts.len(), port));
        assert_eq!(port("localhost:80"), Some((2, 80)));
        assert_eq!(port("127.0.0.1:80"), Some((1, 80)));
        assert_eq!(port("127.0.0.2:80"), None);
        assert_eq!(port("ipv4:127.0.0.1:80"), None);
        assert_eq!(port("elsewhere:80"), None);
    }
}
