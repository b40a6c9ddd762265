//! Tells the HTTP port of a server, which shows its page, from the port for clients.

use super::address::{Endpoint, Place};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Maximum time to find out.
const PROBE_TIME: Duration = Duration::from_millis(500);
/// Maximum number of bytes of the answer.
const ANSWER_BYTES: u64 = 4096;

/// Whether an HTTP port that answers as those of our servers listens at an address. False if it cannot be found out.
pub async fn listens_at(endpoint: &Endpoint) -> bool {
    let Ok(Place::Tcp { host, port, .. }) = endpoint.address.place() else { return false };
    let answer = tokio::time::timeout(PROBE_TIME, ask(host, port)).await;
    answer.is_ok_and(|answer| {
        answer.is_ok_and(|text| text.starts_with("HTTP/1.1 200 ") && text.ends_with("\r\n\r\nok\n"))
    })
}

/// Returns the answer to a request whether the server is alive.
async fn ask(host: &str, port: u16) -> io::Result<String> {
    let mut stream = TcpStream::connect((host, port)).await?;
    stream.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    stream.take(ANSWER_BYTES).read_to_string(&mut answer).await?;
    Ok(answer)
}
