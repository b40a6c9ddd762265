//! The last word of a server on a stream: whether it will be back.

use crate::replay_v1::status::to_status;
use reverb_core::Error;
use reverb_service::Replay;
use tokio::sync::mpsc;
use tonic::Status;

/// Returns the error of a stream that ends because the server was stopped.
pub async fn stopped(replay: &Replay) -> Error {
    let text = || "the server was stopped".into();
    if replay.returns().await { Error::Unavailable(text()) } else { Error::ServerStopped(text()) }
}

/// Ends a stream after the server was stopped. Returns when the connection has taken the last word, or has gone.
pub async fn end_stopped<T>(replay: &Replay, answers: &mpsc::Sender<Result<T, Status>>) {
    let told = async {
        if let Ok(()) = answers.send(Err(to_status(&stopped(replay).await))).await {
            answers.closed().await;
        }
    };
    tokio::select! {
        () = told => {}
        () = answers.closed() => {}
    }
}
