//! Saves and loads on a disk of which any one operation fails.

use crate::LIMIT;
use crate::world::{contents, fill, handle, options, temp_dir};
use reverb_core::{Error, SelectorKind};
use reverb_service::write_ledger::Ledgers;
use reverb_store::checkpoint::Checkpointer;
use reverb_store::disk::{Disk, OutFile, RealDisk};
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

/// Counts operations down, and makes the operation fail at which the count reaches zero.
#[derive(Debug)]
struct Faults {
    left: AtomicI64,
    error: i32,
    /// Whether all later operations fail, too, as if the process had ended.
    stays: bool,
    has_failed: AtomicBool,
}

impl Faults {
    fn new(left: i64, error: i32, stays: bool) -> Arc<Self> {
        Arc::new(Self { left: AtomicI64::new(left), error, stays, has_failed: AtomicBool::new(false) })
    }

    fn step(&self) -> io::Result<()> {
        let left = self.left.fetch_sub(1, Relaxed);
        if left == 0 || (left < 0 && self.stays) {
            self.has_failed.store(true, Relaxed);
            return Err(io::Error::from_raw_os_error(self.error));
        }
        Ok(())
    }
}

#[derive(Debug)]
struct FaultyDisk(Arc<Faults>);

/// A disk that returns wrong data once, for its `left`th read.
#[derive(Debug)]
struct LyingDisk(Arc<Faults>);

struct Lying(Box<dyn Read + Send>, Arc<Faults>);

impl Read for Lying {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(1000);
        let size = self.0.read(&mut buffer[..most])?;
        if size > 0 && self.1.step().is_err() {
            buffer[size / 2] ^= 4;
        }
        Ok(size)
    }
}

impl Disk for LyingDisk {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        RealDisk.create_dir_all(path)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn OutFile>> {
        RealDisk.create(path)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(Lying(RealDisk.open(path)?, self.0.clone())))
    }

    fn size(&self, path: &Path) -> io::Result<u64> {
        RealDisk.size(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        RealDisk.list(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        RealDisk.sync_dir(path)
    }
}

struct Faulty<T>(T, Arc<Faults>);

impl Write for Faulty<Box<dyn OutFile>> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.1.step()?;
        // A file may accept fewer bytes than it is given.
        self.0.write(&bytes[..bytes.len().min(1000)])
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl OutFile for Faulty<Box<dyn OutFile>> {
    fn sync(&mut self) -> io::Result<()> {
        self.1.step()?;
        self.0.sync()
    }
}

impl Read for Faulty<Box<dyn Read + Send>> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.1.step()?;
        let most = buffer.len().min(1000);
        self.0.read(&mut buffer[..most])
    }
}

impl Disk for FaultyDisk {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.0.step().and_then(|()| RealDisk.create_dir_all(path))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn OutFile>> {
        self.0.step()?;
        Ok(Box::new(Faulty(RealDisk.create(path)?, self.0.clone())))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Read + Send>> {
        self.0.step()?;
        Ok(Box::new(Faulty(RealDisk.open(path)?, self.0.clone())))
    }

    fn size(&self, path: &Path) -> io::Result<u64> {
        self.0.step().and_then(|()| RealDisk.size(path))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        self.0.step().and_then(|()| RealDisk.list(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.step().and_then(|()| RealDisk.rename(from, to))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.0.step().and_then(|()| RealDisk.remove_file(path))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.0.step().and_then(|()| RealDisk.remove_dir(path))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.0.step().and_then(|()| RealDisk.sync_dir(path))
    }
}

/// Saves after an older checkpoint, on a disk that fails at its `left`th operation. Returns whether that was reached.
fn save_with_fault(left: i64, error: i32, stays: bool) -> bool {
    let root = temp_dir();
    let table = handle("a", SelectorKind::Fifo, 1000);
    fill(&table, 0..100);
    let tables = std::slice::from_ref(&table);
    Checkpointer::open(options(&root)).unwrap().save(tables).unwrap();
    let older = contents(&table);
    fill(&table, 100..200);
    let newer = contents(&table);

    let faults = Faults::new(left, error, stays);
    let saver = Checkpointer::with_disk(options(&root), Arc::new(FaultyDisk(faults.clone())));
    let saved = saver.and_then(|saver| saver.save(tables));
    let at = format!("operation {left}, error {error}: {saved:?}");

    // The next server finds the confirmed checkpoint undamaged.
    let restored = handle("a", SelectorKind::Fifo, 1000);
    let loader = Checkpointer::open(options(&root)).unwrap();
    let path = loader.restore(std::slice::from_ref(&restored), &Ledgers::default(), LIMIT).expect(&at).expect(&at);
    let found = contents(&restored);
    match &saved {
        Ok(saved) => assert_eq!((&path, &found), (saved, &newer), "{at}"),
        Err(Error::Storage(_)) => assert!(found == older || found == newer, "{at}"),
        Err(error) => panic!("{at}: {error:?}"),
    }
    // No incomplete checkpoint is left.
    let names: Vec<_> = std::fs::read_dir(&*root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.iter().all(|name| !name.to_string_lossy().starts_with(".saving")), "{at}: {names:?}");
    let next = loader.save(tables).expect(&at);
    assert_eq!(reverb_store::checkpoint::list(&root).unwrap(), [next], "{at}");
    faults.has_failed.load(Relaxed)
}

#[test]
fn an_error_at_any_operation_of_a_save_loses_nothing_that_was_saved() {
    for (error, stays) in [(libc::EIO, false), (libc::ENOSPC, false), (libc::EIO, true)] {
        let operations = (0..).take_while(|&left| save_with_fault(left, error, stays)).count();
        assert!(operations > 40, "{operations}");
    }
}

#[test]
fn an_error_at_any_operation_of_a_load_is_raised_or_changes_nothing() {
    let root = temp_dir();
    let table = handle("a", SelectorKind::Fifo, 1000);
    fill(&table, 0..100);
    let path = Checkpointer::open(options(&root)).unwrap().save(std::slice::from_ref(&table)).unwrap();
    let mut operations = 0;
    loop {
        let faults = Faults::new(operations, libc::EIO, false);
        let restored = handle("a", SelectorKind::Fifo, 1000);
        let before = contents(&restored);
        let loader = Checkpointer::with_disk(options(&root), Arc::new(FaultyDisk(faults.clone()))).unwrap();
        match loader.restore(std::slice::from_ref(&restored), &Ledgers::default(), LIMIT) {
            Ok(loaded) => {
                assert_eq!((loaded, contents(&restored)), (Some(path.clone()), contents(&table)), "{operations}");
            }
            Err(Error::Storage(_)) => assert_eq!(contents(&restored), before, "{operations}"),
            Err(error) => panic!("operation {operations}: {error:?}"),
        }
        if !faults.has_failed.load(Relaxed) {
            break;
        }
        operations += 1;
    }
    assert!(operations > 20, "{operations}");
}

#[test]
fn a_full_disk_is_named() {
    let root = temp_dir();
    let table = handle("a", SelectorKind::Fifo, 10);
    let faults = Faults::new(12, libc::ENOSPC, true);
    let saver = Checkpointer::with_disk(options(&root), Arc::new(FaultyDisk(faults))).unwrap();
    let error = saver.save(std::slice::from_ref(&table)).unwrap_err();
    assert!(matches!(&error, Error::Storage(text) if text.contains("the disk is full")), "{error}");
}

#[test]
fn a_checkpoint_that_reads_back_differently_is_not_confirmed() {
    let root = temp_dir();
    let table = handle("a", SelectorKind::Fifo, 1000);
    fill(&table, 0..100);
    let tables = std::slice::from_ref(&table);
    let older = Checkpointer::open(options(&root)).unwrap().save(tables).unwrap();
    let mut lies = 0;
    loop {
        let faults = Faults::new(lies, libc::EIO, false);
        let saver = Checkpointer::with_disk(options(&root), Arc::new(LyingDisk(faults.clone()))).unwrap();
        let saved = saver.save(tables);
        let there = reverb_store::checkpoint::list(&root).unwrap();
        assert!(faults.has_failed.load(Relaxed), "read {lies} was never reached");
        if let Ok(path) = saved {
            // The new checkpoint was read completely by then. The damaged read is of the older one, which is kept.
            assert_eq!(there, [path, older], "read {lies}");
            break;
        }
        assert!(matches!(saved, Err(Error::DataLoss(_))), "read {lies}: {saved:?}");
        assert_eq!(there, std::slice::from_ref(&older), "read {lies}");
        lies += 1;
    }
    assert!(lies > 5, "{lies}");
}
