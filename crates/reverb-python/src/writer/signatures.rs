//! The signatures that a writer checks its items against.

use crate::signature::{FlatSpec, to_signature};
use reverb_core::{Error, Signature};
use std::collections::HashMap;

/// Signatures by table, as Python gives them.
pub type FlatSignatures = HashMap<String, Option<Vec<FlatSpec>>>;

/// The known tables: for each its signature, if it has one.
pub type Signatures = HashMap<String, Option<Signature>>;

/// Converts signatures from flat specs.
pub fn to_signatures(tables: FlatSignatures) -> Result<Signatures, Error> {
    let signature = |specs: Vec<FlatSpec>| to_signature(&[], specs);
    tables.into_iter().map(|(table, specs)| Ok((table, specs.map(signature).transpose()?))).collect()
}

/// The signature of a table, if it has one.
pub fn find_signature<'a>(signatures: &'a Signatures, table: &str) -> Result<Option<&'a Signature>, Error> {
    match signatures.get(table) {
        Some(signature) => Ok(signature.as_ref()),
        None => {
            let mut known: Vec<_> = signatures.keys().map(String::as_str).collect();
            known.sort_unstable();
            Err(Error::TableNotFound { table: table.into(), known: known.join(", ") })
        }
    }
}
