//! Bounds what decoding a message may allocate, before it is decoded.

use super::proto::{
    CheckpointRequest, CheckpointResponse, InitializeConnectionRequest, InitializeConnectionResponse,
    InsertStreamRequest, InsertStreamResponse, MutatePrioritiesRequest, MutatePrioritiesResponse, ResetRequest,
    ResetResponse, SampleStreamRequest, SampleStreamResponse, ServerInfoRequest, ServerInfoResponse,
};

/// Size in bytes up to which messages are decoded without a check.
pub const UNCHECKED_BYTES: usize = 1 << 20;

/// A message of the service with a check of its decoded size. The codec requires it of every message that it decodes.
pub trait Checked {
    /// Checks a large encoded message. Accepts every message by default, for types that do not grow.
    ///
    /// # Errors
    /// The reason, as a text, if the message would grow too much, or if the decoder would refuse it.
    fn check(_message: &[u8]) -> Result<(), String> {
        Ok(())
    }
}

impl Checked for CheckpointRequest {}
impl Checked for CheckpointResponse {}
impl Checked for InitializeConnectionRequest {}
impl Checked for InitializeConnectionResponse {}
impl Checked for InsertStreamRequest {}
impl Checked for InsertStreamResponse {}
impl Checked for MutatePrioritiesRequest {}
impl Checked for MutatePrioritiesResponse {}
impl Checked for ResetRequest {}
impl Checked for ResetResponse {}
impl Checked for SampleStreamRequest {}
impl Checked for SampleStreamResponse {}
impl Checked for ServerInfoRequest {}
impl Checked for ServerInfoResponse {}
