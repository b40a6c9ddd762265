//! Converts NumPy arrays and Python objects to chunks. Each leaf is copied once, directly to its place.

use crate::dtype::from_numpy;
use crate::errors::{PyReverbError, PyReverbResult};
use crate::key_check::{LeafOrder, reordered};
use crate::nest::{flatten_and_hash, joined_path, path};
use crate::records::RAGGED;
use crate::scalar::{MAX_SCALAR_BYTES, read_scalar, scalar_dtype};
use crate::strided::copy_small;
use crate::without_gil::{BRIEF_BYTES, without_gil_unless};
use numpy::npyffi::{NPY_ORDER, PY_ARRAY_API};
use numpy::{PyArray1, PyArrayDescrMethods, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods};
use parking_lot::Mutex;
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyString};
use reverb_core::writer::{ChunkMemory, LEAST_SHARED_BYTES, Value};
use reverb_core::{
    Chunk, DType, EpisodeIds, Error, Layout, RecentLayouts, Shape, StepRange, encode_strings, random_key, shape_text,
};
use std::ops::Range;
use std::sync::Arc;

/// One value of a nest that is ready to be copied.
pub struct Leaf<'py> {
    dtype: DType,
    shape: Shape,
    source: Source<'py>,
}

impl Leaf<'_> {
    /// The number of rows of each item, if this is a `reverb.Ragged`; the shape is that of all its rows.
    fn row_lengths(&self) -> Option<&[usize]> {
        match &self.source {
            Source::Ragged(ragged) => Some(&ragged.row_lengths),
            _ => None,
        }
    }

    /// Whether this is a `reverb.Ragged`.
    pub fn is_ragged(&self) -> bool {
        self.row_lengths().is_some()
    }

    /// How many steps this holds if steps are stacked; `None` if it has no axis for them.
    fn num_steps(&self) -> Option<usize> {
        match self.row_lengths() {
            Some(lengths) => Some(lengths.len()),
            None => self.shape.first().copied(),
        }
    }

    /// The shape for people: `shape [2,3]`, `a Ragged of 2 items`.
    pub fn shape_text(&self) -> String {
        if self.is_ragged() { self.form_text() } else { format!("shape {}", self.form_text()) }
    }

    /// The same without the word: `[2,3]`, `a Ragged of 2 items`.
    fn form_text(&self) -> String {
        match self.row_lengths() {
            Some(lengths) => format!("a Ragged of {} items", lengths.len()),
            None => shape_text(&self.shape),
        }
    }

    /// Checks that this is the value of one step. A `reverb.Ragged` of one item is one.
    ///
    /// # Errors
    /// What was expected, and what came.
    pub fn check_one_step(&self) -> Result<(), String> {
        match self.row_lengths() {
            Some(lengths) if lengths.len() != 1 => {
                Err(format!("expected the rows of one step, got a Ragged of {} items", lengths.len()))
            }
            _ => Ok(()),
        }
    }

    /// The value as a writer takes it.
    pub fn value(&self) -> Value<'_> {
        Value { dtype: self.dtype, shape: &self.shape, bytes: self.source.bytes(self.dtype, &self.shape) }
    }
}

/// The rows of a value along its first axis, or the items of a `reverb.Ragged`.
pub struct LeafRows<'a> {
    value: Value<'a>,
    /// The encoded strings of each row; empty if the value does not hold strings.
    strings: Vec<Vec<u8>>,
    /// The bytes and the shape of each item of a `reverb.Ragged`; empty for other values.
    items: Vec<(Range<usize>, Shape)>,
}

impl<'a> LeafRows<'a> {
    /// `None` if the value has no first axis, or not `count` rows.
    pub fn new(leaf: &'a Leaf<'_>, count: usize) -> PyReverbResult<Option<Self>> {
        if leaf.num_steps() != Some(count) {
            return Ok(None);
        }
        let value = leaf.value();
        let elements: usize = value.shape[1..].iter().product();
        let mut items = Vec::new();
        let mut first = 0;
        for &length in leaf.row_lengths().unwrap_or_default() {
            let row_bytes = elements * value.dtype.size();
            let shape = std::iter::once(length).chain(value.shape[1..].iter().copied()).collect();
            items.push((first * row_bytes..(first + length) * row_bytes, shape));
            first += length;
        }
        let mut strings = Vec::new();
        if value.dtype == DType::String {
            let (ends, text) = value.bytes.split_at((value.shape[0] * elements + 1) * 4);
            let end = |i: usize| u32::from_le_bytes([ends[4 * i], ends[4 * i + 1], ends[4 * i + 2], ends[4 * i + 3]]);
            let string = |i: usize| &text[end(i) as usize..end(i + 1) as usize];
            let mut first = 0;
            for row in 0..count {
                let length = leaf.row_lengths().map_or(1, |lengths| lengths[row]);
                strings.push(encode_strings((first * elements..(first + length) * elements).map(string))?);
                first += length;
            }
        }
        Ok(Some(Self { value, strings, items }))
    }

    /// Whether rows may differ in the length of their first axis.
    pub fn has_open_rows(&self) -> bool {
        !self.items.is_empty()
    }

    /// The value of a row.
    pub fn row(&self, row: usize) -> Value<'_> {
        let Value { dtype, shape, bytes } = self.value;
        let item = self.items.get(row);
        let bytes = match (self.strings.get(row), item) {
            (Some(region), _) => region,
            (None, Some((place, _))) => &bytes[place.clone()],
            (None, None) => {
                let size = bytes.len() / shape[0];
                &bytes[row * size..(row + 1) * size]
            }
        };
        Value { dtype, shape: item.map_or(&shape[1..], |(_, shape)| shape), bytes }
    }
}

enum Source<'py> {
    /// Memory of an array in C order, which the array keeps alive.
    Array(Bound<'py, PyUntypedArray>),
    /// The bytes of a number of Python or NumPy, in the first of these.
    Number([u8; MAX_SCALAR_BYTES]),
    /// A copy of a small array.
    Copy(Vec<u8>),
    /// An encoded column of strings.
    Strings(Vec<u8>),
    Ragged(Box<RaggedSource<'py>>),
}

impl Source<'_> {
    /// The bytes of a value with this dtype and shape.
    fn bytes(&self, dtype: DType, shape: &[usize]) -> &[u8] {
        match self {
            Self::Array(array) => {
                let bytes = dtype.size() * shape.iter().product::<usize>();
                match bytes {
                    0 => &[],
                    // SAFETY: the array lives as long as the leaf and is in C order, so `bytes` follow its data
                    // pointer. If another thread writes to it meanwhile, that is the caller's race, as with a copy in
                    // NumPy.
                    _ => unsafe { std::slice::from_raw_parts((*array.as_array_ptr()).fields.data.cast::<u8>(), bytes) },
                }
            }
            Self::Number(bytes) => &bytes[..dtype.size()],
            Self::Copy(bytes) | Self::Strings(bytes) => bytes,
            Self::Ragged(ragged) => ragged.values.bytes(dtype, shape),
        }
    }
}

/// The values of a `reverb.Ragged`, and the number of rows of each item.
struct RaggedSource<'py> {
    values: Source<'py>,
    row_lengths: Box<[usize]>,
}

/// Layouts of earlier chunks, so that chunks with the same columns share one.
#[derive(Default)]
pub struct Layouts(Mutex<RecentLayouts>);

impl Layouts {
    fn find(&self, rows: usize, leaves: &[Leaf<'_>], batched: bool) -> PyReverbResult<Arc<Layout>> {
        let row_shape =
            |leaf: &Leaf<'_>| if batched { Shape::from_slice(&leaf.shape[1..]) } else { leaf.shape.clone() };
        let skip = usize::from(batched);
        let fits = |(): &(), layout: &Layout| {
            layout.rows as usize == rows
                && layout.columns.len() == leaves.len()
                && layout.columns.iter().zip(leaves).all(|(column, leaf)| {
                    column.dtype == leaf.dtype
                        && column.shape[..] == leaf.shape[skip..]
                        && (leaf.dtype != DType::String || column.size_bytes == region_bytes(&leaf.value()))
                })
        };
        let mut kept = self.0.lock();
        if let Some(layout) = kept.find(fits) {
            return Ok(layout);
        }
        let columns = leaves.iter().map(|leaf| (leaf.dtype, row_shape(leaf), region_bytes(&leaf.value())));
        let mut layout = Layout::new(rows, columns)?;
        if batched && layout.is_drawn_better_by_row() {
            layout = layout.interleaved()?;
        }
        Ok(kept.keep((), layout))
    }
}

/// The size of an encoded column of strings, which a layout has to know; 0 for other values.
fn region_bytes(value: &Value<'_>) -> usize {
    if value.dtype == DType::String { value.bytes.len() } else { 0 }
}

/// The leaves of a nest that is one step, or a number of stacked steps.
pub struct NestSteps<'py> {
    leaves: Vec<Leaf<'py>>,
    /// How many steps are stacked; `None` if the leaves are values of one step.
    stacked: Option<usize>,
    /// The hash of the nest's structure; `None` if dm-tree walked it.
    pub structure: Option<u64>,
}

impl<'py> NestSteps<'py> {
    pub fn one(data: &Bound<'py, PyAny>) -> PyReverbResult<Self> {
        let (leaves, structure) = convert(data)?;
        check_one_step(data, &leaves)?;
        Ok(Self { leaves, stacked: None, structure })
    }

    /// Independent steps, stacked along the first axis of every leaf.
    pub fn stacked(data: &Bound<'py, PyAny>) -> PyReverbResult<Self> {
        let (leaves, structure) = convert(data)?;
        let uneven = |text| format!("insert_batch takes {text} One step: insert. A list of steps: stack them first.");
        let rows = num_rows(data, &leaves).map_err(|error| error.describe(uneven))?;
        Ok(Self { leaves, stacked: Some(rows), structure })
    }

    /// The number of steps.
    pub fn count(&self) -> usize {
        self.stacked.unwrap_or(1)
    }

    /// Puts the leaves in the order of a table's columns.
    pub fn reorder(&mut self, order: &LeafOrder) -> Result<(), Error> {
        self.leaves = reordered(std::mem::take(&mut self.leaves), order)?;
        Ok(())
    }

    /// The data as a chunk with a row for each step. If a leaf of stacked steps is a `reverb.Ragged`, there is a chunk for
    /// each step: the first, and the others. There is at least one step.
    pub fn into_chunks(
        self,
        py: Python<'py>,
        layouts: &Layouts,
        memory: &dyn Fn() -> Option<Arc<dyn ChunkMemory>>,
    ) -> PyReverbResult<(Arc<Chunk>, Vec<Arc<Chunk>>)> {
        let Self { leaves, stacked, .. } = self;
        if let Some(rows) = stacked
            && leaves.iter().any(Leaf::is_ragged)
        {
            let mut chunks = row_chunks(&leaves, rows)?.into_iter().map(Arc::new);
            let first = chunks.next().expect("there is a step");
            return Ok((first, chunks.collect()));
        }
        let layout = layouts.find(stacked.unwrap_or(1), &leaves, stacked.is_some())?;
        let key = random_key();
        let episodes = if stacked.is_some() { EpisodeIds::PerRow(key) } else { EpisodeIds::Same(key) };
        Ok((Arc::new(fill(py, layout, &leaves, (episodes, memory))?), Vec::new()))
    }
}

/// Checks that the leaves of a nest are values of one step.
///
/// # Errors
/// The column that holds the rows of several steps.
pub fn check_one_step(data: &Bound<'_, PyAny>, leaves: &[Leaf<'_>]) -> Result<(), Error> {
    leaves.iter().enumerate().try_for_each(|(index, leaf)| {
        leaf.check_one_step().map_err(|text| Error::invalid(format!("column {}: {text}", joined_path(data, index))))
    })
}

/// A chunk of one row for each of `rows` stacked steps.
fn row_chunks(leaves: &[Leaf<'_>], rows: usize) -> PyReverbResult<Vec<Chunk>> {
    let mut columns = Vec::with_capacity(leaves.len());
    for leaf in leaves {
        columns.push(LeafRows::new(leaf, rows)?.expect("the leaves have this number of rows"));
    }
    let chunk = |row| {
        let values: Vec<_> = columns.iter().map(|column| column.row(row)).collect();
        let shapes = values.iter().map(|value| (value.dtype, Shape::from_slice(value.shape), region_bytes(value)));
        let layout = Arc::new(Layout::new(1, shapes)?);
        let data = layout.assemble(&values.iter().map(|value| value.bytes).collect::<Vec<_>>());
        let episodes = EpisodeIds::Same(random_key());
        Ok(Chunk::new(random_key(), episodes, StepRange::default(), layout, data.into())?)
    };
    (0..rows).map(chunk).collect()
}

/// The leaves of stacked steps, and how many steps there are: the length of the first axis of every leaf.
pub fn batch_leaves<'py>(data: &Bound<'py, PyAny>) -> PyReverbResult<(Vec<Leaf<'py>>, usize)> {
    let (leaves, _) = convert(data)?;
    let rows = num_rows(data, &leaves).map_err(|error| error.describe(|text| format!("expected {text}")))?;
    if let Some(index) = leaves.iter().position(Leaf::is_ragged) {
        let name = joined_path(data, index);
        return Err(Error::invalid(format!("column {name}: expected rows of one shape, got a Ragged")).into());
    }
    Ok((leaves, rows))
}

/// Why the leaves are not stacked steps.
enum NotStacked {
    Empty,
    /// What stacked steps are, and which shapes were given.
    Uneven(String),
}

impl NotStacked {
    fn describe(self, uneven: impl FnOnce(String) -> String) -> Error {
        match self {
            Self::Empty => Error::invalid("Item trajectory must not be empty."),
            Self::Uneven(text) => Error::invalid(uneven(text)),
        }
    }
}

/// The length of the first axis, which all leaves share.
fn num_rows(data: &Bound<'_, PyAny>, leaves: &[Leaf<'_>]) -> Result<usize, NotStacked> {
    let Some(first) = leaves.first() else { return Err(NotStacked::Empty) };
    let rows = first.num_steps();
    let is_uneven = |leaf: &Leaf<'_>| leaf.num_steps().is_none() || leaf.num_steps() != rows;
    let Some(index) = leaves.iter().position(is_uneven) else { return Ok(rows.unwrap_or(0)) };
    let named = |index: usize, verb: &str| format!("{}{verb} {}", joined_path(data, index), leaves[index].form_text());
    let shapes = match index {
        0 => named(0, " is"),
        _ => format!("{}, {}", named(0, " is"), named(index, "")),
    };
    Err(NotStacked::Uneven(format!("n stacked steps, arrays [n, ...]; {shapes}.")))
}

/// The leaves of a nest, and the hash of its structure. Errors name the column.
pub fn convert<'py>(data: &Bound<'py, PyAny>) -> PyReverbResult<(Vec<Leaf<'py>>, Option<u64>)> {
    let mut objects = Vec::with_capacity(8);
    let structure = flatten_and_hash(data, &mut objects)?;
    let to_leaf = |(index, object): (usize, Bound<'py, PyAny>)| {
        leaf(object).map_err(|error| match error {
            PyReverbError::Python(error) if error.is_instance_of::<PyTypeError>(data.py()) => {
                PyTypeError::new_err(format!("column {}: {}", path(data, index), error.value(data.py()))).into()
            }
            PyReverbError::Core(Error::InvalidArgument(text)) => {
                Error::invalid(format!("column {}: {text}", path(data, index))).into()
            }
            other => other,
        })
    };
    // Not collected, which would not know the number of leaves before the end.
    let mut leaves = Vec::with_capacity(objects.len());
    for object in objects.into_iter().enumerate() {
        leaves.push(to_leaf(object)?);
    }
    Ok((leaves, structure))
}

/// Converts a value without copying it.
pub fn leaf(object: Bound<'_, PyAny>) -> PyReverbResult<Leaf<'_>> {
    let object = match object.cast_into_exact::<PyUntypedArray>() {
        Ok(array) => return array_leaf(array),
        Err(error) => error.into_inner(),
    };
    let number = |dtype, value: [u8; 8]| {
        let mut bytes = [0; MAX_SCALAR_BYTES];
        bytes[..8].copy_from_slice(&value);
        Ok(Leaf { dtype, shape: Shape::new(), source: Source::Number(bytes) })
    };
    if object.is_exact_instance_of::<PyFloat>() {
        return number(DType::Float64, object.extract::<f64>()?.to_ne_bytes());
    }
    if object.is_exact_instance_of::<PyBool>() {
        return number(DType::Bool, u64::from(object.extract::<bool>()?).to_ne_bytes());
    }
    if object.is_exact_instance_of::<PyInt>() {
        if let Ok(signed) = object.extract::<i64>() {
            return number(DType::Int64, signed.to_ne_bytes());
        }
        let unsigned: u64 =
            object.extract().map_err(|_| PyTypeError::new_err(format!("{object} does not fit 64 bits")))?;
        return number(DType::UInt64, unsigned.to_ne_bytes());
    }
    if object.is_instance_of::<PyString>() || object.is_instance_of::<PyBytes>() {
        let text = string_bytes(&object)?;
        let region = encode_strings(std::iter::once(text.as_slice()))?;
        return Ok(Leaf { dtype: DType::String, shape: Shape::new(), source: Source::Strings(region) });
    }
    if let Some(dtype) = scalar_dtype(&object) {
        return Ok(Leaf { dtype, shape: Shape::new(), source: Source::Number(read_scalar(&object, dtype)) });
    }
    if object.is_none() {
        return Err(PyTypeError::new_err("expected a value that NumPy can hold, got None").into());
    }
    let py = object.py();
    if RAGGED.is_type_of(&object)? {
        return ragged_leaf(&object);
    }
    let kind = object.get_type();
    // NumPy would take one apart.
    if kind.hasattr(intern!(py, "_is_tensorclass"))? {
        return Err(unstorable(&object).into());
    }
    let array = as_array(py)?.call1((object,)).map_err(|error| {
        let wrapped = PyTypeError::new_err(format!("NumPy cannot convert a value of type {kind}: {error}"));
        wrapped.set_cause(py, Some(error));
        wrapped
    })?;
    array_leaf(array.cast_into::<PyUntypedArray>().map_err(PyErr::from)?)
}

/// `reverb.data.arrays.as_array`: `numpy.asarray`, also for the tensors of PyTorch that it refuses.
pub fn as_array(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static AS_ARRAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    AS_ARRAY.import(py, "reverb.data.arrays", "as_array")
}

/// A `reverb.Ragged`.
fn ragged_leaf<'py>(ragged: &Bound<'py, PyAny>) -> PyReverbResult<Leaf<'py>> {
    let values = leaf(ragged.getattr("values")?)?;
    let lengths = as_array(ragged.py())?.call1((ragged.getattr("row_lengths")?,))?.call_method0("tolist")?;
    let expected = || PyTypeError::new_err("expected integers as the `row_lengths` of a Ragged");
    let lengths: Vec<usize> = lengths.extract().map_err(|_| expected())?;
    let rows = lengths.iter().try_fold(0_usize, |sum, &length| sum.checked_add(length));
    if values.is_ragged() || values.shape.is_empty() || rows != values.shape.first().copied() {
        let (sum, shape) = (lengths.iter().map(|&length| length as u128).sum::<u128>(), shape_text(&values.shape));
        let text =
            format!("expected a Ragged of {sum} values, the sum of its `row_lengths`, got values of shape {shape}");
        return Err(Error::invalid(text).into());
    }
    let Leaf { dtype, shape, source } = values;
    let source = Source::Ragged(Box::new(RaggedSource { values: source, row_lengths: lengths.into() }));
    Ok(Leaf { dtype, shape, source })
}

/// Makes sure that NumPy can be called when nothing can be imported any more: its C interface is looked up at first use.
pub fn prepare(py: Python<'_>) -> PyResult<()> {
    drop(PyArray1::<f64>::zeros(py, 0, false).try_readonly());
    RAGGED.prepare(py)?;
    as_array(py).map(drop)
}

fn array_leaf(array: Bound<'_, PyUntypedArray>) -> PyReverbResult<Leaf<'_>> {
    let shape = Shape::from_slice(array.shape());
    let descriptor = array.dtype();
    // 'O': objects, 'S' and 'U': strings of fixed length, 'T': the strings of NumPy 2.
    if matches!(descriptor.kind(), b'O' | b'S' | b'U' | b'T') {
        let region = encode_array_of_strings(&array)?;
        return Ok(Leaf { dtype: DType::String, shape, source: Source::Strings(region) });
    }
    let array = if descriptor.is_native_byteorder() == Some(false) {
        let native = descriptor.call_method1("newbyteorder", ("=",))?;
        array.call_method1("astype", (native,))?.cast_into::<PyUntypedArray>().map_err(PyErr::from)?
    } else {
        array
    };
    let Some(dtype) = from_numpy(&array.dtype()) else {
        return Err(PyTypeError::new_err(format!("a table cannot hold arrays of dtype {descriptor}")).into());
    };
    let source = if array.is_c_contiguous() {
        Source::Array(array)
    } else {
        match copy_small(&array, dtype.size()) {
            Some(bytes) => Source::Copy(bytes),
            None => Source::Array(contiguous(&array)?),
        }
    };
    Ok(Leaf { dtype, shape, source })
}

/// A copy of the array in C order.
fn contiguous<'py>(array: &Bound<'py, PyUntypedArray>) -> PyResult<Bound<'py, PyUntypedArray>> {
    let py = array.py();
    // SAFETY: the array lives; the call returns a new reference, or null with an exception.
    let copy = unsafe {
        let copy = PY_ARRAY_API.PyArray_NewCopy(py, array.as_array_ptr(), NPY_ORDER::NPY_CORDER);
        Bound::from_owned_ptr_or_err(py, copy)?
    };
    Ok(copy.cast_into()?)
}

fn encode_array_of_strings(array: &Bound<'_, PyUntypedArray>) -> PyReverbResult<Vec<u8>> {
    let flat = array.call_method1("ravel", ("C",))?.call_method0("tolist")?;
    let strings: Vec<Vec<u8>> = flat.try_iter()?.map(|item| string_bytes(&item?)).collect::<PyResult<_>>()?;
    Ok(encode_strings(strings.iter().map(Vec::as_slice))?)
}

fn string_bytes(object: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if let Ok(text) = object.cast::<PyString>() {
        return Ok(text.to_cow()?.as_bytes().to_vec());
    }
    match object.cast::<PyBytes>() {
        Ok(bytes) => Ok(bytes.as_bytes().to_vec()),
        Err(_) => Err(unstorable(object)),
    }
}

/// The error of an object that is neither an array nor a nest.
fn unstorable(object: &Bound<'_, PyAny>) -> PyErr {
    let kind = object.get_type();
    PyTypeError::new_err(match nest_of(object) {
        Some(nest) => format!("expected an array or a nest of arrays, got {kind}: pass a nest, such as {nest}"),
        None => format!("a table can hold objects of type str or bytes, got {kind}"),
    })
}

/// How to make a nest of an object with fields that is none.
fn nest_of(object: &Bound<'_, PyAny>) -> Option<&'static str> {
    let has = |name| object.hasattr(name).unwrap_or(false);
    // Those of tensordict, Pydantic, and the standard library. A tensorclass is a dataclass, too.
    let nests = [
        ("_is_tensorclass", "step.to_tensordict()"),
        ("model_dump", "step.model_dump()"),
        ("__dataclass_fields__", "dataclasses.asdict(step)"),
    ];
    nests.into_iter().find_map(|(name, nest)| has(name).then_some(nest))
}

fn fill(
    py: Python<'_>,
    layout: Arc<Layout>,
    leaves: &[Leaf<'_>],
    (episodes, memory): (EpisodeIds, &dyn Fn() -> Option<Arc<dyn ChunkMemory>>),
) -> PyReverbResult<Chunk> {
    let columns: Vec<&[u8]> = leaves.iter().map(|leaf| leaf.value().bytes).collect();
    // Small inserts need not look for it.
    let memory = if layout.held_bytes() >= LEAST_SHARED_BYTES { memory() } else { None };
    let assemble = || layout.assemble_in(&columns, memory.as_deref());
    let data = without_gil_unless(py, layout.held_bytes() <= BRIEF_BYTES, assemble);
    Ok(Chunk::new(random_key(), episodes, StepRange::default(), layout, data)?)
}
