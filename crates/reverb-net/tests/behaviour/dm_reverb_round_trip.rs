//! Chunks of dm-reverb's clients, on their way through a server to other clients.

use crate::common::dm_inserts::{Inserts, connect, from_hex, golden};
use crate::common::dm_reverb_client::{Samples, channel, sample, samples};
use crate::common::{self, exactly, here, server, uniform};
use crate::done;
use bytes::Bytes;
use prost::Message;
use reverb_core::{Chunk, EpisodeIds};
use reverb_formats::chunk::ChunkDecoder;
use reverb_formats::proto::schema::flat_trajectory::{ChunkSlice, Column};
use reverb_formats::proto::schema::{FlatTrajectory, PrioritizedItem};
use reverb_net::dm_reverb::proto::{InsertStreamRequest, SampleStreamResponse};
use reverb_service::TableHandle;

fn decode(message: &[u8]) -> Chunk {
    ChunkDecoder::new(1 << 30).decode(message, EpisodeIds::Same).unwrap()
}

/// An item of all rows of all tensors of a chunk.
fn whole(table: &str, chunk: &Chunk) -> PrioritizedItem {
    let slice = |index| ChunkSlice { chunk_key: chunk.key, offset: 0, length: chunk.rows() as i32, index };
    let column = |index| Column { chunk_slices: vec![slice(index)], squeeze: false };
    let columns = (0..chunk.columns().len() as i32).map(column).collect();
    let flat_trajectory = Some(FlatTrajectory { columns });
    PrioritizedItem { key: 1, table: table.into(), priority: 1.0, flat_trajectory, ..PrioritizedItem::default() }
}

/// Draws the only item of a table as a client of dm-reverb does. Returns the message of its chunk.
async fn drawn(port: u16, table: &str) -> Bytes {
    let mut stream: Samples<SampleStreamResponse> = samples(&channel(port).await).await;
    stream.send(sample(table, 1, None));
    let mut entries = stream.answer().await.unwrap().entries;
    assert_eq!((entries.len(), entries[0].data.len()), (1, 1));
    entries.remove(0).data.remove(0)
}

/// Draws the only item as our own readers do, who unpack it for good.
fn read(table: &TableHandle) {
    let drawn = done!(table.sample(exactly(1), here()));
    drawn[0].trajectory.for_each_use(|chunk, _| {
        let _read = chunk.data();
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_chunks_leave_as_they_came_until_our_readers_unpack_them() {
    let mut unchanged = 0;
    for vector in golden(include_str!("../../../../tests/data/chunks.json")) {
        let (name, message) = (&vector["name"], from_hex(&vector["hex"]));
        let expected = decode(&message);
        let table = uniform("table");
        let server = server(vec![table.clone()]);
        let mut inserts = Inserts::open(&mut connect(server.port()).await).await;
        let items = vec![whole("table", &expected).encode_to_vec().into()];
        inserts.send(InsertStreamRequest { chunks: vec![message.clone().into()], items, keep_chunk_keys: vec![] });
        assert_eq!(inserts.keys().await, [1], "{name}");

        unchanged += usize::from(drawn(server.port(), "table").await == message);
        for is_unpacked in [false, true] {
            let got = decode(&drawn(server.port(), "table").await);
            assert_eq!((got.key, got.steps, got.episodes), (expected.key, expected.steps, expected.episodes), "{name}");
            assert_eq!((got.layout(), got.data()), (expected.layout(), expected.data()), "{name}, {is_unpacked}");
            read(&table);
        }
    }
    assert!(unchanged > 0, "no message left unchanged");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delta_encoded_chunk_of_a_kilobyte_leaves_byte_for_byte() {
    let rows: Vec<u8> = (0..1000_u32).flat_map(|row| (row * 77).to_le_bytes()).collect();
    let layout = reverb_core::Layout::new(500, [(reverb_core::DType::UInt32, smallvec::smallvec![2], 0)]).unwrap();
    let chunk = common::chunk_of(layout, rows);
    let mut message = Vec::new();
    reverb_formats::chunk::ChunkEncoder::default().encode(&chunk, chunk.key, true, &mut message).unwrap();
    // A field of a later version stays in it.
    reverb_formats::wire::put_bytes(&mut message, 99, b"later");
    let table = uniform("table");
    let server = server(vec![table.clone()]);
    let mut inserts = Inserts::open(&mut connect(server.port()).await).await;
    let items = vec![whole("table", &chunk).encode_to_vec().into()];
    inserts.send(InsertStreamRequest { chunks: vec![message.clone().into()], items, keep_chunk_keys: vec![] });
    assert_eq!(inserts.keys().await, [1]);
    for _ in 0..2 {
        assert_eq!(drawn(server.port(), "table").await, message);
    }
    read(&table);
    let encoded = drawn(server.port(), "table").await;
    assert_eq!(decode(&encoded).data(), chunk.data());
    // Encoded once: the same bytes are sent again.
    assert_eq!(drawn(server.port(), "table").await, encoded);
}
