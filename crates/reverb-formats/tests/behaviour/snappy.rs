//! The Snappy decoder of chunks agrees with the `snap` crate, in data and in refusals.

use proptest::prelude::*;
use prost::Message;
use reverb_core::{DType, EpisodeIds, Error};
use reverb_formats::chunk::ChunkDecoder;
use reverb_formats::proto::schema::{ChunkData, chunk_data::Data};
use reverb_formats::proto::tensorflow::{TensorProto, TensorShapeProto, tensor_shape_proto::Dim};

fn decode(size: usize, content: &[u8]) -> Result<Vec<u8>, Error> {
    let dim = [1, size as i64].map(|size| Dim { size, ..Dim::default() }).to_vec();
    let tensor = TensorProto {
        dtype: DType::UInt8 as i32,
        tensor_shape: Some(TensorShapeProto { dim, ..TensorShapeProto::default() }),
        tensor_content: content.to_vec().into(),
        ..TensorProto::default()
    };
    let chunk = ChunkData { chunk_key: 5, data: Some(Data { tensors: vec![tensor] }), ..ChunkData::default() };
    let message = chunk.encode_to_vec();
    let now = ChunkDecoder::new(64 << 20).decode(&message, EpisodeIds::Same);
    let later = ChunkDecoder::new(64 << 20).leave_packed(0).decode(&message, EpisodeIds::Same);
    // A packed chunk is checked, too.
    match (&now, &later) {
        (Ok(now), Ok(later)) => {
            assert_eq!(later.is_packed(), content.len() <= size / 2);
            assert_eq!(later.view(&mut Vec::new())?.data(), now.data());
            assert_eq!(later.data(), now.data());
        }
        _ => assert_eq!(now.is_ok(), later.is_ok(), "{now:?}, {later:?}"),
    }
    Ok(now?.data().to_vec())
}

fn round_trip(data: &[u8]) {
    let content = snap::raw::Encoder::new().compress_vec(data).unwrap();
    assert!(decode(data.len(), &content).unwrap() == data, "{} bytes", data.len());
}

#[test]
fn data_of_all_lengths_and_periods_decodes() {
    let noise = |at: usize| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 29) as u8;
    for length in (1..200).chain([65_535, 65_536, 65_537, 300_000]) {
        round_trip(&(0..length).map(noise).collect::<Vec<_>>());
        for period in [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 31, 64, 100] {
            round_trip(&(0..length).map(|at| noise(at % period)).collect::<Vec<_>>());
            round_trip(&(0..length).map(|at| noise(at / period)).collect::<Vec<_>>());
        }
    }
}

/// An element of a stream, with the number of bytes that encode the length of a literal or the offset of a copy.
#[derive(Debug, Clone)]
enum Element {
    Literal { bytes: Vec<u8>, digits: usize },
    Copy { offset: u32, length: usize, digits: usize },
}

impl Element {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Literal { bytes, digits } => {
                let more = (bytes.len() - 1) as u32;
                match digits {
                    0 if more < 60 => out.push((more as u8) << 2),
                    _ => {
                        let digits = (*digits).max(2);
                        out.push((59 + digits as u8) << 2);
                        out.extend(&more.to_le_bytes()[..digits]);
                    }
                }
                out.extend(bytes);
            }
            Self::Copy { offset, length, digits: 1 } => {
                out.push(((offset >> 8 & 7) as u8) << 5 | ((length.clamp(&4, &11) - 4) as u8) << 2 | 1);
                out.push(*offset as u8);
            }
            Self::Copy { offset, length, digits } => {
                out.push(((length - 1) as u8) << 2 | if *digits == 2 { 2 } else { 3 });
                out.extend(&offset.to_le_bytes()[..*digits]);
            }
        }
    }
}

fn elements() -> impl Strategy<Value = Vec<Element>> {
    let near = prop_oneof![8 => 1..20_u32, 4 => 1..400_u32, 1 => any::<u32>(), 1 => Just(0)];
    let copy = (near, 1..65_usize, prop::sample::select(vec![1, 2, 4]))
        .prop_map(|(offset, length, digits)| Element::Copy { offset, length, digits });
    let literal = (prop::collection::vec(any::<u8>(), 1..100), 0..5_usize)
        .prop_map(|(bytes, digits)| Element::Literal { bytes, digits });
    let first = prop::collection::vec(any::<u8>(), 1..300).prop_map(|bytes| Element::Literal { bytes, digits: 2 });
    (first, prop::collection::vec(prop_oneof![literal, copy], 0..20)).prop_map(|(first, mut elements)| {
        elements.insert(0, first);
        elements
    })
}

/// Compares both decoders for elements that declare `size` bytes.
fn compare(size: usize, elements: &[u8]) {
    let mut content = Vec::new();
    prost::encoding::encode_varint(size as u64, &mut content);
    content.extend(elements);
    let expected = snap::raw::Decoder::new().decompress_vec(&content);
    match (decode(size, &content), expected) {
        (Ok(bytes), Ok(expected)) => assert_eq!(bytes, expected),
        (Err(_), Err(_)) => {}
        // A size that Snappy cannot reach is refused before decoding.
        (Err(error), Ok(_)) => assert!(error.to_string().contains("cannot decompress"), "{error}"),
        (Ok(_), Err(error)) => panic!("the chunk decoder accepts it, but {error}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn streams_of_elements_decode_as_in_the_snap_crate(
        elements in elements(),
        wrong in prop_oneof![4 => Just(0_isize), 1 => -100..100_isize],
        cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
    ) {
        let length = |element: &Element| match element {
            Element::Literal { bytes, .. } => bytes.len(),
            Element::Copy { length, digits: 1, .. } => *length.clamp(&4, &11),
            Element::Copy { length, .. } => *length,
        };
        let size = elements.iter().map(length).sum::<usize>().saturating_add_signed(wrong).max(1);
        let mut stream = Vec::new();
        elements.iter().for_each(|element| element.put(&mut stream));
        if let Some(cut) = cut {
            stream.truncate(cut.index(stream.len()));
        }
        compare(size, &stream);
    }

    #[test]
    fn damaged_streams_have_the_same_fate(
        data in prop::collection::vec(prop::sample::select(vec![0_u8, 0, 0, 1, 7]), 1..600),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let content = snap::raw::Encoder::new().compress_vec(&data).unwrap();
        let header = if data.len() < 128 { 1 } else { 2 };
        let mut elements = content[header..].to_vec();
        for (place, byte) in changes {
            let place = place.index(elements.len());
            elements[place] = byte;
        }
        compare(data.len(), &elements);
    }
}
