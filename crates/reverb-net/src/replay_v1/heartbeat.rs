//! Empty messages on streams whose requests wait, since balancers close streams on which nothing is sent.

use std::time::Duration;

/// Calls `beat` at each interval, until it returns `None`. Must be called in the context of a runtime.
pub fn spawn_heartbeat(interval: Duration, mut beat: impl FnMut() -> Option<()> + Send + 'static) {
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(interval).await;
            if beat().is_none() {
                return;
            }
        }
    });
}
