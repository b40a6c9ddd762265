//! Each call of the disk fails, in each way.

use crate::crash_disk::{Fault, LEFT};
use crate::life::{Life, calls, every};
use crate::story::Op;
use crate::world::{BOOTS, Server};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use reverb_core::Error;
use reverb_service::LogMode;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The ways in which calls fail, and whether they do for ever.
const FAULTS: [(Fault, bool); 6] = [
    (Fault::Error(libc::EIO), false),
    (Fault::Error(libc::EIO), true),
    (Fault::Error(libc::ENOSPC), false),
    (Fault::Error(libc::ENOSPC), true),
    (Fault::Fills, true),
    (Fault::Lies, false),
];
/// The ways that nobody notices.
const HARMLESS: [(Fault, bool); 2] = [(Fault::Short, false), (Fault::Short, true)];

/// Whether the server that has met the fault is healed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    Killed,
    Healed,
}

impl Life {
    /// Makes calls while the disk fails at one call, and later perhaps without faults. Returns whether a call has failed,
    /// and the number of calls.
    fn meet(&mut self, (fault, for_ever): (Fault, bool), call: u64, then: Then) -> (bool, u64) {
        let disk = self.disk.clone();
        let before = disk.calls();
        disk.fail(call, fault, for_ever);
        let started = self.start(&disk, BOOTS[0]);
        let (has_failed, calls_made) = match started {
            Ok(server) => {
                self.story = self.story.check_restarted(&server, None);
                self.make(&server, &calls(1000));
                let has_failed = disk.has_failed();
                let calls_made = disk.calls() - before;
                disk.mend();
                if fault == Fault::Short {
                    assert_eq!(self.story.failures, 0);
                }
                if then == Then::Healed {
                    self.go_on(&server);
                }
                self.kill(server);
                (has_failed, calls_made)
            }
            Err(error) => {
                assert!(matches!(error, Error::Storage(_)), "{error}");
                disk.mend();
                (true, u64::MAX)
            }
        };
        self.check_killed();
        self.check_power_losses(call);
        (has_failed, calls_made)
    }

    /// Closes the log, lets a save fail that would open it, and saves again or not. Returns whether a call has failed, and
    /// the number of calls.
    fn meet_in_repair(&mut self, (fault, for_ever): (Fault, bool), call: u64, then: Then) -> (bool, u64) {
        let disk = self.disk.clone();
        let server = self.start_closed();
        let before = disk.calls();
        disk.fail(call, fault, for_ever);
        self.make(&server, &[Op::Save]);
        let (has_failed, calls_made) = (disk.has_failed(), disk.calls() - before);
        disk.mend();
        if then == Then::Healed {
            self.go_on(&server);
        }
        self.kill(server);
        self.check_killed();
        self.check_power_losses(call);
        (has_failed, calls_made)
    }

    /// After the fault, all calls succeed.
    fn go_on(&mut self, server: &Server) {
        let was_closed = server.is_closed();
        self.heal(server);
        self.make(server, &calls(2000));
        if self.story.failures > 0 {
            assert!(!was_closed, "a log that was opened again works");
            // A call of the log's own thread has failed before, and the thread has said so only now. A save may have healed
            // the log since.
            self.heal(server);
            self.make(server, &calls(3000));
        }
        assert_eq!(self.story.failures, 0);
    }

    /// A closed log opens with one save.
    fn heal(&mut self, server: &Server) {
        if server.is_closed() {
            self.story.failures = 0;
            self.make(server, &[Op::Save]);
            assert!(self.story.failures == 0 && !server.is_closed(), "one save heals the log");
        }
        self.story.failures = 0;
    }

    fn check_power_losses(&self, seed: u64) {
        let mut random = SmallRng::seed_from_u64(seed);
        let synced = self.disk.synced_changes();
        for left in LEFT {
            self.check(&self.disk.after_power_loss(left, &mut random), BOOTS[1], Some(synced));
        }
    }
}

/// A part of a life in which a call fails: see [`Life::meet`].
type Meet = fn(&mut Life, (Fault, bool), u64, Then) -> (bool, u64);

/// Lets calls of a life fail, each in a life of its own. Returns how many did.
fn meet_all(life: &Life, meet: Meet, fault: (Fault, bool), then: Then, offset: usize) -> u64 {
    let mut failures = 0;
    for call in every(offset, 1).map(|call| call as u64) {
        let mut life = life.again();
        let met = catch_unwind(AssertUnwindSafe(|| meet(&mut life, fault, call, then)));
        let (has_failed, calls) = met.unwrap_or_else(|_| panic!("{fault:?} at call {call}, then {then:?}"));
        failures += u64::from(has_failed);
        if call >= calls {
            return failures;
        }
    }
    unreachable!("a life has an end")
}

fn meet_all_faults(life: &Life, meet: Meet) {
    let mut failures = 0;
    for (index, fault) in FAULTS.into_iter().enumerate() {
        for then in [Then::Killed, Then::Healed] {
            failures += meet_all(life, meet, fault, then, 2 * index + then as usize);
        }
    }
    assert!(failures > 20, "{failures}");
}

#[test]
fn a_new_server_in_mode_process_meets_faults() {
    meet_all_faults(&Life::new(LogMode::Process), Life::meet);
}

#[test]
fn a_new_server_in_mode_power_meets_faults() {
    meet_all_faults(&Life::new(LogMode::Power), Life::meet);
}

#[test]
fn a_restarted_server_in_mode_process_meets_faults() {
    meet_all_faults(&Life::lived(LogMode::Process), Life::meet);
}

#[test]
fn a_restarted_server_in_mode_power_meets_faults() {
    meet_all_faults(&Life::lived(LogMode::Power), Life::meet);
}

#[test]
fn short_writes_are_continued() {
    for mode in [LogMode::Process, LogMode::Power] {
        for (index, fault) in HARMLESS.into_iter().enumerate() {
            meet_all(&Life::new(mode), Life::meet, fault, Then::Killed, index);
        }
    }
}

#[test]
fn a_server_that_opens_its_log_again_meets_faults() {
    for mode in [LogMode::Process, LogMode::Power] {
        meet_all_faults(&Life::new(mode), Life::meet_in_repair);
    }
}
