//! Calls with one request and one answer.

use super::connection::Connection;
use super::tables::statuses;
use crate::dm_reverb::proto::{
    CheckpointRequest, KeyWithPriority, MutatePrioritiesRequest, ResetRequest, ServerInfoRequest,
};
use crate::dm_reverb::status::from_status;
use reverb_core::{Error, ItemKey, Result};
use reverb_service::TableStatus;
use std::time::Instant;
use tonic::{Code, Status};

impl Connection {
    /// See [`crate::client::Mutate`]. The server does not count the items that it finds.
    pub async fn mutate(
        &self,
        table: &str,
        updates: &[(ItemKey, f64)],
        delete_keys: Vec<ItemKey>,
        deadline: Option<Instant>,
    ) -> Result<()> {
        self.tables().get(table)?;
        let updates = updates.iter().map(|&(key, priority)| KeyWithPriority { key, priority }).collect();
        let request = MutatePrioritiesRequest { table: table.into(), updates, delete_keys };
        let mut service = self.service();
        let answer = self.unary(deadline, service.mutate_priorities(request)).await;
        answer.map(drop).map_err(|error| self.of_table(error, table))
    }

    /// See [`crate::client::Reset`].
    pub async fn reset(&self, table: &str, deadline: Option<Instant>) -> Result<()> {
        self.tables().get(table)?;
        let mut service = self.service();
        let request = ResetRequest { table: table.into() };
        self.unary(deadline, service.reset(request)).await.map(drop).map_err(|error| self.of_table(error, table))
    }

    /// See [`crate::client::Info`].
    pub async fn info(&self, deadline: Option<Instant>) -> Result<Vec<TableStatus>> {
        let mut service = self.service();
        let response = self.unary(deadline, service.server_info(ServerInfoRequest {})).await;
        statuses(response.map_err(Failed::into_error)?.into_inner())
    }

    /// See [`crate::client::Checkpoint`].
    pub async fn checkpoint(&self, deadline: Option<Instant>) -> Result<String> {
        let mut service = self.service();
        let response = self.unary(deadline, service.checkpoint(CheckpointRequest {})).await;
        Ok(response.map_err(Failed::into_error)?.into_inner().checkpoint_path)
    }

    /// Returns the error of a call that the protocol lacks.
    pub fn lacks(&self, what: &str) -> Error {
        Error::Unimplemented(format!("the server at {} is one of dm-reverb 0.14, {what}", self.peer()))
    }

    async fn unary<T>(
        &self,
        deadline: Option<Instant>,
        call: impl Future<Output = std::result::Result<T, Status>>,
    ) -> std::result::Result<T, Failed> {
        let call = async {
            call.await.map_err(|status| Failed { code: Some(status.code()), error: from_status(&status, self.peer()) })
        };
        let Some(deadline) = deadline else { return call.await };
        let text = || format!("the server at {} did not answer in time", self.peer());
        let late = |_| Err(Failed { code: None, error: Error::DeadlineExceeded(text()) });
        tokio::time::timeout_at(deadline.into(), call).await.unwrap_or_else(late)
    }

    fn of_table(&self, failed: Failed, table: &str) -> Error {
        match failed.code {
            Some(Code::NotFound) => self.tables().not_found(table),
            _ => failed.error,
        }
    }
}

/// An error and, if the server sent it, its code.
struct Failed {
    code: Option<Code>,
    error: Error,
}

impl Failed {
    fn into_error(self) -> Error {
        self.error
    }
}
