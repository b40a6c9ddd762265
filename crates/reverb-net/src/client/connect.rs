//! Reaches a server: dials it, repeatedly if necessary, and finds the protocol that it speaks.

use super::road::Road;
use crate::dm_reverb::client as dm_reverb;
use crate::replay_v1::client::{Connection, Greeting, Session};
use crate::transport::address::{Endpoint, Place};
use crate::transport::back_off::BackOff;
use crate::transport::dial::{ATTEMPT_TIME, Dialled, KeepAlive, dial, dial_known_socket, dial_unix};
use crate::transport::unix_path;
use crate::transport::wrong_port::WrongPort;
use reverb_core::{Error, Result};
use reverb_service::{Transport, registry};
use std::fmt::Display;
use std::path::Path;
use std::time::{Duration, Instant};

// limit (Connections and calls): time for which a client tries to connect | {}, {dial.rs:ATTEMPT_TIME} an attempt |
// `UnavailableError`
/// Time for which a client tries to reach a server.
pub const CONNECT_TIME: Duration = Duration::from_secs(10);

// limit (Connections and calls): time that the first attempt to connect gets, if the timeout of the call is shorter | {} |
// the call fails
/// Time that an attempt gets even if the deadline of the call is sooner. A timeout of 0 says not to wait for items. The
/// round trips of a connection take longer than that, so no call would ever reach a distant server.
pub const LEAST_ATTEMPT_TIME: Duration = Duration::from_secs(1);

/// Connects to a server. Tries repeatedly for a while if the server is not there yet.
///
/// # Errors
/// [`Error::Unavailable`] with the last cause, [`Error::DeadlineExceeded`] if the deadline passes first, or
/// [`Error::SplitClient`] at once.
pub async fn connect(endpoint: &Endpoint, session: &Session, deadline: Option<Instant>) -> Result<Road> {
    let begun = Instant::now();
    let give_up = begun + CONNECT_TIME;
    let mut back_off = BackOff::default();
    let mut reason = None;
    loop {
        let trying = attempt(endpoint, session);
        let limit = deadline.unwrap_or(give_up).max(begun + LEAST_ATTEMPT_TIME);
        let error = match tokio::time::timeout_at(limit.into(), trying).await {
            Ok(Ok(road)) => return Ok(road),
            Ok(Err(error)) if !error.is_transient() => return Err(error),
            Ok(Err(error)) => error,
            // The last attempt has little time. The reason of the one before says more.
            Err(_) => reason.take().unwrap_or_else(|| Error::Unavailable("the server does not answer".into())),
        };
        let now = Instant::now();
        let is_late = deadline.is_some_and(|deadline| now >= deadline);
        if is_late || now >= give_up {
            return Err(unreached(endpoint, &error, begun.elapsed(), is_late));
        }
        let next = now + back_off.pause();
        tokio::time::sleep_until(deadline.map_or(next, |deadline| next.min(deadline)).into()).await;
        reason = Some(error);
    }
}

/// Connects after the server was in this process and was stopped. Another process may listen at the address by now,
/// so there is one attempt. It is short, because there is no reason to expect a new server.
pub async fn connect_after_stop(endpoint: &Endpoint, session: &Session, deadline: Option<Instant>) -> Result<Road> {
    let trying = attempt(endpoint, session);
    let now = Instant::now();
    let limit = deadline.unwrap_or(now + ATTEMPT_TIME).clamp(now + LEAST_ATTEMPT_TIME, now + ATTEMPT_TIME);
    match tokio::time::timeout_at(limit.into(), trying).await {
        Ok(Ok(road)) => Ok(road),
        Ok(Err(error)) if !error.is_transient() => Err(error),
        _ => Err(Error::Unavailable(format!(
            "{}, if you did not stop it; no other server listens there",
            ended_text(endpoint)
        ))),
    }
}

/// Time for which something that listens at the address of a server may keep a client waiting after that server was stopped
/// for good: the stopped server itself for a moment, or a balancer.
const SUCCESSOR_TIME: Duration = Duration::from_millis(500);

/// Connects after the server with the id `ended` has said that it was stopped for good. There is one attempt.
///
/// # Errors
/// [`Error::ServerStopped`] if nobody listens at the address. [`Error::Unavailable`] if somebody does who is not a server:
/// a balancer, which may have other servers again. [`Error::Unreached`] if the deadline passes first.
pub async fn connect_to_successor(
    endpoint: &Endpoint,
    session: &Session,
    ended: &[u8],
    deadline: Option<Instant>,
) -> Result<Road> {
    let begun = Instant::now();
    let limit = deadline.unwrap_or(begun + ATTEMPT_TIME).clamp(begun + LEAST_ATTEMPT_TIME, begun + ATTEMPT_TIME);
    loop {
        let error = match tokio::time::timeout_at(limit.into(), dial(endpoint, KeepAlive::Pings)).await {
            Ok(Ok(_)) => tokio::time::timeout_at(limit.into(), attempt(endpoint, session)).await,
            Ok(Err(error)) if !error.is_transient() => return Err(error),
            Ok(Err(_)) => {
                return Err(Error::ServerStopped(format!("the server at {endpoint} was stopped for good")));
            }
            Err(late) => Err(late),
        };
        let error = match error {
            Ok(Ok(road)) if road.server_id() != Some(ended) => return Ok(road),
            Ok(Err(error)) if !error.is_transient() => return Err(error),
            Ok(Err(error)) => error,
            Ok(Ok(_)) | Err(_) => Error::Unavailable("the server does not answer".into()),
        };
        let now = Instant::now();
        let is_late = deadline.is_some_and(|deadline| now >= deadline);
        if is_late || now - begun >= SUCCESSOR_TIME {
            return Err(unreached(endpoint, &error, begun.elapsed(), is_late));
        }
        tokio::time::sleep(BackOff::SHORTEST).await;
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
/// reference's, [`Error::SplitClient`] if a balancer spreads the streams of a connection over servers,
/// [`Error::InvalidArgument`] if only one end speaks TLS, or those of a server that is not trusted.
pub async fn attempt(endpoint: &Endpoint, session: &Session) -> Result<Road> {
    let road = reach(endpoint, session).await?;
    let Place::Tcp { or_shorter: true, .. } = endpoint.address.place()? else { return Ok(road) };
    if road.transport() == Transport::Unix {
        return Ok(road);
    }
    let is_safe = |path: &&str| unix_path::is_safe(Path::new(path), &endpoint.unix_peers);
    let Some(path) = road.unix_path().filter(is_safe) else { return Ok(road) };
    // On another host, the path may lead to a different server. The ids show whether it is the same one.
    let Ok(Dialled { channel, .. }) = dial_unix(endpoint, path, KeepAlive::Pings).await else { return Ok(road) };
    match Connection::greet(endpoint, Transport::Unix, channel, session, false).await {
        Ok(Greeting::Connected(unix)) if road.server_id() == Some(&unix.hello.server_id) => Ok(unix.into()),
        _ => Ok(road),
    }
}

/// Dials, and finds the protocol. Uses the reference's if the server says that it does not have our service.
///
/// A balancer of connections may give each connection of a client another server. Writers and draws ahead have a
/// connection of their own, and must reach the same one; so the client dials again until they do. A server that does
/// not come up any more has probably gone.
async fn reach(endpoint: &Endpoint, session: &Session) -> Result<Road> {
    let mut pause = PAUSES.0;
    // A balancer that counts connections would choose the same server again if these were closed.
    let mut refused = Vec::new();
    loop {
        let dialled = dial(endpoint, KeepAlive::Pings).await?;
        let is_last = refused.len() + 1 == MAX_DIALS;
        let greeting = Connection::greet(endpoint, dialled.transport, dialled.channel.clone(), session, is_last).await;
        let greeting = match greeting.map_err(|error| dialled.why(error)) {
            // A port with TLS of one of our servers denies the call.
            Err(error)
                if dialled.transport == Transport::Tcp
                    && (error.is_transient() || matches!(error, Error::PermissionDenied(_))) =>
            {
                let Some(wrong) = WrongPort::at(endpoint).await else { return Err(error) };
                let beside = if wrong == WrongPort::Tls { reach_beside_tls(endpoint, session).await? } else { None };
                return beside.ok_or_else(|| wrong.error(endpoint));
            }
            greeting => greeting?,
        };
        match greeting {
            Greeting::Connected(connection) => return Ok(connection.into()),
            Greeting::NoService if endpoint.address.is_tls() => {
                return Err(Error::Unimplemented(format!(
                    "the server at {endpoint} does not have the service reverb.replay.v1.Replay; over TLS, dm-reverb's is \
                     not used instead"
                )));
            }
            Greeting::NoService => return reach_dm_reverb(endpoint, session).await,
            Greeting::OtherServer => refused.push(dialled.channel),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// Reaches a server of this machine whose port speaks TLS by its Unix socket, which lies in a folder of this user alone.
///
/// # Errors
/// The refusal of that server, for which there is nothing to try instead.
async fn reach_beside_tls(endpoint: &Endpoint, session: &Session) -> Result<Option<Road>> {
    let Ok(dialled) = dial_known_socket(endpoint, KeepAlive::Pings).await else { return Ok(None) };
    let channel = dialled.channel.clone();
    match Connection::greet(endpoint, dialled.transport, channel, session, false).await {
        Ok(Greeting::Connected(connection)) => Ok(Some(connection.into())),
        Err(error) if error.is_refusal() => Err(dialled.why(error)),
        _ => Ok(None),
    }
}

/// Connects to a server that does not have our service, and uses the reference's. Such a server would close the
/// connection because of our pings, so this is another connection. The server behind it may be another one by now, so
/// it is asked again.
async fn reach_dm_reverb(endpoint: &Endpoint, session: &Session) -> Result<Road> {
    let Dialled { transport, channel, .. } = dial(endpoint, KeepAlive::System).await?;
    match Connection::greet(endpoint, transport, channel.clone(), session, false).await? {
        Greeting::NoService => Ok(dm_reverb::Connection::greet(endpoint, transport, channel).await?.into()),
        _ => Err(Error::Unavailable(format!("another server has just begun to listen at {endpoint}"))),
    }
}

fn ended_text(endpoint: &Endpoint) -> String {
    format!("the Server of this process at {endpoint} was stopped or collected: keep a reference")
}

/// Says why no server was reached in the time that was tried. `is_late` states that a deadline has passed.
pub fn unreached(endpoint: &Endpoint, reason: &dyn Display, tried: Duration, is_late: bool) -> Error {
    let ended = endpoint.address.loopback().is_some_and(|(hosts, port)| registry::has_ended(hosts, port));
    let tried = tried.as_secs_f64();
    let text = match ended {
        true => format!("{} ({reason}, tried for {tried:.1} s)", ended_text(endpoint)),
        false => format!("no server at {endpoint}: {reason} (tried for {tried:.1} s)"),
    };
    if is_late { Error::Unreached(text) } else { Error::Unavailable(text) }
}
