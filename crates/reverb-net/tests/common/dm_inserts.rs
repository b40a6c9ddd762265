//! Messages of dm-reverb's service, and a client that sends them as they are.

use prost::Message;
use reverb_formats::proto::schema::flat_trajectory::{ChunkSlice, Column};
use reverb_formats::proto::schema::{ChunkData, FlatTrajectory, PrioritizedItem, SequenceRange, chunk_data};
use reverb_formats::proto::tensorflow::{TensorProto, TensorShapeProto, tensor_shape_proto::Dim};
use reverb_net::dm_reverb::proto::{InsertStreamRequest, InsertStreamResponse};
use reverb_net::dm_reverb::rpc::reverb_service_client::ReverbServiceClient;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Status, Streaming};

pub type Service = ReverbServiceClient<Channel>;

pub async fn connect(port: u16) -> Service {
    let channel = Endpoint::from_shared(format!("http://127.0.0.1:{port}")).unwrap().connect().await.unwrap();
    ReverbServiceClient::new(channel).max_decoding_message_size(usize::MAX).max_encoding_message_size(usize::MAX)
}

/// The vectors of a file of recorded messages.
pub fn golden(file: &str) -> Vec<Value> {
    let file: Value = serde_json::from_str(file).unwrap();
    file["vectors"].as_array().unwrap().clone()
}

pub fn from_hex(value: &Value) -> Vec<u8> {
    let text = value.as_str().unwrap();
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// Snappy without compression: the length, and one literal.
pub fn literal(bytes: &[u8]) -> Vec<u8> {
    let mut snappy = Vec::new();
    prost::encoding::encode_varint(bytes.len() as u64, &mut snappy);
    if !bytes.is_empty() {
        snappy.push(62 << 2);
        snappy.extend_from_slice(&(bytes.len() as u32 - 1).to_le_bytes()[..3]);
        snappy.extend_from_slice(bytes);
    }
    snappy
}

pub fn shape(dims: &[i64]) -> TensorShapeProto {
    let dim = dims.iter().map(|&size| Dim { size, ..Dim::default() }).collect();
    TensorShapeProto { dim, ..TensorShapeProto::default() }
}

pub fn tensor(dtype: i32, dims: &[i64], content: Vec<u8>) -> TensorProto {
    TensorProto { dtype, tensor_shape: Some(shape(dims)), tensor_content: content.into(), ..TensorProto::default() }
}

/// A chunk of tensors, as an episode of its own.
pub fn chunk_of(key: u64, tensors: Vec<TensorProto>) -> ChunkData {
    let data_tensors_len = tensors.len() as i32;
    ChunkData {
        chunk_key: key,
        sequence_range: Some(SequenceRange { episode_id: key, ..SequenceRange::default() }),
        data: Some(chunk_data::Data { tensors }),
        data_tensors_len,
        ..ChunkData::default()
    }
}

/// A chunk of one int64 column.
pub fn chunk(key: u64, values: &[i64]) -> ChunkData {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    chunk_of(key, vec![tensor(9, &[values.len() as i64], literal(&bytes))])
}

pub fn slice(chunk_key: u64, offset: i32, length: i32) -> ChunkSlice {
    ChunkSlice { chunk_key, offset, length, index: 0 }
}

pub fn item_of(table: &str, key: u64, slices: Vec<ChunkSlice>) -> PrioritizedItem {
    let columns = vec![Column { chunk_slices: slices, squeeze: false }];
    let flat_trajectory = Some(FlatTrajectory { columns });
    PrioritizedItem { key, table: table.into(), priority: 1.0, flat_trajectory, ..PrioritizedItem::default() }
}

/// An item of the first row of a chunk.
pub fn item(table: &str, key: u64, chunk_key: u64) -> PrioritizedItem {
    item_of(table, key, vec![slice(chunk_key, 0, 1)])
}

pub fn request(chunks: &[ChunkData], items: &[PrioritizedItem], keep_chunk_keys: &[u64]) -> InsertStreamRequest {
    InsertStreamRequest {
        chunks: chunks.iter().map(|chunk| chunk.encode_to_vec().into()).collect(),
        items: items.iter().map(|item| item.encode_to_vec().into()).collect(),
        keep_chunk_keys: keep_chunk_keys.to_vec(),
    }
}

/// An insert stream.
pub struct Inserts {
    pub requests: mpsc::UnboundedSender<InsertStreamRequest>,
    pub responses: Streaming<InsertStreamResponse>,
}

impl Inserts {
    pub async fn open(service: &mut Service) -> Self {
        let (requests, stream) = mpsc::unbounded_channel();
        let responses = service.insert_stream(UnboundedReceiverStream::new(stream)).await.unwrap().into_inner();
        Self { requests, responses }
    }

    pub fn send(&self, request: InsertStreamRequest) {
        self.requests.send(request).unwrap();
    }

    /// Returns the next confirmed keys.
    pub async fn keys(&mut self) -> Vec<u64> {
        self.responses.message().await.unwrap().expect("the stream has ended").keys
    }

    /// Closes the client's side. Returns all confirmed keys, in ascending order, and the result of the stream.
    pub async fn finish(self) -> (Vec<u64>, Option<Status>) {
        let Self { requests, mut responses } = self;
        drop(requests);
        let mut keys = Vec::new();
        let status = loop {
            match responses.message().await {
                Ok(Some(answer)) => keys.extend(answer.keys),
                Ok(None) => break None,
                Err(status) => break Some(status),
            }
        };
        keys.sort_unstable();
        (keys, status)
    }
}

/// Sends messages on a new stream, and half-closes it.
pub async fn talk(service: &mut Service, messages: Vec<InsertStreamRequest>) -> (Vec<u64>, Option<Status>) {
    let inserts = Inserts::open(service).await;
    messages.into_iter().for_each(|message| inserts.send(message));
    inserts.finish().await
}
