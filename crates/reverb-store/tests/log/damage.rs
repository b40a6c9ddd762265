//! Damaged logs: each bit, each length, and files that are missing or others.

use crate::crash_disk::{CrashDisk, Fault, LEFT, Left};
use crate::world::{BOOTS, FOLDER, INTERVAL, Owner, Story, change, live, recovered, recovered_from};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use reverb_core::Error;
use reverb_service::LogMode;
use reverb_store::log::{Position, Start, oldest, set_aside, verify};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

type Files = BTreeMap<PathBuf, Vec<u8>>;

/// What the owner knows of a log: after which change it was synced through which.
struct Known {
    files: Files,
    story: Story,
    /// (number of changes, of those that were synced) whenever the number of changes has grown.
    synced_at: Vec<(u32, u32)>,
    /// Whether the log has ended with a mark.
    is_stopped: bool,
}

/// A log with several segments and epochs, synced now and then.
fn known(mode: LogMode, is_stopped: bool) -> Known {
    let disk = CrashDisk::with_folder(FOLDER);
    let mut owner = Owner::start(&disk, mode, Start::fresh(), Story::default()).unwrap();
    let mut synced_at = Vec::new();
    for round in 0..14 {
        let before = owner.story.synced;
        owner.commit();
        synced_at.push((owner.story.noted, before));
        if round % 5 == 3 {
            owner.clock.advance(INTERVAL);
            owner.log.tick();
            owner.story.synced = owner.story.confirmed;
        }
        if round == 7 {
            let before = owner.story.synced;
            owner.checkpoint();
            synced_at.push((owner.story.noted, before));
            owner.story.checkpoints.clear();
        }
    }
    if is_stopped {
        owner.stop();
    }
    Known { files: disk.files(), story: owner.story.clone(), synced_at, is_stopped }
}

/// Whether a change is whole in one of the files.
fn is_there(files: &Files, number: u32) -> bool {
    let change = change(number);
    files.values().any(|content| content.windows(change.len()).any(|window| window == change))
}

impl Known {
    /// Checks what is recovered of damaged files: all, or a part behind which no whole change says that more was synced.
    fn check(&self, files: &Files, boot: usize, at: &str) -> bool {
        match recovered(&CrashDisk::of(files), &self.story, BOOTS[boot]) {
            Ok((count, _)) => {
                assert!(count <= self.story.noted, "{at}");
                let heard = self.synced_at.iter().filter(|(number, _)| *number > count && is_there(files, number - 1));
                let synced = heard.map(|(_, synced)| *synced).max().unwrap_or(0);
                assert!(synced <= count, "{at}: {count} were recovered, and {synced} were synced");
                assert!(!self.is_stopped || count == self.story.noted, "{at}: {count} after a stop");
                true
            }
            Err(Error::DataLoss(text)) => {
                assert!(text.contains(".rvlog"), "{at}: {text}");
                false
            }
            Err(error) => panic!("{at}: {error}"),
        }
    }
}

#[test]
fn each_bit_of_a_log_counts() {
    for (mode, is_stopped) in [(LogMode::Process, false), (LogMode::Process, true), (LogMode::Power, false)] {
        let known = known(mode, is_stopped);
        let segments = known.files.keys().filter(|path| path.to_str().unwrap().ends_with(".rvlog"));
        assert!(segments.clone().count() >= 4);
        let mut outcomes = [0, 0];
        for path in segments {
            let mut files = known.files.clone();
            for bit in 0..files[path].len() * 8 {
                files.get_mut(path).unwrap()[bit / 8] ^= 1 << (bit % 8);
                let boot = usize::from(bit % 3 == 0);
                let at = format!("{mode:?} {is_stopped}, bit {bit} of {}, boot {boot}", path.display());
                outcomes[usize::from(known.check(&files, boot, &at))] += 1;
                files.get_mut(path).unwrap()[bit / 8] ^= 1 << (bit % 8);
            }
        }
        assert!(outcomes.iter().all(|&count| count > 1000), "{outcomes:?}");
    }
}

#[test]
fn a_log_that_is_cut_at_any_length_is_refused_or_has_all_that_was_synced() {
    let known = known(LogMode::Process, false);
    let mut is_refused = Vec::new();
    for (path, content) in known.files.iter().filter(|(path, _)| path.to_str().unwrap().ends_with(".rvlog")) {
        for length in 0..content.len() {
            for boot in [0, 1] {
                let mut files = known.files.clone();
                files.get_mut(path).unwrap().truncate(length);
                is_refused.push(!known.check(&files, boot, &format!("{length} bytes of {}", path.display())));
            }
        }
    }
    assert!(is_refused.iter().any(|refused| *refused) && is_refused.iter().any(|refused| !refused));
}

#[test]
fn after_a_kill_only_the_last_frame_may_be_torn() {
    // Nothing was synced, so that only the boot tells.
    let disk = CrashDisk::with_folder(FOLDER);
    let mut owner = Owner::start(&disk, LogMode::Process, Start::fresh(), Story::default()).unwrap();
    (0..12).for_each(|_| owner.commit());
    let first = Path::new(FOLDER).join("log-0-0.rvlog");
    let find = |number: u32| {
        let change = change(number);
        disk.files()[&first].windows(change.len()).position(|window| window == change)
    };
    let place = find(4).unwrap();
    let mut files = disk.files();
    files.get_mut(&first).unwrap()[place] ^= 1;
    let error = recovered(&CrashDisk::of(&files), &owner.story, BOOTS[0]).unwrap_err();
    assert!(matches!(&error, Error::DataLoss(text) if text.contains("log-0-0.rvlog")), "{error}");
    let (count, found) = recovered(&CrashDisk::of(&files), &owner.story, BOOTS[1]).unwrap();
    assert_eq!(count, 4);
    assert!(found.unwrap().torn_bytes > 500);
    // A header of the next segment is enough to know.
    let mut files = disk.files();
    let last = (0..12).rev().find_map(find).unwrap();
    files.get_mut(&first).unwrap()[last] ^= 1;
    let second = Path::new(FOLDER).join("log-0-1.rvlog");
    files.get_mut(&second).unwrap().truncate(80);
    assert!(matches!(recovered(&CrashDisk::of(&files), &owner.story, BOOTS[0]), Err(Error::DataLoss(_))));
}

fn whole() -> (Files, Story, Position) {
    let disk = CrashDisk::with_folder(FOLDER);
    let mut owner = Owner::start(&disk, LogMode::Process, Start::fresh(), Story::default()).unwrap();
    live(&mut owner);
    owner.log.tick();
    let position = owner.log.began();
    owner.story.checkpoints.clear();
    (disk.files(), owner.story.clone(), position)
}

fn refusal(files: &Files, position: Position) -> String {
    let disk = CrashDisk::of(files);
    let errors = BOOTS.map(|boot| match recovered_from(&disk, 0, position, boot) {
        Err(Error::DataLoss(text)) => text,
        other => panic!("{other:?}"),
    });
    let segments = |files: &Files| segments_of(files).into_iter().map(|path| (files[&path].clone(), path)).collect();
    let (before, after): (Vec<_>, Vec<_>) = (segments(files), segments(&disk.files()));
    assert_eq!(after, before, "damage is not touched");
    errors.into_iter().next().unwrap()
}

fn segments_of(files: &Files) -> Vec<PathBuf> {
    files.keys().filter(|path| path.to_str().unwrap().ends_with(".rvlog")).cloned().collect()
}

#[test]
fn a_missing_segment_is_named() {
    let (files, _, position) = whole();
    let segments = segments_of(&files);
    assert!(segments.len() > 4, "{segments:?}");
    // The last is the one that was made ahead.
    for path in &segments[..segments.len() - 2] {
        let mut files = files.clone();
        files.remove(path);
        let text = refusal(&files, position);
        assert!(text.contains(".rvlog"), "{text}");
        let is_first = path.ends_with("log-1-0.rvlog");
        assert!(!is_first || text.contains("log-1-0.rvlog is missing"), "{text}");
    }
}

#[test]
fn segments_of_another_place_or_log_are_refused() {
    let (files, _, position) = whole();
    let (others, _, _) = whole();
    let segments = segments_of(&files);
    for (index, path) in segments.iter().enumerate().take(segments.len() - 2) {
        let mut mixed = files.clone();
        mixed.insert(path.clone(), others[path].clone());
        assert!(refusal(&mixed, position).contains("log"), "{}", path.display());
        let mut swapped = files.clone();
        swapped.insert(path.clone(), files[&segments[(index + 1) % 3]].clone());
        assert!(refusal(&swapped, position).contains(".rvlog"));
    }
    // Also one that would fit: the first of the second epoch behind the last of the first.
    let mut renamed = files.clone();
    let first = renamed.remove(&Path::new(FOLDER).join("log-1-0.rvlog")).unwrap();
    segments[3..].iter().for_each(|path| drop(renamed.remove(path)));
    renamed.insert(Path::new(FOLDER).join("log-0-2.rvlog"), first);
    assert!(refusal(&renamed, position).contains("log-0-2.rvlog is not this segment"));
}

/// A log of which nothing was synced.
fn unsynced() -> (Files, Story, Position) {
    let disk = CrashDisk::with_folder(FOLDER);
    let mut owner = Owner::start(&disk, LogMode::Process, Start::fresh(), Story::default()).unwrap();
    (0..25).for_each(|_| owner.commit());
    (disk.files(), owner.story.clone(), owner.log.began())
}

#[test]
fn what_is_not_of_this_place_is_not_cut_off_as_a_torn_tail() {
    let (files, story, position) = unsynced();
    let segments = segments_of(&files);
    assert!(segments.len() > 2);
    let torn = |third: Vec<u8>| {
        let mut files = files.clone();
        files.get_mut(&segments[0]).unwrap().truncate(200);
        files.insert(segments[2].clone(), third);
        files
    };
    let cut = recovered(&CrashDisk::of(&torn(files[&segments[2]].clone())), &story, BOOTS[1]).unwrap();
    assert!(cut.0 < 5 && cut.1.unwrap().torn_bytes > 1000);
    // Another log, and a segment that was read already.
    for third in [unsynced().0[&segments[2]].clone(), files[&segments[0]].clone()] {
        let disk = CrashDisk::of(&torn(third));
        assert!(matches!(recovered_from(&disk, 0, position, BOOTS[1]), Err(Error::DataLoss(_))));
    }
}

#[test]
fn a_frame_that_is_missing_between_others_is_noticed() {
    let (files, story, _) = unsynced();
    let path = Path::new(FOLDER).join("log-0-0.rvlog");
    let content = &files[&path];
    let starts = (0..content.len()).filter(|at| content[*at..].starts_with(b"RvFr")).collect::<Vec<_>>();
    for frame in starts.windows(2).skip(1) {
        let mut files = files.clone();
        files.get_mut(&path).unwrap().drain(frame[0]..frame[1]);
        let result = recovered(&CrashDisk::of(&files), &story, BOOTS[1]);
        assert!(matches!(&result, Err(Error::DataLoss(text)) if text.contains("log-0-0.rvlog")), "{result:?}");
    }
}

#[test]
fn a_log_is_verified_without_a_change() {
    let (files, story, position) = whole();
    let disk = CrashDisk::of(&files);
    let verified = verify(&disk, Path::new(FOLDER), position, Some(BOOTS[0]), &mut |_, _| Ok(())).unwrap();
    assert_eq!(disk.files(), files);
    let (count, found) = recovered(&disk, &story, BOOTS[0]).unwrap();
    assert_eq!(count, story.noted);
    let found = found.unwrap();
    assert_eq!((verified.frames, verified.bytes, verified.torn_bytes), (found.frames, found.bytes, 0));
    assert_eq!(verified.next, found.next);
    assert!(disk.files().len() < files.len(), "the segment that was made ahead is removed");
}

#[test]
fn a_log_that_is_set_aside_in_part_is_refused() {
    let (files, story, position) = whole();
    let mut random = SmallRng::seed_from_u64(0);
    for call in 0..20 {
        let whole = CrashDisk::of(&files);
        whole.fail(call, Fault::Ends, true);
        let is_done = set_aside(&whole, Path::new(FOLDER)).is_ok();
        for left in LEFT.into_iter().chain([Left::Any; 8]) {
            let disk = whole.after_power_loss(left, &mut random);
            match recovered_from(&disk, 0, position, BOOTS[1]) {
                Ok((count, _)) => assert_eq!((count, is_done), (story.noted, false)),
                Err(error) => assert!(matches!(error, Error::DataLoss(_)), "{error}"),
            }
        }
        assert!(call < 19 || is_done);
    }
}

#[test]
fn what_is_set_aside_stays() {
    let (files, _, position) = whole();
    let disk = CrashDisk::of(&files);
    let aside = set_aside(&disk, Path::new(FOLDER)).unwrap();
    assert_eq!(aside.len(), segments_of(&files).len());
    assert_eq!(oldest(&disk, Path::new(FOLDER)).unwrap(), None);
    let after = disk.files();
    for (path, new) in segments_of(&files).iter().zip(&aside) {
        assert_eq!(files[path], after[new]);
    }
    assert!(matches!(recovered_from(&disk, 0, position, BOOTS[0]), Err(Error::DataLoss(_))));
    // A new log in the folder is set aside beside it.
    let mut owner = Owner::start(&disk, LogMode::Power, Start::fresh(), Story::default()).unwrap();
    owner.commit();
    assert_eq!(recovered(&disk.after_kill(), &owner.story, BOOTS[0]).unwrap().0, 1);
    assert_eq!(set_aside(&disk, Path::new(FOLDER)).unwrap().len(), 1);
    assert_eq!(disk.files().len(), after.len() + 1);
}
