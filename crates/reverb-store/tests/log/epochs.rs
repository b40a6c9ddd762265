//! Epochs, marks, fences, and the end of logs.

use crate::crash_disk::{CrashDisk, Fault, Left};
use crate::world::{
    BOOTS, Clock, FOLDER, INTERVAL, Notes, Owner, SEGMENT, Story, change, claim, live, recovered, recovered_from,
};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use reverb_core::Error;
use reverb_service::LogMode;
use reverb_store::log::{Log, LogOptions, Payload, Source, Start, recover};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

fn owner(mode: LogMode) -> (CrashDisk, Owner) {
    let disk = CrashDisk::with_folder(FOLDER);
    let owner = Owner::start(&disk, mode, Start::fresh(), Story::default()).unwrap();
    (disk, owner)
}

#[test]
fn an_epoch_begins_where_the_one_before_ends() {
    for mode in [LogMode::Process, LogMode::Power] {
        let (disk, mut owner) = owner(mode);
        let began = owner.log.began();
        live(&mut owner);
        let (count, position) = owner.story.checkpoints[0];
        for (count, position) in [(0, began), (count, position)] {
            let (found, _) = recovered_from(&disk.after_kill(), count, position, BOOTS[0]).unwrap();
            assert_eq!(found, owner.story.noted);
        }
        let before = owner.log.status().unwrap();
        assert!(before.epoch_bytes < before.bytes);
        owner.log.remove_before(u64::MAX).unwrap();
        let status = owner.log.status().unwrap();
        assert_eq!((status.bytes, status.epoch_bytes), (before.epoch_bytes, before.epoch_bytes));
        assert!(matches!(recovered_from(&disk.after_kill(), 0, began, BOOTS[0]), Err(Error::DataLoss(_))));
        owner.commit();
        let (found, _) = recovered_from(&disk.after_kill(), count, position, BOOTS[0]).unwrap();
        assert_eq!(found, owner.story.noted);
    }
}

#[test]
fn the_last_frame_of_an_epoch_counts() {
    let (_, mut owner) = owner(LogMode::Process);
    let before = owner.log.status().unwrap().bytes;
    owner.checkpoint();
    let status = owner.log.status().unwrap();
    let frame = (48 + change(0).len()).next_multiple_of(8) as u64;
    assert_eq!((status.bytes, status.epoch_bytes), (before + frame + 72, 72));
}

#[test]
fn an_idle_log_marks_what_it_has_synced() {
    for mode in [LogMode::Process, LogMode::Power] {
        let (disk, mut owner) = owner(mode);
        (0..3).for_each(|_| owner.commit());
        let bytes = |owner: &Owner| owner.log.status().unwrap().bytes;
        let before = bytes(&owner);
        owner.clock.advance(INTERVAL);
        owner.log.tick();
        assert_eq!(bytes(&owner), before + 48, "a mark");
        owner.clock.advance(INTERVAL);
        owner.log.tick();
        assert_eq!(bytes(&owner), before + 48, "one is enough");
        // The last change is damaged, and not torn.
        let mut files = disk.files();
        let segment = files.get_mut(&Path::new(FOLDER).join("log-0-0.rvlog")).unwrap();
        segment[before as usize - 20] ^= 1;
        assert!(matches!(recovered(&CrashDisk::of(&files), &owner.story, BOOTS[1]), Err(Error::DataLoss(_))));
    }
}

#[test]
fn a_start_marks_what_it_has_recovered() {
    let (disk, mut owner) = owner(LogMode::Process);
    owner.commit();
    let end = owner.log.status().unwrap().bytes;
    let disk = disk.after_kill();
    let (_, found) = recovered(&disk, &owner.story, BOOTS[0]).unwrap();
    let second = Owner::start(&disk, LogMode::Process, found.unwrap().next, owner.story.clone()).unwrap();
    let mut files = disk.files();
    files.get_mut(&Path::new(FOLDER).join("log-0-0.rvlog")).unwrap()[end as usize - 50] ^= 1;
    for boot in BOOTS {
        assert!(matches!(recovered(&CrashDisk::of(&files), &second.story, boot), Err(Error::DataLoss(_))));
    }
}

#[test]
fn a_server_that_was_replaced_confirms_nothing_after_a_pause_or_a_sync() {
    for mode in [LogMode::Process, LogMode::Power] {
        for way in 0..4 {
            let (disk, mut owner) = owner(mode);
            owner.commit();
            claim(&disk).unwrap();
            match way {
                0 => owner.clock.advance(INTERVAL + Duration::from_millis(1)),
                // Until a segment is full.
                1 => (0..10).for_each(|_| owner.note()),
                2 => {
                    owner.clock.advance(INTERVAL);
                    owner.log.tick();
                }
                _ => assert!(owner.log.begin_epoch(|_| Ok(())).is_err()),
            }
            let before = owner.story.confirmed;
            owner.commit();
            assert!(owner.story.has_failed, "{mode:?} {way}");
            assert_eq!(owner.story.confirmed, before);
            let failure = owner.log.failure().unwrap();
            assert!(matches!(&failure, Error::Storage(text) if text.contains("another server")), "{failure}");
            assert!(owner.log.stop().is_err());
        }
    }
}

#[test]
fn a_server_that_was_replaced_does_not_harm_the_log_of_the_next() {
    let (disk, mut first) = owner(LogMode::Power);
    let began = first.log.began();
    first.commit();
    let (count, found) = recovered(&disk, &first.story, BOOTS[0]).unwrap();
    let mut second = Owner::start(&disk, LogMode::Power, found.unwrap().next, first.story.clone()).unwrap();
    // It looks at the fence when it has written this.
    first.commit();
    assert!(first.story.has_failed && first.story.confirmed == count);
    second.commit();
    for boot in BOOTS {
        assert_eq!(recovered_from(&disk.after_kill(), 0, began, boot).unwrap().0, second.story.noted);
    }
}

#[test]
fn a_server_that_was_replaced_writes_nothing_after_a_pause() {
    let (disk, mut first) = owner(LogMode::Power);
    first.commit();
    claim(&disk).unwrap();
    first.clock.advance(INTERVAL + Duration::from_millis(1));
    let before = disk.files();
    first.commit();
    assert!(first.story.has_failed);
    assert_eq!(disk.files(), before);
}

#[test]
fn a_server_that_was_replaced_during_a_sync_confirms_nothing() {
    let (disk, mut owner) = owner(LogMode::Power);
    owner.commit();
    let clock = owner.clock.clone();
    std::thread::scope(|scope| {
        let (begins, end) = disk.hold_sync();
        let syncing = scope.spawn(|| owner.commit());
        begins.recv().unwrap();
        clock.advance(INTERVAL + Duration::from_millis(1));
        claim(&disk).unwrap();
        end.send(()).unwrap();
        syncing.join().unwrap();
    });
    assert!(owner.story.has_failed);
}

#[test]
fn changes_age_from_when_they_were_written() {
    let (_, mut owner) = owner(LogMode::Process);
    owner.clock.advance(100 * INTERVAL);
    owner.commit();
    assert_eq!(owner.log.status().unwrap().sync_age, Duration::ZERO);
    owner.clock.advance(INTERVAL / 2);
    owner.commit();
    owner.log.tick();
    assert_eq!(owner.log.status().unwrap().sync_age, INTERVAL / 2);
    owner.clock.advance(INTERVAL / 2);
    owner.log.tick();
    assert_eq!(owner.log.status().unwrap().sync_age, Duration::ZERO);
}

#[test]
fn syncs_without_an_interval_are_refused() {
    let disk = CrashDisk::with_folder(FOLDER);
    let options = LogOptions { sync_interval: Duration::ZERO, ..Clock::default().options(LogMode::Process) };
    let error = Log::start(claim(&disk).unwrap(), Start::fresh(), options).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
}

#[test]
fn a_server_that_was_replaced_during_its_recovery_changes_nothing() {
    let (disk, mut owner) = owner(LogMode::Process);
    (0..9).for_each(|_| owner.commit());
    let mut before = BTreeMap::new();
    let fence = claim(&disk).unwrap();
    let error = recover(&fence, owner.log.began(), Some(BOOTS[0]), &mut |_, _| {
        claim(&disk)?;
        before = disk.files();
        Ok(())
    });
    let error = error.unwrap_err();
    assert!(matches!(&error, Error::Storage(text) if text.contains("another server")), "{error}");
    assert_eq!(disk.files(), before);
}

#[test]
fn the_name_of_a_segment_that_was_removed_is_not_used_again() {
    let (disk, mut owner) = owner(LogMode::Process);
    owner.commit();
    let mut files = disk.files();
    // A start that was killed before it wrote a header.
    let made = Path::new(FOLDER).join("log-1-0.rvlog");
    files.insert(made.clone(), vec![0; SEGMENT as usize]);
    let disk = CrashDisk::of(&files);
    let found = recovered(&disk, &owner.story, BOOTS[0]).unwrap().1.unwrap();
    assert!(!disk.files().contains_key(&made));
    assert_eq!(found.next.position.epoch, 2);
}

#[test]
fn a_frame_may_be_larger_than_a_segment() {
    let (disk, mut owner) = owner(LogMode::Power);
    owner.commit();
    (0..100).for_each(|_| owner.note());
    owner.commit();
    owner.commit();
    assert!(owner.log.status().unwrap().bytes > 5 * SEGMENT);
    assert_eq!(recovered(&disk.after_kill(), &owner.story, BOOTS[0]).unwrap().0, owner.story.noted);
}

#[test]
fn little_free_space_is_told() {
    let (disk, mut owner) = owner(LogMode::Process);
    for (free, reserve, is_low) in [(2 * SEGMENT, 0, false), (2 * SEGMENT, 1, true), (2 * SEGMENT - 1, 0, true)] {
        disk.set_free(free);
        owner.log.set_reserve(reserve);
        owner.pass_interval();
        assert_eq!(owner.log.status().unwrap().is_low, is_low, "{free} {reserve}");
        owner.commit();
    }
    assert!(!owner.story.has_failed);
}

#[test]
fn a_stopped_log_takes_nothing_more() {
    let (disk, mut owner) = owner(LogMode::Process);
    owner.commit();
    owner.stop();
    assert!(matches!(owner.log.commit(&Notes::default()), Err(Error::Cancelled(_))));
    assert!(matches!(owner.log.begin_epoch(|_| Ok(())), Err(Error::Cancelled(_))));
    owner.log.stop().unwrap();
    let (count, found) = recovered(&disk.after_kill(), &owner.story, BOOTS[1]).unwrap();
    assert_eq!((count, found.unwrap().torn_bytes), (1, 0));
}

#[test]
fn two_stops_end_when_all_is_synced() {
    let (disk, mut owner) = owner(LogMode::Process);
    owner.commit();
    let stop = || {
        owner.log.stop().unwrap();
        let lost = disk.after_power_loss(Left::Nothing, &mut SmallRng::seed_from_u64(0));
        assert_eq!(recovered(&lost, &owner.story, BOOTS[1]).unwrap().0, 1);
    };
    std::thread::scope(|scope| {
        let (begins, end) = disk.hold_sync();
        let first = scope.spawn(stop);
        begins.recv().unwrap();
        let second = scope.spawn(stop);
        // Most likely the second has begun then. If it comes later, that is no error, either.
        std::thread::sleep(Duration::from_millis(20));
        end.send(()).unwrap();
        first.join().unwrap();
        second.join().unwrap();
    });
}

#[test]
fn a_turn_that_comes_after_the_stop_is_refused() {
    let (disk, mut owner) = owner(LogMode::Process);
    owner.commit();
    let (log, before) = (&owner.log, disk.files().len());
    std::thread::scope(|scope| {
        let (begins, end) = disk.hold_sync();
        // Its segment is made before its turn.
        let beginning = scope.spawn(|| log.begin_epoch::<()>(|_| panic!("it is not drained")));
        begins.recv().unwrap();
        log.stop().unwrap();
        end.send(()).unwrap();
        assert!(matches!(beginning.join().unwrap(), Err(Error::Cancelled(_))));
    });
    assert_eq!(disk.files().len(), before, "its segment is removed");
}

/// A log whose disk fails, and its successor.
#[test]
fn a_log_goes_on_behind_a_failure_with_a_checkpoint() {
    for fault in [Fault::Error(libc::EIO), Fault::Fills, Fault::Lies] {
        let (disk, mut owner) = owner(LogMode::Power);
        let began = owner.log.began();
        (0..3).for_each(|_| owner.commit());
        disk.fail(0, fault, true);
        owner.commit();
        let story = Story { has_failed: false, noted: 3, ..owner.story.clone() };
        disk.fail(0, Fault::Short, false);
        let successor = owner.log.successor(1).unwrap();
        drop(owner);
        let mut second = Owner::start(&disk, LogMode::Power, successor, story).unwrap();
        // Killed before the checkpoint of its start is finished: the older one and its log are whole.
        let (count, _) = recovered_from(&disk.after_kill(), 0, began, BOOTS[0]).unwrap();
        assert!((3..=4).contains(&count), "{count}");
        // With the checkpoint. The older one lacks what came in between, and must not be used with the newer log.
        second.story.checkpoints.push((3, second.log.began()));
        (0..3).for_each(|_| second.commit());
        assert_eq!(recovered(&disk.after_kill(), &second.story, BOOTS[0]).unwrap().0, 6);
        for boot in BOOTS {
            assert!(matches!(recovered_from(&disk.after_kill(), 0, began, boot), Err(Error::DataLoss(_))));
        }
    }
}

struct Panics;

impl Source for Panics {
    fn drain(&self, _: &mut Payload) -> reverb_core::Result<()> {
        panic!("a source may have a bug")
    }
}

#[test]
fn what_is_written_during_a_sync_is_not_called_synced() {
    let (disk, mut owner) = owner(LogMode::Process);
    owner.commit();
    // Makes the next segment.
    owner.log.tick();
    owner.clock.advance(INTERVAL);
    std::thread::scope(|scope| {
        let (begins, end) = disk.hold_sync();
        let log = &owner.log;
        let syncing = scope.spawn(|| log.tick());
        begins.recv().unwrap();
        let notes = Notes::default();
        notes.0.lock().push(1);
        log.commit(&notes).unwrap();
        end.send(()).unwrap();
        syncing.join().unwrap();
    });
    owner.clock.advance(Duration::from_millis(1));
    assert!(owner.log.status().unwrap().sync_age > Duration::ZERO);
    let mut random = SmallRng::seed_from_u64(0);
    let lost = disk.after_power_loss(Left::Nothing, &mut random);
    assert_eq!(recovered(&lost, &owner.story, BOOTS[1]).unwrap().0, 1);
}

#[test]
fn a_change_that_comes_during_a_sync_is_confirmed_by_the_next() {
    let (disk, owner) = owner(LogMode::Power);
    let log = &owner.log;
    let commit = |number| {
        let notes = Notes::default();
        notes.0.lock().push(number);
        log.commit(&notes).unwrap();
        let lost = disk.after_power_loss(Left::Nothing, &mut SmallRng::seed_from_u64(0));
        assert!(recovered(&lost, &owner.story, BOOTS[1]).unwrap().0 > number);
    };
    std::thread::scope(|scope| {
        let (begins, end) = disk.hold_sync();
        let first = scope.spawn(|| commit(0));
        begins.recv().unwrap();
        let before = log.status().unwrap().bytes;
        let second = scope.spawn(|| commit(1));
        while log.status().unwrap().bytes == before {
            std::thread::yield_now();
        }
        end.send(()).unwrap();
        first.join().unwrap();
        second.join().unwrap();
    });
}

#[test]
fn a_source_that_panics_closes_the_log() {
    let (_, owner) = owner(LogMode::Process);
    let log = &owner.log;
    std::thread::scope(|scope| assert!(scope.spawn(|| log.commit(&Panics)).join().is_err()));
    assert!(matches!(log.commit(&Notes::default()), Err(Error::Storage(_))));
}

#[test]
fn a_forked_child_does_nothing() {
    let (disk, mut owner) = owner(LogMode::Power);
    owner.commit();
    let calls = disk.calls();
    // SAFETY: the child uses only what a fork leaves whole, and ends without running handlers of this process.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let log = &owner.log;
        let is_quiet = log.commit(&Notes::default()).is_err()
            && log.stop().is_err()
            && log.begin_epoch(|_| Ok(())).is_err()
            && log.status().is_none()
            && log.failure().is_some();
        log.tick();
        drop(owner);
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(!is_quiet || disk.calls() != calls)) };
    }
    let mut status = -1;
    // SAFETY: the call writes the status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
}
