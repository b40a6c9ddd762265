//! Damaged checkpoints.

use crate::LIMIT;
use crate::world::{Contents, Folder, contents, fill, handle, options, options_of, temp_dir};
use reverb_core::{Error, SelectorKind};
use reverb_service::TableHandle;
use reverb_service::write_ledger::Ledgers;
use reverb_store::checkpoint::{CheckpointOptions, Checkpointer, LoadOptions};
use std::fs;
use std::path::{Path, PathBuf};

const FILES: [&str; 4] = ["tables.tfrecord", "items.tfrecord", "chunks.tfrecord", "reverb.jsonl"];

fn table() -> TableHandle {
    handle("a", SelectorKind::Fifo, 50)
}

/// A folder with two checkpoints, their paths and their contents.
fn two_checkpoints(compression: u32) -> (Folder, [(PathBuf, Contents); 2]) {
    let root = temp_dir();
    let saver =
        Checkpointer::open(CheckpointOptions { compression, ..options_of(&root, 2, LoadOptions::default()) }).unwrap();
    let table = table();
    let saved = [0..2, 2..3].map(|values| {
        fill(&table, values);
        (saver.save(std::slice::from_ref(&table)).unwrap(), contents(&table))
    });
    (root, saved)
}

/// Loads from a folder. Returns the path of the loaded checkpoint and the content of the table.
fn load(root: &Path) -> Result<(PathBuf, Contents), Error> {
    let table = table();
    let before = contents(&table);
    match Checkpointer::open(options(root)).unwrap().restore(std::slice::from_ref(&table), &Ledgers::default(), LIMIT) {
        Ok(path) => Ok((path.expect("there are checkpoints"), contents(&table))),
        Err(error) => {
            assert_eq!(contents(&table), before, "a table has changed though nothing could be loaded");
            Err(error)
        }
    }
}

/// Damages each file of the newer checkpoint in many ways, including a flip of every `step`th bit. Calls `check` after
/// each damage, and then restores the file.
fn with_each_damage(newer: &Path, files: &[&str], step: usize, mut check: impl FnMut(&str)) {
    for name in files {
        let path = newer.join(name);
        let good = fs::read(&path).unwrap();
        for length in 0..good.len() {
            fs::write(&path, &good[..length]).unwrap();
            check(&format!("{name} cut to {length} bytes"));
        }
        for bit in (0..good.len() * 8).step_by(step) {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, &bytes).unwrap();
            check(&format!("{name} with bit {bit} flipped"));
        }
        for extra in [&[0][..], b"more"] {
            fs::write(&path, [&good[..], extra].concat()).unwrap();
            check(&format!("{name} with {extra:?} behind it"));
        }
        fs::write(&path, &good).unwrap();
    }
}

#[test]
fn threads_load_in_the_order_of_the_file_and_name_the_first_damage() {
    // Approximate number of bytes that a thread reads at a time.
    const BATCH: usize = 256 << 10;
    let root = temp_dir();
    let table = handle("a", SelectorKind::Fifo, 20_000);
    fill(&table, 0..20_000);
    let saved = Checkpointer::open(options(&root)).unwrap().save(std::slice::from_ref(&table)).unwrap();
    let path = saved.join("chunks.tfrecord");
    let mut bytes = fs::read(&path).unwrap();
    assert!(bytes.len() > 3 * BATCH, "{}", bytes.len());
    let loaded = load(&root).unwrap();
    assert!(loaded.1 == contents(&table));

    // The damage of the second batch is at its start, and that of the first batch at its end.
    let mut damage = |at: usize| {
        bytes[at] ^= 0x55;
        fs::write(&path, &bytes).unwrap();
        load(&root).unwrap_err().to_string()
    };
    let first = damage(BATCH / 10 * 9);
    assert!(first.contains("does not match its checksum"), "{first}");
    let both = damage(BATCH / 10 * 11);
    assert_eq!(both, first);
    for _ in 0..20 {
        assert_eq!(load(&root).unwrap_err().to_string(), first);
    }
}

#[test]
fn every_truncation_and_every_flipped_bit_is_noticed_and_the_older_one_is_loaded() {
    for (compression, step) in [(0, 1), (6, 7)] {
        let (root, [older, newer]) = two_checkpoints(compression);
        assert_eq!(load(&root).unwrap(), newer);
        with_each_damage(&newer.0, &FILES, step, |damage| {
            let loaded = load(&root).unwrap_or_else(|error| panic!("{damage}: {error}"));
            assert_eq!(loaded, older, "{damage}");
        });
        assert_eq!(load(&root).unwrap(), newer, "it is whole again");
    }
}

#[test]
fn a_missing_file_is_noticed() {
    for name in &FILES[..3] {
        let (root, [older, newer]) = two_checkpoints(0);
        fs::remove_file(newer.0.join(name)).unwrap();
        assert_eq!(load(&root).unwrap(), older, "{name}");
    }
}

#[test]
fn a_checkpoint_without_our_own_file_is_read_like_one_of_the_reference() {
    let (root, [older, newer]) = two_checkpoints(6);
    fs::remove_file(newer.0.join("reverb.jsonl")).unwrap();
    let (path, loaded) = load(&root).unwrap();
    assert_eq!((path, &loaded.items), (newer.0.clone(), &newer.1.items));
    // Without hashes, a flip in unused bits may go unnoticed, but it must not change what is loaded.
    let (mut refused, mut same) = (0, 0);
    with_each_damage(&newer.0, &FILES[..3], 3, |damage| match load(&root) {
        Ok((path, contents)) if path == newer.0 => {
            assert_eq!(contents.items, newer.1.items, "{damage}");
            same += 1;
        }
        Ok(loaded) => {
            assert_eq!(loaded, older, "{damage}");
            refused += 1;
        }
        Err(error) => panic!("{damage}: {error}"),
    });
    assert!(refused > 20 * same, "{refused} were refused, {same} changed nothing");
}

#[test]
fn without_a_good_checkpoint_the_error_names_each() {
    let (root, [older, newer]) = two_checkpoints(0);
    for path in [&older.0, &newer.0] {
        fs::write(path.join("chunks.tfrecord"), "torn").unwrap();
    }
    let error = load(&root).unwrap_err();
    assert!(matches!(error, Error::DataLoss(_)), "{error}");
    for path in [&older.0, &newer.0] {
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
        assert!(path.join("DONE").exists(), "what is damaged is kept");
    }
}

#[test]
fn a_checkpoint_of_a_later_version_is_not_reported_as_damaged() {
    let (root, [_, newer]) = two_checkpoints(0);
    let line = fs::read_to_string(newer.0.join("reverb.jsonl")).unwrap();
    let line = line.lines().next().unwrap().replace("\"format\":1", "\"format\":2");
    let hash = twox_hash::XxHash3_128::oneshot(line.as_bytes());
    fs::write(newer.0.join("reverb.jsonl"), format!("{line}\n{{\"xxh3\":\"{hash:032x}\"}}\n")).unwrap();
    let error = load(&root).unwrap_err();
    assert!(matches!(&error, Error::Unimplemented(text) if text.contains("newer version")), "{error}");
}
