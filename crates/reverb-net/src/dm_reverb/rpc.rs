//! The gRPC service and its client, generated from `proto/` by the build script.

#![allow(missing_docs, clippy::all, clippy::pedantic)]

include!(concat!(env!("OUT_DIR"), "/dm_reverb/rpc/deepmind.reverb.rs"));
