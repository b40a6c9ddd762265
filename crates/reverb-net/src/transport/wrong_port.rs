//! Finds out why a port without TLS does not answer as those for clients do: it may speak TLS, or be the HTTP port of a
//! server, which shows its page.

use super::address::{Endpoint, Place};
use reverb_core::Error;
use reverb_secure::speaks_tls;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Maximum time to find out.
const PROBE_TIME: Duration = Duration::from_millis(500);
/// Maximum number of bytes of the answer.
const ANSWER_BYTES: u64 = 4096;

/// What listens at a port instead of a server without TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WrongPort {
    /// Something that speaks TLS.
    Tls,
    /// An HTTP port that answers as those of our servers.
    Http,
}

impl WrongPort {
    /// Finds out what listens at an address without TLS. `None` if that cannot be found out.
    pub async fn at(endpoint: &Endpoint) -> Option<Self> {
        let Place::Tcp { host, port, .. } = endpoint.address.place().ok()? else { return None };
        if endpoint.address.is_tls() {
            return None;
        }
        let (tls, http) = tokio::join!(in_time(speaks_tls(host, port)), in_time(is_http(host, port)));
        match (tls, http) {
            (true, _) => Some(Self::Tls),
            (false, true) => Some(Self::Http),
            (false, false) => None,
        }
    }

    /// The error of a client that has not reached a server there.
    pub fn error(self, endpoint: &Endpoint) -> Error {
        match self {
            Self::Tls => {
                Error::invalid(format!("the server at {endpoint} speaks TLS: use grpcs:// in front of its address"))
            }
            // It may be a proxy that has both behind one port, so the client tries again.
            Self::Http => Error::Unavailable(
                "that is the HTTP port of a server, for browsers and monitoring; clients use `server.port`, not \
                 `server.http_port`"
                    .into(),
            ),
        }
    }
}

async fn in_time(probe: impl Future<Output = io::Result<bool>>) -> bool {
    tokio::time::timeout(PROBE_TIME, probe).await.is_ok_and(|found| found.unwrap_or(false))
}

/// Whether a port answers whether the server is alive.
async fn is_http(host: &str, port: u16) -> io::Result<bool> {
    let mut stream = TcpStream::connect((host, port)).await?;
    stream.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    stream.take(ANSWER_BYTES).read_to_string(&mut answer).await?;
    Ok(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\nok\n"))
}
