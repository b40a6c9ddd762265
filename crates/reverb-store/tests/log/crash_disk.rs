//! A file system in memory that knows what was synced, fails on demand, and can lose power.

use rand::Rng;
use rand::rngs::SmallRng;
use reverb_store::disk::{Disk, LogDisk, OutFile, SharedFile};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Cursor, IoSlice, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};

/// Number of bytes that a disk writes wholly or not at all.
const SECTOR_BYTES: usize = 512;

/// What a disk does at a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The call fails with this error. A sync that fails leaves what it should have synced unsynced for ever.
    Error(i32),
    /// The process ends: the call does nothing.
    Ends,
    /// A write does all it should, and fails.
    Lies,
    /// A write writes one half of its bytes.
    Short,
    /// A write writes one half of its bytes, and all calls after it fail as on a full disk.
    Fills,
}

/// What is left of unsynced changes after a loss of power.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    Nothing,
    All,
    /// The first changes of each file and of the folder.
    First,
    /// Any sectors, any names.
    Any,
    /// All but the last change of each file, of which there are the first bytes.
    Torn,
}

pub const LEFT: [Left; 5] = [Left::Nothing, Left::All, Left::First, Left::Any, Left::Torn];

#[derive(Debug, Clone)]
enum Change {
    Write(usize, Vec<u8>),
    Size(usize),
}

#[derive(Debug, Clone)]
enum NameChange {
    Put(PathBuf, usize),
    Move(PathBuf, PathBuf),
    Remove(PathBuf),
}

#[derive(Debug, Clone, Default)]
struct Content {
    seen: Vec<u8>,
    synced: Vec<u8>,
    unsynced: Vec<Change>,
}

#[derive(Debug, Default)]
struct State {
    files: Vec<Content>,
    names: BTreeMap<PathBuf, usize>,
    synced_names: BTreeMap<PathBuf, usize>,
    unsynced_names: Vec<NameChange>,
    calls: u64,
    fault: Option<(u64, Fault, bool)>,
    has_failed: bool,
    free: u64,
    held: Option<(Sender<()>, Receiver<()>)>,
}

/// All paths are those of files in one folder.
#[derive(Debug, Clone, Default)]
pub struct CrashDisk(Arc<Mutex<State>>);

/// An open file.
#[derive(Debug)]
struct Open(CrashDisk, usize, usize);

fn apply(content: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Size(size) => content.resize(*size, 0),
        Change::Write(at, bytes) => {
            content.resize(content.len().max(at + bytes.len()), 0);
            content[*at..at + bytes.len()].copy_from_slice(bytes);
        }
    }
}

fn apply_name(names: &mut BTreeMap<PathBuf, usize>, change: &NameChange) {
    match change {
        NameChange::Put(path, file) => drop(names.insert(path.clone(), *file)),
        NameChange::Move(from, to) => {
            if let Some(file) = names.remove(from) {
                names.insert(to.clone(), file);
            }
        }
        NameChange::Remove(path) => drop(names.remove(path)),
    }
}

impl Content {
    /// What is on disk after a loss of power.
    fn after(&self, left: Left, random: &mut SmallRng) -> Vec<u8> {
        let mut content = self.synced.clone();
        let first = match left {
            Left::Nothing => 0,
            Left::First => random.random_range(0..=self.unsynced.len()),
            Left::All | Left::Any => self.unsynced.len(),
            Left::Torn => self.unsynced.len().saturating_sub(1),
        };
        for change in &self.unsynced[..first] {
            match change {
                Change::Write(at, bytes) if left == Left::Any => {
                    let mut begin = 0;
                    while begin < bytes.len() {
                        let end = bytes.len().min(((at + begin) / SECTOR_BYTES + 1) * SECTOR_BYTES - at);
                        if random.random() {
                            apply(&mut content, &Change::Write(at + begin, bytes[begin..end].to_vec()));
                        }
                        begin = end;
                    }
                }
                Change::Size(_) if left == Left::Any && random.random() => {}
                change => apply(&mut content, change),
            }
        }
        if let (Left::Torn, Some(Change::Write(at, bytes))) = (left, self.unsynced.last()) {
            apply(&mut content, &Change::Write(*at, bytes[..random.random_range(0..=bytes.len())].to_vec()));
        }
        content
    }
}

impl CrashDisk {
    /// A disk with these files, all synced.
    pub fn of(files: &BTreeMap<PathBuf, Vec<u8>>) -> Self {
        let disk = Self::default();
        let mut state = disk.state();
        state.free = 1 << 40;
        for (file, (path, content)) in files.iter().enumerate() {
            state.files.push(Content { seen: content.clone(), synced: content.clone(), unsynced: Vec::new() });
            state.names.insert(path.clone(), file);
        }
        state.synced_names = state.names.clone();
        drop(state);
        disk
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Fails the call that has this number, counted from now, and all later ones if `for_ever`.
    pub fn fail(&self, call: u64, fault: Fault, for_ever: bool) {
        let mut state = self.state();
        state.fault = Some((state.calls + call, fault, for_ever));
        state.has_failed = false;
    }

    /// Whether a call has failed, or was cut short.
    pub fn has_failed(&self) -> bool {
        self.state().has_failed
    }

    fn has_ended(&self) -> bool {
        let state = self.state();
        state.has_failed && matches!(state.fault, Some((_, Fault::Ends, _)))
    }

    /// Number of calls so far.
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// Holds the next sync of a file: it tells the receiver that it has begun, and goes on once the sender tells it to.
    /// What is written meanwhile is not synced.
    pub fn hold_sync(&self) -> (Receiver<()>, Sender<()>) {
        let ((begun, begins), (end, ends)) = (channel(), channel());
        self.state().held = Some((begun, ends));
        (begins, end)
    }

    pub fn set_free(&self, bytes: u64) {
        self.state().free = bytes;
    }

    /// All files as programs see them.
    pub fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let state = self.state();
        state.names.iter().map(|(path, file)| (path.clone(), state.files[*file].seen.clone())).collect()
    }

    /// What another program finds on this disk after the process has been killed.
    pub fn after_kill(&self) -> Self {
        let disk = Self::default();
        let state = self.state();
        let (files, names) = (state.files.clone(), state.names.clone());
        let (synced_names, unsynced_names) = (state.synced_names.clone(), state.unsynced_names.clone());
        let new = State { files, names, synced_names, unsynced_names, free: 1 << 40, ..State::default() };
        *disk.state() = new;
        disk
    }

    /// What is on disk after a loss of power.
    pub fn after_power_loss(&self, left: Left, random: &mut SmallRng) -> Self {
        let state = self.state();
        let mut names = state.synced_names.clone();
        let changes = &state.unsynced_names;
        let count = match left {
            Left::Nothing => 0,
            Left::First => random.random_range(0..=changes.len()),
            _ => changes.len(),
        };
        for change in &changes[..count] {
            if left != Left::Any || random.random() {
                apply_name(&mut names, change);
            }
        }
        let content = |file: usize| state.files[file].after(left, &mut *random);
        Self::of(&names.into_iter().zip_contents(content))
    }

    /// Counts a call. Returns the fault of a write that is cut short.
    fn call(&self, is_write: bool) -> io::Result<Option<Fault>> {
        let mut state = self.state();
        let call = state.calls;
        state.calls += 1;
        let Some((at, fault, for_ever)) = state.fault else { return Ok(None) };
        if call < at || (call > at && !for_ever && fault != Fault::Fills) {
            return Ok(None);
        }
        match fault {
            Fault::Ends => {
                state.has_failed = true;
                Err(io::ErrorKind::Other.into())
            }
            Fault::Error(libc::EINTR) if !is_write => Ok(None),
            Fault::Error(error) => {
                state.has_failed = true;
                Err(io::Error::from_raw_os_error(error))
            }
            Fault::Fills if call > at && state.has_failed => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
            _ if is_write && (fault != Fault::Fills || call == at) => {
                state.has_failed = true;
                Ok(Some(fault))
            }
            _ => Ok(None),
        }
    }

    fn change(&self, file: usize, change: Change) {
        let file = &mut self.state().files[file];
        apply(&mut file.seen, &change);
        file.unsynced.push(change);
    }

    fn change_name(&self, change: NameChange) {
        let mut state = self.state();
        apply_name(&mut state.names, &change);
        state.unsynced_names.push(change);
    }

    fn file(&self, path: &Path) -> io::Result<usize> {
        Ok(*self.state().names.get(path).ok_or(io::ErrorKind::NotFound)?)
    }

    fn create_file(&self, path: &Path) -> io::Result<Open> {
        self.call(false)?;
        if self.file(path).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = self.state().files.len();
        self.state().files.push(Content::default());
        self.change_name(NameChange::Put(path.into(), file));
        Ok(Open(self.clone(), file, 0))
    }

    fn write(&self, file: usize, offset: usize, bytes: &[u8]) -> io::Result<usize> {
        let fault = self.call(true)?;
        let is_short = matches!(fault, Some(Fault::Short | Fault::Fills));
        let bytes = if is_short { &bytes[..bytes.len().div_ceil(2)] } else { bytes };
        self.change(file, Change::Write(offset, bytes.to_vec()));
        if fault == Some(Fault::Lies) { Err(io::Error::from_raw_os_error(libc::EIO)) } else { Ok(bytes.len()) }
    }

    fn sync(&self, file: usize) -> io::Result<()> {
        let result = self.call(false);
        if self.has_ended() {
            return result.map(drop);
        }
        let unsynced = std::mem::take(&mut self.state().files[file].unsynced);
        let held = self.state().held.take();
        if let Some((begun, ends)) = held {
            begun.send(()).unwrap();
            ends.recv().unwrap();
        }
        let file = &mut self.state().files[file];
        // A system forgets what it could not write, and reports it once.
        result?;
        unsynced.iter().for_each(|change| apply(&mut file.synced, change));
        Ok(())
    }
}

trait ZipContents {
    fn zip_contents(self, content: impl FnMut(usize) -> Vec<u8>) -> BTreeMap<PathBuf, Vec<u8>>;
}

impl<T: Iterator<Item = (PathBuf, usize)>> ZipContents for T {
    fn zip_contents(self, mut content: impl FnMut(usize) -> Vec<u8>) -> BTreeMap<PathBuf, Vec<u8>> {
        self.map(|(path, file)| (path, content(file))).collect()
    }
}

impl Write for Open {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let size = self.0.write(self.1, self.2, bytes)?;
        self.2 += size;
        Ok(size)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl OutFile for Open {
    fn sync(&mut self) -> io::Result<()> {
        self.0.sync(self.1)
    }
}

impl SharedFile for Open {
    fn write_at(&self, pieces: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let bytes = pieces.iter().flat_map(|piece| piece.iter().copied()).collect::<Vec<_>>();
        self.0.write(self.1, offset as usize, &bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync(self.1)
    }

    fn allocate(&self, size: u64) -> io::Result<()> {
        self.0.call(false)?;
        self.0.change(self.1, Change::Size(size as usize));
        Ok(())
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        self.allocate(size)
    }
}

impl Disk for CrashDisk {
    fn create_dir_all(&self, _: &Path) -> io::Result<()> {
        self.call(false).map(drop)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn OutFile>> {
        Ok(Box::new(self.create_file(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Read + Send>> {
        self.call(false)?;
        let file = self.file(path)?;
        Ok(Box::new(Cursor::new(self.state().files[file].seen.clone())))
    }

    fn size(&self, path: &Path) -> io::Result<u64> {
        self.call(false)?;
        let file = self.file(path)?;
        Ok(self.state().files[file].seen.len() as u64)
    }

    fn list(&self, _: &Path) -> io::Result<Vec<OsString>> {
        self.call(false)?;
        Ok(self.state().names.keys().map(|path| path.file_name().unwrap().into()).collect())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call(false)?;
        self.file(from)?;
        self.change_name(NameChange::Move(from.into(), to.into()));
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.call(false)?;
        self.file(path)?;
        self.change_name(NameChange::Remove(path.into()));
        Ok(())
    }

    fn remove_dir(&self, _: &Path) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        let result = self.call(false);
        if self.has_ended() {
            return result.map(drop);
        }
        let mut state = self.state();
        let changes = std::mem::take(&mut state.unsynced_names);
        result?;
        changes.iter().for_each(|change| apply_name(&mut state.synced_names, change));
        Ok(())
    }
}

impl LogDisk for CrashDisk {
    fn create_shared(&self, path: &Path) -> io::Result<Box<dyn SharedFile>> {
        Ok(Box::new(self.create_file(path)?))
    }

    fn open_shared(&self, path: &Path) -> io::Result<Box<dyn SharedFile>> {
        self.call(false)?;
        Ok(Box::new(Open(self.clone(), self.file(path)?, 0)))
    }

    fn free_space(&self, _: &Path) -> io::Result<u64> {
        self.call(false)?;
        Ok(self.state().free)
    }
}
