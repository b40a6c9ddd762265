//! Chunks of the reference: recorded messages decode exactly, and encoded chunks decode to themselves.

use proptest::prelude::*;
use prost::Message;
use reverb_core::memory::mapped_bytes;
use reverb_core::{Chunk, DType, EpisodeIds, Error, Layout, StepRange, encode_strings};
use reverb_formats::chunk::{ChunkDecoder, ChunkEncoder, most_decoded_bytes};
use reverb_formats::proto::schema::ChunkData;
use serde_json::Value;
use std::sync::Arc;

const LIMIT: u64 = 64 << 20;

fn golden() -> Vec<Value> {
    let file: Value = serde_json::from_str(include_str!("../../../../tests/data/chunks.json")).unwrap();
    file["vectors"].as_array().unwrap().clone()
}

fn from_hex(value: &Value) -> Vec<u8> {
    let text = value.as_str().unwrap();
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// Decodes a message, and checks that a decoder that packs chunks gives the same result.
fn decode(message: &[u8]) -> Result<Chunk, Error> {
    let chunk = ChunkDecoder::new(LIMIT).decode(message, EpisodeIds::Same);
    let later = ChunkDecoder::new(LIMIT).leave_packed(0).decode(message, EpisodeIds::Same);
    match (&chunk, &later) {
        (Ok(chunk), Ok(later)) => assert_same(later, chunk),
        _ => assert_eq!(chunk.is_ok(), later.is_ok()),
    }
    chunk
}

fn encode(chunk: &Chunk, delta: bool) -> Vec<u8> {
    let mut out = Vec::new();
    ChunkEncoder::default().encode(chunk, chunk.key, delta, &mut out).unwrap();
    out
}

/// The bytes of a tensor of the golden file, as they lie in the region of a chunk.
fn golden_rows(vector: &Value, tensor: &Value) -> Option<Vec<u8>> {
    let rank = tensor["shape"].as_array().unwrap().len();
    let is_integer = tensor["dtype"].as_str().unwrap().contains("INT");
    if vector["delta_encoded"] == true && rank >= 2 && is_integer {
        let dtype = DType::from_number(tensor["dtype_number"].as_u64().unwrap() as u32).unwrap();
        let values = tensor["logical_values_flat"].as_array()?;
        let bytes = |value: &Value| {
            let number = value.as_i64().unwrap_or_else(|| value.as_u64().unwrap() as i64);
            number.to_le_bytes()[..dtype.size()].to_vec()
        };
        return Some(values.iter().flat_map(bytes).collect());
    }
    Some(from_hex(tensor.get("snappy_decompressed_hex")?))
}

#[test]
fn golden_chunks_decode_exactly() {
    let (mut numbers, mut strings) = (0, 0);
    for vector in golden() {
        let name = vector["name"].as_str().unwrap();
        let chunk = decode(&from_hex(&vector["hex"])).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(chunk.key.to_string(), vector["chunk_key"].as_str().unwrap(), "{name}");
        let tensors = vector["tensors"].as_array().unwrap();
        assert_eq!(chunk.columns().len(), tensors.len(), "{name}");
        for (index, tensor) in tensors.iter().enumerate() {
            let column = &chunk.columns()[index];
            let mut shape = vec![u64::from(chunk.rows())];
            shape.extend(column.shape.iter().map(|&dim| dim as u64));
            let expected: Vec<_> = tensor["shape"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
            assert_eq!(shape, expected, "{name}");
            assert_eq!(column.dtype as u64, tensor["dtype_number"].as_u64().unwrap(), "{name}");
            if column.dtype == DType::String {
                let count = column.elements * chunk.rows() as usize;
                let got: Vec<_> = chunk.strings_of(index, 0, count).map(|text| str::from_utf8(text).unwrap()).collect();
                let expected = tensor["logical_values_flat"].as_array().unwrap();
                assert_eq!(got, expected.iter().map(|text| text.as_str().unwrap()).collect::<Vec<_>>(), "{name}");
                strings += 1;
            } else if let Some(expected) = golden_rows(&vector, tensor) {
                assert_eq!(chunk.rows_of(index, 0, chunk.rows()), expected, "{name}");
                numbers += 1;
            }
        }
    }
    assert!(numbers > 15 && strings > 0, "{numbers} tensors of numbers, {strings} of strings");
}

#[test]
fn golden_chunks_encode_to_messages_that_differ_in_snappy_bytes_only() {
    for vector in golden() {
        let bytes = from_hex(&vector["hex"]);
        let chunk = decode(&bytes).unwrap();
        let expected = ChunkData::decode(&bytes[..]).unwrap();
        let mut got = ChunkData::decode(&encode(&chunk, expected.delta_encoded)[..]).unwrap();
        for (ours, theirs) in
            got.data.as_mut().unwrap().tensors.iter_mut().zip(&expected.data.as_ref().unwrap().tensors)
        {
            let is_string = ours.dtype == DType::String as i32;
            let plain = |content: &[u8]| {
                if is_string { content.to_vec() } else { snap::raw::Decoder::new().decompress_vec(content).unwrap() }
            };
            assert_eq!(plain(&ours.tensor_content), plain(&theirs.tensor_content), "{}", vector["name"]);
            ours.tensor_content = theirs.tensor_content.clone();
        }
        assert_eq!(got, expected, "{}", vector["name"]);
    }
}

fn column_of(dtype: DType, rows: usize, shape: &[usize], bytes: &[u8]) -> Vec<u8> {
    let count = rows * shape.iter().product::<usize>();
    if dtype == DType::String {
        let strings: Vec<&[u8]> = (0..count)
            .map(|i| &bytes[i % bytes.len().max(1)..(i % bytes.len().max(1) + i % 7).min(bytes.len())])
            .collect();
        return encode_strings(strings.iter().copied()).unwrap();
    }
    bytes.iter().copied().cycle().take(count * dtype.size()).collect()
}

fn chunk_of(rows: usize, columns: &[(DType, Vec<usize>)], bytes: &[u8]) -> Chunk {
    let regions: Vec<_> = columns.iter().map(|(dtype, shape)| column_of(*dtype, rows, shape, bytes)).collect();
    let specs = columns
        .iter()
        .zip(&regions)
        .map(|((dtype, shape), region)| (*dtype, shape.iter().copied().collect(), region.len()));
    let layout = Arc::new(Layout::new(rows, specs).unwrap());
    let mut data = Vec::new();
    for (column, region) in layout.columns.iter().zip(&regions) {
        data.resize(column.offset, 0);
        data.extend_from_slice(region);
    }
    let steps = StepRange { first: -3, last: 1000, sparse: true };
    Chunk::new(7, EpisodeIds::Same(u64::MAX), steps, layout, data.into()).unwrap()
}

fn assert_same(a: &Chunk, b: &Chunk) {
    assert_eq!((a.key, a.episodes, a.steps, a.layout()), (b.key, b.episodes, b.steps, b.layout()));
    assert_eq!(a.data(), b.data());
}

proptest! {
    #[test]
    fn a_chunk_decodes_to_itself(
        rows in 1_usize..20,
        columns in proptest::collection::vec(
            (proptest::sample::select(DType::ALL), proptest::collection::vec(0_usize..4, 0..3)), 1..4),
        bytes in proptest::collection::vec(any::<u8>(), 1..64),
        delta: bool,
    ) {
        let chunk = chunk_of(rows, &columns, &bytes);
        assert_same(&decode(&encode(&chunk, delta)).unwrap(), &chunk);
    }

    #[test]
    fn rows_of_a_chunk_become_a_chunk_of_their_own(
        rows in 1_u32..20,
        columns in proptest::collection::vec(
            (proptest::sample::select(DType::ALL), proptest::collection::vec(0_usize..4, 0..3)), 1..4),
        bytes in proptest::collection::vec(any::<u8>(), 1..64),
        (delta, are_unrelated) in any::<(bool, bool)>(),
        (start, length) in any::<(prop::sample::Index, prop::sample::Index)>(),
    ) {
        let whole = chunk_of(rows as usize, &columns, &bytes);
        let first = start.index(rows as usize) as u32;
        let range = first..first + 1 + length.index((rows - first) as usize) as u32;
        let episodes = if are_unrelated { EpisodeIds::PerRow(u64::MAX) } else { EpisodeIds::Same(5) };
        let steps = StepRange { first: 10, last: 9 + rows as i32, sparse: false };
        let whole = Chunk::new(7, episodes, steps, whole.layout().clone(), whole.data().clone()).unwrap();
        let (mut scratch, mut message) = (Vec::new(), Vec::new());
        let view = whole.view(&mut scratch).unwrap();
        ChunkEncoder::default().encode_rows(&whole, Some(view), range.clone(), 8, delta, &mut message).unwrap();
        let part = decode(&message).unwrap();
        assert_eq!((part.key, part.rows() as usize), (8, range.len()));
        for (index, column) in whole.columns().iter().enumerate() {
            if column.dtype == DType::String {
                let (first, count) = (range.start as usize * column.elements, range.len() * column.elements);
                assert!(part.strings_of(index, 0, count).eq(whole.strings_of(index, first, count)));
            } else {
                let expected = whole.rows_of(index, range.start, part.rows());
                assert_eq!(part.rows_of(index, 0, part.rows()), expected);
            }
        }
        let last = range.end as i32 - 1;
        let expected = match are_unrelated && range.len() < rows as usize {
            // The rows begin an episode of their own, and rows of a batch have no steps in common.
            true => (u64::MAX.wrapping_add(range.start.into()), 0, last - range.start as i32),
            false if are_unrelated => (u64::MAX, 10, 10 + last),
            false => (5, 10 + range.start as i32, 10 + last),
        };
        let EpisodeIds::Same(episode) = part.episodes else { panic!("a message has one episode") };
        assert_eq!((episode, part.steps.first, part.steps.last), expected);
    }

    /// Each message is decoded or refused.
    #[test]
    fn damaged_messages_are_refused_or_decoded_without_a_panic(
        number in 0_usize..1000,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let vectors = golden();
        let mut bytes = from_hex(&vectors[number % vectors.len()]["hex"]);
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        let _refused = decode(&bytes);
        bytes.truncate(cut.index(bytes.len()));
        let _refused = decode(&bytes);
    }

    #[test]
    fn random_bytes_are_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _refused = decode(&bytes);
    }
}

fn refusal(chunk: &ChunkData) -> String {
    decode(&chunk.encode_to_vec()).unwrap_err().to_string()
}

fn message(dtype: DType, dims: &[i64], content: Vec<u8>) -> ChunkData {
    use reverb_formats::proto::schema::chunk_data::Data;
    use reverb_formats::proto::tensorflow::{TensorProto, TensorShapeProto, tensor_shape_proto::Dim};
    let dim = dims.iter().map(|&size| Dim { size, ..Dim::default() }).collect();
    let tensor = TensorProto {
        dtype: dtype as i32,
        tensor_shape: Some(TensorShapeProto { dim, ..TensorShapeProto::default() }),
        tensor_content: content.into(),
        ..TensorProto::default()
    };
    ChunkData { chunk_key: 5, data: Some(Data { tensors: vec![tensor] }), ..ChunkData::default() }
}

/// A Snappy stream that declares `size` bytes and contains one literal byte.
fn bomb(size: u64) -> Vec<u8> {
    let mut content = Vec::new();
    prost::encoding::encode_varint(size, &mut content);
    content.extend([0, 1]);
    content
}

#[test]
fn declared_sizes_are_refused_before_they_are_allocated() {
    let large = refusal(&message(DType::UInt8, &[1, 1 << 31], bomb(1 << 31)));
    assert!(large.contains("more than the 67108864 bytes"), "{large}");
    let bomb_text = refusal(&message(DType::UInt8, &[1, 1 << 25], bomb(1 << 25)));
    assert!(bomb_text.contains("cannot decompress to 33554432 bytes"), "{bomb_text}");
    let many = refusal(&message(DType::String, &[1 << 40], vec![0; 100]));
    assert!(many.contains("rows of strings"), "{many}");
    let mut repeated = message(DType::String, &[1 << 40], Vec::new());
    repeated.data.as_mut().unwrap().tensors[0].string_val = vec![bytes::Bytes::from_static(b"x")];
    assert!(refusal(&repeated).contains("rows of strings"));
}

#[test]
fn a_damaged_tensor_is_named() {
    let short = refusal(&message(DType::Float32, &[2, 2], snap::raw::Encoder::new().compress_vec(&[0; 12]).unwrap()));
    assert_eq!(short, "chunk 5: tensor 0: shape and dtype require 16 bytes, but the content declares 12 bytes");
    let no_rows = refusal(&message(DType::Float32, &[0, 2], vec![0]));
    assert!(no_rows.contains("at least one row"), "{no_rows}");
    let scalar = refusal(&message(DType::Float32, &[], vec![0]));
    assert_eq!(scalar, "chunk 5: a tensor is a scalar and has no rows");
    let behind = refusal(&message(DType::String, &[1], vec![1, b'a', b'b']));
    assert!(behind.contains("follow the last string"), "{behind}");
    let mut deep = message(DType::Float32, &[1; 70], vec![0]);
    assert!(refusal(&deep).contains("more than 64 dimensions"));
    deep.data = None;
    assert!(refusal(&deep).contains("no tensors"));
    let mut quantised = message(DType::Float32, &[1], vec![0]);
    quantised.data.as_mut().unwrap().tensors[0].dtype = 11;
    assert!(refusal(&quantised).contains("dtype number 11"));
}

#[test]
fn old_chunks_and_strings_in_their_own_field_decode() {
    let mut old = message(DType::Int16, &[2], snap::raw::Encoder::new().compress_vec(&[1, 0, 2, 0]).unwrap());
    old.deprecated_data = old.data.take().unwrap().tensors;
    let chunk = decode(&old.encode_to_vec()).unwrap();
    assert_eq!(chunk.rows_of(0, 0, 2), [1, 0, 2, 0]);

    let mut strings = message(DType::String, &[3], Vec::new());
    let values = [&b"a"[..], b"bc"].map(bytes::Bytes::from_static);
    strings.data.as_mut().unwrap().tensors[0].string_val = values.to_vec();
    let chunk = decode(&strings.encode_to_vec()).unwrap();
    assert_eq!(chunk.strings_of(0, 0, 3).collect::<Vec<_>>(), [&b"a"[..], b"bc", b"bc"]);
}

/// A chunk of one row.
fn zeros(size_bytes: usize) -> Chunk {
    let layout = Arc::new(Layout::new(1, [(DType::UInt8, [size_bytes].into_iter().collect(), 0)]).unwrap());
    Chunk::new(1, EpisodeIds::Same(1), StepRange::default(), layout, vec![0; size_bytes].into()).unwrap()
}

#[test]
fn only_chunks_of_up_to_256_mib_stay_packed() {
    for (mib, packed) in [(256, true), (257, false)] {
        let chunk = zeros(mib << 20);
        let message = encode(&chunk, false);
        drop(chunk);
        for decoder in [ChunkDecoder::new(1 << 30).leave_packed(0), ChunkDecoder::new(1 << 30).keep_messages(0)] {
            let decoded = { decoder }.decode(&message, EpisodeIds::Same).unwrap();
            assert_eq!(decoded.is_packed(), packed, "{mib} MiB");
            assert_eq!(decoded.decoded_bytes(), mib << 20);
        }
    }
}

#[test]
fn strings_and_old_chunks_are_expected_to_be_decoded_and_others_to_stay() {
    let numbers = encode(&chunk_of(100, &[(DType::Int32, vec![1])], &[7; 400]), false);
    assert_eq!(most_decoded_bytes(&numbers), numbers.len() as u64);
    let strings = message(DType::String, &[1], vec![1, b'a']);
    let mut old = message(DType::Int16, &[2], vec![0]);
    old.deprecated_data = old.data.take().unwrap().tensors;
    for message in [strings.encode_to_vec(), old.encode_to_vec()] {
        assert_eq!(most_decoded_bytes(&message), 22 * message.len() as u64);
    }
    assert_eq!(most_decoded_bytes(&[0xff; 9]), 9, "it will be refused");
}

#[cfg(target_os = "linux")]
#[test]
fn rows_that_count_are_left_packed_as_differences() {
    let rows: Vec<u8> = (0..100_u32).flat_map(|row| (row * 1000).to_le_bytes()).collect();
    let columns = [(DType::Int32, vec![1]), (DType::Bool, vec![3]), (DType::UInt32, vec![1])];
    let chunk = chunk_of(100, &columns, &rows);
    for (delta, packed) in [(true, true), (false, false)] {
        let decoded = ChunkDecoder::new(LIMIT).leave_packed(900).decode(&encode(&chunk, delta), EpisodeIds::Same);
        let decoded = decoded.unwrap();
        assert_eq!(decoded.is_packed(), packed);
        assert_same(&decoded, &chunk);
    }
    let small = ChunkDecoder::new(LIMIT).leave_packed(2000).decode(&encode(&chunk, true), EpisodeIds::Same);
    assert!(!small.unwrap().is_packed());
}

/// Bytes of anonymous memory of this process that are resident.
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

#[cfg(target_os = "linux")]
#[test]
fn memory_of_large_chunks_goes_back_with_each_of_them() {
    const SIZE: usize = 1_000_000;
    let data: Vec<u8> = (0..SIZE).map(|at| (at * at / 7) as u8).collect();
    let content = snap::raw::Encoder::new().compress_vec(&data).unwrap();
    let bytes = message(DType::UInt8, &[1, SIZE as i64], content).encode_to_vec();
    let mut decoder = ChunkDecoder::new(LIMIT);
    let mut decode = || Some(decoder.decode(&bytes, EpisodeIds::Same).unwrap());
    let mut chunks: Vec<_> = (0..80).map(|_| decode()).collect();
    assert!(mapped_bytes() >= 80 * SIZE, "{}", mapped_bytes());
    let before = resident_bytes();
    // Most blocks still hold chunks in use.
    chunks.iter_mut().step_by(2).for_each(|chunk| drop(chunk.take()));
    let after = resident_bytes();
    assert!(after + 35 * SIZE <= before, "{before} bytes before, {after} after");
    assert!(chunks.iter().flatten().all(|chunk| chunk.data()[..] == data));
    let kept = chunks[1].as_ref().unwrap().data().clone();
    chunks.clear();
    assert!((SIZE..2 * SIZE).contains(&mapped_bytes()), "{}", mapped_bytes());
    assert_eq!(kept, data);
}
