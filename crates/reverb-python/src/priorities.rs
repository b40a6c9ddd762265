//! Reads the priorities that a caller gives to items.

use crate::array_in::as_array;
use crate::errors::PyReverbResult;
use numpy::{PyArray1, PyArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyFloat, PyMapping, PyString, PyTuple};
use reverb_core::Error;
use reverb_service::Priorities;

/// What a caller gives for the largest priority so far.
const LARGEST: &str = "max";

/// The priority of an item as an argument: a number, or "max".
#[derive(Clone, Copy)]
pub enum Priority {
    Given(f64),
    Largest,
}

impl<'py> FromPyObject<'_, 'py> for Priority {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(number) = object.cast_exact::<PyFloat>() {
            return Ok(Self::Given(number.value()));
        }
        if is_largest(&object)? {
            return Ok(Self::Largest);
        }
        // PyTorch warns of tensors that require a gradient.
        match object.getattr_opt("detach")? {
            Some(detach) => detach.call0()?.extract().map(Self::Given),
            None => object.extract().map(Self::Given),
        }
    }
}

/// Whether an argument is the word for the largest priority so far.
fn is_largest(priority: &Bound<'_, PyAny>) -> PyResult<bool> {
    let Ok(text) = priority.cast::<PyString>() else { return Ok(false) };
    if text == LARGEST {
        return Ok(true);
    }
    Err(PyTypeError::new_err(format!("priority: expected a number or \"{LARGEST}\", got {}", text.repr()?)))
}

/// The tables of an insert, each with one priority for all rows or one for each.
pub fn table_priorities(priorities: &Bound<'_, PyAny>, rows: usize) -> PyReverbResult<Vec<(String, Priorities)>> {
    let mut tables = Vec::with_capacity(1);
    let mut add = |table: Bound<'_, PyAny>, value: Bound<'_, PyAny>| -> PyReverbResult<()> {
        let table = table_name(&table)?;
        let values = priority_values(&table, &value, rows)?;
        tables.push((table, values));
        Ok(())
    };
    if let Ok(dict) = priorities.cast_exact::<PyDict>() {
        dict.iter().try_for_each(|(table, value)| add(table, value))?;
    } else {
        let mapping = priorities.cast::<PyMapping>().map_err(|_| {
            let kind = priorities.get_type();
            PyTypeError::new_err(format!("priorities: expected a dict of priorities by table, got {kind}"))
        })?;
        for pair in mapping.items()?.iter() {
            let (table, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair.extract()?;
            add(table, value)?;
        }
    }
    if tables.is_empty() {
        // The class of dm-reverb, too.
        return Err(PyValueError::new_err("priorities must contain at least one item").into());
    }
    Ok(tables)
}

pub fn table_name(name: &Bound<'_, PyAny>) -> PyReverbResult<String> {
    if let Ok(name) = name.cast::<PyString>() {
        return Ok(name.to_cow()?.into_owned());
    }
    if let Ok(name) = name.cast::<PyBytes>() {
        return Ok(String::from_utf8_lossy(name.as_bytes()).into_owned());
    }
    Err(PyTypeError::new_err(format!("priorities: expected names of tables, got {}", name.get_type())).into())
}

fn priority_values(table: &str, value: &Bound<'_, PyAny>, rows: usize) -> PyReverbResult<Priorities> {
    if let Ok(number) = value.cast_exact::<PyFloat>() {
        return Ok(number.value().into());
    }
    if let Ok(array) = value.cast_exact::<PyArray1<f64>>()
        && array.len()? == rows
    {
        return Ok(array.to_owned_array().to_vec().into());
    }
    if is_largest(value)? {
        return Ok(Priorities::largest());
    }
    let py = value.py();
    let array = as_array(py)?.call1((value, "float64")).map_err(|error| {
        let kind = value.get_type();
        PyTypeError::new_err(format!("priorities of table `{table}`: expected numbers, got {kind} ({error})"))
    })?;
    let shape: Vec<usize> = array.getattr("shape")?.extract()?;
    let flat = array.call_method0("ravel")?;
    let flat = flat.cast::<PyArray1<f64>>()?.to_owned_array().to_vec();
    if shape.len() > 1 && flat.len() != 1 || flat.len() != 1 && flat.len() != rows {
        return Err(Error::invalid(format!(
            "priorities of table `{table}`: expected one number or an array of shape [{rows}], got shape {shape:?}"
        ))
        .into());
    }
    Ok(flat.into())
}

/// What to write instead of an insert whose first argument is the table's name.
pub fn swapped(data: &Bound<'_, PyAny>, priorities: &Bound<'_, PyAny>, is_batch: bool) -> Option<String> {
    let name = data.cast::<PyString>().ok()?;
    if let Ok(mapping) = priorities.cast::<PyMapping>()
        && mapping.values().ok()?.iter().all(|value| value.extract::<Priority>().is_ok())
    {
        return None;
    }
    Some(data_first(name, is_batch, &format!("a str and an object of {}", priorities.get_type())))
}

/// What to write instead of an insert whose data are the name of a table, or numbers by table: the priorities may then look
/// like those of tables that do not exist.
pub fn table_as_data(data: &Bound<'_, PyAny>, is_batch: bool, is_table: impl Fn(&str) -> bool) -> Option<String> {
    let names = match data.cast::<PyDict>() {
        Ok(dict) => dict.keys().into_any(),
        Err(_) => PyTuple::new(data.py(), [data]).ok()?.into_any(),
    };
    let names: Vec<Bound<'_, PyString>> = names.extract().ok()?;
    let all_are_tables = names.iter().all(|name| name.to_cow().is_ok_and(|name| is_table(&name)));
    let name = names.first().filter(|_| all_are_tables)?;
    Some(data_first(name, is_batch, "the name of a table as the data"))
}

fn data_first(table: &Bound<'_, PyString>, is_batch: bool, got: &str) -> String {
    let method = if is_batch { "insert_batch" } else { "insert" };
    format!("{method} takes the data first: expected {method}(data, {{{table:?}: 1.0}}), got {got}")
}
