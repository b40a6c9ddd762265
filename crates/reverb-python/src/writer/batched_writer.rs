//! `reverb._rust.BatchedWriter`: appends the steps of many environments at once.

use super::pattern_writer::{reorder, set_priority};
use super::session::{HOW_TO_GIVE_UP, WriterOptions, WriterSession};
use super::steps_in::Structure;
use crate::array_in::LeafRows;
use crate::client::Client;
use crate::errors::PyReverbResult;
use crate::priorities::Priority;
use crate::without_gil::without_gil;
use numpy::{PyArray1, PyReadonlyArray1};
use parking_lot::Mutex;
use pyo3::prelude::*;
use reverb_core::pattern::Evaluator;
use reverb_core::writer::{AppendError, ColumnValue, Selection, StepBuffer, StreamChunks, WriterItem};
use reverb_core::{DType, Error, NewPriority, Shape};
use reverb_formats::patterns::evaluator_from_bytes;
use std::sync::Arc;

/// A slice of a column: column, start, stop, step, and whether the time axis is dropped.
type RowsOf = (u32, Option<i64>, Option<i64>, i64, bool);

/// Which environments got an item, and the keys of the items.
type Made<'py> = (Bound<'py, PyArray1<bool>>, Bound<'py, PyArray1<u64>>);

/// Appends a step of every environment in one call.
#[pyclass(frozen, extends = WriterSession, module = "reverb._rust")]
pub struct BatchedWriter {
    num_envs: usize,
    has_patterns: bool,
    envs: Mutex<Vec<Env>>,
    shapes: Mutex<StepShapes>,
    session: WriterSession,
    structure: Structure,
}

/// The priorities of items of the environments: one for all or one for each, or "max".
#[derive(FromPyObject)]
enum EnvPriorities<'py> {
    Given(PyReadonlyArray1<'py, f64>),
    All(Priority),
}

impl EnvPriorities<'_> {
    /// One for each environment.
    fn of(&self, num_envs: usize, session: &WriterSession) -> Vec<NewPriority> {
        match self {
            Self::Given(array) if array.as_array().len() == num_envs => {
                array.as_array().iter().map(|&value| value.into()).collect()
            }
            Self::Given(array) => vec![array.as_array()[0].into(); num_envs],
            Self::All(priority) => vec![session.priority(*priority); num_envs],
        }
    }
}

struct Env {
    steps: StepBuffer,
    evaluator: Option<Evaluator>,
    /// The number of the shape of the last step that it took, or 0; see [`StepShapes`].
    shape: u64,
}

/// Numbers the shapes of steps: the columns of a step, their dtypes and the shapes of their values. A step that differs
/// from the one before has a new number. An environment takes steps of the same number without another check.
#[derive(Default)]
struct StepShapes {
    last: Vec<(u32, DType, Shape)>,
    number: u64,
}

impl StepShapes {
    fn number(&mut self, values: &[ColumnValue<'_>]) -> u64 {
        let is_same = |(known, value): (&(u32, DType, Shape), &ColumnValue<'_>)| {
            known.0 == value.column && known.1 == value.value.dtype && known.2[..] == *value.value.shape
        };
        if self.last.len() != values.len() || !self.last.iter().zip(values).all(is_same) {
            let shape =
                |value: &ColumnValue<'_>| (value.column, value.value.dtype, Shape::from_slice(value.value.shape));
            self.last = values.iter().map(shape).collect();
            self.number += 1;
        }
        self.number
    }
}

#[pymethods]
impl BatchedWriter {
    #[new]
    fn new(
        client: &Client,
        structure: Py<PyAny>,
        num_envs: usize,
        num_keep_alive_refs: u32,
        configs: Vec<Vec<u8>>,
        options: WriterOptions,
    ) -> PyReverbResult<PyClassInitializer<Self>> {
        let compression = options.compression()?;
        let chunks = StreamChunks::default();
        let evaluator = || match configs.is_empty() {
            true => Ok(None),
            false => evaluator_from_bytes(&configs).map(Some),
        };
        let keep = num_keep_alive_refs.max(evaluator()?.map_or(1, |evaluator| evaluator.max_age()));
        let columns = options.columns(keep);
        let env = |_| {
            Ok(Env { steps: StepBuffer::new(columns, compression, chunks.clone())?, evaluator: evaluator()?, shape: 0 })
        };
        let session = WriterSession::new(client, &options, chunks.clone(), HOW_TO_GIVE_UP);
        let writer = Self {
            num_envs,
            has_patterns: !configs.is_empty(),
            shapes: Mutex::default(),
            envs: Mutex::new((0..num_envs).map(env).collect::<Result<_, Error>>()?),
            session: session.clone(),
            structure: Structure::new(structure),
        };
        Ok(PyClassInitializer::from(session).add_subclass(writer))
    }

    /// Puts the columns of each pattern's items in this order; an empty one leaves them.
    fn reorder(&self, orders: Vec<Vec<usize>>) -> PyReverbResult<()> {
        let mut envs = self.envs.lock();
        Ok(envs.iter_mut().filter_map(|env| env.evaluator.as_mut()).try_for_each(|one| reorder(one, &orders))?)
    }

    /// Appends the rows of the environments in `mask`, then ends the episodes of those in `ends`. The items that patterns
    /// make have the priority of their environment in `priorities`, if there are any.
    #[pyo3(signature = (data, mask, ends, priorities=None))]
    fn append(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        mask: Option<PyReadonlyArray1<'_, bool>>,
        ends: Option<PyReadonlyArray1<'_, bool>>,
        priorities: Option<EnvPriorities<'_>>,
    ) -> PyReverbResult<()> {
        if self.has_patterns {
            self.session.wait_for_room(py)?;
        }
        let must_report = self.session.begin()?;
        let step = self.structure.step(data)?;
        let rows = step.rows(py, self.num_envs, &self.structure)?;
        let is_in = |mask: &Option<PyReadonlyArray1<'_, bool>>, env: usize, default| {
            mask.as_ref().map_or(default, |mask| mask.as_array()[env])
        };
        let present: Vec<bool> = (0..self.num_envs).map(|env| is_in(&mask, env, true)).collect();
        let ends: Vec<bool> = (0..self.num_envs).map(|env| is_in(&ends, env, false)).collect();
        let priorities = priorities.map(|priorities| priorities.of(self.num_envs, &self.session));
        let mut items = Vec::new();
        // The lock is taken without the GIL, so that no thread waits for one while it holds the other.
        let (appended, made) = without_gil(py, || {
            let mut envs = self.envs.lock();
            match self.append_rows(&mut envs, &rows, &present) {
                Ok(()) => (Ok(()), self.make_items(&mut envs, &present, &ends, priorities.as_deref(), &mut items)),
                Err(error) => (Err(error), Ok(())),
            }
        });
        appended.map_err(|error| step.describe(py, &self.structure, error))?;
        let accepted = self.structure.accept(py, &step);
        if items.is_empty() && ends.contains(&true) {
            self.session.pump();
        }
        self.session.end_step(py, items, must_report, accepted.and(made.map_err(Into::into)))
    }

    /// Makes one item of every environment in `mask` that has all rows of the item. Returns for which environments it
    /// did, and the keys of the items; 0 for the other environments.
    #[pyo3(signature = (table, priorities, columns, mask, timeout=None))]
    fn create_items<'py>(
        &self,
        py: Python<'py>,
        table: &Bound<'_, PyAny>,
        priorities: EnvPriorities<'_>,
        columns: Vec<RowsOf>,
        mask: Option<PyReadonlyArray1<'_, bool>>,
        timeout: Option<f64>,
    ) -> PyReverbResult<Made<'py>> {
        let table = self.session.table(table)?;
        let priorities = priorities.of(self.num_envs, &self.session);
        let (mut made, mut keys) = (Vec::new(), Vec::new());
        let mut items = Vec::new();
        self.session.reach(py, timeout)?;
        {
            let envs = self.envs.lock();
            for (index, env) in envs.iter().enumerate() {
                let wanted = mask.as_ref().is_none_or(|mask| mask.as_array()[index]);
                let item = if wanted { env.item(&table, priorities[index], &columns, &self.session)? } else { None };
                made.push(item.is_some());
                keys.push(item.as_ref().map_or(0, |item| item.key));
                items.extend(item);
            }
        }
        self.session.take_room_of_call(py, items.len(), timeout)?;
        let envs = (0..).zip(&made).filter(|(_, made)| **made).map(|(env, _)| env);
        envs.zip(&items).for_each(|(env, item)| self.session.note_made(env, [item]));
        self.session.push(py, items)?;
        Ok((PyArray1::from_vec(py, made), PyArray1::from_vec(py, keys)))
    }

    fn episode_steps<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i64>> {
        PyArray1::from_iter(py, self.envs.lock().iter().map(|env| i64::from(env.steps.episode_steps())))
    }
}

impl BatchedWriter {
    /// Appends a row to each environment that is present, or to none of them.
    fn append_rows(&self, envs: &mut [Env], rows: &[(u32, LeafRows<'_>)], present: &[bool]) -> Result<(), AppendError> {
        // Columns that no pattern uses are chunks. All environments have the same patterns.
        let is_used = |column: u32| {
            let evaluator = envs.first().and_then(|env| env.evaluator.as_ref());
            evaluator.is_none_or(|evaluator| evaluator.uses(column))
        };
        let used: Vec<_> = rows.iter().filter(|(column, _)| is_used(*column)).collect();
        let mut step = Vec::with_capacity(used.len());
        let row = |env: usize, step: &mut Vec<_>| {
            step.clear();
            step.extend(used.iter().map(|(column, rows)| ColumnValue {
                column: *column,
                value: rows.row(env),
                opens_rows: rows.has_open_rows(),
            }));
        };
        row(0, &mut step);
        // Rows that differ in shape have no number.
        let may_differ = step.iter().any(|value| value.opens_rows);
        let shape = if may_differ { 0 } else { self.shapes.lock().number(&step) };
        for (index, env) in envs.iter_mut().enumerate() {
            if present[index] && (env.shape != shape || shape == 0) {
                row(index, &mut step);
                env.steps.check(&step)?;
            }
        }
        for (index, env) in envs.iter_mut().enumerate() {
            if present[index] {
                row(index, &mut step);
                env.steps.append_checked(&step, false)?;
                env.shape = shape;
            }
        }
        Ok(())
    }

    /// Makes the items that patterns describe, and ends episodes. If the items of one environment cannot be made, those
    /// of the others still are. Returns the first error.
    fn make_items(
        &self,
        envs: &mut [Env],
        present: &[bool],
        ends: &[bool],
        priorities: Option<&[NewPriority]>,
        items: &mut Vec<WriterItem>,
    ) -> Result<(), Error> {
        let mut result = Ok(());
        for (index, env) in envs.iter_mut().enumerate() {
            let made = items.len();
            if present[index] {
                result = result.and(env.make_items(false, &self.session, items));
            }
            if ends[index] {
                result = result.and(env.make_items(true, &self.session, items));
                result = result.and(env.steps.end_episode(true));
            }
            result = result.and(set_priority(items, made, priorities.map(|priorities| priorities[index])));
            self.session.note_made(index, &items[made..]);
        }
        result
    }
}

impl Env {
    fn make_items(&mut self, end: bool, session: &WriterSession, items: &mut Vec<WriterItem>) -> Result<(), Error> {
        match &mut self.evaluator {
            Some(evaluator) => {
                let slots = session.key_slots(&self.steps);
                self.steps.make_items(evaluator, end, slots, |table| session.intern(table), items)
            }
            None => Ok(()),
        }
    }

    /// An item of the newest rows; `None` if one of the rows does not exist.
    fn item(
        &self,
        table: &Arc<str>,
        priority: NewPriority,
        columns: &[RowsOf],
        session: &WriterSession,
    ) -> Result<Option<WriterItem>, Error> {
        let mut selections = Vec::with_capacity(columns.len());
        for &(column, start, stop, step, squeeze) in columns {
            let Some(rows) = rows_of(start, stop, step, self.steps.num_rows() as i64) else { return Ok(None) };
            match self.steps.select(column, rows, squeeze) {
                Ok(selection) if !selection.is_empty() => selections.push(selection),
                _ => return Ok(None),
            }
        }
        let (columns, slots): (Box<[Selection]>, _) = (selections.into(), session.key_slots(&self.steps));
        WriterItem::new(table.clone(), priority, columns, self.steps.writer(), slots, None).map(Some)
    }
}

/// The rows of a slice. Unlike in a list, explicit bounds must lie inside: a window is complete, or there is none.
fn rows_of(start: Option<i64>, stop: Option<i64>, step: i64, len: i64) -> Option<impl Iterator<Item = u64>> {
    let place = |index: i64| if index < 0 { index + len } else { index };
    let first = place(start.unwrap_or(if step > 0 { 0 } else { -1 }));
    let end = match stop {
        Some(stop) => place(stop),
        None if step > 0 => len,
        None => -1,
    };
    if first < 0 || first > len || end < -1 || end > len || stop.is_some() && end < 0 {
        return None;
    }
    let count =
        if step > 0 { (end - first + step - 1).div_euclid(step) } else { (first - end - step - 1).div_euclid(-step) };
    Some((0..count.max(0)).map(move |index| (first + index * step) as u64))
}
