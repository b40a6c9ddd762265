//! The message `reverb.replay.v1.SampleResponse`, whose payload is gathered while the message is encoded.

use crate::replay_v1::proto::{Batch, Failure, RaceReport};
use bytes::{Buf, BufMut, Bytes};
use parking_lot::Mutex;
use prost::encoding::{
    DecodeContext, WireType, decode_key, decode_varint, encode_key, encode_varint, encoded_len_varint,
};
use prost::{DecodeError, Message};
use reverb_core::gather::Gatherer;
use std::mem::MaybeUninit;
use std::sync::Arc;

const REQUEST_ID: u32 = 1;
const PAYLOAD: u32 = 5;
/// Maximum number of bytes of a variable-length number in protobuf.
const MAX_VARINT_BYTES: usize = 10;

/// One message of the answer to a draw. See `replay.proto`.
#[derive(Debug, Clone, Default)]
pub struct SampleResponse {
    /// The id of the draw that the message answers.
    pub request_id: u64,
    /// The content of the message, except the payload.
    pub kind: Option<Kind>,
    /// The next bytes of the batch.
    pub payload: Payload,
}

/// The `kind` of a [`SampleResponse`].
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Kind {
    /// The beginning of a batch.
    #[prost(message, tag = "2")]
    Batch(Batch),
    /// The error of a failed draw.
    #[prost(message, tag = "3")]
    Failure(Failure),
    /// The reason why the draw still waits.
    #[prost(string, tag = "4")]
    Notice(String),
    /// The server is about to stop, and asks for the receipts that are due.
    #[prost(bool, tag = "6")]
    Settle(bool),
    /// The arrivals of a race.
    #[prost(message, tag = "7")]
    RaceReport(RaceReport),
    /// The answer to a wait.
    #[prost(bool, tag = "8")]
    Stocked(bool),
}

/// Bytes of the columns of a batch.
#[derive(Debug, Clone)]
pub enum Payload {
    /// Bytes as they were received.
    Bytes(Bytes),
    /// The next bytes of a batch, by number, which are copied from the chunks when the message is encoded. Messages are
    /// encoded in the order in which they were sent, so each continues where the previous one ended.
    Gather(Arc<Mutex<Gatherer>>, usize),
}

impl Default for Payload {
    fn default() -> Self {
        Self::Bytes(Bytes::new())
    }
}

impl Payload {
    fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Gather(_, len) => *len,
        }
    }
}

impl Message for SampleResponse {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        prost::encoding::uint64::encode(REQUEST_ID, &self.request_id, buf);
        if let Some(kind) = &self.kind {
            kind.encode(buf);
        }
        let len = self.payload.len();
        if len == 0 {
            return;
        }
        encode_key(PAYLOAD, WireType::LengthDelimited, buf);
        encode_varint(len as u64, buf);
        match &self.payload {
            Payload::Bytes(bytes) => buf.put_slice(bytes),
            Payload::Gather(gatherer, len) => gather(&mut gatherer.lock(), *len, buf),
        }
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        match tag {
            REQUEST_ID => prost::encoding::uint64::merge(wire_type, &mut self.request_id, buf, ctx),
            2..=4 | 6..=8 => Kind::merge(&mut self.kind, tag, wire_type, buf, ctx),
            PAYLOAD => {
                let mut bytes = Bytes::new();
                prost::encoding::bytes::merge(wire_type, &mut bytes, buf, ctx)?;
                self.payload = Payload::Bytes(bytes);
                Ok(())
            }
            _ => prost::encoding::skip_field(wire_type, tag, buf, ctx),
        }
    }

    fn encoded_len(&self) -> usize {
        let payload = match self.payload.len() {
            0 => 0,
            len => 1 + encoded_len_varint(len as u64) + len,
        };
        let kind = self.kind.as_ref().map_or(0, Kind::encoded_len);
        prost::encoding::uint64::encoded_len(REQUEST_ID, &self.request_id) + kind + payload
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

/// The position of the payload in an encoded message.
#[derive(Debug, PartialEq, Eq)]
pub struct PayloadPlace {
    /// Number of bytes of the fields before the payload.
    pub head: usize,
    /// Offset of its first byte, after its tag and length.
    pub start: usize,
    /// Number of its bytes.
    pub len: usize,
}

/// Finds the payload of a message whose first bytes have arrived. Returns `None` if more bytes are needed. The payload
/// is the last field, and the order of the other fields does not matter. A message without a payload has an empty one
/// at its end.
///
/// # Errors
/// The reason, as a text, if no message can begin with these bytes.
pub fn find_payload(bytes: &[u8], message_len: usize) -> Result<Option<PayloadPlace>, String> {
    let bytes = &bytes[..bytes.len().min(message_len)];
    let damaged = || "the sizes of its fields do not match its size".to_owned();
    let is_whole = bytes.len() == message_len;
    // A number at the end of the bytes may continue in bytes that have not arrived.
    let needs_more = |rest: &[u8]| !is_whole && rest.len() < 2 * MAX_VARINT_BYTES;
    let mut rest = bytes;
    while !rest.is_empty() {
        let head = bytes.len() - rest.len();
        let mut ahead = rest;
        let (tag, wire_type, len) = match field(&mut ahead) {
            Ok(field) => field,
            Err(_) if needs_more(rest) => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let start = bytes.len() - ahead.len();
        let len = usize::try_from(len).ok().filter(|&len| len <= message_len - start).ok_or_else(damaged)?;
        if tag == PAYLOAD && wire_type == WireType::LengthDelimited {
            if start + len < message_len {
                return Err("its payload is not its last field".into());
            }
            return Ok(Some(PayloadPlace { head, start, len }));
        }
        match ahead.get(len..) {
            Some(next) => rest = next,
            None => return Ok(None),
        }
    }
    Ok(is_whole.then_some(PayloadPlace { head: message_len, start: message_len, len: 0 }))
}

/// Reads the number of a field, its type, and the number of bytes of its value that follow.
fn field(bytes: &mut &[u8]) -> Result<(u32, WireType, u64), DecodeError> {
    let (tag, wire_type) = decode_key(bytes)?;
    let len = match wire_type {
        WireType::Varint => decode_varint(bytes).map(|_| 0)?,
        WireType::SixtyFourBit => 8,
        WireType::ThirtyTwoBit => 4,
        WireType::LengthDelimited => decode_varint(bytes)?,
        // proto3 has no groups. The decoder of the message refuses them.
        WireType::StartGroup | WireType::EndGroup => 0,
    };
    Ok((tag, wire_type, len))
}

fn gather(gatherer: &mut Gatherer, mut len: usize, buf: &mut impl BufMut) {
    while len > 0 {
        let room = buf.chunk_mut();
        let now = room.len().min(len);
        // SAFETY: `room` is `room.len()` bytes of writable memory, and `MaybeUninit` bytes need no initial value.
        let target = unsafe { std::slice::from_raw_parts_mut(room.as_mut_ptr().cast::<MaybeUninit<u8>>(), now) };
        gatherer.fill(target);
        // SAFETY: `fill` has written all of `target`.
        unsafe { buf.advance_mut(now) };
        len -= now;
    }
}
