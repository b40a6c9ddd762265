//! The arguments of `insert` and `insert_batch`: a nest of arrays and its priorities become rows for tables.

use crate::array_in::{Layouts, NestSteps};
use crate::errors::{PyReverbError, PyReverbResult};
use crate::key_check::{self, KnownKeys, KnownSignatures, LeafOrder, explain};
use crate::nest::has_list;
use crate::priorities::{swapped, table_as_data, table_name, table_priorities};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use reverb_core::writer::ChunkMemory;
use reverb_core::{Chunk, Error, Signature};
use reverb_service::{Priorities, RowInsert, TableStatus};
use std::sync::Arc;

/// What a client knows of the nests that it has inserted, and of the signatures of its tables.
#[derive(Default)]
pub struct Inserts {
    layouts: Layouts,
    /// The structures that were inserted.
    keys: KnownKeys,
    signatures: KnownSignatures,
}

/// The server of an insert.
pub struct Target<'a> {
    /// A number that changes with the connection. `None` if the client looks for its server.
    pub connection: &'a dyn Fn() -> Option<u32>,
    /// Returns memory for large data that the server can read, if it is of this host.
    pub memory: &'a dyn Fn() -> Option<Arc<dyn ChunkMemory>>,
    /// Asks for the tables: to make the insert, or to explain its error.
    pub ask: &'a dyn Fn(Purpose) -> PyReverbResult<Vec<TableStatus>>,
}

/// Why the tables of a server are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The insert needs them, and may take its time for them.
    Insert,
    /// The insert has failed, and its error should not come much later for them.
    Explain,
}

impl Inserts {
    /// Passes the rows of `insert` to `send`.
    ///
    /// # Errors
    /// Those of the arguments and of `send`, with what the caller probably did wrong.
    pub fn one<T>(
        &self,
        to: &Target<'_>,
        data: &Bound<'_, PyAny>,
        priorities: &Bound<'_, PyAny>,
        send: impl FnOnce(RowInsert) -> PyReverbResult<T>,
    ) -> PyReverbResult<T> {
        let insert = || {
            let tables = table_priorities(priorities, 1)?;
            let steps = NestSteps::one(data)?;
            let known = self.known_order(to, steps.structure, &tables);
            send(self.rows(to, data, (steps, known), tables)?)
        };
        insert().map_err(|error| self.explain(to, error, data, priorities, false))
    }

    /// Passes the rows of `insert_batch` to `send`. Returns `None` if there are none.
    ///
    /// # Errors
    /// As [`Inserts::one`].
    pub fn batch<T>(
        &self,
        to: &Target<'_>,
        data: &Bound<'_, PyAny>,
        priorities: &Bound<'_, PyAny>,
        send: impl FnOnce(RowInsert) -> PyReverbResult<T>,
    ) -> PyReverbResult<Option<T>> {
        let read = |data| -> PyReverbResult<_> {
            let steps = NestSteps::stacked(data)?;
            let tables = table_priorities(priorities, steps.count())?;
            Ok((steps, tables))
        };
        let (mut data, mut batch) = (data.clone(), read(data));
        let known = batch.as_ref().ok().and_then(|(steps, tables)| self.known_order(to, steps.structure, tables));
        if known.is_none() {
            let without_lists = self.without_lists(to, &data, priorities)?;
            if !without_lists.is(&data) {
                batch = read(&without_lists);
                data = without_lists;
            }
        }
        let (steps, tables) = batch.map_err(|error| self.explain(to, error, &data, priorities, true))?;
        // A batch of nothing is checked as far as it goes.
        if steps.count() == 0 {
            return Ok(None);
        }
        let inserted = self.rows(to, &data, (steps, known), tables).and_then(send);
        inserted.map(Some).map_err(|error| self.explain(to, error, &data, priorities, true))
    }

    /// The rows of steps in the order of leaves that is known for their tables; if none is, keys are compared.
    fn rows(
        &self,
        to: &Target<'_>,
        data: &Bound<'_, PyAny>,
        (mut steps, known): (NestSteps<'_>, Option<LeafOrder>),
        tables: Vec<(String, Priorities)>,
    ) -> PyReverbResult<RowInsert> {
        let (structure, is_new) = (steps.structure, known.is_none());
        let order = match known {
            Some(order) => order,
            None => self.new_order(to, data, structure, &tables)?,
        };
        steps.reorder(&order)?;
        let (chunk, more) = steps.into_chunks(data.py(), &self.layouts, to.memory)?;
        if is_new {
            for (table, _) in &tables {
                self.check_new_keys(to, data, (&chunk, structure, &order), table)?;
            }
        }
        Ok(RowInsert { chunk, more, rows_per_item: 1, tables })
    }

    /// The order of the leaves of a structure, if its keys have been compared with those of these tables.
    fn known_order(
        &self,
        to: &Target<'_>,
        structure: Option<u64>,
        tables: &[(String, Priorities)],
    ) -> Option<LeafOrder> {
        let (structure, server) = structure.zip((to.connection)())?;
        self.keys.find(tables.iter().map(|(table, _)| KnownKeys::id(structure, table, server)))
    }

    /// The order of the leaves of a structure that was not compared yet.
    ///
    /// # Errors
    /// [`Error::SignatureMismatch`] if the tables have the leaves in different orders.
    #[cold]
    fn new_order(
        &self,
        to: &Target<'_>,
        data: &Bound<'_, PyAny>,
        structure: Option<u64>,
        tables: &[(String, Priorities)],
    ) -> PyReverbResult<LeafOrder> {
        let mut orders = Vec::with_capacity(tables.len());
        for (table, _) in tables {
            // The insert itself reports a table that does not exist. Without a signature, leaves have no names.
            let Some(signature) = self.signature(to, table, Purpose::Insert)? else { continue };
            let id = structure.zip((to.connection)());
            let id = id.map(|(structure, server)| KnownKeys::id(structure, table, server));
            let order = signature.map_or(Ok(None), |signature| self.keys.order(id, data, &signature))?;
            orders.push((table, order));
        }
        let Some((first, order)) = orders.pop() else { return Ok(None) };
        let Some((other, others)) = orders.into_iter().find(|other| other.1 != order) else { return Ok(order) };
        let (named, other) = if order.is_some() { (first, other) } else { (other, first) };
        let is_named = order.is_some() && others.is_some();
        let how = if is_named { "in another order" } else { "by position" };
        Err(Error::SignatureMismatch(format!(
            "table \"{named}\" takes the fields of the data by name, table \"{other}\" {how}: one insert each"
        ))
        .into())
    }

    /// The data of `insert_batch`, with lists of arrays where the signature of its table has arrays of open length as one
    /// `reverb.Ragged` each.
    fn without_lists<'py>(
        &self,
        to: &Target<'_>,
        data: &Bound<'py, PyAny>,
        priorities: &Bound<'py, PyAny>,
    ) -> PyReverbResult<Bound<'py, PyAny>> {
        if !has_list(data) {
            return Ok(data.clone());
        }
        for table in priorities.try_iter()? {
            if let Some(Some(signature)) = self.signature(to, &table_name(&table?)?, Purpose::Insert)? {
                return key_check::lists_to_ragged(data, &signature);
            }
        }
        Ok(data.clone())
    }

    /// Compares the keys of a nest with those of the signature that the server has for a table.
    #[cold]
    fn check_new_keys(
        &self,
        to: &Target<'_>,
        data: &Bound<'_, PyAny>,
        (chunk, structure, order): (&Chunk, Option<u64>, &LeafOrder),
        table: &str,
    ) -> PyReverbResult<()> {
        // The insert itself reports a table that does not exist.
        let Some(signature) = self.signature(to, table, Purpose::Insert)? else { return Ok(()) };
        let signature = signature.as_deref();
        let known = structure.zip((to.connection)());
        let id = known.map(|(structure, server)| KnownKeys::id(structure, table, server));
        let misfit = || signature.and_then(|signature| signature.check_rows(table, chunk.columns(), 1).err());
        self.keys.check((id, order), table, data, signature, misfit)
    }

    /// The signature of a table, if it has one; `None` if there is no such table.
    fn signature(
        &self,
        to: &Target<'_>,
        table: &str,
        purpose: Purpose,
    ) -> PyReverbResult<Option<Option<Arc<Signature>>>> {
        if let Some(server) = (to.connection)()
            && let Some(known) = self.signatures.find(table, server)
        {
            return Ok(Some(known));
        }
        let tables = (to.ask)(purpose)?;
        let server = (to.connection)().unwrap_or_default();
        self.signatures.set(tables, server);
        Ok(self.signatures.find(table, server))
    }

    /// Adds to the error of an insert what the caller probably did wrong.
    #[cold]
    pub fn explain(
        &self,
        to: &Target<'_>,
        error: PyReverbError,
        data: &Bound<'_, PyAny>,
        priorities: &Bound<'_, PyAny>,
        is_batch: bool,
    ) -> PyReverbError {
        let is_of_arguments = match &error {
            PyReverbError::Core(error) => matches!(error, Error::InvalidArgument(_) | Error::SignatureMismatch(_)),
            PyReverbError::Python(error) => error.is_instance_of::<PyTypeError>(data.py()),
        };
        if is_of_arguments && let Some(text) = swapped(data, priorities, is_batch) {
            return Error::invalid(text).into();
        }
        let error = match error {
            PyReverbError::Core(error @ Error::SignatureMismatch(_)) => error,
            PyReverbError::Core(error @ Error::TableNotFound { .. }) => {
                let is_table = |name: &str| matches!(self.signature(to, name, Purpose::Explain), Ok(Some(_)));
                return match table_as_data(data, is_batch, is_table) {
                    Some(text) => error.with_remark(&format!("\n{text}")).into(),
                    None => error.into(),
                };
            }
            error => return error,
        };
        let names: Vec<_> = priorities.try_iter().into_iter().flatten().flatten().collect();
        let names = names.iter().filter_map(|name| table_name(name).ok());
        names
            .fold(error, |error, table| match self.signature(to, &table, Purpose::Explain) {
                Ok(Some(signature)) => explain(error, data, signature.as_deref(), is_batch),
                _ => error,
            })
            .into()
    }
}
