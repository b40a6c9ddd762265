//! Each call of the disk fails once, in each way.

use crate::crash_disk::{CrashDisk, Fault, LEFT};
use crate::world::{BOOTS, FOLDER, Owner, Story, live, recovered};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use reverb_core::Error;
use reverb_service::LogMode;
use reverb_store::log::Start;

/// A server that was killed, and a second one on its disk that meets the fault. Returns the disk and what happened.
fn two_lives(mode: LogMode, call: u64, fault: Fault, for_ever: bool) -> (CrashDisk, Story) {
    let disk = CrashDisk::with_folder(FOLDER);
    let mut first = Owner::start(&disk, mode, Start::fresh(), Story::default()).unwrap();
    live(&mut first);
    let story = first.story.clone();
    drop(first);
    let disk = disk.after_kill();
    disk.fail(call, fault, for_ever);
    let next = match recovered(&disk, &story, BOOTS[0]) {
        Ok((count, next)) => {
            assert_eq!(count, story.noted);
            next.unwrap().next
        }
        Err(error) => {
            assert!(matches!(error, Error::Storage(_)), "{error}");
            return (disk, story);
        }
    };
    // What was recovered is on disk.
    let story = Story { synced: story.noted, ..story };
    match Owner::start(&disk, mode, next, story.clone()) {
        Ok(mut second) => {
            live(&mut second);
            second.stop();
            (disk, second.story)
        }
        Err(error) => {
            assert!(matches!(error, Error::Storage(_)), "{error}");
            (disk, story)
        }
    }
}

fn check(mode: LogMode, fault: Fault, for_ever: bool, must_fail: bool) {
    let mut call = 0;
    let mut random = SmallRng::seed_from_u64(call);
    let mut failures = 0;
    loop {
        let (disk, story) = two_lives(mode, call, fault, for_ever);
        let at = format!("{mode:?} {fault:?} {for_ever} at call {call}: {story:?}");
        let is_reached = disk.calls() > call;
        assert!(must_fail || (!story.has_failed && story.confirmed == story.noted), "{at}");
        let (count, _) =
            recovered(&disk.after_kill(), &story, BOOTS[0]).unwrap_or_else(|error| panic!("{at}: {error}"));
        assert!((story.confirmed..=story.noted).contains(&count), "{at}: {count}");
        for left in LEFT {
            let disk = disk.after_power_loss(left, &mut random);
            let (count, _) =
                recovered(&disk, &story, BOOTS[1]).unwrap_or_else(|error| panic!("{at}, {left:?}: {error}"));
            assert!((story.synced..=story.noted).contains(&count), "{at}, {left:?}: {count}");
        }
        if !is_reached {
            break;
        }
        failures += u32::from(disk.has_failed());
        call += 1;
    }
    assert!(failures > 20, "{failures}");
}

#[test]
fn no_fault_loses_what_was_confirmed() {
    for mode in [LogMode::Process, LogMode::Power] {
        for error in [libc::EIO, libc::ENOSPC] {
            check(mode, Fault::Error(error), false, true);
            check(mode, Fault::Error(error), true, true);
        }
        check(mode, Fault::Fills, true, true);
        check(mode, Fault::Lies, false, true);
    }
}

#[test]
fn a_start_that_has_failed_is_tried_again_after_another_recovery_only() {
    let (mut call, mut refusals) = (0, 0);
    loop {
        let disk = CrashDisk::with_folder(FOLDER);
        let mut first = Owner::start(&disk, LogMode::Process, Start::fresh(), Story::default()).unwrap();
        first.commit();
        let story = first.story.clone();
        drop(first);
        let next = recovered(&disk, &story, BOOTS[0]).unwrap().1.unwrap().next;
        disk.fail(call, Fault::Error(libc::EIO), true);
        let is_started = Owner::start(&disk, LogMode::Process, next, story.clone()).is_ok();
        let disk = disk.after_kill();
        if is_started {
            break;
        }
        let mut second = match Owner::start(&disk, LogMode::Process, next, story.clone()) {
            Ok(second) => second,
            Err(error) => {
                assert!(matches!(&error, Error::Storage(text) if text.contains("recover the log again")), "{error}");
                refusals += 1;
                let next = recovered(&disk, &story, BOOTS[0]).unwrap().1.unwrap().next;
                Owner::start(&disk, LogMode::Process, next, story).unwrap()
            }
        };
        second.commit();
        assert_eq!(recovered(&disk.after_kill(), &second.story, BOOTS[0]).unwrap().0, 2, "call {call}");
        call += 1;
    }
    assert!(refusals > 1 && call > refusals, "{refusals} of {call}");
}

#[test]
fn short_and_interrupted_writes_are_continued() {
    for mode in [LogMode::Process, LogMode::Power] {
        check(mode, Fault::Short, false, false);
        check(mode, Fault::Error(libc::EINTR), false, false);
    }
    // For ever: one byte at a time at last.
    check(LogMode::Power, Fault::Short, true, false);
}
