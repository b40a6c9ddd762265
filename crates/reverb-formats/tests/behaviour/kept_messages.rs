//! Chunks that keep the message in which they arrived, until their bytes are read.

use prost::Message;
use reverb_core::{Chunk, DType, EpisodeIds, Layout, Shape, StepRange};
use reverb_formats::chunk::{ChunkDecoder, ChunkEncoder};
use reverb_formats::proto::schema::ChunkData;
use serde_json::Value;
use std::sync::Arc;

const LIMIT: u64 = 64 << 20;

/// The recorded messages, each with its name.
fn golden() -> Vec<(String, Vec<u8>)> {
    let file: Value = serde_json::from_str(include_str!("../../../../tests/data/chunks.json")).unwrap();
    let vectors = file["vectors"].as_array().unwrap();
    let hex =
        |text: &str| (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect();
    vectors.iter().map(|v| (v["name"].as_str().unwrap().into(), hex(v["hex"].as_str().unwrap()))).collect()
}

fn decoded(message: &[u8]) -> Chunk {
    ChunkDecoder::new(LIMIT).decode(message, EpisodeIds::Same).unwrap()
}

fn kept(message: &[u8], from_bytes: usize) -> Chunk {
    ChunkDecoder::new(LIMIT).keep_messages(from_bytes).decode(message, EpisodeIds::Same).unwrap()
}

#[test]
fn recorded_chunks_go_out_as_they_came_in() {
    let mut num_kept = 0;
    for (name, message) in golden() {
        let (chunk, plain) = (kept(&message, 0), decoded(&message));
        let has_strings = plain.columns().iter().any(|column| column.dtype == DType::String);
        assert_eq!(chunk.message().is_some(), !has_strings && plain.decoded_bytes() > 0, "{name}");
        if let Some(same) = chunk.message() {
            assert_eq!(same, message, "{name}");
            num_kept += 1;
        }
        // A look at the rows leaves it packed. Reading them for good does not.
        assert_eq!(chunk.view(&mut Vec::new()).unwrap().data(), &plain.data()[..], "{name}");
        assert_eq!(chunk.message().is_some(), chunk.is_packed(), "{name}");
        assert_eq!(chunk.data(), plain.data(), "{name}");
        assert_eq!(chunk.message(), None, "{name}");
        assert_eq!((chunk.key, chunk.steps, chunk.layout()), (plain.key, plain.steps, plain.layout()), "{name}");
    }
    assert!(num_kept > 10, "{num_kept} messages were kept");
}

#[test]
fn small_chunks_and_messages_that_are_larger_than_their_data_are_decoded_at_once() {
    let (_, message) = golden().into_iter().max_by_key(|(_, message)| decoded(message).decoded_bytes()).unwrap();
    let size_bytes = decoded(&message).decoded_bytes();
    assert!(kept(&message, size_bytes).message().is_some());
    assert!(!kept(&message, size_bytes + 1).is_packed());

    // A field that nobody knows.
    let mut inflated = message.clone();
    reverb_formats::wire::put_bytes(&mut inflated, 99, &vec![7; 2 * size_bytes]);
    assert!(!kept(&inflated, 0).is_packed());
    let mut old = ChunkData::decode(&message[..]).unwrap();
    old.deprecated_data = old.data.take().unwrap().tensors;
    assert!(!kept(&old.encode_to_vec(), 0).is_packed());
}

#[test]
fn a_kept_message_is_checked_when_it_comes() {
    for (name, message) in golden() {
        let mut damaged = ChunkData::decode(&message[..]).unwrap();
        let tensor = &mut damaged.data.as_mut().unwrap().tensors[0];
        if tensor.dtype == DType::String as i32 || tensor.tensor_content.len() < 3 {
            continue;
        }
        tensor.tensor_content = tensor.tensor_content.slice(..tensor.tensor_content.len() - 1);
        let refused = ChunkDecoder::new(LIMIT).keep_messages(0).decode(&damaged.encode_to_vec(), EpisodeIds::Same);
        assert!(refused.is_err(), "{name}");
    }
}

#[test]
fn a_part_of_a_chunk_has_its_rows_and_its_steps() {
    for (name, message) in golden() {
        let chunk = decoded(&message);
        let rows = chunk.rows();
        for part in [0..1, rows - 1..rows, rows / 2..rows] {
            let mut out = Vec::new();
            ChunkEncoder::default().encode_part(&chunk, part.clone(), 7, false, &mut out).unwrap();
            let copy = decoded(&out);
            assert_eq!((copy.key, copy.rows()), (7, part.len() as u32), "{name}");
            for (index, column) in chunk.columns().iter().enumerate() {
                if column.dtype == DType::String {
                    let (first, count) = (part.start as usize * column.elements, part.len() * column.elements);
                    let expected: Vec<_> = chunk.strings_of(index, first, count).collect();
                    assert_eq!(copy.strings_of(index, 0, count).collect::<Vec<_>>(), expected, "{name}");
                } else {
                    let expected = chunk.rows_of(index, part.start, part.len() as u32);
                    assert_eq!(copy.rows_of(index, 0, copy.rows()), expected, "{name}");
                }
            }
            if !chunk.steps.sparse {
                assert_eq!(copy.steps.first, chunk.steps.first + part.start as i32, "{name}");
                assert_eq!(copy.steps.last, copy.steps.first + part.len() as i32 - 1, "{name}");
            }
        }
    }
}

#[test]
fn few_rows_of_an_interleaved_chunk_are_encoded_as_those_of_a_plain_one() {
    let columns = [(DType::Int16, Shape::from_slice(&[3]), 0), (DType::Float64, Shape::new(), 0)];
    let layout = Layout::new(9, columns).unwrap();
    let data: Vec<u8> = (0..layout.size_bytes).map(|at| (at * 7) as u8).collect();
    let steps = StepRange { first: 4, last: 12, sparse: false };
    // Bytes between the columns are zero.
    let regions = layout.columns.iter().map(|column| &data[column.offset..][..column.size_bytes]);
    let data = layout.assemble(&regions.collect::<Vec<_>>());
    let plain = Chunk::new(1, EpisodeIds::Same(2), steps, Arc::new(layout), data.into()).unwrap();
    let chunk = plain.interleave().unwrap();
    for part in [0..1, 0..chunk.rows()] {
        let [mut out, mut expected] = [Vec::new(), Vec::new()];
        ChunkEncoder::default().encode_part(&chunk, part.clone(), 7, true, &mut out).unwrap();
        ChunkEncoder::default().encode_part(&plain, part, 7, true, &mut expected).unwrap();
        assert_eq!(out, expected);
    }
}
