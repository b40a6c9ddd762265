//! Bounds the decoded size of the messages of the service.

use crate::dm_reverb::proto::sample_stream_response::SampleEntry;
use crate::dm_reverb::proto::{
    CheckpointRequest, CheckpointResponse, InitializeConnectionRequest, InitializeConnectionResponse,
    InsertStreamRequest, InsertStreamResponse, KeyWithPriority, MutatePrioritiesRequest, MutatePrioritiesResponse,
    ResetRequest, ResetResponse, SampleStreamRequest, SampleStreamResponse, ServerInfoRequest, ServerInfoResponse,
};
use crate::dm_reverb::status::to_status;
use crate::grpc::checked::{Checked, Field, Kind, checked, entry_bytes};
use bytes::Bytes;
use reverb_core::Error;
use std::mem::size_of;
use tonic::Status;

// limit (Beside dm-reverb): memory of the list entries of one message of dm-reverb's protocol: chunks, items, keys,
// updates | {BYTES_PER_BYTE:count} times the message and {}; above that as much as the message | `RESOURCE_EXHAUSTED`;
// the stream ends
/// Memory in bytes that the entries of a message may take. Those of a larger message may take as much as the message.
const ENTRIES_BYTES: usize = 64 << 20;
/// Memory that the entries of a message may take for each byte of it. Entries of real clients take less than 3 bytes.
const BYTES_PER_BYTE: usize = 4;

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

checked! {
    check:
    InsertStreamRequest: INSERT_STREAM_REQUEST,
    InsertStreamResponse: INSERT_STREAM_RESPONSE,
    MutatePrioritiesRequest: MUTATE_PRIORITIES_REQUEST,
    SampleStreamResponse: SAMPLE_STREAM_RESPONSE,
    ServerInfoResponse: SERVER_INFO_RESPONSE;
    // These have no repeated fields.
    others: CheckpointRequest, CheckpointResponse, InitializeConnectionRequest, InitializeConnectionResponse,
    MutatePrioritiesResponse, ResetRequest, ResetResponse, SampleStreamRequest, ServerInfoRequest,
}

fn check(message: &[u8], repeated: &[Field]) -> Result<(), Status> {
    let most = (message.len() * BYTES_PER_BYTE).min(message.len().max(ENTRIES_BYTES));
    let reason = match entry_bytes(message, repeated, most) {
        Ok(bytes) if bytes <= most => return Ok(()),
        Ok(_) => format!(
            "the entries of a message of {} bytes exceed {most} bytes when decoded: its chunks, items or keys are too \
             many for its size",
            message.len()
        ),
        Err(error) => error.to_string(),
    };
    Err(to_status(&Error::ResourceExhausted(reason)))
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
        assert!(InsertStreamRequest::check(&insert.encode_to_vec()).is_ok());
        let updates = (0..MIB as u64).map(|key| KeyWithPriority { key, priority: 1.5 }).collect();
        let mutate = MutatePrioritiesRequest { table: "t".into(), updates, delete_keys: (0..1_000_000).collect() };
        assert!(MutatePrioritiesRequest::check(&mutate.encode_to_vec()).is_ok());
    }

    #[test]
    fn unreadable_messages_are_refused() {
        for bytes in [&[0x12][..], &[0x12, 5, 0], &[0xff; 20], &[0x7b, 0x7c]] {
            assert!(InsertStreamRequest::check(bytes).is_err(), "{bytes:?}");
        }
    }
}
