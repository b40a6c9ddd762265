//! The answer of the call `Observe`: the documents of a server as one.

use super::schema::ObservedDocument;
use super::server;
use reverb_service::Replay;

/// Describes a server as JSON: an object with its documents. See [`ObservedDocument`].
pub fn observed(replay: &Replay) -> Vec<u8> {
    let told = super::clients::clients(replay);
    let document = ObservedDocument {
        server: server::server(replay),
        verdict: super::verdict::verdict(replay),
        tables: super::tables::tables(replay).tables,
        waits: super::clients::waits(replay).waits,
        clients: told.clients,
        left: told.left,
        checkpoints: server::checkpoints(replay),
    };
    serde_json::to_vec(&document).expect("documents have text keys, and numbers that JSON lacks become null")
}
