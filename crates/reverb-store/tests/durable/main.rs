//! Servers with a log: what was confirmed is there after a restart.

mod bits;
#[path = "../common/crash_disk/mod.rs"]
mod crash_disk;
mod ends;
mod faults;
mod fork;
mod left_over;
mod life;
mod model;
mod random;
mod restarts;
#[path = "../../../reverb-service/tests/common/mod.rs"]
mod service;
mod story;
mod tasks;
mod world;
