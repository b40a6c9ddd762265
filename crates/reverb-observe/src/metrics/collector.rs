//! Reads a server and writes what it found as text.

use super::families::Writer;
use super::{process, security, service, tables};
use crate::calls::Calls;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::registry::Registry;
use reverb_secure::Reloads;
use reverb_service::Replay;
use std::fmt::Result;
use std::sync::Arc;

/// Returns the metrics of a server in the OpenMetrics format.
pub fn collect(replay: &Arc<Replay>, calls: &Arc<Calls>, security: &Reloads, sums_tables: bool) -> String {
    let mut registry = Registry::default();
    let server = OfServer { replay: replay.clone(), calls: calls.clone(), security: security.clone(), sums_tables };
    registry.register_collector(Box::new(server));
    let mut text = String::new();
    text::encode(&mut text, &registry).expect("a string takes any text");
    text
}

#[derive(Debug)]
struct OfServer {
    replay: Arc<Replay>,
    calls: Arc<Calls>,
    security: Reloads,
    sums_tables: bool,
}

impl Collector for OfServer {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result {
        let mut writer = Writer(encoder);
        service::write(&mut writer, &self.replay, &self.calls)?;
        security::write(&mut writer, &self.security)?;
        let verdicts = self.replay.facts.watched.lock().verdict.of_tables.clone();
        tables::write(&mut writer, self.replay.status(), &verdicts, self.sums_tables)?;
        process::write(&mut writer)
    }
}
