//! The tables of a server of dm-reverb, which its clients learn once for each connection.

use crate::dm_reverb::proto::ServerInfoResponse;
use prost::Message;
use reverb_core::{Error, Result, TableInfo};
use reverb_formats::definitions::read_table_info;
use reverb_formats::proto::schema;
use reverb_service::TableStatus;
use std::collections::BTreeMap;

/// Maximum size in bytes of the description of one table. Its signature takes many times as much memory when decoded.
const MAX_INFO_BYTES: usize = 1 << 20;

/// The tables of a server, by name. A server of dm-reverb has the same tables for as long as it runs, so their
/// configurations hold for as long as the connection. Their counts are those of the first moment.
#[derive(Debug)]
pub struct Tables {
    infos: BTreeMap<String, TableInfo>,
    /// Random id of the server, which it made when it started. Empty if it has told none.
    pub server_id: Vec<u8>,
}

impl Tables {
    /// Reads the tables from the answer of a server.
    ///
    /// # Errors
    /// [`Error::DataLoss`] if a table is not valid.
    pub fn read(response: ServerInfoResponse) -> Result<Self> {
        let id = response.tables_state_id.map(|id| [id.high.to_be_bytes(), id.low.to_be_bytes()].concat());
        Ok(Self::of(statuses(response)?, id.unwrap_or_default()))
    }

    /// Makes the tables of a server from their status.
    pub fn of(statuses: Vec<TableStatus>, server_id: Vec<u8>) -> Self {
        let infos = statuses.into_iter().map(|TableStatus { info, .. }| (info.config.name.clone(), info));
        Self { infos: infos.collect(), server_id }
    }

    /// Returns a table.
    ///
    /// # Errors
    /// [`Error::TableNotFound`].
    pub fn get(&self, name: &str) -> Result<&TableInfo> {
        self.infos.get(name).ok_or_else(|| self.not_found(name))
    }

    /// Returns the error of a table that the server does not have.
    pub fn not_found(&self, name: &str) -> Error {
        Error::TableNotFound { table: name.into(), known: self.infos.keys().cloned().collect::<Vec<_>>().join(", ") }
    }
}

/// Reads the status of all tables, ordered by name. Figures that dm-reverb does not report are unknown.
///
/// # Errors
/// [`Error::DataLoss`] if a table is not valid.
pub fn statuses(response: ServerInfoResponse) -> Result<Vec<TableStatus>> {
    let mut statuses: Vec<TableStatus> = response.table_info.iter().map(|info| status(info)).collect::<Result<_>>()?;
    statuses.sort_by(|a, b| a.info.config.name.cmp(&b.info.config.name));
    Ok(statuses)
}

fn status(message: &[u8]) -> Result<TableStatus> {
    if message.len() > MAX_INFO_BYTES {
        return Err(Error::DataLoss(format!(
            "the description of a table has {} bytes; the maximum is {MAX_INFO_BYTES}",
            message.len()
        )));
    }
    let info = schema::TableInfo::decode(message)
        .map_err(|error| Error::DataLoss(format!("cannot decode the description of a table: {error}")))?;
    let name = info.name.clone();
    let info = read_table_info(info).map_err(|error| match error {
        Error::DataLoss(reason) => Error::DataLoss(format!("table `{name}`: {reason}")),
        error => error,
    })?;
    Ok(info.into())
}
