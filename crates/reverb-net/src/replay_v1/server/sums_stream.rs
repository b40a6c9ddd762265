//! The stream by which a client of a cluster is attached to a table of this shard: it reports what it draws, hears how much
//! room there is, and carries what shards tell each other.

use super::last_word::end_stopped;
use crate::replay_v1::proto::{SumsRequest, SumsResponse};
use crate::replay_v1::status::to_status;
use crate::replay_v1::wire::{limiter_to_wire, room_message_from_wire, room_message_to_wire};
use reverb_core::{Error, Result};
use reverb_service::{Replay, RoomDelivery, RoomLink};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::Status;

type Requested = std::result::Result<SumsRequest, Status>;
type Answers = mpsc::Sender<std::result::Result<SumsResponse, Status>>;

/// Serves the stream in a separate task, which ends when the client disconnects.
pub fn sums_stream(
    replay: Arc<Replay>,
    requests: impl Stream<Item = Requested> + Send + Unpin + 'static,
) -> ReceiverStream<std::result::Result<SumsResponse, Status>> {
    let (answers, stream) = mpsc::channel(64);
    tokio::spawn(async move {
        if let Err(error) = run(&replay, requests, &answers).await {
            let _gone = answers.send(Err(to_status(&error))).await;
        }
    });
    ReceiverStream::new(stream)
}

async fn run(
    replay: &Arc<Replay>,
    mut requests: impl Stream<Item = Requested> + Unpin,
    answers: &Answers,
) -> Result<()> {
    let mut closed = std::pin::pin!(replay.closed());
    let first = tokio::select! {
        first = requests.next() => first,
        () = &mut closed => {
            end_stopped(replay, answers).await;
            return Ok(());
        }
    };
    let Some(Ok(first)) = first else { return Ok(()) };
    if first.ask {
        let limiter = replay.table(&first.table)?.room_limiter().as_ref().map(limiter_to_wire);
        let _gone = answers.send(Ok(SumsResponse { limiter, ..SumsResponse::default() })).await;
        return Ok(());
    }
    let shard = replay.shard().ok_or_else(|| Error::invalid("this server is no shard of a cluster"))?;
    let attached = replay.table(&first.table)?.attach_to_room(shard, first.learner, &first.shards)?;
    let limiter = attached.as_ref().map(|(link, _)| limiter_to_wire(&link.limiter));
    let answer = SumsResponse { limiter, ..SumsResponse::default() };
    if answers.send(Ok(answer)).await.is_err() {
        return Ok(());
    }
    let Some((link, mut deliveries)) = attached else { return Ok(()) };
    loop {
        tokio::select! {
            request = requests.next() => match request {
                Some(Ok(request)) => take(replay, (&link, first.learner), &request)?,
                _ => return Ok(()),
            },
            delivery = deliveries.recv() => match delivery {
                // The limiter has changed, or the client has missed something.
                None => return Ok(()),
                Some(delivery) => {
                    if answers.send(Ok(to_wire(delivery))).await.is_err() {
                        return Ok(());
                    }
                }
            },
            () = answers.closed() => return Ok(()),
            () = &mut closed => {
                drop(link);
                end_stopped(replay, answers).await;
                return Ok(());
            }
        }
    }
}

fn take(replay: &Replay, (link, learner): (&RoomLink, u64), request: &SumsRequest) -> Result<()> {
    if let Some(shard) = replay.shard().filter(|_| !request.shards.is_empty()) {
        link.name_shards(shard, &request.shards)?;
    }
    let message = request.message.as_ref().map(|message| room_message_from_wire(message, learner));
    let message = message.transpose()?.flatten();
    message.map_or(Ok(()), |message| link.hear(&message))
}

fn to_wire(RoomDelivery { to, message }: RoomDelivery) -> SumsResponse {
    SumsResponse { to, message: Some(room_message_to_wire(&message)), limiter: None }
}
