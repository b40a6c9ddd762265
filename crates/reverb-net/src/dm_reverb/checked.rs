//! Bounds what decoding a message may allocate, before it is decoded.
//!
//! An empty chunk takes 2 bytes in a message and a list entry of 32 bytes in memory, so a message of some hundred
//! megabytes could take gigabytes. The check visits the entries and skips what is in them, so it costs almost nothing
//! if the message consists of data.

use super::proto::sample_stream_response::SampleEntry;
use super::proto::{
    CheckpointRequest, CheckpointResponse, InitializeConnectionRequest, InitializeConnectionResponse,
    InsertStreamRequest, InsertStreamResponse, KeyWithPriority, MutatePrioritiesRequest, MutatePrioritiesResponse,
    ResetRequest, ResetResponse, SampleStreamRequest, SampleStreamResponse, ServerInfoRequest, ServerInfoResponse,
};
use bytes::Bytes;
use reverb_core::Result;
use reverb_formats::wire::{Value, fields};
use std::mem::size_of;

/// Size in bytes up to which messages are decoded without a check.
pub const UNCHECKED_BYTES: usize = 1 << 20;
// limit (Beside dm-reverb): memory of the list entries of one message of dm-reverb's protocol: chunks, items, keys,
// updates | {BYTES_PER_BYTE:count} times the message and {}; above that as much as the message | `RESOURCE_EXHAUSTED`;
// the stream ends
/// Memory in bytes that the entries of a message may take. Those of a larger message may take as much as the message.
const ENTRIES_BYTES: usize = 64 << 20;
/// Memory that the entries of a message may take for each byte of it. Entries of real clients take less than 3 bytes.
const BYTES_PER_BYTE: usize = 4;

/// A repeated field, and the memory that its entries take.
struct Field {
    number: u32,
    kind: Kind,
}

enum Kind {
    /// Bytes or messages: the size of an entry in bytes, and its repeated fields.
    Entries(usize, &'static [Field]),
    /// Numbers of 8 bytes.
    Numbers,
}

const INSERT_STREAM_REQUEST: &[Field] = &[
    Field { number: 1, kind: Kind::Entries(size_of::<Bytes>(), &[]) },
    Field { number: 2, kind: Kind::Entries(size_of::<Bytes>(), &[]) },
    Field { number: 3, kind: Kind::Numbers },
];
const MUTATE_PRIORITIES_REQUEST: &[Field] = &[
    Field { number: 2, kind: Kind::Entries(size_of::<KeyWithPriority>(), &[]) },
    Field { number: 3, kind: Kind::Numbers },
];
const INSERT_STREAM_RESPONSE: &[Field] = &[Field { number: 1, kind: Kind::Numbers }];
const SAMPLE_STREAM_RESPONSE: &[Field] =
    &[Field { number: 1, kind: Kind::Entries(size_of::<SampleEntry>(), SAMPLE_ENTRY) }];
const SAMPLE_ENTRY: &[Field] = &[Field { number: 2, kind: Kind::Entries(size_of::<Bytes>(), &[]) }];
const SERVER_INFO_RESPONSE: &[Field] = &[Field { number: 2, kind: Kind::Entries(size_of::<Bytes>(), &[]) }];

/// A message of the service with a check of its decoded size. The codec requires it of every message that it decodes.
pub trait Checked {
    /// Checks a large encoded message. Accepts every message by default, for types that do not grow.
    ///
    /// # Errors
    /// The reason, as a text, if the message would grow too much, or if it cannot be read.
    fn check(_message: &[u8]) -> std::result::Result<(), String> {
        Ok(())
    }
}

macro_rules! checked {
    ($($message:ty: $fields:expr),* $(,)?) => {
        $(
            /// Also refuses groups, which the decoder would skip. No peer of this protocol sends groups.
            impl Checked for $message {
                fn check(message: &[u8]) -> std::result::Result<(), String> {
                    check(message, $fields)
                }
            }
        )*
    };
}

checked! {
    InsertStreamRequest: INSERT_STREAM_REQUEST,
    InsertStreamResponse: INSERT_STREAM_RESPONSE,
    MutatePrioritiesRequest: MUTATE_PRIORITIES_REQUEST,
    SampleStreamResponse: SAMPLE_STREAM_RESPONSE,
    ServerInfoResponse: SERVER_INFO_RESPONSE,
}

// These messages have no repeated fields.
impl Checked for CheckpointRequest {}
impl Checked for CheckpointResponse {}
impl Checked for InitializeConnectionRequest {}
impl Checked for InitializeConnectionResponse {}
impl Checked for MutatePrioritiesResponse {}
impl Checked for ResetRequest {}
impl Checked for ResetResponse {}
impl Checked for SampleStreamRequest {}
impl Checked for ServerInfoRequest {}

fn check(message: &[u8], repeated: &[Field]) -> std::result::Result<(), String> {
    let most = (message.len() * BYTES_PER_BYTE).min(message.len().max(ENTRIES_BYTES));
    let mut bytes = 0;
    match add_entries(message, repeated, most, &mut bytes) {
        Err(error) => Err(error.to_string()),
        Ok(()) if bytes > most => Err(format!(
            "the entries of a message of {} bytes exceed {most} bytes when decoded: its chunks, items or keys are too \
             many for its size",
            message.len()
        )),
        Ok(()) => Ok(()),
    }
}

/// Adds the memory of the entries of a message in bytes. Stops above `most`.
fn add_entries(message: &[u8], repeated: &[Field], most: usize, bytes: &mut usize) -> Result<()> {
    for field in fields(message) {
        let (number, value) = field?;
        let kind = repeated.iter().find(|field| field.number == number).map(|field| &field.kind);
        match (kind, value) {
            (Some(Kind::Numbers), Value::Bytes(packed)) => {
                *bytes += packed.iter().filter(|&&byte| byte < 0x80).count() * size_of::<u64>();
            }
            (Some(Kind::Numbers), _) => *bytes += size_of::<u64>(),
            (Some(Kind::Entries(size, repeated)), value) => {
                *bytes += size;
                if !repeated.is_empty() && *bytes <= most {
                    add_entries(value.bytes()?, repeated, most, bytes)?;
                }
            }
            (None, _) => {}
        }
        if *bytes > most {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;

    const MIB: usize = 1 << 20;

    #[test]
    fn entries_that_are_too_small_for_their_number_are_refused() {
        for (tag, entry) in [(0x0a, "chunks"), (0x12, "items")] {
            assert!(InsertStreamRequest::check(&[tag, 0].repeat(MIB)).is_err(), "{entry}");
        }
        let keys = |count| InsertStreamRequest { keep_chunk_keys: vec![1; count], ..InsertStreamRequest::default() };
        assert!(InsertStreamRequest::check(&keys(2 * MIB).encode_to_vec()).is_err());
        assert!(InsertStreamRequest::check(&[0x18, 1].repeat(2 * MIB)).is_ok(), "8 bytes for each 2");
        assert!(InsertStreamRequest::check(&[0x18, 1].repeat(20 * MIB)).is_err());
        assert!(MutatePrioritiesRequest::check(&[0x12, 0].repeat(MIB)).is_err());
        assert!(SampleStreamResponse::check(&[0x0a, 0].repeat(MIB)).is_err());
        let data = SampleEntry { data: vec![Bytes::new(); MIB], ..SampleEntry::default() };
        assert!(SampleStreamResponse::check(&SampleStreamResponse { entries: vec![data] }.encode_to_vec()).is_err());
        assert!(ServerInfoResponse::check(&[0x12, 0].repeat(MIB)).is_err());
    }

    #[test]
    fn messages_of_real_clients_are_not_refused() {
        let items = vec![Bytes::from(vec![0x12; 45]); MIB];
        let keep_chunk_keys = (0..MIB as u64).map(|key| u64::MAX - key).collect();
        let insert = InsertStreamRequest { chunks: vec![vec![0x12; 64 * MIB].into()], items, keep_chunk_keys };
        assert_eq!(InsertStreamRequest::check(&insert.encode_to_vec()), Ok(()));
        let updates = (0..MIB as u64).map(|key| KeyWithPriority { key, priority: 1.5 }).collect();
        let mutate = MutatePrioritiesRequest { table: "t".into(), updates, delete_keys: (0..1_000_000).collect() };
        assert_eq!(MutatePrioritiesRequest::check(&mutate.encode_to_vec()), Ok(()));
    }

    #[test]
    fn unreadable_messages_are_refused() {
        for bytes in [&[0x12][..], &[0x12, 5, 0], &[0xff; 20], &[0x7b, 0x7c]] {
            assert!(InsertStreamRequest::check(bytes).is_err(), "{bytes:?}");
        }
    }
}
