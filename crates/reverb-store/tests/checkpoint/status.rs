//! What a checkpointer tells of its saves and loads while they run, and after them.

use crate::LIMIT;
use crate::world::{fill, handle, options_of, temp_dir};
use reverb_core::{Error, SelectorKind};
use reverb_service::write_ledger::Ledgers;
use reverb_service::{Store, StoreStatus};
use reverb_store::checkpoint::{Checkpointer, LoadOptions};
use reverb_store::disk::{Disk, OutFile, RealDisk};
use std::ffi::OsString;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// A disk that asks for the status at each operation of a save or a load, on the thread that saves or loads.
#[derive(Debug, Default)]
struct WatchedDisk {
    checkpointer: OnceLock<Weak<Checkpointer>>,
    seen: Mutex<Vec<StoreStatus>>,
    is_asking: AtomicBool,
    lists: AtomicUsize,
    is_full: AtomicBool,
}

impl WatchedDisk {
    fn watch(&self) {
        let Some(checkpointer) = self.checkpointer.get().and_then(Weak::upgrade) else { return };
        if !self.is_asking.swap(true, Relaxed) {
            self.seen.lock().unwrap().push(checkpointer.status());
            self.is_asking.store(false, Relaxed);
        }
    }

    fn open(self: &Arc<Self>, root: &Path) -> Arc<Checkpointer> {
        let opened = Checkpointer::with_disk(options_of(root, 2, LoadOptions::default()), self.clone()).unwrap();
        let opened = Arc::new(opened);
        self.checkpointer.set(Arc::downgrade(&opened)).unwrap();
        opened
    }
}

impl Disk for WatchedDisk {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        RealDisk.create_dir_all(path)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn OutFile>> {
        self.watch();
        if self.is_full.load(Relaxed) {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        RealDisk.create(path)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Read + Send>> {
        self.watch();
        RealDisk.open(path)
    }

    fn size(&self, path: &Path) -> io::Result<u64> {
        RealDisk.size(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        self.lists.fetch_add(1, Relaxed);
        RealDisk.list(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.watch();
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

#[test]
fn saves_and_loads_are_told_while_they_run() {
    let root = temp_dir();
    let disk = Arc::new(WatchedDisk::default());
    let checkpointer = disk.open(&root);
    let table = handle("a", SelectorKind::Fifo, 1000);
    fill(&table, 0..500);
    let path = checkpointer.save(std::slice::from_ref(&table)).unwrap();

    let seen = std::mem::take(&mut *disk.seen.lock().unwrap());
    let saving: Vec<_> = seen.iter().filter_map(|status| status.saving.as_ref()).collect();
    assert!(saving.len() > 5 && saving.iter().all(|save| save.path == path), "{saving:?}");
    assert!(saving.is_sorted_by_key(|save| save.done_bytes), "{saving:?}");
    let after = checkpointer.status();
    assert!(after.saving.is_none() && after.loading.is_none(), "{after:?}");
    let (size, saved_at) = (after.saved[0].size_bytes, after.saved[0].saved_at);
    assert!(saving.last().unwrap().done_bytes >= size, "what is written is read again: {saving:?}");

    let restored = handle("a", SelectorKind::Fifo, 1000);
    assert_eq!(
        checkpointer.restore(std::slice::from_ref(&restored), &Ledgers::default(), LIMIT).unwrap(),
        Some(path.clone())
    );
    let seen = std::mem::take(&mut *disk.seen.lock().unwrap());
    let loading: Vec<_> = seen.iter().filter_map(|status| status.loading.as_ref()).collect();
    assert!(loading.len() > 3 && loading.iter().all(|load| load.path == path), "{loading:?}");
    assert!(loading.iter().all(|load| load.total_bytes == size && load.done_bytes <= size), "{loading:?}");
    assert!(loading.last().unwrap().done_bytes > 0, "{loading:?}");
    let after = checkpointer.status();
    assert_eq!((after.loading.is_none(), after.restored_from), (true, Some(path)));
    assert_eq!(after.restored_saved_at, Some(saved_at));
}

#[test]
fn saved_states_are_listed_once_until_they_change() {
    let root = temp_dir();
    let disk = Arc::new(WatchedDisk::default());
    let checkpointer = disk.open(&root);
    let table = handle("a", SelectorKind::Fifo, 1000);
    assert_eq!((checkpointer.status().saved.len(), checkpointer.status().saves_ok), (0, 0));
    let mut paths = Vec::new();
    for round in 1..=3 {
        fill(&table, 10 * round..10 * round + 10);
        paths.push(checkpointer.save(std::slice::from_ref(&table)).unwrap());
        let first = checkpointer.status();
        let lists = disk.lists.load(Relaxed);
        let again = checkpointer.status();
        assert_eq!(disk.lists.load(Relaxed), lists, "the second answer is from memory");
        assert_eq!((first.saves_ok, again.saves_ok), (round as u64, round as u64));
        assert_eq!(first.saved.len(), again.saved.len());
    }
    let status = checkpointer.status();
    let names: Vec<_> = status.saved.iter().map(|saved| saved.path.clone()).collect();
    assert_eq!(names, [paths[2].clone(), paths[1].clone()], "two are kept, newest first");
    assert!(status.saved.iter().all(|saved| saved.is_verified && saved.duration.is_some() && saved.size_bytes > 0));

    disk.is_full.store(true, Relaxed);
    assert!(matches!(checkpointer.save(std::slice::from_ref(&table)), Err(Error::Storage(_))));
    let status = checkpointer.status();
    assert_eq!((status.saves_ok, status.saves_failed, status.saved.len()), (3, 1, 2));
    assert!(status.last_error.unwrap().contains("the disk is full"));
    assert!(status.saving.is_none());
    disk.is_full.store(false, Relaxed);
    checkpointer.save(std::slice::from_ref(&table)).unwrap();
    assert_eq!(checkpointer.status().last_error, None);
    checkpointer.close().unwrap();
    assert!(checkpointer.save(std::slice::from_ref(&table)).is_err());
    assert_eq!(checkpointer.status().saves_failed, 1, "a save after the end has not failed");
}
