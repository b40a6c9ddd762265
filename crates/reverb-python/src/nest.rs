//! Nests of Python objects, flattened by dm-tree's rules.

use numpy::PyUntypedArray;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

/// The leaves of a nest: mappings in key order, sequences and named tuples in theirs. `None` is a leaf.
///
/// Common containers are walked here; the rest (mappings that are no dict, attrs classes, …) by dm-tree itself.
pub fn flatten<'py>(data: &Bound<'py, PyAny>, leaves: &mut Vec<Bound<'py, PyAny>>) -> PyResult<()> {
    if let Ok(dict) = data.cast_exact::<PyDict>() {
        return flatten_dict(dict, leaves);
    }
    if let Ok(tuple) = data.cast::<PyTuple>() {
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

/// Where leaf `index` stands in the nest, as dm-tree's path: `('a', 0)`.
pub fn path(data: &Bound<'_, PyAny>, index: usize) -> String {
    let path = || -> PyResult<String> {
        let flat = tree(data.py())?.call_method1("flatten_with_path", (data,))?;
        flat.get_item(index)?.get_item(0)?.repr()?.extract()
    };
    path().unwrap_or_else(|_| format!("number {index}"))
}

fn flatten_dict<'py>(dict: &Bound<'py, PyDict>, leaves: &mut Vec<Bound<'py, PyAny>>) -> PyResult<()> {
    let mut children = Vec::with_capacity(dict.len());
    for (key, child) in dict.iter() {
        let Ok(key) = key.cast_into::<PyString>() else {
            // Keys of other types sort by Python's rules.
            let flat = tree(dict.py())?.call_method1("flatten", (dict,))?;
            for leaf in flat.try_iter()? {
                leaves.push(leaf?);
            }
            return Ok(());
        };
        children.push((key, child));
    }
    let mut names = Vec::with_capacity(children.len());
    for (index, (key, _)) in children.iter().enumerate() {
        names.push((key.to_cow()?, index));
    }
    // UTF-8 sorts as code points do, which is Python's order.
    names.sort_unstable();
    names.iter().try_for_each(|(_, index)| flatten(&children[*index].1, leaves))
}

fn is_leaf(data: &Bound<'_, PyAny>) -> bool {
    data.cast::<PyUntypedArray>().is_ok()
        || data.is_exact_instance_of::<PyFloat>()
        || data.is_exact_instance_of::<PyInt>()
        || data.is_exact_instance_of::<PyBool>()
        || data.is_exact_instance_of::<PyString>()
        || data.is_exact_instance_of::<PyBytes>()
        || data.is_none()
}

fn tree(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    static TREE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    TREE.get_or_try_init(py, || py.import("tree").map(Bound::unbind)).map(|module| module.bind(py))
}
