//! `reverb._rust.PatternWriter`: makes items by patterns.

use super::session::{HOW_TO_GIVE_UP, WriterOptions, WriterSession};
use super::steps_in::Structure;
use crate::client::Client;
use crate::errors::PyReverbResult;
use crate::priorities::Priority;
use parking_lot::Mutex;
use pyo3::prelude::*;
use reverb_core::pattern::Evaluator;
use reverb_core::writer::{StepBuffer, WriterItem};
use reverb_core::{Error, NewPriority};
use reverb_formats::patterns::evaluator_from_bytes;

/// Appends steps; patterns say which items to make of them.
#[pyclass(frozen, extends = WriterSession, module = "reverb._rust")]
pub struct PatternWriter {
    steps: Mutex<StepBuffer>,
    evaluator: Mutex<Evaluator>,
    session: WriterSession,
    structure: Structure,
}

#[pymethods]
impl PatternWriter {
    #[new]
    fn new(
        client: &Client,
        structure: Py<PyAny>,
        configs: Vec<Vec<u8>>,
        options: WriterOptions,
    ) -> PyReverbResult<PyClassInitializer<Self>> {
        let evaluator = evaluator_from_bytes(&configs)?;
        let (session, steps) = options.open(client, evaluator.max_age().max(1), HOW_TO_GIVE_UP)?;
        let writer = Self {
            steps: Mutex::new(steps),
            evaluator: Mutex::new(evaluator),
            session: session.clone(),
            structure: Structure::new(structure),
        };
        Ok(PyClassInitializer::from(session).add_subclass(writer))
    }

    /// Puts the columns of each pattern's items in this order; an empty one leaves them.
    fn reorder(&self, orders: Vec<Vec<usize>>) -> PyReverbResult<()> {
        Ok(reorder(&mut self.evaluator.lock(), &orders)?)
    }

    /// Appends a step, or a part of one. The items that patterns make have this priority, if there is one.
    #[pyo3(signature = (data, partial_step, priority=None))]
    fn append(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        partial_step: bool,
        priority: Option<Priority>,
    ) -> PyReverbResult<()> {
        self.session.wait_for_room(py)?;
        let must_report = self.session.begin()?;
        let step = self.structure.step(data)?;
        let mut items = Vec::new();
        let mut values = step.values(py, &self.structure)?;
        let (appended, made) = {
            let (mut steps, mut evaluator) = (self.steps.lock(), self.evaluator.lock());
            values.retain(|value| evaluator.uses(value.column));
            match steps.append(&values, partial_step) {
                Ok(()) => (Ok(()), self.make(&steps, &mut evaluator, false, priority, &mut items)),
                Err(error) => (Err(error), Ok(())),
            }
        };
        appended.map_err(|error| step.describe(py, &self.structure, error))?;
        let accepted = self.structure.accept(py, &step);
        self.session.note_made(0, &items);
        self.session.end_step(py, items, must_report, accepted.and(made.map_err(Into::into)))
    }

    #[pyo3(signature = (priority=None))]
    fn make_last_items(&self, py: Python<'_>, priority: Option<Priority>) -> PyReverbResult<()> {
        self.session.wait_for_room(py)?;
        let must_report = self.session.begin()?;
        let mut items = Vec::new();
        let made = self.make(&self.steps.lock(), &mut self.evaluator.lock(), true, priority, &mut items);
        self.session.note_made(0, &items);
        self.session.end_step(py, items, must_report, made.map_err(Into::into))
    }

    fn end_episode(&self, clear_buffers: bool) -> PyReverbResult<()> {
        self.steps.lock().end_episode(clear_buffers)?;
        self.session.pump();
        Ok(())
    }

    #[getter]
    fn step_is_open(&self) -> bool {
        self.steps.lock().step_is_open()
    }
}

impl PatternWriter {
    fn make(
        &self,
        steps: &StepBuffer,
        evaluator: &mut Evaluator,
        end_of_episode: bool,
        priority: Option<Priority>,
        items: &mut Vec<WriterItem>,
    ) -> Result<(), Error> {
        let slots = self.session.key_slots(steps);
        let made = steps.make_items(evaluator, end_of_episode, slots, |table| self.session.intern(table), items);
        made.and(set_priority(items, 0, priority.map(|priority| self.session.priority(priority))))
    }
}

/// Gives the items that a call has made, those from `first` on, the priority that the caller gave, if any.
///
/// # Errors
/// [`Error::InvalidPriority`] for NaN. These items are dropped.
pub fn set_priority(items: &mut Vec<WriterItem>, first: usize, priority: Option<NewPriority>) -> Result<(), Error> {
    let Some(priority) = priority else { return Ok(()) };
    if priority.value.is_nan() && items.len() > first {
        items.truncate(first);
        return Err(Error::InvalidPriority("`priority` must not be nan.".into()));
    }
    items[first..].iter_mut().for_each(|item| item.priority = priority);
    Ok(())
}

/// Puts the columns of the items of each pattern in an order, unless that is empty.
pub fn reorder(evaluator: &mut Evaluator, orders: &[Vec<usize>]) -> Result<(), Error> {
    let mut orders = orders.iter().enumerate().filter(|(_, order)| !order.is_empty());
    orders.try_for_each(|(pattern, order)| evaluator.reorder(pattern, order))
}
