//! The messages of the service, generated from `proto/` by the build script. Chunks, items and table infos are bytes.

#![allow(missing_docs, clippy::all, clippy::pedantic)]

include!(concat!(env!("OUT_DIR"), "/dm_reverb/deepmind.reverb.rs"));
