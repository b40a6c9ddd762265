//! A file system in memory that knows what was synced, fails on demand, and can lose power.
#![allow(dead_code, reason = "each test file is a program of its own, and none uses all of this")]

mod content;
mod files;

use content::{Content, File, Folder, Names, Naming, Node, Write};
use rand::rngs::SmallRng;
use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};

/// What a disk does at a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The call fails with this error. A sync of a file that fails leaves what it should have synced unsynced for ever.
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
    /// The first changes of each file and of each folder.
    First,
    /// Any sectors, any names.
    Any,
    /// All but the last change of each file, of which there are the first bytes.
    Torn,
}

pub const LEFT: [Left; 5] = [Left::Nothing, Left::All, Left::First, Left::Any, Left::Torn];

#[derive(Debug)]
struct State {
    files: Vec<File>,
    /// The first is the root.
    folders: Vec<Folder>,
    changes: u64,
    calls: u64,
    fault: Option<(u64, Fault, bool)>,
    has_failed: bool,
    free: u64,
    held: Option<(Sender<()>, Receiver<()>)>,
}

/// Folders are moved within the folder where they are, and nothing has two names.
#[derive(Debug, Clone)]
pub struct CrashDisk(Arc<Mutex<State>>);

impl State {
    fn new(files: Vec<File>, folders: Vec<Folder>, changes: u64) -> Self {
        Self { files, folders, changes, calls: 0, fault: None, has_failed: false, free: 1 << 40, held: None }
    }

    fn find(&self, path: &Path) -> io::Result<Node> {
        let mut node = Node::Folder(0);
        for component in path.components().filter(|component| *component != Component::RootDir) {
            let Node::Folder(folder) = node else { return Err(io::ErrorKind::NotADirectory.into()) };
            node = *self.folders[folder].seen.get(component.as_os_str()).ok_or(io::ErrorKind::NotFound)?;
        }
        Ok(node)
    }

    fn change(&mut self, file: usize, change: Write) {
        self.changes += 1;
        self.files[file].change(self.changes, change);
    }

    fn change_names(&mut self, folder: usize, change: Naming) {
        self.changes += 1;
        self.folders[folder].change(self.changes, change);
    }

    /// Calls `visit` with the paths of all that has a name, the root first.
    fn visit(&self, visit: &mut dyn FnMut(&Path, Node)) {
        let mut left = vec![(PathBuf::from("/"), Node::Folder(0))];
        while let Some((path, node)) = left.pop() {
            visit(&path, node);
            if let Node::Folder(folder) = node {
                left.extend(self.folders[folder].seen.iter().map(|(name, node)| (path.join(name), *node)));
            }
        }
    }
}

impl CrashDisk {
    /// A disk without files.
    pub fn empty() -> Self {
        let root = vec![Content::synced(Names::new())];
        Self(Arc::new(Mutex::new(State::new(Vec::new(), root, 0))))
    }

    /// A disk with a folder, which is synced.
    pub fn with_folder(path: impl AsRef<Path>) -> Self {
        let disk = Self::empty();
        disk.add_folder(path.as_ref());
        disk
    }

    /// A disk with these files, all synced.
    pub fn of(files: &BTreeMap<PathBuf, Vec<u8>>) -> Self {
        let disk = Self::empty();
        for (path, content) in files {
            let folder = disk.add_folder(path.parent().unwrap());
            let mut state = disk.state();
            state.files.push(Content::synced(content.clone()));
            let new = Node::File(state.files.len() - 1);
            state.add_name(folder, path, new);
        }
        disk
    }

    /// Adds a folder, as if it had always been there.
    fn add_folder(&self, path: &Path) -> usize {
        let mut last = 0;
        let folders: Vec<_> = path.ancestors().collect();
        for folder in folders.into_iter().rev() {
            let mut state = self.state();
            last = match state.find(folder) {
                Ok(Node::Folder(there)) => there,
                Ok(Node::File(_)) => panic!("{} is a file", folder.display()),
                Err(_) => {
                    state.folders.push(Content::synced(Names::new()));
                    let new = state.folders.len() - 1;
                    state.add_name(last, folder, Node::Folder(new));
                    new
                }
            };
        }
        last
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

    /// Calls succeed from now on.
    pub fn mend(&self) {
        self.state().fault = None;
    }

    /// Whether a call has failed, or was cut short.
    pub fn has_failed(&self) -> bool {
        self.state().has_failed
    }

    /// Whether the process has ended.
    pub fn has_ended(&self) -> bool {
        let state = self.state();
        state.has_failed && matches!(state.fault, Some((_, Fault::Ends, _)))
    }

    /// Number of calls so far.
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// Number of changes so far.
    pub fn changes(&self) -> u64 {
        self.state().changes
    }

    /// Number of the changes before the first that is not on disk, of all that has a name.
    pub fn synced_changes(&self) -> u64 {
        let state = self.state();
        let mut first = state.changes + 1;
        state.visit(&mut |_, node| {
            let unsynced = match node {
                Node::File(file) => state.files[file].first_unsynced(),
                Node::Folder(folder) => state.folders[folder].first_unsynced(),
            };
            first = first.min(unsynced.unwrap_or(first));
        });
        first - 1
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
        let (state, mut files) = (self.state(), BTreeMap::new());
        state.visit(&mut |path, node| {
            if let Node::File(file) = node {
                files.insert(path.to_owned(), state.files[file].seen.clone());
            }
        });
        files
    }

    /// What another program finds on this disk after the process has been killed.
    pub fn after_kill(&self) -> Self {
        let state = self.state();
        let new = State::new(state.files.clone(), state.folders.clone(), state.changes);
        Self(Arc::new(Mutex::new(new)))
    }

    /// What is on disk after a loss of power.
    pub fn after_power_loss(&self, left: Left, random: &mut SmallRng) -> Self {
        let state = self.state();
        let folders = state.folders.iter().map(|folder| Content::synced(folder.after(left, &mut *random))).collect();
        let files = state.files.iter().map(|file| Content::synced(file.after(left, &mut *random))).collect();
        Self(Arc::new(Mutex::new(State::new(files, folders, state.changes))))
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
}

impl State {
    /// Adds a name, as if it had always been there.
    fn add_name(&mut self, folder: usize, path: &Path, node: Node) {
        let mut names = self.folders[folder].seen.clone();
        names.insert(path.file_name().unwrap().to_owned(), node);
        self.folders[folder] = Content::synced(names);
    }
}
