//! Flattens nests of Python objects by dm-tree's rules.

use crate::column::TrajectoryColumn;
use crate::key_order::key_order;
use crate::records::RAGGED;
use crate::scalar::scalar_dtype;
use numpy::PyUntypedArray;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use smallvec::SmallVec;

/// Collects the leaves of a nest: those of mappings in key order, those of sequences and named tuples in their own
/// order. `None` and a `reverb.Ragged` are leaves.
///
/// Common containers are walked here. Others, such as attrs classes and mappings other than dicts, are left to dm-tree.
pub fn flatten<'py>(data: &Bound<'py, PyAny>, leaves: &mut Vec<Bound<'py, PyAny>>) -> PyResult<()> {
    if let Ok(dict) = data.cast_exact::<PyDict>() {
        return flatten_dict(dict, leaves);
    }
    if let Ok(tuple) = data.cast::<PyTuple>() {
        if is_ragged(tuple)? {
            leaves.push(data.clone());
            return Ok(());
        }
        return tuple.iter_borrowed().try_for_each(|child| flatten(&child, leaves));
    }
    if let Ok(list) = data.cast_exact::<PyList>() {
        return list.iter().try_for_each(|child| flatten(&child, leaves));
    }
    if is_leaf(data) {
        leaves.push(data.clone());
        return Ok(());
    }
    let py = data.py();
    let flat = tree(py)?.call_method1("flatten", (data,))?;
    for leaf in flat.try_iter()? {
        leaves.push(leaf?);
    }
    Ok(())
}

/// The path of leaf `index` in the nest, joined by `/`: `a/0`. A nest that is one leaf is called `the data`.
pub fn joined_path(data: &Bound<'_, PyAny>, index: usize) -> String {
    let path = || -> PyResult<String> {
        let flat = tree(data.py())?.call_method1("flatten_with_path", (without_ragged(data)?,))?;
        let path: Vec<Bound<'_, PyAny>> = flat.get_item(index)?.get_item(0)?.extract()?;
        Ok(path.iter().map(ToString::to_string).collect::<Vec<_>>().join("/"))
    };
    match path() {
        Ok(path) if path.is_empty() => "the data".into(),
        Ok(path) => path,
        Err(_) => format!("number {index}"),
    }
}

/// The path of leaf `index` in the nest, as dm-tree writes it: `('a', 0)`.
pub fn path(data: &Bound<'_, PyAny>, index: usize) -> String {
    let path = || -> PyResult<String> {
        let flat = tree(data.py())?.call_method1("flatten_with_path", (without_ragged(data)?,))?;
        flat.get_item(index)?.get_item(0)?.repr()?.extract()
    };
    path().unwrap_or_else(|_| format!("number {index}"))
}

/// Whether a list is among the dicts and tuples of a nest.
pub fn has_list(data: &Bound<'_, PyAny>) -> bool {
    if let Ok(dict) = data.cast_exact::<PyDict>() {
        return dict.iter().any(|(_, child)| has_list(&child));
    }
    match data.cast::<PyTuple>() {
        Ok(tuple) => tuple.iter_borrowed().any(|child| has_list(&child)),
        Err(_) => data.is_exact_instance_of::<PyList>(),
    }
}

/// The nest for dm-tree, to which a `reverb.Ragged` has two leaves.
fn without_ragged<'py>(data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    static WITHOUT_RAGGED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    WITHOUT_RAGGED.import(data.py(), "reverb.data.leaves", "without_ragged")?.call1((data,))
}

fn flatten_dict<'py>(dict: &Bound<'py, PyDict>, leaves: &mut Vec<Bound<'py, PyAny>>) -> PyResult<()> {
    if walk_sorted(dict, |_, child| flatten(child, leaves))? {
        return Ok(());
    }
    // Keys of other types are sorted by Python's rules, which dm-tree applies.
    for leaf in tree(dict.py())?.call_method1("flatten", (dict,))?.try_iter()? {
        leaves.push(leaf?);
    }
    Ok(())
}

/// A `reverb.Ragged` is a leaf, although it is a named tuple.
fn is_ragged(tuple: &Bound<'_, PyTuple>) -> PyResult<bool> {
    if tuple.is_exact_instance_of::<PyTuple>() { Ok(false) } else { RAGGED.is_type_of(tuple) }
}

fn is_leaf(data: &Bound<'_, PyAny>) -> bool {
    data.cast::<PyUntypedArray>().is_ok()
        || data.is_exact_instance_of::<PyFloat>()
        || data.is_exact_instance_of::<PyInt>()
        || data.is_exact_instance_of::<PyBool>()
        || data.is_exact_instance_of::<PyString>()
        || data.is_exact_instance_of::<PyBytes>()
        || data.is_none()
        || data.is_exact_instance_of::<TrajectoryColumn>()
        || scalar_dtype(data).is_some()
}

fn tree(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    static TREE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    TREE.get_or_try_init(py, || py.import("tree").map(Bound::unbind)).map(|module| module.bind(py))
}

/// Does what [`flatten`] does, and returns a hash that is the same for nests of the same structure; `None` if dm-tree
/// walked one of the containers, whose structure is then unknown.
pub fn flatten_and_hash<'py>(data: &Bound<'py, PyAny>, leaves: &mut Vec<Bound<'py, PyAny>>) -> PyResult<Option<u64>> {
    let mut hasher = StructureHasher { hash: HASH_SEED, is_known: true };
    hasher.walk(data, leaves)?;
    Ok(hasher.is_known.then_some(hasher.hash))
}

const HASH_SEED: u64 = 0xcbf2_9ce4_8422_2325;

/// Hashes the structure of a nest while its leaves are collected.
struct StructureHasher {
    hash: u64,
    is_known: bool,
}

impl StructureHasher {
    fn mix(&mut self, value: u64) {
        // Two multiplications of a mixer for 64 bits (Steele et al. 2014, "Fast splittable pseudorandom number
        // generators").
        let mut mixed = self.hash.rotate_left(23) ^ value;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        self.hash = mixed ^ (mixed >> 31);
    }

    fn walk<'py>(&mut self, data: &Bound<'py, PyAny>, leaves: &mut Vec<Bound<'py, PyAny>>) -> PyResult<()> {
        if let Ok(dict) = data.cast_exact::<PyDict>() {
            self.mix(1 + ((dict.len() as u64) << 8));
            let has_names = walk_sorted(dict, |key, child| {
                // A string keeps its hash, so this only reads it.
                self.mix(key.hash()? as u64);
                self.walk(child, leaves)
            })?;
            if has_names {
                return Ok(());
            }
            self.is_known = false;
            return flatten_dict(dict, leaves);
        }
        if let Ok(tuple) = data.cast::<PyTuple>() {
            if is_ragged(tuple)? {
                self.mix(4);
                leaves.push(data.clone());
                return Ok(());
            }
            self.mix(2 + ((tuple.len() as u64) << 8));
            self.mix(tuple.get_type().as_ptr() as u64);
            return tuple.iter_borrowed().try_for_each(|child| self.walk(&child, leaves));
        }
        if let Ok(list) = data.cast_exact::<PyList>() {
            self.mix(3 + ((list.len() as u64) << 8));
            return list.iter().try_for_each(|child| self.walk(&child, leaves));
        }
        if is_leaf(data) {
            // Whether there is a value belongs to the structure: a place that was always empty may become a nest.
            self.mix(if data.is_none() { 5 } else { 4 });
            leaves.push(data.clone());
            return Ok(());
        }
        self.is_known = false;
        flatten(data, leaves)
    }
}

/// Visits a dict of strings in the order of its keys. Returns false, and visits nothing, if a key is not a string.
fn walk_sorted<'py>(
    dict: &Bound<'py, PyDict>,
    mut visit: impl FnMut(&Bound<'py, PyString>, &Bound<'py, PyAny>) -> PyResult<()>,
) -> PyResult<bool> {
    let mut children: SmallVec<[(Bound<'py, PyString>, Bound<'py, PyAny>); 8]> = SmallVec::new();
    for (key, child) in dict.iter() {
        let Ok(key) = key.cast_into::<PyString>() else { return Ok(false) };
        children.push((key, child));
    }
    let order = key_order(&children)?;
    order.iter().map(|&index| &children[index as usize]).try_for_each(|(key, child)| visit(key, child))?;
    Ok(true)
}
