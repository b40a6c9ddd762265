//! The signatures that a writer checks its items against.

use crate::signature::{FlatSpec, to_signature};
use reverb_core::{Error, Signature};
use std::collections::HashMap;
use std::sync::Arc;

/// Signatures by table, as Python gives them: serialized nests with the specs of their leaves.
pub type FlatSignatures = HashMap<String, Option<(Vec<u8>, Vec<FlatSpec>)>>;

/// The known tables: for each its signature, if it has one.
pub type Signatures = HashMap<String, Option<Arc<Signature>>>;

/// Converts signatures from flat specs.
pub fn to_signatures(tables: FlatSignatures) -> Result<Signatures, Error> {
    let signature = |(structure, specs): (Vec<u8>, Vec<FlatSpec>)| to_signature(&structure, specs);
    tables.into_iter().map(|(table, specs)| Ok((table, specs.map(signature).transpose()?.map(Arc::new)))).collect()
}

/// The signature of a table, if it has one.
pub fn find_signature(signatures: &Signatures, table: &str) -> Result<Option<Arc<Signature>>, Error> {
    match signatures.get(table) {
        Some(signature) => Ok(signature.clone()),
        None => {
            let mut known: Vec<_> = signatures.keys().map(String::as_str).collect();
            known.sort_unstable();
            Err(Error::TableNotFound { table: table.into(), known: known.join(", ") })
        }
    }
}
