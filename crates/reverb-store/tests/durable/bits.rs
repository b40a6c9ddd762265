//! Damage to each bit, and at each length, of the files of a server: its log, its checkpoints, and what is beside them.

use crate::crash_disk::CrashDisk;
use crate::life::{Life, every};
use crate::story::{Op, Story};
use crate::world::{BOOTS, ITEMS, PRIORITIZED, QUEUE, Server};
use reverb_core::Error;
use reverb_service::LogMode;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

type Files = BTreeMap<PathBuf, Vec<u8>>;

/// How a server has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Stopped: the last frame of its log says that all before it is synced.
    Stopped,
    /// Killed: the last frame may have been torn. In mode `Power`, it says that all before it is synced.
    Killed,
}

/// A server that has saved twice and made some calls since.
struct Known {
    life: Life,
    files: Files,
    /// The story before the last call.
    before_last: Story,
    /// The stories before each call and at the end, and where the log ended then.
    stories: Vec<(Story, (PathBuf, usize))>,
    end: End,
}

impl Known {
    fn new(mode: LogMode, end: End) -> Self {
        let mut life = Life::new(mode);
        let server = life.start(&life.disk, BOOTS[0]).unwrap();
        let calls = [
            Op::Insert(ITEMS, 1, 1.0),
            Op::Write(1, 2),
            Op::Insert(QUEUE, 3, 1.0),
            Op::Save,
            Op::Insert(QUEUE, 4, 1.0),
            Op::Draw(QUEUE, 1),
            Op::Receive(QUEUE, 1),
            Op::Write(3, 5),
            Op::Update(PRIORITIZED, vec![(5, 3.0)]),
            Op::Delete(ITEMS, vec![1]),
            Op::Insert(ITEMS, 6, 2.0),
        ];
        let mut stories = Vec::new();
        for call in calls {
            stories.push((life.story.clone(), end_of_log(&life.disk.files())));
            life.make(&server, &[call]);
        }
        let last = stories.last().map(|(story, _): &(Story, _)| story.clone());
        stories.push((life.story.clone(), end_of_log(&life.disk.files())));
        if end == End::Stopped {
            server.store.close().unwrap();
        }
        life.kill(server);
        let (before_last, files) = (last.unwrap(), life.disk.files());
        stories.push((life.story.clone(), end_of_log(&files)));
        Self { life, files, before_last, stories, end }
    }

    /// What a restart must find if a frame of the log may be torn that nothing calls synced.
    fn story(&self) -> Story {
        match self.end {
            End::Stopped => self.life.story.clone(),
            End::Killed => self.life.story.confirmed_as(&self.before_last),
        }
    }

    /// What a restart must find if the file at `path` ends after `length` bytes: what was in the log up to there, but for
    /// the last call, whose frame may end in zeros.
    fn story_within(&self, path: &Path, length: usize) -> Story {
        let is_within = |(_, (segment, end)): &&(Story, (PathBuf, usize))| segment != path || *end <= length;
        let within = self.stories.iter().take_while(is_within).count();
        if within == self.stories.len() {
            self.story()
        } else {
            self.life.story.confirmed_as(&self.stories[within.saturating_sub(2)].0)
        }
    }

    /// Starts a server on damaged files. What it has must be that of the story, or it names the damage. Returns whether it
    /// has started.
    fn check(&self, files: &Files, story: &Story, number: usize, at: &str) -> bool {
        let disk = CrashDisk::of(files);
        // Power was lost or not. If it was not, a frame with another behind it is never torn.
        match self.life.start(&disk, BOOTS[number % 2]) {
            Ok(server) => {
                story.check_restarted(&server, None);
                let _closed = server.store.close();
                true
            }
            Err(Error::DataLoss(text)) => {
                assert!(text.contains(self.life.options().root.to_str().unwrap()), "{at}: {text} names no file");
                self.accept_loss(files, at);
                false
            }
            Err(error) => panic!("{at}: {error}"),
        }
    }

    /// The start succeeds, and all segments stay, under their names or others.
    fn accept_loss(&self, files: &Files, at: &str) {
        let disk = CrashDisk::of(files);
        let options = reverb_store::checkpoint::CheckpointOptions { accept_loss: true, ..self.life.options() };
        let server = Server::start_on(&disk, options, BOOTS[1]).unwrap_or_else(|error| panic!("{at}: {error}"));
        self.life.story.check_without_log(&server);
        let _closed = server.store.close();
        let mut left: Vec<_> = disk.files().into_values().collect();
        for (path, content) in files.iter().filter(|(path, _)| is_segment(path)) {
            let place = left.iter().position(|other| other == content);
            left.swap_remove(place.unwrap_or_else(|| panic!("{at}: {} is gone", path.display())));
        }
    }
}

/// The last segment that has frames, and where they end.
pub fn end_of_log(files: &Files) -> (PathBuf, usize) {
    let end = |content: &Vec<u8>| content.iter().rposition(|byte| *byte != 0).map(|last| last + 1);
    let segments = files.iter().filter(|(path, _)| is_segment(path));
    segments.filter_map(|(path, content)| Some((path.clone(), end(content)?))).next_back().unwrap()
}

fn is_segment(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "rvlog")
}

fn knowns() -> impl Iterator<Item = Known> {
    [(LogMode::Process, End::Stopped), (LogMode::Power, End::Stopped), (LogMode::Power, End::Killed)]
        .into_iter()
        .map(|(mode, end)| Known::new(mode, end))
}

#[test]
fn each_bit_counts() {
    let mut outcomes = [0, 0];
    for (known, offset) in knowns().zip(0..) {
        let places = known.files.iter().flat_map(|(path, content)| (0..content.len() * 8).map(move |bit| (path, bit)));
        let places: Vec<_> = places.collect();
        for place in every(5 * offset, 10).map_while(|place| places.get(place)) {
            let mut files = known.files.clone();
            files.get_mut(place.0).unwrap()[place.1 / 8] ^= 1 << (place.1 % 8);
            let at = format!("bit {} of {}", place.1, place.0.display());
            outcomes[usize::from(known.check(&files, &known.story(), place.1, &at))] += 1;
        }
    }
    assert!(outcomes.iter().all(|count| *count > 100), "{outcomes:?}");
}

#[test]
fn each_length_counts() {
    let mut outcomes = [0, 0];
    for (known, offset) in knowns().zip(0..) {
        let places =
            known.files.iter().flat_map(|(path, content)| (0..content.len()).map(move |length| (path, length)));
        let places: Vec<_> = places.collect();
        for place in every(5 * offset, 2).map_while(|place| places.get(place)) {
            let mut files = known.files.clone();
            files.get_mut(place.0).unwrap().truncate(place.1);
            let at = format!("{} bytes of {}", place.1, place.0.display());
            outcomes[usize::from(known.check(&files, &known.story_within(place.0, place.1), place.1, &at))] += 1;
        }
    }
    assert!(outcomes.iter().all(|count| *count > 20), "{outcomes:?}");
}
