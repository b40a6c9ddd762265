//! `reverb._rust.BatchMaker`: the one place where samples and batches of the package are made.

use crate::array_out::{InfoMemory, columns_to_arrays, columns_to_tensors, importance_weights, sample_info};
use crate::dlpack::TensorMaker;
use crate::records::{BATCH, REPLAY_SAMPLE};
use crate::sampled_batch::SampledBatch;
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use reverb_core::Buffer;
use reverb_core::gather::{BatchColumn, BatchLayout};
use std::borrow::Cow;
use std::sync::Arc;

/// Makes samples and batches of the items of one table. It is built once for each signature, and used for each batch.
#[pyclass(frozen, module = "reverb._rust")]
pub struct BatchMaker {
    #[pyo3(get)]
    pub signature_token: u64,
    columns: Option<Vec<usize>>,
    names: Py<PyList>,
    keys: Option<Vec<(Py<PyAny>, usize)>>,
    pack: Option<Py<PyAny>>,
    to_leaves: Option<Py<PyAny>>,
    tensor_maker: Option<Py<TensorMaker>>,
    convert: Option<Py<PyAny>>,
    /// The kept columns whose signature leaves the number of rows open, each with the number of its axes there.
    #[pyo3(get)]
    unknown_lengths: Vec<(usize, usize)>,
}

#[pymethods]
impl BatchMaker {
    #[new]
    #[pyo3(signature = (
        *, signature_token = 0, columns = None, names = None, keys = None, pack = None, to_leaves = None,
        tensor_maker = None, convert = None, unknown_lengths = Vec::new()
    ))]
    #[expect(clippy::too_many_arguments, reason = "Python gives them by name, and only those that it needs")]
    fn new(
        py: Python<'_>,
        signature_token: u64,
        columns: Option<Vec<usize>>,
        names: Option<Py<PyList>>,
        keys: Option<Vec<(Py<PyAny>, usize)>>,
        pack: Option<Py<PyAny>>,
        to_leaves: Option<Py<PyAny>>,
        tensor_maker: Option<Py<TensorMaker>>,
        convert: Option<Py<PyAny>>,
        unknown_lengths: Vec<(usize, usize)>,
    ) -> Self {
        let names = names.unwrap_or_else(|| PyList::empty(py).unbind());
        Self { signature_token, columns, names, keys, pack, to_leaves, tensor_maker, convert, unknown_lengths }
    }

    fn sample<'py>(&self, py: Python<'py>, sampled: &SampledBatch) -> PyResult<Bound<'py, PyAny>> {
        let data = self.whole(py, &sampled.layout, &sampled.buffer)?;
        REPLAY_SAMPLE.make(py, [sample_info(sampled.infos.bind(py))?, data])
    }

    #[pyo3(signature = (sampled, *, beta = None, table = None))]
    fn batch<'py>(
        &self,
        py: Python<'py>,
        sampled: &SampledBatch,
        beta: Option<f64>,
        table: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.batch_of(sampled.infos.bind(py), &sampled.layout, &sampled.buffer, beta, table)
    }

    /// The kept columns as arrays.
    fn columns<'py>(&self, py: Python<'py>, sampled: &SampledBatch) -> PyResult<Vec<Bound<'py, PyAny>>> {
        columns_to_arrays(py, &self.stacked(&sampled.layout)?, sampled.buffer.clone())
    }

    #[pyo3(name = "data")]
    pub fn data_of<'py>(&self, py: Python<'py>, columns: Vec<Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        let leaves = self.leaves(py, columns)?;
        self.nest(py, leaves)
    }
}

impl BatchMaker {
    /// A `reverb.loaders.batch.Batch` of all items, converted.
    pub fn batch_of<'py>(
        &self,
        infos: &Bound<'py, InfoMemory>,
        layout: &BatchLayout,
        buffer: &Arc<Buffer>,
        beta: Option<f64>,
        table: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = infos.py();
        let none = || py.None().into_bound(py);
        let data = self.whole(py, layout, buffer)?;
        let weights = beta.map_or_else(none, |beta| importance_weights(py, &infos.get().0, beta).into_any());
        let batch = BATCH.make(py, [sample_info(infos)?, data, weights, none(), table.unwrap_or_else(none)])?;
        match &self.convert {
            Some(convert) => convert.bind(py).call1((batch,)),
            None => Ok(batch),
        }
    }

    /// The data of a whole batch.
    fn whole<'py>(&self, py: Python<'py>, layout: &BatchLayout, buffer: &Arc<Buffer>) -> PyResult<Bound<'py, PyAny>> {
        let columns = self.stacked(layout)?;
        let leaves = match &self.tensor_maker {
            None => self.leaves(py, columns_to_arrays(py, &columns, buffer.clone())?)?,
            Some(maker) => match columns_to_tensors(py, &columns, buffer, maker.get())? {
                (tensors, true) => tensors,
                (mixed, false) => self.leaves(py, mixed)?,
            },
        };
        self.nest(py, leaves)
    }

    /// The columns that are kept.
    pub fn chosen<'a>(&self, layout: &'a BatchLayout) -> PyResult<Cow<'a, [BatchColumn]>> {
        let Some(numbers) = &self.columns else { return Ok(Cow::Borrowed(&layout.columns)) };
        let column = |&number: &usize| {
            let missing = || PyIndexError::new_err(format!("the batch has no column {number}"));
            layout.columns.get(number).cloned().ok_or_else(missing)
        };
        numbers.iter().map(column).collect()
    }

    /// The kept columns as they are in a batch: one whose signature leaves the number of rows open is ragged even if all
    /// items have the same number, so that the form of a batch does not depend on its items.
    fn stacked<'a>(&self, layout: &'a BatchLayout) -> PyResult<Cow<'a, [BatchColumn]>> {
        let mut columns = self.chosen(layout)?;
        for &(place, num_axes) in &self.unknown_lengths {
            let Some(lengths) = columns.get(place).and_then(|column| equal_lengths(column, num_axes)) else { continue };
            let column = &mut columns.to_mut()[place];
            // The axes of the batch, of time and of the rows become one.
            let outer = column.shape.len() + 1 - num_axes;
            let rows = column.shape.drain(..outer).product();
            column.shape.insert(0, rows);
            column.row_lengths = Some(lengths);
        }
        Ok(columns)
    }

    /// The leaves of the data, made from the kept columns.
    fn leaves<'py>(&self, py: Python<'py>, columns: Vec<Bound<'py, PyAny>>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let Some(to_leaves) = &self.to_leaves else { return Ok(columns) };
        let names = self.names(py, columns.len())?;
        to_leaves.bind(py).call1((columns, names))?.try_iter()?.collect()
    }

    /// Without a signature a batch may have another number of columns than the one that this was made for.
    fn names<'py>(&self, py: Python<'py>, num_columns: usize) -> PyResult<Bound<'py, PyList>> {
        let names = self.names.bind(py);
        match names.len() == num_columns {
            true => Ok(names.clone()),
            false => PyList::new(py, (0..num_columns).map(|number| number.to_string())),
        }
    }

    /// Leaves in the structure of the data.
    fn nest<'py>(&self, py: Python<'py>, leaves: Vec<Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        if let Some(keys) = &self.keys {
            if keys.len() != leaves.len() {
                let text = format!("The structure has {} leaves, got {}.", keys.len(), leaves.len());
                return Err(PyValueError::new_err(text));
            }
            let data = PyDict::new(py);
            for (key, leaf) in keys {
                data.set_item(key, &leaves[*leaf])?;
            }
            return Ok(data.into_any());
        }
        let leaves = PyList::new(py, leaves)?;
        match &self.pack {
            Some(pack) => pack.bind(py).call1((leaves,)),
            None => Ok(leaves.into_any()),
        }
    }
}

/// The length of each item of a column that is not ragged. An item has as many axes as its signature, or it is one row
/// with as many. The time axis may have been dropped, but only if each item has one row.
fn equal_lengths(column: &BatchColumn, num_axes: usize) -> Option<Vec<u32>> {
    let is_stacked = column.row_lengths.is_none();
    let length = match column.shape.len().checked_sub(num_axes).filter(|_| is_stacked)? {
        0 if !column.squeezed => 1,
        1 => *column.shape.get(1)?,
        2 if column.shape[1] == 1 => column.shape[2],
        _ => return None,
    };
    Some(vec![length as u32; *column.shape.first()?])
}
