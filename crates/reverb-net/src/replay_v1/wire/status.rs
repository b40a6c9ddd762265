//! Converts the status of tables to messages and back.

use crate::replay_v1::proto as replay;
use prost::Message;
use reverb_core::{ClientCounts, Error, Log2Histogram, RemovalCounts, TableInfo, WaitHistogram, table_figures};
use reverb_formats::definitions::{read_table_info, table_info};
use reverb_service::{LogMode, StoreLog, TableStatus};
use std::time::Duration;

impl From<RemovalCounts> for replay::RemovalCounts {
    fn from(removed: RemovalCounts) -> Self {
        let RemovalCounts { max_size, max_bytes, max_times_sampled, deleted, reset } = removed;
        Self { max_size, max_bytes, max_times_sampled, deleted, reset }
    }
}

impl From<replay::RemovalCounts> for RemovalCounts {
    fn from(removed: replay::RemovalCounts) -> Self {
        let replay::RemovalCounts { max_size, max_bytes, max_times_sampled, deleted, reset } = removed;
        Self { max_size, max_bytes, max_times_sampled, deleted, reset }
    }
}

impl From<ClientCounts> for replay::ClientCounts {
    fn from(ClientCounts(counts): ClientCounts) -> Self {
        Self { counts: counts.into_iter().collect() }
    }
}

impl From<replay::ClientCounts> for ClientCounts {
    fn from(message: replay::ClientCounts) -> Self {
        Self(message.counts.into_iter().collect())
    }
}

impl From<WaitHistogram> for replay::WaitHistogram {
    fn from(WaitHistogram { counts, sum_seconds }: WaitHistogram) -> Self {
        Self { counts: counts.into(), sum_seconds }
    }
}

impl TryFrom<replay::WaitHistogram> for WaitHistogram {
    /// The counts, if a later version has other buckets.
    type Error = Vec<u64>;

    fn try_from(replay::WaitHistogram { counts, sum_seconds }: replay::WaitHistogram) -> Result<Self, Vec<u64>> {
        Ok(Self { counts: counts.try_into()?, sum_seconds })
    }
}

impl From<Log2Histogram> for replay::Log2Histogram {
    fn from(Log2Histogram { counts, sum, first_exponent }: Log2Histogram) -> Self {
        Self { counts: counts.into(), sum, first_exponent }
    }
}

impl TryFrom<replay::Log2Histogram> for Log2Histogram {
    type Error = Vec<u64>;

    fn try_from(message: replay::Log2Histogram) -> Result<Self, Vec<u64>> {
        let replay::Log2Histogram { counts, sum, first_exponent } = message;
        Ok(Self { counts: counts.try_into()?, sum, first_exponent })
    }
}

impl From<StoreLog> for replay::LogStatus {
    fn from(StoreLog { mode, size_bytes, sync_age, sync_interval, is_low, failure }: StoreLog) -> Self {
        Self {
            mode: mode.name().into(),
            size_bytes,
            sync_age_seconds: sync_age.as_secs_f64(),
            sync_interval_seconds: sync_interval.as_secs_f64(),
            disk_low: is_low,
            failure,
        }
    }
}

/// Reads what a server tells of its log. `None` if it has a mode of a later version, or a time that is none.
fn log_from_wire(message: replay::LogStatus) -> Option<StoreLog> {
    let seconds = |seconds| Duration::try_from_secs_f64(seconds).ok();
    Some(StoreLog {
        mode: LogMode::from_name(&message.mode)?,
        size_bytes: message.size_bytes,
        sync_age: seconds(message.sync_age_seconds)?,
        sync_interval: seconds(message.sync_interval_seconds)?,
        is_low: message.disk_low,
        failure: message.failure,
    })
}

macro_rules! convert {
    (
        reference { $($reference:tt)+ }
        first {
            $($(#[$first_doc:meta])+ $first:ident $(($first_public:literal))?: $first_type:ty, $first_metric:expr,
              $first_sum:ident;)+
        }
        later {
            $($(#[$doc:meta])+ $later:ident $(($public:literal))?: $type:ty, $metric:expr, $sum:ident;)+
        }
    ) => {
        /// Sets the figures of a message, except those of the reference.
        fn set_figures(message: &mut replay::TableStatus, info: &TableInfo) {
            $(message.$first = info.$first.map(Into::into);)+
            $(message.$later = info.$later.clone().map(Into::into);)+
        }

        /// Reads the figures of a message of a server, except those of the reference.
        fn read_figures(message: &mut replay::TableStatus, info: &mut TableInfo) {
            // A server that leaves out one of these is of an earlier version, and means 0.
            $(info.$first = Some(message.$first.unwrap_or_default().into());)+
            $(info.$later = message.$later.take().and_then(|value| value.try_into().ok());)+
        }
    };
}

table_figures!(convert);

/// Converts the status of a table to a message.
pub fn status_to_wire(status: &TableStatus) -> replay::TableStatus {
    let mut message = replay::TableStatus {
        info: Some(table_info(&status.info)),
        max_bytes: status.info.config.max_bytes.unwrap_or(0),
        insert_wait: status.insert_wait.clone().unwrap_or_default(),
        sample_wait: status.sample_wait.clone().unwrap_or_default(),
        insert_peer: status.insert_peer.clone().unwrap_or_default(),
        sample_peer: status.sample_peer.clone().unwrap_or_default(),
        log: status.log.clone().map(Into::into),
        ..replay::TableStatus::default()
    };
    set_figures(&mut message, &status.info);
    message
}

/// Reads the status of a table from a message of a server.
///
/// # Errors
/// [`Error::DataLoss`] if the message does not describe a table.
pub fn status_from_wire(mut status: replay::TableStatus) -> reverb_core::Result<TableStatus> {
    let info = status.info.take();
    let info = info.ok_or_else(|| Error::DataLoss("the status of a table has no description".into()))?;
    let mut info = read_table_info(info)?;
    info.config.max_bytes = Some(status.max_bytes).filter(|&limit| limit > 0);
    read_figures(&mut status, &mut info);
    let text = |text: String| Some(text).filter(|text| !text.is_empty());
    Ok(TableStatus {
        insert_wait: text(status.insert_wait),
        sample_wait: text(status.sample_wait),
        insert_peer: text(status.insert_peer),
        sample_peer: text(status.sample_peer),
        log: status.log.and_then(log_from_wire),
        ..TableStatus::from(info)
    })
}

/// Returns the status of a table as a serialised message.
pub fn status_bytes(status: &TableStatus) -> Vec<u8> {
    status_to_wire(status).encode_to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use reverb_core::{FIGURES, Figure};

    fn reread(message: &replay::TableStatus) -> TableStatus {
        status_from_wire(replay::TableStatus::decode(&*message.encode_to_vec()).unwrap()).unwrap()
    }

    fn read(message: &replay::TableStatus) -> TableInfo {
        reread(message).info
    }

    fn message() -> replay::TableStatus {
        let fifo = reverb_formats::definitions::selector_options(&reverb_core::SelectorKind::Fifo);
        let info = reverb_formats::proto::schema::TableInfo {
            sampler_options: Some(fifo),
            remover_options: Some(fifo),
            ..Default::default()
        };
        replay::TableStatus { info: Some(info), ..Default::default() }
    }

    #[test]
    fn a_server_of_an_earlier_version_means_0_by_what_it_leaves_out_of_the_first_figures() {
        let info = read(&message());
        assert_eq!((info.size_bytes, info.waiting_inserts, info.weight), (Some(0), Some(0), Some(0.0)));
        assert_eq!(info.removed, Some(RemovalCounts::default()));
        assert!(info.index_bytes.is_none() && info.last_insert_at.is_none() && info.sample_age_seconds.is_none());
        let (known, unknown): (Vec<_>, Vec<_>) =
            FIGURES.iter().partition(|Figure { value, .. }| value(&info).is_some());
        assert_eq!((known.len(), unknown.len()), (15, 21), "{unknown:?}");
    }

    #[test]
    fn a_figure_that_is_not_known_is_absent_from_the_message_and_a_zero_is_not() {
        let nothing = TableInfo::new(read(&message()).config);
        let message = status_to_wire(&nothing.clone().into());
        let figures = (message.size_bytes, message.weight, message.removed, message.chunks);
        assert_eq!(figures, (None, None, None, None));
        let zero = TableInfo { size_bytes: Some(0), chunks: Some(0), ..nothing };
        let message = status_to_wire(&zero.into());
        assert_eq!((message.size_bytes, message.chunks), (Some(0), Some(0)));
    }

    #[test]
    fn what_a_server_tells_of_its_log_travels() {
        let open = StoreLog {
            mode: LogMode::Power,
            size_bytes: 7,
            sync_age: Duration::ZERO,
            sync_interval: Duration::from_millis(500),
            is_low: false,
            failure: None,
        };
        let sync_age = Duration::from_millis(1_500);
        let closed =
            StoreLog { mode: LogMode::Process, sync_age, is_low: true, failure: Some(String::new()), ..open.clone() };
        for log in [None, Some(open), Some(closed)] {
            let status = TableStatus { log: log.clone(), ..read(&message()).into() };
            assert_eq!(reread(&status_to_wire(&status)).log, log);
        }
    }

    #[test]
    fn a_log_that_cannot_be_read_is_not_known() {
        let log = replay::LogStatus { mode: "power".into(), ..Default::default() };
        let of = |log| reread(&replay::TableStatus { log: Some(log), ..message() }).log;
        assert!(of(log.clone()).is_some());
        assert_eq!(of(replay::LogStatus { mode: "disk".into(), ..log.clone() }), None);
        for seconds in [-1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(of(replay::LogStatus { sync_age_seconds: seconds, ..log.clone() }), None);
            assert_eq!(of(replay::LogStatus { sync_interval_seconds: seconds, ..log.clone() }), None);
        }
    }

    #[test]
    fn a_histogram_of_other_buckets_is_not_known() {
        let waits = Some(replay::WaitHistogram { counts: vec![1; 21], sum_seconds: 1.0 });
        let ages = Some(replay::Log2Histogram { counts: vec![1; 40], sum: 2.0, first_exponent: -10 });
        let info = read(&replay::TableStatus { insert_wait_seconds: waits, sample_age_seconds: ages, ..message() });
        assert_eq!(info.insert_wait_seconds, None);
        assert_eq!(info.sample_age_seconds.unwrap().count(), 40);
    }
}
