//! Servers with a log: what was confirmed is there after a restart.

mod restarts;
#[path = "../../../reverb-service/tests/common/mod.rs"]
mod service;
mod world;
