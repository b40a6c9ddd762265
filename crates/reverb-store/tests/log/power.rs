//! Power is lost at each call of the disk, also while a log is recovered.

use crate::crash_disk::{CrashDisk, Fault, LEFT, Left};
use crate::world::{BOOTS, FOLDER, Owner, Story, live, recovered};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use reverb_service::LogMode;
use reverb_store::log::Start;

/// A server that ends at a call of its disk.
fn life(disk: &CrashDisk, mode: LogMode, start: Start, story: Story, call: u64) -> Story {
    disk.fail(call, Fault::Ends, true);
    let before = story.clone();
    match Owner::start(disk, mode, start, story) {
        Ok(mut owner) => {
            live(&mut owner);
            Story { has_failed: false, ..owner.story }
        }
        Err(_) => before,
    }
}

/// Recovers after a loss of power, after a second one during the recovery.
fn recover_twice(disk: &CrashDisk, story: &Story, random: &mut SmallRng) -> (CrashDisk, u32, Option<Start>) {
    disk.fail(random.random_range(0..36), Fault::Ends, true);
    // The second loss of power is in another boot than the first, or the process is only killed.
    let first = recovered(disk, story, BOOTS[1]);
    let left = LEFT[random.random_range(0..LEFT.len())];
    let disk = if random.random() { disk.after_power_loss(left, random) } else { disk.after_kill() };
    let (count, next) = recovered(&disk, story, BOOTS[1]).unwrap();
    if let Ok((first, _)) = first {
        assert_eq!(first, count, "{left:?}: what was recovered once is recovered again");
    }
    (disk, count, next.map(|recovered| recovered.next))
}

#[test]
fn a_loss_of_power_at_any_call_loses_nothing_that_was_synced() {
    for mode in [LogMode::Process, LogMode::Power] {
        let mut call = 0;
        loop {
            let mut random = SmallRng::seed_from_u64(call);
            let whole = CrashDisk::with_folder(FOLDER);
            let story = life(&whole, mode, Start::fresh(), Story::default(), call);
            for left in LEFT.into_iter().chain([Left::Any; 8]) {
                let at = format!("{mode:?}, call {call}, {left:?}: {story:?}");
                let disk = whole.after_power_loss(left, &mut random);
                // The log also goes on from the checkpoint before.
                let older = Story { checkpoints: Vec::new(), ..story.clone() };
                let (count, _) = recovered(&disk.after_kill(), &older, BOOTS[1]).unwrap();
                assert!((story.synced..=story.noted).contains(&count), "{at}: {count}, from the beginning");
                let (disk, count, next) = recover_twice(&disk, &story, &mut random);
                assert!((story.synced..=story.noted).contains(&count), "{at}: {count}");
                // A second server goes on behind what was recovered.
                let going_on = Story { noted: count, confirmed: count, synced: count, ..story.clone() };
                let second =
                    life(&disk, mode, next.unwrap_or_else(Start::fresh), going_on, random.random_range(0..200));
                let (count, _) = recovered(&disk.after_kill(), &second, BOOTS[0]).unwrap();
                assert!((second.confirmed..=second.noted).contains(&count), "{at}: {count} {second:?}");
                let (count, _) = recovered(&disk.after_power_loss(left, &mut random), &second, BOOTS[1]).unwrap();
                assert!((second.synced..=second.noted).contains(&count), "{at}: {count} {second:?}");
            }
            if !whole.has_failed() {
                break;
            }
            call += 1;
        }
        assert!(call > 50, "{call}");
    }
}

#[test]
fn a_process_that_is_killed_at_any_call_loses_nothing_that_was_confirmed() {
    for mode in [LogMode::Process, LogMode::Power] {
        let mut call = 0;
        loop {
            let disk = CrashDisk::with_folder(FOLDER);
            let story = life(&disk, mode, Start::fresh(), Story::default(), call);
            let (count, _) = recovered(&disk.after_kill(), &story, BOOTS[0]).unwrap();
            assert!((story.confirmed..=story.noted).contains(&count), "{mode:?}, call {call}: {count} {story:?}");
            if !disk.has_failed() {
                break;
            }
            call += 1;
        }
    }
}
