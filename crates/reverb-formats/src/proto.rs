//! The messages of the reference, generated from `proto/` by the build script.

#![allow(missing_docs, clippy::all, clippy::pedantic)]

/// Messages of TensorFlow that the reference uses.
pub mod tensorflow {
    include!(concat!(env!("OUT_DIR"), "/tensorflow.rs"));
}

/// Messages of the reference.
pub mod deepmind {
    pub mod reverb {
        include!(concat!(env!("OUT_DIR"), "/deepmind.reverb.rs"));
    }
}

pub use self::deepmind::reverb as schema;
