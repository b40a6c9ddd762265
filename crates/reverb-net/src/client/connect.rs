//! Reaches a server: dials it, repeatedly if necessary, and finds the protocol that it speaks.

use super::address::{Address, Endpoint};
use super::road::Road;
use crate::dm_reverb::client as dm_reverb;
use crate::replay_v1::client::{Connection, Greeting, Session};
use crate::transport::back_off::BackOff;
use crate::transport::dial::{ATTEMPT_TIME, KeepAlive, dial_host, dial_unix};
use reverb_core::{Error, Result};
use reverb_service::{Transport, registry};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tonic::transport::Channel;

// limit (Connections and calls): time for which a client tries to connect | {}, {dial.rs:ATTEMPT_TIME} an attempt |
// `UnavailableError`
/// Time for which a client tries to reach a server.
pub const CONNECT_TIME: Duration = Duration::from_secs(10);

/// Connects to a server. Tries repeatedly for a while if the server is not there yet.
///
/// # Errors
/// [`Error::Unavailable`] with the last cause, [`Error::DeadlineExceeded`] if the deadline passes first, or
/// [`Error::SplitClient`] at once.
pub async fn connect(address: &Address, session: &Session, deadline: Option<Instant>) -> Result<Road> {
    let endpoint = address.endpoint()?;
    let begun = Instant::now();
    let give_up = begun + CONNECT_TIME;
    let mut back_off = BackOff::default();
    let mut reason = None;
    loop {
        let trying = attempt(address.text(), endpoint, session);
        let limit = deadline.unwrap_or(give_up).max(begun + BackOff::SHORTEST);
        let error = match tokio::time::timeout_at(limit.into(), trying).await {
            Ok(Ok(road)) => return Ok(road),
            Ok(Err(error @ (Error::Unimplemented(_) | Error::SplitClient { .. }))) => return Err(error),
            Ok(Err(error)) => error,
            // The last attempt has little time. The reason of the one before says more.
            Err(_) => reason.take().unwrap_or_else(|| Error::Unavailable("the server does not answer".into())),
        };
        let now = Instant::now();
        let is_late = deadline.is_some_and(|deadline| now >= deadline);
        if is_late || now >= give_up {
            let text = unreached_text(address, &error, begun.elapsed());
            return Err(match is_late {
                true => Error::Unreached(text),
                false => Error::Unavailable(text),
            });
        }
        let next = now + back_off.pause();
        tokio::time::sleep_until(deadline.map_or(next, |deadline| next.min(deadline)).into()).await;
        reason = Some(error);
    }
}

/// Connects after the server was in this process and was stopped. Another process may listen at the address by now,
/// so there is one attempt. It is short, because there is no reason to expect a new server.
pub async fn connect_after_stop(address: &Address, session: &Session, deadline: Option<Instant>) -> Result<Road> {
    let trying = attempt(address.text(), address.endpoint()?, session);
    let now = Instant::now();
    let limit = deadline.unwrap_or(now + ATTEMPT_TIME).clamp(now + BackOff::SHORTEST, now + ATTEMPT_TIME);
    match tokio::time::timeout_at(limit.into(), trying).await {
        Ok(Ok(road)) => Ok(road),
        Ok(Err(error @ (Error::Unimplemented(_) | Error::SplitClient { .. }))) => Err(error),
        _ => Err(Error::Unavailable(format!(
            "{}, if you did not stop it; no other server listens there",
            ended_text(address)
        ))),
    }
}

// limit (Connections and calls): connections that a client opens until a balancer gives it the server of its other
// connection | {} | the other connection is given up
/// Maximum number of connections that a client opens until a balancer gives it the server that its others have.
const MAX_DIALS: usize = 32;
/// The first and the longest pause between these. The pause doubles each time.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(250));

/// Makes one attempt to connect. If the address allows it, a Unix socket of the same server is used instead of TCP.
///
/// # Errors
/// [`Error::Unavailable`] with the cause, [`Error::Unimplemented`] if the server has neither our service nor the
/// reference's, or [`Error::SplitClient`] if a balancer spreads the streams of a connection over servers.
pub async fn attempt(peer: &str, endpoint: Endpoint<'_>, session: &Session) -> Result<Road> {
    let road = reach(peer, endpoint, session).await?;
    let Road::ReplayV1(tcp) = &road else { return Ok(road) };
    let Endpoint::Tcp { or_shorter: true, .. } = endpoint else { return Ok(road) };
    let path = tcp.unix_path();
    if path.is_empty() || !Path::new(path).exists() {
        return Ok(road);
    }
    // On another host, the path may lead to a different server. The ids show whether it is the same one.
    let Ok(channel) = dial_unix(path, KeepAlive::Pings).await else { return Ok(road) };
    match Connection::greet((peer, Transport::Unix, &name(endpoint)), channel, session, false).await {
        Ok(Greeting::Connected(unix)) if unix.server_id() == tcp.server_id() => Ok(Road::ReplayV1(unix)),
        _ => Ok(road),
    }
}

/// Dials, and finds the protocol. Uses the reference's if the server says that it does not have our service.
///
/// A balancer of connections may give each connection of a client another server. Writers and draws ahead have a
/// connection of their own, and must reach the same one; so the client dials again until they do. A server that does
/// not come up any more has probably gone.
async fn reach(peer: &str, endpoint: Endpoint<'_>, session: &Session) -> Result<Road> {
    let name = name(endpoint);
    let mut pause = PAUSES.0;
    // A balancer that counts connections would choose the same server again if these were closed.
    let mut refused = Vec::new();
    loop {
        let (transport, channel) = dial(endpoint, KeepAlive::Pings).await?;
        let is_last = refused.len() + 1 == MAX_DIALS;
        match Connection::greet((peer, transport, &name), channel.clone(), session, is_last).await? {
            Greeting::Connected(connection) => return Ok(Road::ReplayV1(connection)),
            Greeting::NoService => return reach_dm_reverb(peer, endpoint, session).await,
            Greeting::OtherServer => refused.push(channel),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// Opens one connection.
///
/// # Errors
/// [`Error::Unavailable`] with the cause.
pub async fn dial(endpoint: Endpoint<'_>, keep_alive: KeepAlive) -> Result<(Transport, Channel)> {
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
async fn reach_dm_reverb(peer: &str, endpoint: Endpoint<'_>, session: &Session) -> Result<Road> {
    let (transport, channel) = dial(endpoint, KeepAlive::System).await?;
    match Connection::greet((peer, transport, &name(endpoint)), channel.clone(), session, false).await? {
        Greeting::NoService => {
            Ok(Road::DmReverb(Arc::new(dm_reverb::Connection::greet(peer, transport, channel).await?)))
        }
        _ => Err(Error::Unavailable(format!("another server has just begun to listen at {peer}"))),
    }
}

/// Returns the name of an endpoint, under which a session keeps its connections.
fn name(endpoint: Endpoint<'_>) -> String {
    match endpoint {
        Endpoint::Unix(path) => path.to_owned(),
        Endpoint::Tcp { host, port, .. } => format!("{host}:{port}"),
    }
}

fn ended_text(address: &Address) -> String {
    format!("the Server of this process at {} was stopped or collected: keep a reference", address.text())
}

/// Says why no server was reached in the time that was tried.
pub fn unreached_text(address: &Address, reason: &Error, tried: Duration) -> String {
    let ended = address.loopback().is_some_and(|(hosts, port)| registry::has_ended(hosts, port));
    let tried = tried.as_secs_f64();
    match ended {
        true => format!("{} ({reason}, tried for {tried:.1} s)", ended_text(address)),
        false => format!("no server at {}: {reason} (tried for {tried:.1} s)", address.text()),
    }
}
