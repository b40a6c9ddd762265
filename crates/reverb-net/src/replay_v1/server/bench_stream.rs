//! The stream that holds a table for measurements.

use crate::replay_v1::proto::BenchResponse;
use crate::replay_v1::status::to_status;
use reverb_core::{Error, Result};
use reverb_service::{Peer, Replay};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::channel;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

/// Makes a table, and sends its name. The table goes when the client ends the stream, when the client is lost, or when
/// the service is closed.
///
/// # Errors
/// Those of [`reverb_service::BenchTables::make`].
pub fn bench_stream(
    replay: Arc<Replay>,
    peer: &Peer,
    heartbeat: Duration,
) -> Result<ReceiverStream<std::result::Result<BenchResponse, Status>>> {
    let table = replay.bench.make()?;
    tracing::info!("{peer} measures with the table {}", table.name());
    let (sender, receiver) = channel(1);
    tokio::spawn(async move {
        let mut closed = std::pin::pin!(replay.closed());
        let mut message = BenchResponse { table: table.name().to_owned() };
        loop {
            if sender.send(Ok(std::mem::take(&mut message))).await.is_err() {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(heartbeat) => {}
                () = sender.closed() => return,
                () = &mut closed => {
                    let _gone = sender.send(Err(to_status(&Error::Cancelled("the server was stopped".into())))).await;
                    return;
                }
            }
        }
    });
    Ok(ReceiverStream::new(receiver))
}
