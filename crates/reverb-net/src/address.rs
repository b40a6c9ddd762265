//! Addresses of servers: `host:port`, or a gRPC target with a scheme.

use reverb_core::{Error, Result};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A parsed address. An invalid address is kept, because a client reports it on its first call and not when it is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    text: String,
    target: Target,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Target {
    /// `host:port`: the client chooses the shortest road.
    Any {
        host: String,
        port: u16,
    },
    /// `ipv4:`, `ipv6:`, `dns:`: always TCP.
    Tcp {
        host: String,
        port: u16,
    },
    /// `unix:path`.
    Unix(String),
    Bad,
}

/// The endpoint that an address names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint<'a> {
    /// A TCP port. With `or_shorter`, a Unix socket of the same server may be used instead.
    Tcp { host: &'a str, port: u16, or_shorter: bool },
    /// The path of a Unix socket.
    Unix(&'a str),
}

impl Address {
    /// Parses an address. [`Address::endpoint`] reports an invalid one.
    pub fn parse(text: &str) -> Self {
        let split = |text: &str| {
            let (host, port) = text.rsplit_once(':')?;
            let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
            Some((host.to_owned(), port.parse().ok()?))
        };
        let tcp = |rest: &str| split(rest).map(|(host, port)| Target::Tcp { host, port });
        let target = match text.split_once(':') {
            Some(("unix", path)) => Some(Target::Unix(path.strip_prefix("//").unwrap_or(path).to_owned())),
            Some(("ipv4" | "ipv6", rest)) => tcp(rest),
            Some(("dns", rest)) => tcp(rest.trim_start_matches('/')),
            // A colon or a slash in the host belongs to a scheme, such as `http://`, unless it is an IPv6 address.
            _ => split(text)
                .filter(|(host, _)| !host.contains([':', '/']) || host.parse::<Ipv6Addr>().is_ok())
                .map(|(host, port)| Target::Any { host, port }),
        };
        Self { text: text.to_owned(), target: target.unwrap_or(Target::Bad) }
    }

    /// Returns the text that was parsed.
    pub fn text(&self) -> &str {
        &self.text
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

    /// Returns the endpoint to connect to.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the address is not valid.
    pub fn endpoint(&self) -> Result<Endpoint<'_>> {
        match &self.target {
            Target::Any { host, port } => Ok(Endpoint::Tcp { host, port: *port, or_shorter: true }),
            Target::Tcp { host, port } => Ok(Endpoint::Tcp { host, port: *port, or_shorter: false }),
            Target::Unix(path) => Ok(Endpoint::Unix(path)),
            Target::Bad => Err(Error::invalid(format!(
                "`{}` is not a valid server address: expected host:port, such as localhost:8000, or unix:path; the schemes \
                 are ipv4:, ipv6:, dns: and unix:",
                self.text
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_like_those_of_grpc() {
        let tcp = |host, or_shorter| Endpoint::Tcp { host, port: 80, or_shorter };
        for (text, endpoint) in [
            ("localhost:80", tcp("localhost", true)),
            ("[::1]:80", tcp("::1", true)),
            ("::1:80", tcp("::1", true)),
            ("ipv4:127.0.0.1:80", tcp("127.0.0.1", false)),
            ("ipv6:[::1]:80", tcp("::1", false)),
            ("dns:///name:80", tcp("name", false)),
            ("unix:/a/b", Endpoint::Unix("/a/b")),
            ("unix:///a/b", Endpoint::Unix("/a/b")),
        ] {
            assert_eq!(Address::parse(text).endpoint(), Ok(endpoint), "{text}");
        }
        for text in ["", "not a address", "host:", "host:99999", "http://host:80", "grpc://host:80", "tcp:host:80"] {
            assert!(Address::parse(text).endpoint().is_err(), "{text}");
        }
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
