//! One attempt to reach a server: dials it, and finds the protocol that it speaks.

use super::Road;
use crate::address::Endpoint;
use crate::dial::{KeepAlive, dial_host, dial_unix};
use crate::dm_reverb::client as dm_reverb;
use crate::replay_v1::client::Connection;
use reverb_core::{Error, Result};
use reverb_service::Transport;
use std::path::Path;
use std::sync::Arc;
use tonic::transport::Channel;

/// Makes one attempt to connect. If the address allows it, a Unix socket of the same server is used instead of TCP.
///
/// # Errors
/// [`Error::Unavailable`] with the cause, or [`Error::Unimplemented`] if the server has
/// neither our service nor the reference's.
pub async fn connect(peer: &str, endpoint: Endpoint<'_>) -> Result<Road> {
    let (transport, channel) = dial(endpoint, KeepAlive::Pings).await?;
    let Some(connection) = Connection::greet(peer, transport, channel).await? else {
        return connect_to_dm_reverb(peer, endpoint).await;
    };
    let path = connection.unix_path();
    let may_be_shorter = matches!(endpoint, Endpoint::Tcp { or_shorter: true, .. });
    if !may_be_shorter || path.is_empty() || !Path::new(path).exists() {
        return Ok(Road::ReplayV1(Arc::new(connection)));
    }
    // On another host, the path may lead to a different server. The ids show whether it is the same one.
    let unix = match dial_unix(path, KeepAlive::Pings).await {
        Ok(channel) => Connection::greet(peer, Transport::Unix, channel).await.ok().flatten(),
        Err(_) => None,
    };
    let same = unix.filter(|unix| unix.server_id() == connection.server_id());
    Ok(Road::ReplayV1(Arc::new(same.unwrap_or(connection))))
}

async fn dial(endpoint: Endpoint<'_>, keep_alive: KeepAlive) -> Result<(Transport, Channel)> {
    Ok(match endpoint {
        Endpoint::Unix(path) => (Transport::Unix, dial_unix(path, keep_alive).await?),
        Endpoint::Tcp { host, port, or_shorter } => {
            (Transport::Tcp, dial_host(host, port, or_shorter, keep_alive).await?)
        }
    })
}

/// Connects to a server that does not have our service, and uses the reference's. Such a server would close the
/// connection because of our pings, so this is another connection. The server behind it may be another one by now, so
/// it is asked again.
async fn connect_to_dm_reverb(peer: &str, endpoint: Endpoint<'_>) -> Result<Road> {
    let (transport, channel) = dial(endpoint, KeepAlive::System).await?;
    match Connection::greet(peer, transport, channel.clone()).await? {
        None => Ok(Road::DmReverb(Arc::new(dm_reverb::Connection::greet(peer, transport, channel).await?))),
        Some(_) => Err(Error::Unavailable(format!("another server has just begun to listen at {peer}"))),
    }
}
