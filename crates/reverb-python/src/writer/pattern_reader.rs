//! `reverb._rust.PatternReader`: makes items by patterns for programs that want the data themselves, without a table.

use super::steps_in::Structure;
use crate::column::selection_to_array;
use crate::errors::PyReverbResult;
use parking_lot::Mutex;
use pyo3::prelude::*;
use reverb_core::KeySlots;
use reverb_core::pattern::Evaluator;
use reverb_core::writer::{ChunkCompression, ColumnOptions, StepBuffer, StreamChunks, WriterItem};
use reverb_formats::patterns::evaluator_from_bytes;

/// Appends steps, and returns the items that patterns make of them.
#[pyclass(frozen, module = "reverb._rust")]
pub struct PatternReader {
    steps: Mutex<StepBuffer>,
    evaluator: Mutex<Evaluator>,
    structure: Structure,
}

#[pymethods]
impl PatternReader {
    #[new]
    fn new(structure: Py<PyAny>, configs: Vec<Vec<u8>>) -> PyReverbResult<Self> {
        let evaluator = evaluator_from_bytes(&configs)?;
        let options = ColumnOptions { num_keep_alive_refs: evaluator.max_age().max(1), max_chunk_length: None };
        let steps = StepBuffer::new(options, ChunkCompression::default(), StreamChunks::default())?;
        Ok(Self { steps: Mutex::new(steps), evaluator: Mutex::new(evaluator), structure: Structure::new(structure) })
    }

    fn append<'py>(&self, py: Python<'py>, data: &Bound<'py, PyAny>) -> PyReverbResult<Vec<Vec<Bound<'py, PyAny>>>> {
        let step = self.structure.step(data)?;
        let mut values = step.values(py, &self.structure)?;
        let appended = {
            let (mut steps, evaluator) = (self.steps.lock(), self.evaluator.lock());
            values.retain(|value| evaluator.uses(value.column));
            steps.append(&values, false)
        };
        appended.map_err(|error| step.describe(py, &self.structure, error))?;
        self.structure.accept(py, &step)?;
        self.items(py, false)
    }

    fn end_episode<'py>(&self, py: Python<'py>, clear_buffers: bool) -> PyReverbResult<Vec<Vec<Bound<'py, PyAny>>>> {
        let items = self.items(py, true)?;
        self.steps.lock().end_episode(clear_buffers)?;
        Ok(items)
    }
}

impl PatternReader {
    fn items<'py>(&self, py: Python<'py>, end_of_episode: bool) -> PyReverbResult<Vec<Vec<Bound<'py, PyAny>>>> {
        let mut items: Vec<WriterItem> = Vec::new();
        let (steps, mut evaluator) = (self.steps.lock(), self.evaluator.lock());
        steps.make_items(&mut evaluator, end_of_episode, KeySlots::ALL, |table| table.into(), &mut items)?;
        drop((steps, evaluator));
        let to_arrays = |item: WriterItem| item.columns.iter().map(|column| selection_to_array(py, column)).collect();
        items.into_iter().map(to_arrays).collect()
    }
}
