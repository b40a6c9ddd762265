//! Compares the keys of nests with those of tables' signatures: each structure once with each table.

use crate::errors::PyReverbResult;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyBytes;
use reverb_core::{Error, Signature};
use reverb_service::TableStatus;
use std::collections::HashMap;
use std::sync::Arc;

/// Comparisons that are remembered; a program has few.
const KEPT: usize = 64;

/// The module that compares and explains.
const MODULE: &str = "reverb.data.structures";

static KEY_DIFFERENCES: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static LIKELY_MISTAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static SKELETON: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static ORDER_BY_NAME: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static LISTS_TO_RAGGED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Makes sure that nests can be compared when nothing can be imported any more.
pub fn prepare(py: Python<'_>) -> PyResult<()> {
    KEY_DIFFERENCES.import(py, MODULE, "key_differences")?;
    LIKELY_MISTAKE.import(py, MODULE, "likely_mistake")?;
    ORDER_BY_NAME.import(py, MODULE, "order_by_name")?;
    LISTS_TO_RAGGED.import(py, MODULE, "lists_to_ragged")?;
    SKELETON.import(py, MODULE, "skeleton").map(drop)
}

/// For each column of a table, the number of its leaf. `None` if leaves are matched by position.
pub type LeafOrder = Option<Arc<[usize]>>;

/// Returns the leaves of a nest as the columns of a table.
///
/// # Errors
/// The order is that of a nest with another number of leaves.
pub fn reordered<T>(leaves: Vec<T>, order: &LeafOrder) -> Result<Vec<T>, Error> {
    let Some(order) = order else { return Ok(leaves) };
    if order.len() != leaves.len() {
        let (fields, leaves) = (order.len(), leaves.len());
        return Err(Error::invalid(format!(
            "expected a nest of {leaves} leaves, got one with {fields} fields by name"
        )));
    }
    let mut leaves: Vec<_> = leaves.into_iter().map(Some).collect();
    Ok(order.iter().map(|&leaf| leaves[leaf].take().expect("each leaf is one column")).collect())
}

/// The structures whose keys are those of a table, each with this table and the order of its leaves there.
#[derive(Default)]
pub struct KnownKeys(Mutex<Vec<(u64, LeafOrder)>>);

impl KnownKeys {
    /// Identifies the comparison of a structure, given by its hash, with a table of a server, given by any number.
    pub fn id(structure: u64, table: &str, server: u32) -> u64 {
        // FNV-1a over the few bytes of the name.
        let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        table.bytes().fold(structure.rotate_left(32) ^ u64::from(server), hash)
    }

    /// Returns the order of the leaves if all these comparisons are known, and have the same.
    pub fn find(&self, ids: impl IntoIterator<Item = u64>) -> Option<LeafOrder> {
        let known = self.0.lock();
        let mut orders = ids.into_iter().map(|id| known.iter().find(|known| known.0 == id).map(|known| &known.1));
        let first = orders.next()??;
        orders.all(|order| order == Some(first)).then(|| first.clone())
    }

    /// Returns the order in which the leaves of a nest are the columns of a table: named tuples and attrs objects are
    /// matched by name where the signature has a mapping. `id` is that of the comparison.
    pub fn order(&self, id: Option<u64>, data: &Bound<'_, PyAny>, signature: &Signature) -> PyReverbResult<LeafOrder> {
        if let Some(order) = self.find(id) {
            return Ok(order);
        }
        let structure = PyBytes::new(data.py(), &signature.structure);
        let order = ORDER_BY_NAME.import(data.py(), MODULE, "order_by_name")?.call1((data, structure))?;
        let order: Option<Vec<usize>> = order.extract()?;
        Ok(order.filter(|order| !order.is_sorted()).map(Arc::from))
    }

    /// Compares the keys of a nest with those of a signature, unless the comparison `id` is known, and remembers the
    /// comparison with the order of the leaves. `misfit` says what else does not fit.
    ///
    /// # Errors
    /// [`Error::SignatureMismatch`] with the keys that are missing or unknown.
    pub fn check(
        &self,
        (id, order): (Option<u64>, &LeafOrder),
        table: &str,
        data: &Bound<'_, PyAny>,
        signature: Option<&Signature>,
        misfit: impl FnOnce() -> Option<Error>,
    ) -> PyReverbResult<()> {
        if self.find(id).is_some() {
            return Ok(());
        }
        if let Some(differences) = compare_keys(table, data, signature)? {
            let misfit = misfit().map_or_else(String::new, |error| format!("\n{error}"));
            return Err(Error::SignatureMismatch(differences + &misfit).into());
        }
        if let Some(id) = id {
            let mut known = self.0.lock();
            known.retain(|known| known.0 != id);
            if known.len() == KEPT {
                known.remove(0);
            }
            known.push((id, order.clone()));
        }
        Ok(())
    }

    /// Forgets all comparisons, because the signatures may have changed.
    pub fn clear(&self) {
        self.0.lock().clear();
    }
}

/// The signatures of tables by name.
type Signatures = HashMap<String, Option<Arc<Signature>>>;

/// The signatures of the tables of one server, which is given by any number.
#[derive(Default)]
pub struct KnownSignatures(Mutex<(u32, Signatures)>);

impl KnownSignatures {
    /// The signature of a table, if it has one; `None` if the table is not known.
    pub fn find(&self, table: &str, server: u32) -> Option<Option<Arc<Signature>>> {
        let known = self.0.lock();
        known.1.get(table).filter(|_| known.0 == server).cloned()
    }

    /// Remembers the tables of a server, and forgets those of the last one.
    pub fn set(&self, tables: Vec<TableStatus>, server: u32) {
        let signature = |status: TableStatus| (status.info.config.name, status.info.config.signature);
        *self.0.lock() = (server, tables.into_iter().map(signature).collect());
    }
}

/// Says which keys of the nest are missing or unknown to the signature; `None` if no keys are.
pub fn compare_keys(
    table: &str,
    data: &Bound<'_, PyAny>,
    signature: Option<&Signature>,
) -> PyReverbResult<Option<String>> {
    let Some(signature) = signature else { return Ok(None) };
    let structure = PyBytes::new(data.py(), &signature.structure);
    let compare = KEY_DIFFERENCES.import(data.py(), MODULE, "key_differences")?;
    Ok(compare.call1((table, data, structure))?.extract()?)
}

/// Puts the mistake that a caller probably made first in the text of a mismatch, if it can be told from the nest.
///
/// `is_batch` says that the steps in the nest are stacked.
pub fn explain(error: Error, data: &Bound<'_, PyAny>, signature: Option<&Signature>, is_batch: bool) -> Error {
    let (Error::SignatureMismatch(text), Some(signature)) = (&error, signature) else { return error };
    let structure = PyBytes::new(data.py(), &signature.structure);
    let likely = LIKELY_MISTAKE
        .import(data.py(), MODULE, "likely_mistake")
        .and_then(|explain| explain.call1((data, structure, is_batch))?.extract::<Option<String>>());
    match likely {
        Ok(Some(likely)) => Error::SignatureMismatch(format!("{likely}\n{text}")),
        _ => error,
    }
}

/// Makes a `reverb.Ragged` of each list of arrays at whose place the signature has one array of open length.
pub fn lists_to_ragged<'py>(data: &Bound<'py, PyAny>, signature: &Signature) -> PyReverbResult<Bound<'py, PyAny>> {
    let structure = PyBytes::new(data.py(), &signature.structure);
    Ok(LISTS_TO_RAGGED.import(data.py(), MODULE, "lists_to_ragged")?.call1((data, structure))?)
}

/// A copy of a nest without the values of its leaves.
pub fn skeleton(data: &Bound<'_, PyAny>) -> PyReverbResult<Py<PyAny>> {
    Ok(SKELETON.import(data.py(), MODULE, "skeleton")?.call1((data,))?.unbind())
}
