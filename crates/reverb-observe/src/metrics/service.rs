//! The metrics of a server as a whole: its connections, its checkpoints and its version.

use super::families::{Family, Number, Writer};
use crate::calls::{CallCount, Calls};
use crate::documents::seconds;
use reverb_service::{Connections, Progress, Replay, StoreLog, StoreStatus, StreamKind};
use std::fmt::Result;
use std::time::Duration;

const BUILD: Family = Family::plain("reverb_build", "Version of the server.");
const PROGRESS: Family =
    Family::plain("reverb_progress", "1 for the state in the verdict on the server, 0 for the other states.");
const CONNECTIONS: Family = Family::plain("reverb_connections", "Open connections of the gRPC port.");
const ACCEPTED: Family = Family::plain("reverb_connections_accepted", "Connections of the gRPC port since the start.");
const STREAMS: Family = Family::plain("reverb_streams", "Open streams.");
const RECEIVED: Family = Family::bytes("reverb_network_receive", "Bytes received over all connections.");
const TRANSMITTED: Family = Family::bytes("reverb_network_transmit", "Bytes sent over all connections.");
const SHARED: Family =
    Family::bytes("reverb_shared_memory", "Memory that is shared with clients of this host, for their batches.");
const CALLS: Family = Family::plain("grpc_server_handled", "Calls and streams that have ended, by method and result.");
const CHECKPOINTS: Family = Family::plain("reverb_checkpoints", "Checkpoints that were saved, or failed.");
const CHECKPOINT_IN_PROGRESS: Family =
    Family::plain("reverb_checkpoint_in_progress", "1 while a checkpoint is saved, otherwise 0.");
const CHECKPOINT_FAILED: Family =
    Family::plain("reverb_checkpoint_last_failed", "1 if the latest save failed, otherwise 0.");
const CHECKPOINT_INTERVAL: Family =
    Family::seconds("reverb_checkpoint_interval", "Time between saves; absent if the server saves only when asked.");
const CHECKPOINT_TIME: Family = Family::seconds(
    "reverb_checkpoint_last_success_timestamp",
    "Unix time of the latest checkpoint; 0 if there is none.",
);
const CHECKPOINT_DURATION: Family =
    Family::seconds("reverb_checkpoint_last_duration", "Time that the latest checkpoint took.");
const CHECKPOINT_SIZE: Family = Family::bytes("reverb_checkpoint_last_size", "Size of the latest checkpoint's files.");
const LOG: Family = Family::plain("reverb_log", "What a confirmed change survives.");
const LOG_SIZE: Family = Family::bytes("reverb_log", "Size of the log, as far as no checkpoint has replaced it.");
const LOG_SYNC_AGE: Family = Family::seconds(
    "reverb_log_sync_age",
    "Time for which something has been written to the log and not synced; 0 if all is synced.",
);
const LOG_SYNC_INTERVAL: Family =
    Family::seconds("reverb_log_sync_interval", "Time after which the log is synced at the latest.");
const LOG_FAILED: Family = Family::plain("reverb_log_failed", "1 if a failure has closed the log, otherwise 0.");
const LOG_DISK_LOW: Family = Family::plain(
    "reverb_log_disk_low",
    "1 if the disk has too little free space for the log and a checkpoint, otherwise 0.",
);

/// Writes the metrics of a server.
pub fn write(writer: &mut Writer<'_>, replay: &Replay, calls: &Calls) -> Result {
    let revision = option_env!("REVERB_REVISION").unwrap_or("unknown");
    writer.info(&BUILD, &[("version", env!("CARGO_PKG_VERSION")), ("revision", revision)])?;
    write_progress(writer, replay.facts.watched.lock().verdict.progress)?;
    write_connections(writer, &replay.connections)?;
    gauge(writer, &SHARED, Some(replay.shared.used().into()))?;
    write_calls(writer, calls)?;
    replay.store().map_or(Ok(()), |store| write_checkpoints(writer, &store.status(), store.interval()))
}

fn write_progress(writer: &mut Writer<'_>, progress: Progress) -> Result {
    let states = Progress::ALL.map(|state| ([("state", state.name())], u64::from(state == progress)));
    writer.gauges(&PROGRESS, states.iter().map(|(labels, is_it)| (&labels[..], (*is_it).into())))
}

fn write_connections(writer: &mut Writer<'_>, connections: &Connections) -> Result {
    let totals = connections.totals();
    let labels = totals.map(|total| [("transport", total.transport.name())]);
    let by_transport = || labels.iter().map(|labels| &labels[..]).zip(totals);
    writer.gauges(&CONNECTIONS, by_transport().map(|(labels, total)| (labels, total.open.into())))?;
    writer.counters(&ACCEPTED, by_transport().map(|(labels, total)| (labels, total.opened.into())))?;
    writer.counters(&RECEIVED, by_transport().map(|(labels, total)| (labels, total.receive_bytes.into())))?;
    writer.counters(&TRANSMITTED, by_transport().map(|(labels, total)| (labels, total.transmit_bytes.into())))?;
    let streams = StreamKind::ALL.map(|kind| ([("kind", kind.name())], connections.num_streams(kind)));
    writer.gauges(&STREAMS, streams.iter().map(|(labels, count)| (&labels[..], (*count).into())))
}

fn write_calls(writer: &mut Writer<'_>, calls: &Calls) -> Result {
    let counts = calls.counts();
    let labels =
        |call: &CallCount| [("grpc_service", call.service), ("grpc_method", call.method), ("grpc_code", call.code)];
    let by_code: Vec<_> = counts.iter().map(|call| (labels(call), call.count)).collect();
    writer.counters(&CALLS, by_code.iter().map(|(labels, count)| (&labels[..], (*count).into())))
}

fn write_checkpoints(writer: &mut Writer<'_>, status: &StoreStatus, interval: Option<Duration>) -> Result {
    let results = [([("result", "ok")], status.saves_ok), ([("result", "failed")], status.saves_failed)];
    writer.counters(&CHECKPOINTS, results.iter().map(|(labels, count)| (&labels[..], (*count).into())))?;
    gauge(writer, &CHECKPOINT_IN_PROGRESS, Some(u64::from(status.saving.is_some()).into()))?;
    gauge(writer, &CHECKPOINT_FAILED, Some(u64::from(status.last_error.is_some()).into()))?;
    gauge(writer, &CHECKPOINT_INTERVAL, interval.map(|interval| interval.as_secs_f64().into()))?;
    let latest = status.saved.first();
    gauge(writer, &CHECKPOINT_TIME, Some(latest.map_or(0.0, |saved| seconds(saved.saved_at)).into()))?;
    let duration = latest.and_then(|saved| saved.duration);
    gauge(writer, &CHECKPOINT_DURATION, duration.map(|duration| duration.as_secs_f64().into()))?;
    gauge(writer, &CHECKPOINT_SIZE, latest.map(|saved| saved.size_bytes.into()))?;
    status.log.as_ref().map_or(Ok(()), |log| write_log(writer, log))
}

fn write_log(writer: &mut Writer<'_>, log: &StoreLog) -> Result {
    writer.info(&LOG, &[("mode", log.mode.name())])?;
    gauge(writer, &LOG_SIZE, Some(log.size_bytes.into()))?;
    gauge(writer, &LOG_SYNC_AGE, Some(log.sync_age.as_secs_f64().into()))?;
    gauge(writer, &LOG_SYNC_INTERVAL, Some(log.sync_interval.as_secs_f64().into()))?;
    gauge(writer, &LOG_FAILED, Some(u64::from(log.failure.is_some()).into()))?;
    gauge(writer, &LOG_DISK_LOW, Some(u64::from(log.is_low).into()))
}

fn gauge(writer: &mut Writer<'_>, family: &Family, value: Option<Number>) -> Result {
    writer.gauges(family, value.map(|value| (&[][..], value)).into_iter())
}
