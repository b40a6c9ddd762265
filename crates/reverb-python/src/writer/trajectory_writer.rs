//! `reverb._rust.TrajectoryWriter`.

use super::session::{HOW_TO_GIVE_UP, WriterOptions, WriterSession};
use super::signatures::{FlatSignatures, Signatures, find_signature, to_signatures};
use super::steps_in::Structure;
use crate::aio::calls::Tables;
use crate::client::Client;
use crate::column::TrajectoryColumn;
use crate::errors::PyReverbResult;
use crate::key_check::{KnownKeys, explain, reordered};
use crate::nest::flatten_and_hash;
use crate::priorities::Priority;
use parking_lot::Mutex;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use reverb_core::writer::{ColumnOptions, Selection, StepBuffer, WriterItem};

/// Appends steps, and makes items of their rows.
#[pyclass(frozen, extends = WriterSession, module = "reverb._rust")]
pub struct TrajectoryWriter {
    /// The rows that items can still be made of; [`super::column_history::ColumnHistory`] shows them.
    pub steps: Mutex<StepBuffer>,
    session: WriterSession,
    structure: Structure,
    /// Signatures by table; `None` if items are not checked.
    signatures: Mutex<Option<Signatures>>,
    /// The structures of items that were created.
    keys: KnownKeys,
}

#[pymethods]
impl TrajectoryWriter {
    #[new]
    fn new(
        client: &Client,
        structure: Py<PyAny>,
        num_keep_alive_refs: u32,
        signatures: Option<FlatSignatures>,
        options: WriterOptions,
    ) -> PyReverbResult<PyClassInitializer<Self>> {
        let signatures = signatures.map(to_signatures).transpose()?;
        let (session, steps) = options.open(client, num_keep_alive_refs, HOW_TO_GIVE_UP)?;
        let writer = Self {
            steps: Mutex::new(steps),
            session: session.clone(),
            structure: Structure::new(structure),
            signatures: Mutex::new(signatures),
            keys: KnownKeys::default(),
        };
        Ok(PyClassInitializer::from(session).add_subclass(writer))
    }

    fn append(&self, py: Python<'_>, data: &Bound<'_, PyAny>, partial_step: bool) -> PyReverbResult<()> {
        let must_report = self.session.begin()?;
        let step = self.structure.step(data)?;
        let values = step.values(py, &self.structure)?;
        // The lock is released first, since Python is asked for the names.
        let appended = {
            let mut steps = self.steps.lock();
            steps.check(&values).and_then(|()| {
                for &(column, options) in step.new_columns() {
                    steps.configure(column, column_options(options))?;
                }
                Ok(steps.append_checked(&values, partial_step)?)
            })
        };
        appended.map_err(|error| step.describe(py, &self.structure, error))?;
        self.structure.accept(py, &step).map_err(|error| error.after_step(py))?;
        if must_report { self.session.report(py) } else { Ok(()) }
    }

    #[pyo3(signature = (table, priority, trajectory, timeout=None))]
    fn create_item(
        &self,
        py: Python<'_>,
        table: &Bound<'_, PyAny>,
        priority: Priority,
        trajectory: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyReverbResult<u64> {
        let (flat, structure) = columns(trajectory)?;
        let (table, priority) = (self.session.table(table)?, self.session.priority(priority));
        self.session.reach(py, timeout)?;
        let (writer, slots) = {
            let steps = self.steps.lock();
            (steps.writer(), self.session.key_slots(&steps))
        };
        // The lock is released before Python compares keys.
        let signature = match &*self.signatures.lock() {
            None => None,
            Some(signatures) => Some(find_signature(signatures, &table)?),
        };
        let Some(signature) = signature else {
            let item = WriterItem::new(table, priority, flat, writer, slots, None)?.not_validated();
            return self.push(py, item, timeout);
        };
        let signature = signature.as_deref();
        let id = structure.map(|structure| KnownKeys::id(structure, &table, 0));
        let (order, is_known) = match (self.keys.find(id), signature) {
            (Some(order), _) => (order, true),
            (None, Some(signature)) => (self.keys.order(id, trajectory, signature)?, false),
            (None, None) => (None, false),
        };
        let flat: Box<[_]> = reordered(flat.into_vec(), &order)?.into();
        if !is_known {
            let misfit = || WriterItem::new(table.clone(), priority, flat.clone(), writer, slots, signature).err();
            self.keys.check((id, &order), &table, trajectory, signature, misfit)?;
        }
        let item = WriterItem::new(table, priority, flat, writer, slots, signature)
            .map_err(|error| explain(error, trajectory, signature, false))?;
        self.push(py, item, timeout)
    }

    fn set_signatures(&self, signatures: FlatSignatures) -> PyReverbResult<()> {
        *self.signatures.lock() = Some(to_signatures(signatures)?);
        self.keys.clear();
        Ok(())
    }

    /// Takes the signature of one table from those of a server.
    fn know_table(&self, table: &str, tables: &Tables) -> PyReverbResult<()> {
        let signature = tables.signature(table)?;
        self.signatures.lock().get_or_insert_default().insert(table.into(), signature);
        self.keys.clear();
        Ok(())
    }

    fn configure(&self, column: u32, options: (u32, Option<u32>)) -> PyReverbResult<()> {
        Ok(self.steps.lock().configure(column, column_options(options))?)
    }

    fn end_episode(&self, clear_buffers: bool) -> PyReverbResult<()> {
        self.steps.lock().end_episode(clear_buffers)?;
        self.session.pump();
        Ok(())
    }

    #[getter]
    fn episode_steps(&self) -> i32 {
        self.steps.lock().episode_steps()
    }

    #[getter]
    fn step_is_open(&self) -> bool {
        self.steps.lock().step_is_open()
    }
}

impl TrajectoryWriter {
    /// Waits until there is room for an item, queues it, and returns its key.
    fn push(&self, py: Python<'_>, item: WriterItem, timeout: Option<f64>) -> PyReverbResult<u64> {
        let key = item.key;
        self.session.take_room_of_call(py, 1, timeout)?;
        self.session.push(py, [item])?;
        Ok(key)
    }
}

/// The columns of a trajectory, in flattening order, and the hash of its structure; `None` if dm-tree walked it.
fn columns(trajectory: &Bound<'_, PyAny>) -> PyReverbResult<(Box<[Selection]>, Option<u64>)> {
    let mut leaves = Vec::with_capacity(8);
    let flat = flatten_and_hash(trajectory, &mut leaves);
    let refuse = || {
        let got = trajectory.repr().map_or_else(|_| "?".into(), |repr| repr.to_string());
        let text = format!("All leaves of `trajectory` must be `TrajectoryColumn` but got {got}");
        PyTypeError::new_err(match whole_column(trajectory) {
            Ok(Some(line)) => format!("{line}\n{text}"),
            _ => text,
        })
    };
    let structure = flat.map_err(|_| refuse())?;
    let selection = |leaf: Bound<'_, PyAny>| match leaf.cast::<TrajectoryColumn>() {
        Ok(column) => Ok(column.get().0.clone()),
        Err(_) => Err(refuse().into()),
    };
    Ok((leaves.into_iter().map(selection).collect::<PyReverbResult<_>>()?, structure))
}

/// Says which leaf is all of a column instead of rows of it.
fn whole_column(trajectory: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    static WHOLE_COLUMN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = trajectory.py();
    let say = WHOLE_COLUMN.import(py, "reverb.trajectory_writer", "whole_column")?;
    say.call1((trajectory,))?.extract()
}

fn column_options((num_keep_alive_refs, max_chunk_length): (u32, Option<u32>)) -> ColumnOptions {
    ColumnOptions { num_keep_alive_refs, max_chunk_length }
}
