//! Bounds the decoded size of our messages. Only inserts can be large and grow.

use crate::grpc::checked::{Checked, Field, Kind, UNCHECKED_BYTES, checked, entry_bytes};
use crate::replay_v1::proto::{
    BenchRequest, BenchResponse, CheckpointRequest, CheckpointResponse, Chunk, Column, ColumnSpec, ConfigureRequest,
    ConfigureResponse, GetRequest, GetResponse, HelloRequest, HelloResponse, InfoRequest, InfoResponse, InsertRequest,
    InsertResponse, ItemBatch, MutateRequest, MutateResponse, NewerRequest, NewerResponse, ObserveRequest,
    ObserveResponse, PeekRequest, PeekResponse, ResetRequest, ResetResponse, SampleRequest, Slice, SumsRequest,
    SumsResponse, Trajectory, WriteItem, WriteRequest, WriteResponse,
};
use crate::replay_v1::sample_response::SampleResponse;
use crate::replay_v1::status::to_status;
use reverb_core::Error;
use std::mem::size_of;
use tonic::Status;

// limit (Chunks and messages): memory of an insert's decoded messages, without the data | {} | the stream ends
/// Maximum decoded size in bytes of the messages inside an insert, without their data.
const MAX_DECODED_BYTES: usize = 256 << 20;

const INSERT_REQUEST: &[Field] = &[
    Field { number: 2, kind: Kind::Entries(size_of::<Chunk>(), CHUNK) },
    Field { number: 3, kind: Kind::Entries(size_of::<ItemBatch>(), ITEM_BATCH) },
];
const WRITE_REQUEST: &[Field] = &[
    Field { number: 3, kind: Kind::Entries(size_of::<Chunk>(), CHUNK) },
    Field { number: 4, kind: Kind::Entries(size_of::<WriteItem>(), WRITE_ITEM) },
];
const WRITE_ITEM: &[Field] = &[Field { number: 7, kind: Kind::Entries(size_of::<Trajectory>(), TRAJECTORY) }];
const CHUNK: &[Field] = &[Field { number: 8, kind: Kind::Entries(size_of::<ColumnSpec>(), COLUMN_SPEC) }];
const COLUMN_SPEC: &[Field] = &[Field { number: 2, kind: Kind::Numbers }];
const ITEM_BATCH: &[Field] = &[Field { number: 7, kind: Kind::Entries(size_of::<Trajectory>(), TRAJECTORY) }];
const TRAJECTORY: &[Field] = &[Field { number: 1, kind: Kind::Entries(size_of::<Column>(), COLUMN) }];
const COLUMN: &[Field] = &[Field { number: 1, kind: Kind::Entries(size_of::<Slice>(), &[]) }];

checked! {
    check:
    InsertRequest: INSERT_REQUEST,
    WriteRequest: WRITE_REQUEST;
    // These are always small, or come from a server that its client trusts.
    others: HelloRequest, HelloResponse, InsertResponse, SampleResponse, SumsResponse, WriteResponse, MutateRequest,
    MutateResponse, ResetRequest, ResetResponse, InfoRequest, InfoResponse, CheckpointRequest, CheckpointResponse,
    PeekRequest, GetRequest, ConfigureRequest, ConfigureResponse, PeekResponse, GetResponse, NewerRequest, NewerResponse, ObserveRequest,
    ObserveResponse, BenchRequest, BenchResponse,
}

checked! {
    check_small:
    SampleRequest: "a request to sample",
    SumsRequest: "a message of a client to the limiter of a cluster";
    others:
}

/// Refuses a message that is large enough to be checked: no client sends such a one.
fn check_small(message: &[u8], what: &str) -> Result<(), Status> {
    let bytes = message.len();
    Err(to_status(&Error::ResourceExhausted(format!(
        "expected {what} of at most {UNCHECKED_BYTES} bytes, got {bytes}"
    ))))
}

fn check(message: &[u8], repeated: &[Field]) -> Result<(), Status> {
    let reason = match entry_bytes(message, repeated, MAX_DECODED_BYTES) {
        Ok(bytes) if bytes <= MAX_DECODED_BYTES => return Ok(()),
        Ok(_) => format!(
            "the chunks, columns and slices of an insert of {} bytes exceed {MAX_DECODED_BYTES} bytes when decoded",
            message.len()
        ),
        Err(_) => "cannot read an insert".into(),
    };
    Err(to_status(&Error::ResourceExhausted(reason)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;

    fn is_refused(request: &InsertRequest) -> bool {
        InsertRequest::check(&request.encode_to_vec()).is_err()
    }

    /// Whether an insert is refused that has a field with this content, inside a message for each outer tag. It is written
    /// by hand, because the messages would take gigabytes here too.
    fn is_refused_inside(outer_tags: &[u8], content: Vec<u8>) -> bool {
        let bytes = outer_tags.iter().rev().fold(content, |content, &tag| {
            let mut bytes = vec![tag];
            prost::encoding::encode_varint(content.len() as u64, &mut bytes);
            [bytes, content].concat()
        });
        InsertRequest::check(&bytes).is_err()
    }

    /// Empty messages of a type, one more than fit into the limit, in a field with this tag.
    fn too_many<T>(tag: u8) -> Vec<u8> {
        [tag, 0].repeat(MAX_DECODED_BYTES / size_of::<T>() + 1)
    }

    #[test]
    fn an_insert_of_millions_of_empty_messages_is_refused_at_every_depth() {
        assert!(is_refused_inside(&[], too_many::<Chunk>(0x12)), "chunks");
        assert!(is_refused_inside(&[0x12], too_many::<ColumnSpec>(0x42)), "columns of a chunk");
        assert!(is_refused_inside(&[0x12, 0x42, 0x12], vec![0; 40 << 20]), "a shape");
        assert!(is_refused_inside(&[], too_many::<ItemBatch>(0x1a)), "batches");
        assert!(is_refused_inside(&[0x1a], too_many::<Trajectory>(0x3a)), "trajectories");
        assert!(is_refused_inside(&[0x1a, 0x3a], too_many::<Column>(0x0a)), "columns of a trajectory");
        assert!(is_refused_inside(&[0x1a, 0x3a, 0x0a], too_many::<Slice>(0x0a)), "slices");
    }

    #[test]
    fn an_insert_of_much_data_is_not_refused() {
        let chunk = Chunk { data: vec![0x12; 64 << 20].into(), ..Chunk::default() };
        let keys = vec![0x1212_1212_1212_1212; 2 << 20];
        let batch = ItemBatch { priorities: vec![1.0; keys.len()], keys, ..ItemBatch::default() };
        assert!(!is_refused(&InsertRequest { chunks: vec![chunk], batches: vec![batch], ..InsertRequest::default() }));
    }

    #[test]
    fn an_insert_of_many_items_with_several_columns_is_not_refused() {
        let column = Column { slices: vec![Slice { chunk_key: 1, length: 1, ..Slice::default() }; 2], squeeze: true };
        let trajectories = vec![Trajectory { columns: vec![column; 5] }; 100_000];
        let batch = ItemBatch { trajectories, ..ItemBatch::default() };
        assert!(!is_refused(&InsertRequest { batches: vec![batch], ..InsertRequest::default() }));
    }

    #[test]
    fn a_large_request_to_sample_or_to_the_limiter_of_a_cluster_is_refused() {
        let large = vec![0; UNCHECKED_BYTES + 1];
        let text = SumsRequest::check(&large).unwrap_err().message().to_owned();
        assert_eq!(
            text,
            "expected a message of a client to the limiter of a cluster of at most 1048576 bytes, got 1048577"
        );
        assert!(SampleRequest::check(&large).is_err());
    }

    #[test]
    fn unreadable_messages_are_refused() {
        // The last message is an empty group, which must not hide the bytes after it.
        for bytes in [&[0x12][..], &[0x12, 5, 0], &[0xff; 20], &[0x12, 2, 0x42, 9], &[0x7b, 0x7c]] {
            assert!(InsertRequest::check(bytes).is_err(), "{bytes:?}");
        }
    }
}
