//! Heartbeats of a server to the clients whose requests wait.

use crate::replay_v1::heartbeat::spawn_heartbeat;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::mpsc;
use tonic::Status;

/// Sends an empty answer at each interval while anything besides the stream holds `waits`, until the stream has ended.
pub fn beat_while_waiting<W: Send + Sync + 'static, T: Default + Send + 'static>(
    heartbeat: Option<Duration>,
    waits: &Arc<W>,
    answers: &mpsc::Sender<Result<T, Status>>,
) {
    let Some(interval) = heartbeat else { return };
    let (waits, answers) = (Arc::downgrade(waits), answers.downgrade());
    spawn_heartbeat(interval, move || {
        let answers = answers.upgrade()?;
        match Weak::strong_count(&waits) {
            0 => return None,
            1 => {}
            _ => {
                // A full channel means that answers are on their way.
                let _full = answers.try_send(Ok(T::default()));
            }
        }
        Some(())
    });
}
