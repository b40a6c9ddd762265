//! The answer of the call `Observe`: the documents of a server as one.

use super::build;
use super::documents::ObservedDocument;
use reverb_service::Replay;

/// Describes a server as JSON: an object with its documents. See [`ObservedDocument`].
pub fn observed(replay: &Replay) -> Vec<u8> {
    let document = ObservedDocument {
        server: build::server(replay),
        tables: super::tables::tables(replay).tables,
        waits: build::waits(replay).waits,
        clients: build::clients(replay).clients,
        checkpoints: build::checkpoints(replay),
    };
    serde_json::to_vec(&document).expect("documents have text keys, and numbers that JSON lacks become null")
}
