//! One attempt to reach a server: dials it, and finds the protocol that it speaks.

use super::Road;
use crate::address::Endpoint;
use crate::dial::{dial_host, dial_unix};
use crate::dm_reverb::client as dm_reverb;
use crate::replay_v1::client::Connection;
use reverb_core::Result;
use reverb_service::Transport;
use std::path::Path;
use std::sync::Arc;
use tonic::transport::Channel;

/// Makes one attempt to connect. If the address allows it, a Unix socket of the same server is used instead of TCP.
///
/// # Errors
/// [`reverb_core::Error::Unavailable`] with the cause, or [`reverb_core::Error::Unimplemented`] if the server has
/// neither our service nor the reference's.
pub async fn connect(peer: &str, endpoint: Endpoint<'_>) -> Result<Road> {
    let (host, port, or_shorter) = match endpoint {
        Endpoint::Unix(path) => return greet(peer, Transport::Unix, dial_unix(path).await?).await,
        Endpoint::Tcp { host, port, or_shorter } => (host, port, or_shorter),
    };
    let road = greet(peer, Transport::Tcp, dial_host(host, port, or_shorter).await?).await?;
    let Road::ReplayV1(tcp) = &road else { return Ok(road) };
    let path = tcp.unix_path();
    if !or_shorter || path.is_empty() || !Path::new(path).exists() {
        return Ok(road);
    }
    // On another host, the path may lead to a different server. The ids show whether it is the same one.
    let Ok(channel) = dial_unix(path).await else { return Ok(road) };
    match Connection::greet(peer, Transport::Unix, channel).await {
        Ok(Some(unix)) if unix.server_id() == tcp.server_id() => Ok(Road::ReplayV1(Arc::new(unix))),
        _ => Ok(road),
    }
}

/// Finds the protocol. Uses the reference's if the server says that it does not have our service.
async fn greet(peer: &str, transport: Transport, channel: Channel) -> Result<Road> {
    match Connection::greet(peer, transport, channel.clone()).await? {
        Some(connection) => Ok(Road::ReplayV1(Arc::new(connection))),
        None => {
            dm_reverb::Connection::greet(peer, transport, channel).await.map(|found| Road::DmReverb(Arc::new(found)))
        }
    }
}
