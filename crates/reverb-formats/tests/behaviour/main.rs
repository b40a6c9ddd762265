//! The tests of reverb-formats in one executable, which is built and linked once. Tests that count the memory of the process
//! have executables of their own, beside this folder.

mod chunk;
mod kept_messages;
mod patterns;
mod snappy;
#[path = "../../../reverb-core/tests/common/steps.rs"]
mod steps;
mod table;
