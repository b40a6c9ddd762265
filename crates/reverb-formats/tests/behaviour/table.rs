//! Records of tables whose counts no table can have.

use prost::Message;
use reverb_core::{Error, RateLimiterConfig, Result, SelectorKind, Table, TableConfig};
use reverb_formats::proto::schema::RateLimiterCheckpoint;
use reverb_formats::table::{TableRecord, decode_table, encode_table};
use reverb_formats::wire::{put_bytes, put_number};

fn table() -> Table {
    let rate_limiter =
        RateLimiterConfig { samples_per_insert: 1.0, min_size_to_sample: 1, min_diff: -f64::MAX, max_diff: f64::MAX };
    let config = TableConfig {
        name: "table".into(),
        sampler: SelectorKind::Fifo,
        remover: SelectorKind::Fifo,
        max_size: 10,
        max_times_sampled: 0,
        rate_limiter,
        signature: None,
        max_bytes: None,
        seed: None,
    };
    Table::new(config).unwrap()
}

/// A record with these counts of inserts, samples and deletes, of deleted episodes and of unique samples.
fn record(limiter_counts: [i64; 3], episodes: u64, unique: u64) -> Result<TableRecord> {
    let [insert_count, sample_count, delete_count] = limiter_counts;
    let limiter = RateLimiterCheckpoint {
        samples_per_insert: 1.0,
        min_diff: -f64::MAX,
        max_diff: f64::MAX,
        min_size_to_sample: 1,
        sample_count,
        insert_count,
        delete_count,
    };
    let mut record = encode_table(&table().snapshot(), 0);
    // Of fields that occur twice, the last counts.
    put_bytes(&mut record, 3, &limiter.encode_to_vec());
    put_number(&mut record, 8, episodes);
    put_number(&mut record, 10, unique);
    decode_table(&record)
}

#[test]
fn counts_from_which_a_table_could_not_count_on_are_refused() {
    let is_refused = |record: Result<TableRecord>, name: &str| matches!(record, Err(Error::DataLoss(text)) if text.contains(name) && text.contains("`table`"));
    for bad in [i64::MAX, i64::MIN, -1] {
        assert!(is_refused(record([bad, 5, 5], 5, 5), "insert_count"));
        assert!(is_refused(record([5, bad, 5], 5, 5), "sample_count"));
        assert!(is_refused(record([5, 5, bad], 5, 5), "delete_count"));
        assert!(is_refused(record([5, 5, 5], bad as u64, 5), "num_deleted_episodes"));
        assert!(is_refused(record([5, 5, 5], 5, bad as u64), "num_unique_samples"));
    }
}

#[test]
fn the_greatest_counts_that_are_accepted_are_saved_and_accepted_again() {
    let most = i64::MAX / 2;
    let counts = record([most; 3], most as u64, most as u64).unwrap().counts;
    let mut table = table();
    table.restore_counters(
        counts.inserts + 1,
        counts.samples + 1,
        counts.deletes + 1,
        counts.num_deleted_episodes + 1,
        counts.num_unique_samples + 1,
    );
    assert_eq!(decode_table(&encode_table(&table.snapshot(), 0)).unwrap().counts, counts);
}
