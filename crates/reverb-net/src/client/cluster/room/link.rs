//! The streams of a client to all shards for one table.

use super::super::super::connect::{CONNECT_TIME, attempt};
use super::super::first::check;
use super::ask::Attach;
use super::member::{Reached, RoomMember};
use crate::replay_v1::client::Session;
use crate::replay_v1::proto::SumsResponse;
use crate::replay_v1::wire::{limiter_from_wire, room_message_from_wire};
use crate::transport::address::Endpoint;
use reverb_core::published_room::LIFE;
use reverb_core::{Error, Result};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Number of messages that wait for a shard. Further ones are lost, which the others make up for.
const QUEUE: usize = 256;
/// Time for which the first stream waits until all shards are found, so that each hears at once of how many there are.
const FOUND_WITHIN: Duration = Duration::from_secs(1);
/// Time before the next attempt after a stream has ended.
const RETRY: Duration = Duration::from_millis(200);
/// Time before shards that keep no ratio of a table are asked again.
pub const ASK_AGAIN: Duration = Duration::from_secs(10);

/// Keeps a stream to each shard while calls use the room, and reports. Never ends.
pub async fn keep(room: Arc<RoomMember>) {
    let mut tasks = JoinSet::new();
    let reporting = room.clone();
    tasks.spawn(async move {
        loop {
            let _early = timeout(LIFE, reporting.report_due.notified()).await;
            match reporting.report() {
                Some((to, report)) => reporting.send(&to, &report),
                None => reporting.report_due.notified().await,
            }
        }
    });
    let (mut known, mut links) = (BTreeSet::new(), JoinSet::new());
    loop {
        let endpoints = room.endpoints_beside(&known).await;
        known = endpoints.iter().map(|endpoint| endpoint.address.text().to_owned()).collect();
        // Streams to servers that stay are opened again, which costs nothing but a moment.
        links.shutdown().await;
        endpoints.into_iter().for_each(|endpoint| drop(links.spawn(keep_link(room.clone(), endpoint))));
    }
}

async fn keep_link(room: Arc<RoomMember>, endpoint: Endpoint) {
    let address = endpoint.address.text().to_owned();
    loop {
        room.used().await;
        let (reached, pause) = match link(&room, &endpoint, &address).await {
            Ok(true) => (Reached::Answered, RETRY),
            Ok(false) => (Reached::Answered, ASK_AGAIN),
            Err(error) => (Reached::Failed(error), RETRY),
        };
        room.note(&address, None, reached);
        sleep(pause).await;
    }
}

/// Keeps a stream until it ends, or until no call uses the room. Returns whether the table keeps a ratio.
async fn link(room: &Arc<RoomMember>, endpoint: &Endpoint, address: &str) -> Result<bool> {
    // The connections of a client that a balancer may spread are those of its calls.
    let session = Session::default();
    let late = |_| Error::Unavailable("the shard does not answer".into());
    let road = timeout(CONNECT_TIME, attempt(endpoint, &session)).await.map_err(late)??;
    // It is passed over. It may have got the address of a lost shard, and must not hide the others.
    let stranger = |error: Error| Error::Unavailable(error.to_string());
    let shard = check(address, &road, room.first.get()).map_err(stranger)?.id;
    room.note(address, Some(shard), Reached::Connected);
    let _late = timeout(FOUND_WITHIN, room.all_reached(false)).await;
    let (requests, receiver) = mpsc::channel(QUEUE);
    let _new = requests.try_send(room.first_request());
    let opened = timeout(CONNECT_TIME, road.complete(Attach(receiver), None)).await.map_err(late)?;
    let Some(mut responses) = opened? else { return Ok(false) };
    let read = |status: tonic::Status| crate::replay_v1::status::from_status(&status, address);
    let first = timeout(CONNECT_TIME, responses.message()).await.map_err(late)?.map_err(read)?;
    let Some(limiter) = first.and_then(|first| first.limiter) else {
        room.has_no_ratio();
        return Ok(false);
    };
    let _attached = Attached { room, shard };
    room.attached(shard, limiter_from_wire(&limiter), requests)?;
    room.note(address, None, Reached::Answered);
    let mut unused = std::pin::pin!(room.unused());
    loop {
        tokio::select! {
            response = responses.message() => match response.map_err(read)? {
                Some(response) => take(room, shard, &response)?,
                None => return Ok(true),
            },
            () = &mut unused => return Ok(true),
        }
    }
}

/// Notes the end of a stream, also if its task is aborted.
struct Attached<'a> {
    room: &'a RoomMember,
    shard: u32,
}

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        self.room.detached(self.shard);
    }
}

/// Carries a message to other shards, or takes note of one for this client.
fn take(room: &RoomMember, from: u32, response: &SumsResponse) -> Result<()> {
    let Some(message) = &response.message else { return Ok(()) };
    if !response.to.is_empty() {
        room.send(&response.to, message);
        return Ok(());
    }
    let message = room_message_from_wire(message, room.learner).map_err(|error| Error::DataLoss(error.to_string()))?;
    message.iter().for_each(|message| room.hear(from, message));
    Ok(())
}
