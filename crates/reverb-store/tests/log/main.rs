//! Logs: what was confirmed is recovered, whatever the disk does, or damage is named.

#[path = "../common/crash_disk/mod.rs"]
mod crash_disk;
mod damage;
mod epochs;
mod faults;
mod power;
mod threads;
mod world;
