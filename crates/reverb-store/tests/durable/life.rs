//! The life of a server: it fills segments, saves, and does all that is logged.

use crate::crash_disk::{CrashDisk, Fault};
use crate::story::{Op, Story};
use crate::world::{BOOTS, Folder, ITEMS, PRIORITIZED, QUEUE, Server, THRICE, options};
use reverb_core::Result;
use reverb_service::LogMode;
use reverb_store::checkpoint::{CheckpointOptions, Durability};
use reverb_store::log::Id;
use std::sync::Arc;
use std::time::Duration;

/// Short, so that syncs come in between.
const INTERVAL: Duration = Duration::from_millis(5);

/// One of so many calls of a disk is tried in an ordinary run.
const STRIDE: usize = 16;

/// Some numbers of things to try, such as calls of a disk. Runs with other offsets try the others. Where a thing has many
/// `parts` and each takes a try, an ordinary run tries fewer.
pub fn every(offset: usize, parts: usize) -> impl Iterator<Item = usize> {
    let stride = std::env::var("REVERB_CRASH_STRIDE").map_or(STRIDE * parts, |text| text.parse().unwrap());
    (offset % stride..).step_by(stride)
}

/// A disk and what was said of it.
pub struct Life {
    folder: Arc<Folder>,
    pub disk: CrashDisk,
    pub story: Story,
    mode: LogMode,
}

impl Life {
    pub fn new(mode: LogMode) -> Self {
        Self { folder: Arc::new(Folder::new()), disk: CrashDisk::empty(), story: Story::new(mode), mode }
    }

    /// A life at whose end a server was killed.
    pub fn lived(mode: LogMode) -> Self {
        let mut life = Self::new(mode);
        let server = life.start(&life.disk, BOOTS[0]).unwrap();
        life.make(&server, &calls(100));
        life.kill(server);
        life
    }

    /// The same life up to now, on a disk of its own.
    pub fn again(&self) -> Self {
        self.on(&self.disk.after_kill())
    }

    /// The same life up to now, on another disk.
    pub fn on(&self, disk: &CrashDisk) -> Self {
        Self { folder: self.folder.clone(), disk: disk.clone(), story: self.story.clone(), mode: self.mode }
    }

    pub fn options(&self) -> CheckpointOptions {
        let durability = Durability { mode: self.mode, sync_interval: INTERVAL, max_log_bytes: None };
        CheckpointOptions { durability: Some(durability), ..options(&self.folder.0, None) }
    }

    pub fn start(&self, disk: &CrashDisk, boot: Id) -> Result<Server> {
        Server::start_on(disk, self.options(), boot)
    }

    /// Starts a server, makes calls, and lets a fault close its log.
    pub fn start_closed(&mut self) -> Server {
        let server = self.start(&self.disk, BOOTS[0]).unwrap();
        self.make(&server, &calls(100));
        // A single fault may meet a harmless call of the log's own thread, which asks how much space is free.
        self.disk.fail(0, Fault::Error(libc::EIO), true);
        let insert = |key| Op::Insert(ITEMS, key, 1.0);
        self.make(&server, &[insert(900), insert(901), Op::Update(ITEMS, vec![(106, 8.0)])]);
        assert!(server.is_closed());
        self.disk.mend();
        server
    }

    /// Makes the calls until the process has ended.
    pub fn make(&mut self, server: &Server, ops: &[Op]) {
        for op in ops {
            if self.disk.has_ended() {
                break;
            }
            self.story.make(server, &self.disk, op);
        }
    }

    /// Kills the server, and goes on with what it has left on disk.
    pub fn kill(&mut self, server: Server) {
        let disk = self.disk.after_kill();
        // Its threads end, on a disk that nobody uses any longer.
        let _closed = server.store.close();
        self.disk = disk;
    }

    /// Starts a server on a disk that the last one has left, and checks what it has: see [`Story::check_restarted`].
    pub fn check(&self, disk: &CrashDisk, boot: Id, synced: Option<u64>) -> Story {
        let server = self.start(disk, boot).unwrap_or_else(|error| panic!("{error}"));
        let story = self.story.check_restarted(&server, synced);
        let _closed = server.store.close();
        story
    }

    /// Checks what is there after a kill.
    pub fn check_killed(&self) -> Story {
        self.check(&self.disk.after_kill(), BOOTS[0], None)
    }
}

/// Calls of each kind, on items with keys from `first` on, up to nearly a hundred.
pub fn calls(first: u64) -> Vec<Op> {
    let key = |number| first + number;
    vec![
        Op::Insert(ITEMS, key(1), 1.0),
        Op::Insert(ITEMS, key(2), 2.0),
        Op::Insert(QUEUE, key(1), 1.0),
        Op::Insert(QUEUE, key(2), 1.0),
        Op::Write(key(1), key(1)),
        Op::Write(key(3), key(2)),
        Op::Draw(QUEUE, 2),
        Op::Draw(ITEMS, 1),
        Op::Receive(QUEUE, 1),
        Op::Insert(THRICE, key(1), 1.0),
        Op::Draw(THRICE, 2),
        Op::Receive(THRICE, 1),
        Op::Update(PRIORITIZED, vec![(key(1), 7.0), (key(77), 1.0)]),
        Op::Save,
        Op::Insert(QUEUE, key(3), 1.0),
        Op::Insert(THRICE, key(2), 1.0),
        Op::Draw(THRICE, 2),
        Op::Receive(THRICE, 2),
        Op::Write(key(2), key(3)),
        Op::Insert(PRIORITIZED, key(4), 5.0),
        Op::Delete(PRIORITIZED, vec![key(2)]),
        Op::Delete(QUEUE, vec![key(2)]),
        Op::Update(QUEUE, vec![(key(3), 4.0)]),
        Op::Draw(QUEUE, 1),
        Op::Update(QUEUE, vec![(key(3), 5.0)]),
        Op::SetSize(ITEMS, 1),
        Op::SetSize(ITEMS, 4),
        Op::Insert(ITEMS, key(5), 1.0),
        Op::Save,
        Op::GiveBack(QUEUE, 2),
        Op::Receive(ITEMS, 1),
        Op::Reset(ITEMS),
        Op::Insert(ITEMS, key(6), 3.0),
        Op::Insert(QUEUE, key(7), 1.0),
        Op::Draw(QUEUE, 1),
        Op::Write(key(5), key(8)),
        Op::Update(ITEMS, vec![(key(6), 9.0)]),
        Op::Receive(THRICE, 1),
    ]
}
