//! The messages of the protocol, generated from `proto/` by the build script.

#![allow(missing_docs, clippy::all, clippy::pedantic)]

include!(concat!(env!("OUT_DIR"), "/messages/reverb.replay.v1.rs"));
