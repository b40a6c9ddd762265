//! Computes the decoded size of a message before it is decoded.
//!
//! An empty `Chunk` takes 2 bytes on the wire and more than a hundred in memory, so a message of a few hundred
//! megabytes could take tens of gigabytes. Large inserts are therefore checked first: the check visits the fields that
//! hold messages and skips data, so it costs almost nothing if the message consists of data.

use crate::replay_v1::proto::{
    BenchRequest, BenchResponse, CheckpointRequest, CheckpointResponse, Chunk, Column, ColumnSpec, ConfigureRequest,
    ConfigureResponse, HelloRequest, HelloResponse, InfoRequest, InfoResponse, InsertRequest, InsertResponse,
    ItemBatch, MutateRequest, MutateResponse, ObserveRequest, ObserveResponse, PeekRequest, PeekResponse, ResetRequest,
    ResetResponse, SampleRequest, Slice, Trajectory, WriteItem, WriteRequest, WriteResponse,
};
use crate::replay_v1::sample_response::SampleResponse;
use std::mem::size_of;

/// Size in bytes up to which messages are decoded without a check.
pub const UNCHECKED_BYTES: usize = 1 << 20;
// limit (Chunks and messages): memory of an insert's decoded messages, without the data | {} | the stream ends
/// Maximum decoded size in bytes of the messages inside an insert, without their data.
const MAX_DECODED_BYTES: usize = 256 << 20;

/// A field that takes more memory decoded than on the wire.
struct Field {
    tag: u64,
    kind: Kind,
}

enum Kind {
    /// A message: its decoded size in bytes, and its fields that grow.
    Message(usize, &'static [Field]),
    /// Numbers, which take 8 bytes each in memory and at least one on the wire.
    Varints,
}

const INSERT_REQUEST: &[Field] = &[
    Field { tag: 2, kind: Kind::Message(size_of::<Chunk>(), CHUNK) },
    Field { tag: 3, kind: Kind::Message(size_of::<ItemBatch>(), ITEM_BATCH) },
];
const WRITE_REQUEST: &[Field] = &[
    Field { tag: 3, kind: Kind::Message(size_of::<Chunk>(), CHUNK) },
    Field { tag: 4, kind: Kind::Message(size_of::<WriteItem>(), WRITE_ITEM) },
];
const WRITE_ITEM: &[Field] = &[Field { tag: 7, kind: Kind::Message(size_of::<Trajectory>(), TRAJECTORY) }];
const CHUNK: &[Field] = &[Field { tag: 8, kind: Kind::Message(size_of::<ColumnSpec>(), COLUMN_SPEC) }];
const COLUMN_SPEC: &[Field] = &[Field { tag: 2, kind: Kind::Varints }];
const ITEM_BATCH: &[Field] = &[Field { tag: 7, kind: Kind::Message(size_of::<Trajectory>(), TRAJECTORY) }];
const TRAJECTORY: &[Field] = &[Field { tag: 1, kind: Kind::Message(size_of::<Column>(), COLUMN) }];
const COLUMN: &[Field] = &[Field { tag: 1, kind: Kind::Message(size_of::<Slice>(), &[]) }];

/// A message of our service with a check of its decoded size. The codec requires it of every message that it decodes.
pub trait Checked {
    /// Checks a large encoded message. Accepts every message by default, for types that do not grow.
    ///
    /// # Errors
    /// The reason, as a text, if the message would grow too much, or if the decoder would refuse it.
    fn check(_message: &[u8]) -> Result<(), String> {
        Ok(())
    }
}

/// Also refuses groups, which the decoder would skip. No client of this protocol sends groups.
impl Checked for InsertRequest {
    fn check(message: &[u8]) -> Result<(), String> {
        check(message, INSERT_REQUEST)
    }
}

impl Checked for WriteRequest {
    fn check(message: &[u8]) -> Result<(), String> {
        check(message, WRITE_REQUEST)
    }
}

// These messages are always small, or come from a server that its client trusts.
impl Checked for HelloRequest {}
impl Checked for HelloResponse {}
impl Checked for InsertResponse {}
impl Checked for SampleRequest {}
impl Checked for SampleResponse {}
impl Checked for WriteResponse {}
impl Checked for MutateRequest {}
impl Checked for MutateResponse {}
impl Checked for ResetRequest {}
impl Checked for ResetResponse {}
impl Checked for InfoRequest {}
impl Checked for InfoResponse {}
impl Checked for CheckpointRequest {}
impl Checked for CheckpointResponse {}
impl Checked for PeekRequest {}
impl Checked for ConfigureRequest {}
impl Checked for ConfigureResponse {}
impl Checked for PeekResponse {}
impl Checked for ObserveRequest {}
impl Checked for ObserveResponse {}
impl Checked for BenchRequest {}
impl Checked for BenchResponse {}

fn check(message: &[u8], fields: &[Field]) -> Result<(), String> {
    let mut left = MAX_DECODED_BYTES;
    match walk(message, fields, &mut left) {
        Err(Stop::TooLarge) => Err(format!(
            "the chunks, columns and slices of an insert of {} bytes exceed {MAX_DECODED_BYTES} bytes when decoded",
            message.len()
        )),
        Err(Stop::Unreadable) => Err("cannot read an insert".into()),
        Ok(()) => Ok(()),
    }
}

enum Stop {
    TooLarge,
    Unreadable,
}

fn walk(mut message: &[u8], fields: &[Field], left: &mut usize) -> Result<(), Stop> {
    while !message.is_empty() {
        let key = varint(&mut message)?;
        let kind = fields.iter().find(|field| field.tag == key >> 3).map(|field| &field.kind);
        let length = match key & 7 {
            0 => {
                varint(&mut message)?;
                if matches!(kind, Some(Kind::Varints)) {
                    spend(left, size_of::<u64>())?;
                }
                continue;
            }
            1 => 8,
            2 => usize::try_from(varint(&mut message)?).map_err(|_| Stop::Unreadable)?,
            5 => 4,
            _ => return Err(Stop::Unreadable),
        };
        let value = message.split_off(..length).ok_or(Stop::Unreadable)?;
        match kind {
            Some(Kind::Message(size, fields)) => {
                spend(left, *size)?;
                if !fields.is_empty() {
                    walk(value, fields, left)?;
                }
            }
            Some(Kind::Varints) => spend(left, length.saturating_mul(size_of::<u64>()))?,
            None => {}
        }
    }
    Ok(())
}

fn spend(left: &mut usize, bytes: usize) -> Result<(), Stop> {
    *left = left.checked_sub(bytes).ok_or(Stop::TooLarge)?;
    Ok(())
}

fn varint(bytes: &mut &[u8]) -> Result<u64, Stop> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.split_off_first().ok_or(Stop::Unreadable)?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(number);
        }
    }
    Err(Stop::Unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;

    fn is_refused(request: &InsertRequest) -> bool {
        InsertRequest::check(&request.encode_to_vec()).is_err()
    }

    #[test]
    fn an_insert_of_millions_of_empty_messages_is_refused_at_every_depth() {
        let many = 12 << 20;
        let trajectories = |columns| ItemBatch { trajectories: vec![Trajectory { columns }], ..ItemBatch::default() };
        let batches = |batch| InsertRequest { batches: vec![batch], ..InsertRequest::default() };
        let columns =
            |columns| InsertRequest { chunks: vec![Chunk { columns, ..Chunk::default() }], ..InsertRequest::default() };
        let slices = vec![Slice::default(); many];
        assert!(is_refused(&batches(trajectories(vec![Column { slices, squeeze: false }]))));
        assert!(is_refused(&batches(trajectories(vec![Column::default(); many]))));
        assert!(is_refused(&batches(ItemBatch {
            trajectories: vec![Trajectory::default(); many],
            ..ItemBatch::default()
        })));
        assert!(is_refused(&columns(vec![ColumnSpec::default(); many])));
        assert!(is_refused(&columns(vec![ColumnSpec { shape: vec![0; 40 << 20], ..ColumnSpec::default() }])));
        // The encoded bytes are written by hand, because the messages would take gigabytes here too.
        assert!(InsertRequest::check(&[0x12, 0].repeat(many)).is_err(), "chunks");
        assert!(InsertRequest::check(&[0x1a, 0].repeat(many)).is_err(), "batches");
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
    fn unreadable_messages_are_refused() {
        // The last message is an empty group, which must not hide the bytes after it.
        for bytes in [&[0x12][..], &[0x12, 5, 0], &[0xff; 20], &[0x12, 2, 0x42, 9], &[0x7b, 0x7c]] {
            assert!(InsertRequest::check(bytes).is_err(), "{bytes:?}");
        }
    }
}
