//! The answer of the call `Observe`: the documents of a server as one.

use super::schema::ObservedDocument;
use super::server;
use reverb_service::Replay;

/// Describes a server as JSON: an object with its documents. See [`ObservedDocument`].
pub fn observed(replay: &Replay) -> Vec<u8> {
    let document = ObservedDocument {
        server: server::server(replay),
        tables: super::tables::tables(replay).tables,
        waits: server::waits(replay).waits,
        clients: server::clients(replay).clients,
        checkpoints: server::checkpoints(replay),
    };
    serde_json::to_vec(&document).expect("documents have text keys, and numbers that JSON lacks become null")
}
