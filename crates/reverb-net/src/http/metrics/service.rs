//! The metrics of a server as a whole: its connections, its checkpoints and its version.

use super::families::{Family, Number, Writer};
use crate::observe::seconds;
use reverb_service::{Replay, StoreStatus, Transport};
use std::fmt::Result;

const BUILD: Family = Family::plain("reverb_build", "Version of the server.");
const CONNECTIONS: Family = Family::plain("reverb_connections", "Open connections of the gRPC port.");
const CHECKPOINTS: Family = Family::plain("reverb_checkpoints", "Checkpoints that were saved, or failed.");
const CHECKPOINT_IN_PROGRESS: Family =
    Family::plain("reverb_checkpoint_in_progress", "1 while a checkpoint is saved, otherwise 0.");
const CHECKPOINT_TIME: Family =
    Family::seconds("reverb_checkpoint_last_success_timestamp", "Unix time of the latest checkpoint.");
const CHECKPOINT_DURATION: Family =
    Family::seconds("reverb_checkpoint_last_duration", "Time that the latest checkpoint took.");
const CHECKPOINT_SIZE: Family = Family::bytes("reverb_checkpoint_last_size", "Size of the latest checkpoint's files.");

/// Writes the metrics of a server.
pub fn write(writer: &mut Writer<'_>, replay: &Replay) -> Result {
    let revision = option_env!("REVERB_REVISION").unwrap_or("unknown");
    writer.info(&BUILD, &[("version", env!("CARGO_PKG_VERSION")), ("revision", revision)])?;
    let peers = replay.connections().list();
    let open = |road: Transport| peers.iter().filter(|peer| peer.road() == road).count() as u64;
    let by_transport = [Transport::Tcp, Transport::Unix].map(|road| ([("transport", road.name())], open(road)));
    writer.gauges(&CONNECTIONS, by_transport.iter().map(|(labels, count)| (&labels[..], (*count).into())))?;
    replay.store().map_or(Ok(()), |store| write_checkpoints(writer, &store.status()))
}

fn write_checkpoints(writer: &mut Writer<'_>, status: &StoreStatus) -> Result {
    let results = [([("result", "ok")], status.saves_ok), ([("result", "failed")], status.saves_failed)];
    writer.counters(&CHECKPOINTS, results.iter().map(|(labels, count)| (&labels[..], (*count).into())))?;
    let gauge = |writer: &mut Writer<'_>, family: &Family, value: Option<Number>| {
        writer.gauges(family, value.map(|value| (&[][..], value)).into_iter())
    };
    gauge(writer, &CHECKPOINT_IN_PROGRESS, Some(u64::from(status.saving.is_some()).into()))?;
    let latest = status.saved.first();
    gauge(writer, &CHECKPOINT_TIME, latest.map(|saved| seconds(saved.saved_at).into()))?;
    let duration = latest.and_then(|saved| saved.duration);
    gauge(writer, &CHECKPOINT_DURATION, duration.map(|duration| duration.as_secs_f64().into()))?;
    gauge(writer, &CHECKPOINT_SIZE, latest.map(|saved| saved.size_bytes.into()))
}
