//! The process ends, or power is lost, at each call of the disk.

use crate::crash_disk::{CrashDisk, Fault, LEFT, Left};
use crate::life::{Life, calls, every};
use crate::story::Op;
use crate::world::{BOOTS, ITEMS};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use reverb_service::LogMode;
use reverb_store::log::Id;
use std::panic::{AssertUnwindSafe, catch_unwind};

impl Life {
    /// Starts a server, and makes calls until the process ends at a call of the disk. Returns whether the server has
    /// started, and whether the process has ended there. `synced` is how far the disk was synced when the power was lost
    /// before; `None` if it was not.
    fn end_at(&mut self, call: u64, boot: Id, synced: Option<u64>, first: u64) -> (bool, bool) {
        self.disk.fail(call, Fault::Ends, true);
        // If it ends before it has started, all that was confirmed before must still be there.
        if let Ok(server) = self.start(&self.disk, boot) {
            self.story = self.story.check_restarted(&server, synced);
            self.make(&server, &calls(first));
            let has_ended = self.disk.has_ended();
            self.kill(server);
            return (true, has_ended);
        }
        self.disk = self.disk.after_kill();
        (false, true)
    }

    /// Loses power, restarts, loses power again or is killed at some call, and restarts.
    fn lose_power_twice(&self, lost: &CrashDisk, synced: u64, left: Left, random: &mut SmallRng) {
        let mut second = self.on(lost);
        let (is_started, _) = second.end_at(random.random_range(0..250), BOOTS[1], Some(synced), 3000);
        // Unless the second server has started, the first loss of power still counts.
        let before = (!is_started).then_some(synced);
        second.check(&second.disk.after_kill(), BOOTS[1], before);
        let synced = before.unwrap_or_else(|| second.disk.synced_changes());
        second.check(&second.disk.after_power_loss(left, random), BOOTS[2], Some(synced));
    }

    /// Ends at a call while a closed log is opened again. Returns whether the process has ended there.
    fn end_in_repair(&mut self, call: u64) -> bool {
        let server = self.start_closed();
        self.disk.fail(call, Fault::Ends, true);
        self.make(&server, &[Op::Save, Op::Insert(ITEMS, 902, 1.0), Op::Write(902, 902), Op::Save]);
        let has_ended = self.disk.has_ended();
        self.kill(server);
        has_ended
    }
}

/// Ends a life at a call, and returns whether it has.
type End = fn(&mut Life, u64) -> bool;

fn end_at(life: &mut Life, call: u64) -> bool {
    life.end_at(call, BOOTS[0], None, 1000).1
}

/// Ends lives at calls in turn, and checks what is left. Returns the number of calls.
fn end_at_all(life: &Life, end: End, check: &dyn Fn(&Life, u64), offset: usize) -> u64 {
    for call in every(offset, 1).map(|call| call as u64) {
        let mut life = life.again();
        let ended = catch_unwind(AssertUnwindSafe(|| {
            let has_ended = end(&mut life, call);
            check(&life, call);
            has_ended
        }));
        if !ended.unwrap_or_else(|_| panic!("at call {call}")) {
            return call;
        }
    }
    unreachable!("a life has an end")
}

fn check_losses(life: &Life, call: u64) {
    let mut random = SmallRng::seed_from_u64(call);
    let synced = life.disk.synced_changes();
    for left in LEFT.into_iter().chain([Left::Any; 3]) {
        let lost = life.disk.after_power_loss(left, &mut random);
        life.check(&lost.after_kill(), BOOTS[1], Some(synced));
        life.lose_power_twice(&lost, synced, left, &mut random);
    }
}

#[test]
fn a_process_that_is_killed_at_any_call_loses_nothing_that_was_confirmed() {
    for mode in [LogMode::Process, LogMode::Power] {
        let check = |life: &Life, _| drop(life.check_killed());
        let begins = [Life::new(mode), Life::lived(mode)];
        let calls = [0, 1].map(|offset| end_at_all(&begins[offset], end_at, &check, offset));
        assert!(calls.iter().all(|calls| *calls > 150), "{calls:?}");
    }
}

#[test]
fn a_new_server_in_mode_process_loses_power() {
    end_at_all(&Life::new(LogMode::Process), end_at, &check_losses, 2);
}

#[test]
fn a_new_server_in_mode_power_loses_power() {
    end_at_all(&Life::new(LogMode::Power), end_at, &check_losses, 3);
}

#[test]
fn a_restarted_server_in_mode_process_loses_power() {
    end_at_all(&Life::lived(LogMode::Process), end_at, &check_losses, 4);
}

#[test]
fn a_restarted_server_in_mode_power_loses_power() {
    end_at_all(&Life::lived(LogMode::Power), end_at, &check_losses, 5);
}

#[test]
fn a_server_that_opens_its_log_again_ends_at_any_call() {
    for mode in [LogMode::Process, LogMode::Power] {
        let check = |life: &Life, call| {
            life.check_killed();
            check_losses(life, call);
        };
        end_at_all(&Life::new(mode), Life::end_in_repair, &check, 6);
    }
}
