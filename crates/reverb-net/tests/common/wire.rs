//! A client that sends arbitrary messages.

use reverb_core::{Codec, DType, Layout};
use reverb_net::replay_v1::proto::{
    Batch, Choice, Chunk, ColumnSpec, Draw, Failure, InsertRequest, InsertResponse, ItemBatch, Race, RaceReport,
    SampleRequest, sample_request,
};
use reverb_net::replay_v1::rpc::replay_client::ReplayClient;
use reverb_net::replay_v1::sample_response::{Kind, Payload, SampleResponse};
use smallvec::smallvec;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

pub async fn connect(port: u16) -> ReplayClient<Channel> {
    let channel = tonic::transport::Endpoint::from_shared(format!("http://127.0.0.1:{port}")).unwrap();
    ReplayClient::new(channel.connect().await.unwrap())
        .max_decoding_message_size(usize::MAX)
        .max_encoding_message_size(usize::MAX)
}

/// An insert stream.
pub struct Inserts {
    pub requests: mpsc::UnboundedSender<InsertRequest>,
    pub responses: Streaming<InsertResponse>,
}

impl Inserts {
    pub async fn open(service: &mut ReplayClient<Channel>) -> Self {
        let (requests, stream) = mpsc::unbounded_channel();
        let responses = service.insert(UnboundedReceiverStream::new(stream)).await.unwrap().into_inner();
        Self { requests, responses }
    }

    pub fn send(&self, request: InsertRequest) {
        self.requests.send(request).unwrap();
    }

    pub async fn answer(&mut self) -> Result<InsertResponse, Status> {
        match self.responses.message().await {
            Ok(Some(response)) => Ok(response),
            Ok(None) => panic!("the stream has ended without a word"),
            Err(status) => Err(status),
        }
    }
}

/// A sample stream.
pub struct Samples {
    pub requests: mpsc::UnboundedSender<SampleRequest>,
    pub responses: Streaming<SampleResponse>,
}

impl Samples {
    pub async fn open(service: &mut ReplayClient<Channel>) -> Self {
        let (requests, stream) = mpsc::unbounded_channel();
        let responses = service.sample(UnboundedReceiverStream::new(stream)).await.unwrap().into_inner();
        Self { requests, responses }
    }

    pub fn send(&self, request_id: u64, kind: Option<sample_request::Kind>) {
        self.requests.send(SampleRequest { request_id, kind }).unwrap();
    }

    pub fn draw(&self, request_id: u64, draw: Draw) {
        self.send(request_id, Some(sample_request::Kind::Draw(draw)));
    }

    pub fn race(&self, request_id: u64, race: Race) {
        self.send(request_id, Some(sample_request::Kind::Race(race)));
    }

    pub fn choose(&self, request_id: u64, winners: &[u32]) {
        let winners: Vec<u8> = winners.iter().flat_map(|position| position.to_le_bytes()).collect();
        self.send(request_id, Some(sample_request::Kind::Choice(Choice { winners: winners.into() })));
    }

    /// Returns the next answer, which must be the report of a race or a failure.
    pub async fn report(&mut self) -> (u64, Result<RaceReport, Failure>) {
        let response = self.responses.message().await.unwrap().expect("the stream has ended without a word");
        match response.kind {
            Some(Kind::RaceReport(report)) => (response.request_id, Ok(report)),
            Some(Kind::Failure(failure)) => (response.request_id, Err(failure)),
            kind => panic!("expected a report, got {kind:?}"),
        }
    }

    /// Returns the next failure, or the next batch with its bytes.
    pub async fn answer(&mut self) -> (u64, Result<(Batch, Vec<u8>), Failure>) {
        let mut batch = None;
        let mut bytes = Vec::new();
        loop {
            let response = self.responses.message().await.unwrap().expect("the stream has ended without a word");
            if let Payload::Bytes(payload) = &response.payload {
                bytes.extend_from_slice(payload);
            }
            match response.kind {
                Some(Kind::Failure(failure)) => return (response.request_id, Err(failure)),
                Some(Kind::Batch(header)) => batch = Some(header),
                Some(kind @ (Kind::RaceReport(_) | Kind::Stocked(_))) => panic!("expected a batch, got {kind:?}"),
                Some(Kind::Notice(_) | Kind::Settle(_)) | None => {}
            }
            if let Some(header) = batch.take_if(|header| size(header) == bytes.len()) {
                return (response.request_id, Ok((header, bytes)));
            }
        }
    }
}

/// Returns the size in bytes of a batch of int64 columns.
fn size(batch: &Batch) -> usize {
    let columns = batch.columns.iter().map(|column| column.shape.iter().product::<u64>() as usize * 8);
    columns.fold(0, |end: usize, size| end.next_multiple_of(64) + size)
}

pub fn draw(table: &str, count: u64) -> Draw {
    Draw { table: table.into(), at_least: count, at_most: count, squeeze_time: true, ..Draw::default() }
}

/// A race for at most so many arrivals, of which there are as many if the items do not run out.
pub fn race(table: &str, limit: u64, hold_ms: u64) -> Race {
    Race { table: table.into(), interval: 1e9, limit, hold_ms, squeeze_time: true, ..Race::default() }
}

/// Returns rows of an int64 column, numbered from 0.
pub fn chunk(key: u64, rows: u32) -> Chunk {
    let data: Vec<u8> = (0..i64::from(rows)).flat_map(i64::to_le_bytes).collect();
    let columns = vec![ColumnSpec { dtype: 9, ..ColumnSpec::default() }];
    Chunk { key, rows, columns, data: data.into(), episode_per_row: true, ..Chunk::default() }
}

/// Returns an insert of one item for each row of a chunk.
pub fn insert(request_id: u64, table: &str, rows: u32) -> InsertRequest {
    let first = request_id * 1_000_000;
    let batch = ItemBatch {
        table: table.into(),
        keys: (first..first + u64::from(rows)).collect(),
        priorities: vec![1.0],
        chunk_key: request_id,
        rows_per_item: 1,
        ..ItemBatch::default()
    };
    InsertRequest {
        request_id,
        chunks: vec![chunk(request_id, rows)],
        batches: vec![batch],
        ..InsertRequest::default()
    }
}

/// Returns rows of a column of numbers, all zeros.
pub fn numbers(rows: u32, dtype: u32, shape: &[u64], data: usize) -> Chunk {
    let columns = vec![ColumnSpec { dtype, shape: shape.to_vec(), ..ColumnSpec::default() }];
    Chunk { key: 1, rows, columns, data: vec![0; data].into(), ..Chunk::default() }
}

/// Returns compressed rows of 1000 bytes that are all 1.
pub fn compressed(rows: u32, codec: Codec) -> Chunk {
    let layout = Layout::new(rows as usize, [(DType::UInt8, smallvec![1000], 0)]).unwrap();
    let bytes = vec![1; layout.size_bytes];
    let data = super::chunk_of(layout, bytes).compress(codec, &[]).data().clone();
    Chunk { data, codec: codec as i32, ..numbers(rows, 4, &[1000], 0) }
}
