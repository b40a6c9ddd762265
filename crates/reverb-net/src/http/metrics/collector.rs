//! Reads a server and writes what it found as text.

use super::families::Writer;
use super::{process, service, tables};
use crate::http::HttpState;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::registry::Registry;
use std::fmt::Result;
use std::sync::Arc;

/// Writes the metrics of a server in the OpenMetrics format.
///
/// # Errors
/// None: a `String` takes any text.
pub fn collect(state: &Arc<HttpState>) -> std::result::Result<String, std::fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(OfServer(state.clone())));
    let mut text = String::new();
    text::encode(&mut text, &registry)?;
    Ok(text)
}

#[derive(Debug)]
struct OfServer(Arc<HttpState>);

impl Collector for OfServer {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result {
        let mut writer = Writer(encoder);
        service::write(&mut writer, &self.0.replay)?;
        tables::write(&mut writer, self.0.replay.status(), true)?;
        process::write(&mut writer)
    }
}
