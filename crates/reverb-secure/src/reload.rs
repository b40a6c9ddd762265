//! Looks from time to time whether the files of a server's TLS have changed.

use crate::server::ServerTls;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

// limit (Connections and calls): certificates, keys and authorities of a server that are replaced | read again within
// {} | those that do not fit: a warning, and the ones before stay
/// Time between two looks.
const LOOK_PAUSE: Duration = Duration::from_secs(5);

impl ServerTls {
    /// Reads the files again when they have changed, until `closed` completes.
    pub async fn watch(self: Arc<Self>, closed: impl Future<Output = ()>) {
        let mut closed = pin!(closed);
        loop {
            tokio::select! {
                () = tokio::time::sleep(LOOK_PAUSE) => {}
                () = &mut closed => return,
            }
            let this = self.clone();
            let _looked = tokio::task::spawn_blocking(move || this.look()).await;
        }
    }
}
