//! The messages, generated from `proto/` by the build script.

#![allow(missing_docs, clippy::all, clippy::pedantic)]

/// TensorFlow's messages that the reference's protocol borrows.
pub mod tensorflow {
    include!(concat!(env!("OUT_DIR"), "/tensorflow.rs"));
}

/// The reference's messages.
pub mod deepmind {
    pub mod reverb {
        include!(concat!(env!("OUT_DIR"), "/deepmind.reverb.rs"));
    }
}

/// Our own service.
pub mod reverb {
    pub mod replay {
        pub mod v1 {
            include!(concat!(env!("OUT_DIR"), "/reverb.replay.v1.rs"));
        }
    }
}

/// The message that is written by hand.
pub mod sample {
    pub use crate::sample_response::{Kind, Payload, SampleResponse};
}

pub use self::deepmind::reverb as schema;
pub use self::reverb::replay::v1 as replay;

/// All files as a serialised `FileDescriptorSet`, dependencies first.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
