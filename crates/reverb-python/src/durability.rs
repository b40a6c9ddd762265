//! What keeps the changes between the checkpoints of a server.

use pyo3::prelude::*;
use reverb_core::Error;
use reverb_service::LogMode;
use reverb_store::checkpoint::{CheckpointOptions, Durability as StoreDurability};
use std::time::Duration;

/// `DurableOptions` of `reverb._settings`, read by the names of its fields.
#[derive(FromPyObject)]
pub struct Durable {
    durability: Option<Durability>,
    accept_loss: bool,
}

/// `reverb.Durability`, read by the names of its fields.
#[derive(FromPyObject)]
struct Durability {
    mode: String,
    sync_interval: f64,
    max_log_bytes: Option<u64>,
}

impl Durable {
    /// The options of checkpoints, with those of the log. A server with a log must be able to write to its folder.
    pub fn added_to(&self, options: &CheckpointOptions) -> Result<CheckpointOptions, Error> {
        let durability = self.durability.as_ref().map(Durability::for_store).transpose()?;
        Ok(CheckpointOptions {
            must_be_writable: options.must_be_writable || durability.is_some(),
            durability,
            accept_loss: self.accept_loss,
            ..options.clone()
        })
    }
}

impl Durability {
    fn for_store(&self) -> Result<StoreDurability, Error> {
        let unknown = || Error::invalid(format!("durability: expected process or power, got {:?}", self.mode));
        let mode = LogMode::from_name(&self.mode).ok_or_else(unknown)?;
        let sync_interval = Duration::try_from_secs_f64(self.sync_interval)
            .map_err(|error| Error::invalid(format!("sync_interval {}: {error}", self.sync_interval)))?;
        Ok(StoreDurability { mode, sync_interval, max_log_bytes: self.max_log_bytes })
    }
}
