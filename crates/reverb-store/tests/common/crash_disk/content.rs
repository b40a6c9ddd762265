//! What files and folders hold: what programs see, what is on disk, and the changes in between.

use super::Left;
use rand::Rng;
use rand::rngs::SmallRng;
use std::collections::BTreeMap;
use std::ffi::OsString;

/// Number of bytes that a disk writes wholly or not at all.
const SECTOR_BYTES: usize = 512;

/// What a name stands for: the index of a file or of a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Node {
    File(usize),
    Folder(usize),
}

pub type Names = BTreeMap<OsString, Node>;

/// A change of something that starts out as `T`.
pub trait Change: Clone {
    type Of: Clone;
    /// Whether a sync that fails leaves what it should have synced unsynced for ever: a system forgets data that it could
    /// not write, and reports it once.
    const IS_FORGOTTEN: bool;

    fn apply(&self, to: &mut Self::Of);

    /// Some of the change.
    fn part(&self, random: &mut SmallRng) -> Vec<Self>;

    /// The first part of the change.
    fn torn(&self, _random: &mut SmallRng) -> Option<Self> {
        None
    }
}

#[derive(Debug, Clone)]
pub enum Write {
    Bytes(usize, Vec<u8>),
    Size(usize),
}

#[derive(Debug, Clone)]
pub enum Naming {
    Put(OsString, Node),
    Move(OsString, OsString),
    Remove(OsString),
}

/// What changes, and what of it is on disk.
#[derive(Debug, Clone)]
pub struct Content<C: Change> {
    pub seen: C::Of,
    synced: C::Of,
    /// Each with its number.
    unsynced: Vec<(u64, C)>,
    /// Number of the first change that a sync has failed to sync.
    lost: Option<u64>,
}

pub type File = Content<Write>;
pub type Folder = Content<Naming>;

impl Change for Write {
    type Of = Vec<u8>;
    const IS_FORGOTTEN: bool = true;

    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Self::Size(size) => content.resize(*size, 0),
            Self::Bytes(at, bytes) => {
                content.resize(content.len().max(at + bytes.len()), 0);
                content[*at..at + bytes.len()].copy_from_slice(bytes);
            }
        }
    }

    fn part(&self, random: &mut SmallRng) -> Vec<Self> {
        let Self::Bytes(at, bytes) = self else {
            return if random.random() { vec![self.clone()] } else { Vec::new() };
        };
        let (mut begin, mut parts) = (0, Vec::new());
        while begin < bytes.len() {
            let end = bytes.len().min(((at + begin) / SECTOR_BYTES + 1) * SECTOR_BYTES - at);
            if random.random() {
                parts.push(Self::Bytes(at + begin, bytes[begin..end].to_vec()));
            }
            begin = end;
        }
        parts
    }

    fn torn(&self, random: &mut SmallRng) -> Option<Self> {
        match self {
            Self::Bytes(at, bytes) => Some(Self::Bytes(*at, bytes[..random.random_range(0..=bytes.len())].to_vec())),
            Self::Size(_) => None,
        }
    }
}

impl Change for Naming {
    type Of = Names;
    const IS_FORGOTTEN: bool = false;

    fn apply(&self, names: &mut Names) {
        match self {
            Self::Put(name, node) => drop(names.insert(name.clone(), *node)),
            Self::Move(from, to) => {
                if let Some(node) = names.remove(from) {
                    names.insert(to.clone(), node);
                }
            }
            Self::Remove(name) => drop(names.remove(name)),
        }
    }

    fn part(&self, random: &mut SmallRng) -> Vec<Self> {
        if random.random() { vec![self.clone()] } else { Vec::new() }
    }
}

impl<C: Change> Content<C> {
    pub fn synced(content: C::Of) -> Self {
        Self { seen: content.clone(), synced: content, unsynced: Vec::new(), lost: None }
    }

    pub fn change(&mut self, number: u64, change: C) {
        change.apply(&mut self.seen);
        self.unsynced.push((number, change));
    }

    /// Takes what a sync is about to sync.
    pub fn take_unsynced(&mut self) -> Vec<(u64, C)> {
        std::mem::take(&mut self.unsynced)
    }

    /// Ends a sync.
    pub fn end_sync(&mut self, mut changes: Vec<(u64, C)>, is_ok: bool) {
        if is_ok {
            changes.iter().for_each(|(_, change)| change.apply(&mut self.synced));
        } else if C::IS_FORGOTTEN {
            self.lost = self.lost.or(changes.first().map(|(number, _)| *number));
        } else {
            changes.append(&mut self.unsynced);
            self.unsynced = changes;
        }
    }

    /// Number of the first change that is not on disk.
    pub fn first_unsynced(&self) -> Option<u64> {
        self.lost.or_else(|| self.unsynced.first().map(|(number, _)| *number))
    }

    /// What is on disk after a loss of power.
    pub fn after(&self, left: Left, random: &mut SmallRng) -> C::Of {
        let mut content = self.synced.clone();
        let first = match left {
            Left::Nothing => 0,
            Left::First => random.random_range(0..=self.unsynced.len()),
            Left::All | Left::Any => self.unsynced.len(),
            Left::Torn => self.unsynced.len().saturating_sub(1),
        };
        for (_, change) in &self.unsynced[..first] {
            if left == Left::Any {
                change.part(random).iter().for_each(|part| part.apply(&mut content));
            } else {
                change.apply(&mut content);
            }
        }
        if let (Left::Torn, Some((_, last))) = (left, self.unsynced.last()) {
            last.torn(random).into_iter().for_each(|part| part.apply(&mut content));
        }
        content
    }
}
