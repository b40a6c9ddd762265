//! Many threads that commit at the same time.

use crate::crash_disk::{CrashDisk, Fault, LEFT, Left};
use crate::world::{BOOTS, Clock, FOLDER, claim};
use parking_lot::Mutex;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use reverb_core::Result;
use reverb_service::LogMode;
use reverb_store::disk::RealDisk;
use reverb_store::log::{Fence, Log, LogOptions, Payload, Position, Source, Start, boot_id, recover};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
use std::thread::Scope;
use std::time::Duration;

const THREADS: u32 = 8;

/// Changes of several threads: the number of the thread, and that of its change.
#[derive(Default)]
struct Notes(Mutex<Vec<(u32, u32)>>);

impl Source for Notes {
    fn drain(&self, payload: &mut Payload) -> Result<()> {
        for (thread, number) in self.0.lock().drain(..) {
            payload.own().extend([thread.to_le_bytes(), number.to_le_bytes()].concat());
        }
        Ok(())
    }
}

/// Commits from all threads until `count` of each are confirmed or the log is closed. Returns how many were confirmed.
fn commit_all(log: &Log, count: u32, pause: impl Fn(u32) + Sync) -> Vec<u32> {
    let notes = Notes::default();
    let (notes, pause) = (&notes, &pause);
    let commit = move |thread| {
        for number in 0..count {
            notes.0.lock().push((thread, number));
            let result = if number % 5 == 4 { log.commit_written(notes) } else { log.commit(notes) };
            if result.is_err() {
                // Those before it that need a sync were confirmed by one that had it.
                return number;
            }
            pause(number);
        }
        count
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || commit(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// How many changes of each thread are recovered. Each comes once, in the order of its thread.
fn recovered(fence: &Fence, from: Position, boot: Option<[u8; 16]>) -> Result<Vec<u32>> {
    let mut counts = vec![0; THREADS as usize];
    recover(fence, from, boot, &mut |_, payload| {
        for change in payload.chunks(8) {
            let [thread, number] = [0, 4].map(|at| u32::from_le_bytes(change[at..at + 4].try_into().unwrap()));
            assert_eq!(number, counts[thread as usize]);
            counts[thread as usize] += 1;
        }
        Ok(())
    })?;
    Ok(counts)
}

fn temp_dir() -> PathBuf {
    let path = std::env::temp_dir().join(format!("reverb-log-{:016x}", rand::random::<u64>()));
    std::fs::create_dir_all(&path).unwrap();
    path
}

#[test]
fn changes_of_many_threads_are_on_a_real_disk_once() {
    for mode in [LogMode::Process, LogMode::Power] {
        let folder = temp_dir();
        let claim = || Fence::claim(Arc::new(RealDisk), &folder).unwrap();
        let options = LogOptions { segment_bytes: 1 << 16, ..LogOptions::new(mode, Duration::from_millis(5)) };
        let log = Log::start(claim(), Start::fresh(), options).unwrap().with_thread().unwrap();
        let from = log.began();
        let count = if mode == LogMode::Power { 200 } else { 2000 };
        assert_eq!(commit_all(&log, count, |_| ()), [count; THREADS as usize]);
        log.stop().unwrap();
        assert_eq!(recovered(&claim(), from, boot_id()).unwrap(), [count; THREADS as usize]);
        assert!(log.status().unwrap().bytes > if mode == LogMode::Power { 10_000 } else { 1 << 16 });
        std::fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn changes_of_many_threads_outlive_a_crash_once_confirmed() {
    for mode in [LogMode::Process, LogMode::Power] {
        for seed in 0..60 {
            let disk = CrashDisk::with_folder(FOLDER);
            let options = Clock::default().options(mode);
            let log = Log::start(claim(&disk).unwrap(), Start::fresh(), options).unwrap();
            disk.fail(seed * 7, Fault::Ends, true);
            let confirmed = commit_all(&log, 40, |number| {
                if number % 11 == 10 {
                    log.tick();
                }
            });
            let killed = claim(&disk.after_kill()).unwrap();
            let killed = recovered(&killed, log.began(), Some(BOOTS[0])).unwrap();
            assert!(
                killed.iter().zip(&confirmed).all(|(there, confirmed)| there >= confirmed),
                "{killed:?} {confirmed:?}"
            );
            if mode == LogMode::Process {
                continue;
            }
            let mut random = SmallRng::seed_from_u64(seed);
            for left in LEFT {
                let lost = claim(&disk.after_power_loss(left, &mut random)).unwrap();
                let there = recovered(&lost, log.began(), Some(BOOTS[1])).unwrap();
                // The last one may have been confirmed without a sync.
                let synced =
                    confirmed.iter().map(|count| if count % 5 == 0 { count.saturating_sub(1) } else { *count });
                assert!(there.iter().zip(synced).all(|(there, synced)| *there >= synced), "{there:?} {confirmed:?}");
            }
        }
    }
}

/// Lets another thread commit after the first drain, before that returns.
struct Slow<'a> {
    notes: Notes,
    drained: &'a Barrier,
    is_first: AtomicBool,
}

impl Source for Slow<'_> {
    fn drain(&self, payload: &mut Payload) -> Result<()> {
        self.notes.drain(payload)?;
        if self.is_first.swap(false, Relaxed) {
            self.drained.wait();
            // Most likely the other thread waits in its commit then. If it comes later, that is no error, either.
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

/// Notes a change while another thread has drained the one before and not written it yet, and calls `then`.
fn with_a_change_behind_a_drain(disk: &CrashDisk, then: impl for<'a> FnOnce(&'a Scope<'a, '_>, &'a Log, &'a Slow<'a>)) {
    let log = Log::start(claim(disk).unwrap(), Start::fresh(), Clock::default().options(LogMode::Process)).unwrap();
    let drained = Barrier::new(2);
    let source = Slow { notes: Notes::default(), drained: &drained, is_first: AtomicBool::new(true) };
    source.notes.0.lock().push((0, 0));
    std::thread::scope(|scope| {
        scope.spawn(|| log.commit(&source).unwrap());
        drained.wait();
        source.notes.0.lock().push((1, 0));
        then(scope, &log, &source);
    });
}

#[test]
fn a_change_that_comes_after_the_drain_waits_for_the_next_group() {
    with_a_change_behind_a_drain(&CrashDisk::with_folder(FOLDER), |_, log, source| {
        log.commit(source).unwrap();
        assert!(source.notes.0.lock().is_empty(), "it was confirmed, so it was drained");
    });
}

#[test]
fn a_change_that_waits_while_the_log_stops_is_drained_or_refused() {
    let disk = CrashDisk::with_folder(FOLDER);
    with_a_change_behind_a_drain(&disk, |scope, log, source| {
        let waiting = scope.spawn(|| log.commit(source));
        std::thread::sleep(Duration::from_millis(20));
        log.stop().unwrap();
        let is_confirmed = waiting.join().unwrap().is_ok();
        assert!(!is_confirmed || source.notes.0.lock().is_empty(), "it was confirmed, so it was drained");
        let lost = claim(&disk.after_power_loss(Left::Nothing, &mut SmallRng::seed_from_u64(0))).unwrap();
        let there = recovered(&lost, log.began(), Some(BOOTS[1])).unwrap();
        assert_eq!(there[1], u32::from(is_confirmed), "a log that was stopped is synced");
    });
}
