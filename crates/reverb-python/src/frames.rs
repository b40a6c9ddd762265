//! `reverb._rust.Frames`.

use crate::array_in::{Leaf, batch_leaves};
use crate::array_out::columns_to_arrays;
use crate::errors::PyReverbResult;
use crate::without_gil::{BRIEF_BYTES, BRIEF_ITEMS, without_gil};
use numpy::{PyArray1, PyReadonlyArray1};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyList;
use reverb_core::frames::{FrameId, Frames as CoreFrames};
use reverb_core::{DType, Error, Shape};
use std::sync::Arc;

/// Sequences that were drawn from a buffer.
#[pyclass(frozen, module = "reverb._rust", get_all)]
pub struct SampledFrames {
    columns: Py<PyList>,
    segments: Py<PyArray1<i64>>,
    ids: Py<PyArray1<i64>>,
    probabilities: Py<PyArray1<f64>>,
}

/// The frames of a buffer of one process.
#[pyclass(frozen, module = "reverb._rust")]
pub struct Frames {
    frames: Mutex<CoreFrames>,
}

#[pymethods]
impl Frames {
    #[new]
    fn new(
        columns: Vec<(u32, Vec<usize>)>,
        segments: u64,
        length: u64,
        priority_exponent: Option<f64>,
        seed: Option<u64>,
    ) -> PyReverbResult<Self> {
        let column = |(dtype, shape): (u32, Vec<usize>)| Ok((DType::from_number(dtype)?, Shape::from_vec(shape)));
        let columns = columns.into_iter().map(column).collect::<Result<_, Error>>()?;
        let frames = CoreFrames::new(columns, segments, length, priority_exponent, seed)?;
        Ok(Self { frames: Mutex::new(frames) })
    }

    #[getter]
    fn added(&self) -> u64 {
        self.frames.lock().added()
    }

    #[getter]
    fn oldest(&self) -> u64 {
        self.frames.lock().oldest()
    }

    fn clear(&self, next_id: u64) {
        self.frames.lock().clear(next_id);
    }

    fn add(&self, py: Python<'_>, data: &Bound<'_, PyAny>, priorities: Vec<f64>) -> PyReverbResult<u64> {
        let (leaves, rows) = batch_leaves(data)?;
        if rows == 0 {
            return Ok(self.added());
        }
        let values: Vec<_> = leaves.iter().map(Leaf::value).collect();
        let is_brief = values.iter().map(|value| value.bytes.len()).sum::<usize>() <= BRIEF_BYTES;
        Ok(self.with_frames(py, |_| is_brief, |frames| frames.add_values(&values, rows, &priorities))?)
    }

    fn sample(&self, py: Python<'_>, count: usize, steps: u64, prefix: Vec<usize>) -> PyReverbResult<SampledFrames> {
        let is_brief = |held: &CoreFrames| held.bytes_of(count, steps) <= BRIEF_BYTES;
        let (frames, probabilities, layout, buffer) = self.with_frames(py, is_brief, |held| {
            let (frames, probabilities) = held.draw(count, steps)?;
            let (layout, buffer) = held.gather(&frames, steps, &prefix)?;
            Ok::<_, Error>((frames, probabilities, layout, buffer))
        })?;
        Ok(SampledFrames {
            columns: PyList::new(py, columns_to_arrays(py, &layout.columns, Arc::new(buffer))?)?.unbind(),
            segments: PyArray1::from_iter(py, frames.iter().map(|frame| i64::from(frame.segment))).unbind(),
            ids: PyArray1::from_iter(py, frames.iter().map(|frame| frame.id as i64)).unbind(),
            probabilities: PyArray1::from_vec(py, probabilities).unbind(),
        })
    }

    fn gather<'py>(
        &self,
        py: Python<'py>,
        segments: PyReadonlyArray1<'py, i64>,
        ids: PyReadonlyArray1<'py, i64>,
        steps: u64,
        prefix: Vec<usize>,
    ) -> PyReverbResult<Bound<'py, PyList>> {
        let frames = frame_ids(&segments, &ids)?;
        let is_brief = |held: &CoreFrames| held.bytes_of(frames.len(), steps) <= BRIEF_BYTES;
        let (layout, buffer) = self.with_frames(py, is_brief, |held| held.gather(&frames, steps, &prefix))?;
        Ok(PyList::new(py, columns_to_arrays(py, &layout.columns, Arc::new(buffer))?)?)
    }

    fn priorities<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyArray1<f64>>> {
        let priorities = without_gil(py, || self.frames.lock().priorities())?;
        Some(PyArray1::from_vec(py, priorities))
    }

    fn update_priorities(
        &self,
        py: Python<'_>,
        segments: PyReadonlyArray1<'_, i64>,
        ids: PyReadonlyArray1<'_, i64>,
        priorities: PyReadonlyArray1<'_, f64>,
    ) -> PyReverbResult<()> {
        let frames = frame_ids(&segments, &ids)?;
        let priorities = priorities.as_array().to_vec();
        if priorities.len() != frames.len() {
            let (got, expected) = (priorities.len(), frames.len());
            return Err(Error::invalid(format!("expected {expected} priorities, got {got}")).into());
        }
        let is_brief = frames.len() <= BRIEF_ITEMS;
        Ok(self.with_frames(py, |_| is_brief, |held| held.update_priorities(&frames, &priorities))?)
    }
}

impl Frames {
    /// Does work on the frames: with the GIL if it is brief and no other thread holds them. See `without_gil.rs`.
    fn with_frames<T: Send>(
        &self,
        py: Python<'_>,
        is_brief: impl FnOnce(&CoreFrames) -> bool,
        work: impl FnOnce(&mut CoreFrames) -> T + Send,
    ) -> T {
        if let Some(mut frames) = self.frames.try_lock()
            && is_brief(&frames)
        {
            return work(&mut frames);
        }
        without_gil(py, || work(&mut self.frames.lock()))
    }
}

fn frame_ids(segments: &PyReadonlyArray1<'_, i64>, ids: &PyReadonlyArray1<'_, i64>) -> PyReverbResult<Vec<FrameId>> {
    let (segments, ids) = (segments.as_array(), ids.as_array());
    if segments.len() != ids.len() {
        return Err(Error::invalid(format!("{} segments, but {} ids", segments.len(), ids.len())).into());
    }
    let frame = |(&segment, &id): (&i64, &i64)| {
        let negative = || Error::invalid(format!("there is no frame {id} of segment {segment}"));
        Ok(FrameId {
            segment: u32::try_from(segment).map_err(|_| negative())?,
            id: u64::try_from(id).map_err(|_| negative())?,
        })
    };
    Ok(segments.iter().zip(ids).map(frame).collect::<Result<_, Error>>()?)
}
