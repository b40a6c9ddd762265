//! Reads the answers of a sample stream from a connection, with one copy less than tonic needs.
//!
//! tonic collects each message in a separate buffer before it decodes it. Nearly all bytes of an answer are data of a
//! batch and belong into its buffer. This module passes them on as they arrive, so that they are copied only once.

use super::named_channel::NamedChannel;
use crate::grpc::codec::CheckedEncoder;
use crate::replay_v1::proto::SampleRequest;
use crate::replay_v1::sample_response::{Payload, SampleResponse, find_payload};
use crate::replay_v1::status::without_status;
use bytes::{Buf, Bytes, BytesMut};
use prost::Message;
use std::pin::Pin;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Status;
use tonic::codec::EncodeBody;
use tonic::codegen::{Body as _, http};
use tower::{Service, ServiceExt};

const PATH: &str = "/reverb.replay.v1.Replay/Sample";
/// Size of the prefix of each message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;

/// The answers of one sample stream. See the documentation of this module.
#[derive(Debug)]
pub struct Answers {
    body: tonic::body::Body,
    parser: Parser,
    /// Whether the status of the stream has arrived, which is its end.
    is_over: bool,
}

impl Answers {
    /// Opens the stream.
    pub async fn open(mut channel: NamedChannel, requests: UnboundedReceiver<SampleRequest>) -> Result<Self, Status> {
        let requests = UnboundedReceiverStream::new(requests).map(Ok);
        let body = EncodeBody::new_client(CheckedEncoder::<SampleRequest>::default(), requests, None, None);
        let request = http::Request::post(PATH)
            .version(http::Version::HTTP_2)
            .header(http::header::TE, "trailers")
            .header(http::header::CONTENT_TYPE, "application/grpc")
            .body(tonic::body::Body::new(body))
            .map_err(|error| Status::internal(error.to_string()))?;
        let channel = channel.ready().await.map_err(|error| Status::from_error(error.into()))?;
        let response = channel.call(request).await.map_err(|error| Status::from_error(error.into()))?;
        end(response.headers())?;
        Ok(Self { body: response.into_body(), parser: Parser::default(), is_over: false })
    }

    /// Returns the next answer, or the beginning of one. The rest of its payload follows as answers of the same request
    /// with nothing but payload. Returns `None` at the end of the stream.
    pub async fn next(&mut self) -> Result<Option<SampleResponse>, Status> {
        loop {
            if let Some(answer) = self.parser.next()? {
                return Ok(Some(answer));
            }
            let body = &mut self.body;
            let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await else {
                return if self.is_over { Ok(None) } else { Err(without_status()) };
            };
            match frame?.into_data() {
                Ok(data) => self.parser.push(data),
                Err(frame) => {
                    let trailers = frame.into_trailers().unwrap_or_default();
                    end(&trailers)?;
                    self.is_over |= trailers.contains_key("grpc-status");
                }
            }
        }
    }
}

/// Returns the error in the headers of a response, if there is one.
fn end(headers: &http::HeaderMap) -> Result<(), Status> {
    match Status::from_header_map(headers) {
        Some(status) if status.code() != tonic::Code::Ok => Err(status),
        _ => Ok(()),
    }
}

/// Splits received bytes into answers.
#[derive(Debug, Default)]
struct Parser {
    /// Bytes that have arrived and were not parsed yet.
    unread: Bytes,
    /// The beginning of a message. More of it must arrive before the position of its payload is known.
    head: BytesMut,
    /// The request whose payload is incomplete, and the number of missing bytes.
    payload: (u64, usize),
}

impl Parser {
    /// Adds received bytes. May be called only after [`Parser::next`] returned `None`.
    fn push(&mut self, bytes: Bytes) {
        debug_assert!(self.unread.is_empty());
        self.unread = bytes;
    }

    fn next(&mut self) -> Result<Option<SampleResponse>, Status> {
        let (request_id, left) = self.payload;
        if left > 0 && !self.unread.is_empty() {
            let bytes = self.take_payload(left);
            self.payload = (request_id, left - bytes.len());
            return Ok(Some(SampleResponse { request_id, kind: None, payload: Payload::Bytes(bytes) }));
        }
        if self.unread.is_empty() {
            return Ok(None);
        }
        let looked_at = self.head.len();
        let head = if looked_at == 0 {
            &*self.unread
        } else {
            // Only a head that arrives in pieces is copied, with the bytes after it. That is rare.
            self.head.extend_from_slice(&self.unread);
            &*self.head
        };
        let Some((answer, head_len, payload)) = parse(head)? else {
            if looked_at == 0 {
                self.head.extend_from_slice(&self.unread);
            }
            self.unread.clear();
            return Ok(None);
        };
        self.unread.advance(head_len - looked_at);
        self.head.clear();
        let bytes = self.take_payload(payload);
        self.payload = (answer.request_id, payload - bytes.len());
        Ok(Some(SampleResponse { payload: Payload::Bytes(bytes), ..answer }))
    }

    /// Takes up to `most` bytes of a payload, as far as they have arrived.
    fn take_payload(&mut self, most: usize) -> Bytes {
        self.unread.split_to(self.unread.len().min(most))
    }
}

/// Parses an answer. Returns it without its payload, with the number of bytes before the payload and the length of the
/// payload. Returns `None` if more bytes are needed.
fn parse(bytes: &[u8]) -> Result<Option<(SampleResponse, usize, usize)>, Status> {
    let Some((prefix, message)) = bytes.split_first_chunk::<PREFIX_BYTES>() else { return Ok(None) };
    let [compressed, length @ ..] = *prefix;
    if compressed != 0 {
        return Err(Status::internal("the server sent a compressed answer, which the client did not request"));
    }
    let damaged = |error: String| Status::internal(format!("cannot decode an answer: {error}"));
    let Some(place) = find_payload(message, u32::from_be_bytes(length) as usize).map_err(damaged)? else {
        return Ok(None);
    };
    let answer = SampleResponse::decode(&message[..place.head]).map_err(|error| damaged(error.to_string()))?;
    Ok(Some((answer, PREFIX_BYTES + place.start, place.len)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay_v1::proto::Batch;
    use crate::replay_v1::sample_response::Kind;
    use proptest::prelude::*;

    fn framed(answer: &SampleResponse) -> Vec<u8> {
        let message = answer.encode_to_vec();
        let mut bytes = vec![0];
        bytes.extend((message.len() as u32).to_be_bytes());
        bytes.extend(message);
        bytes
    }

    fn payload_of(answer: &SampleResponse) -> Vec<u8> {
        match &answer.payload {
            Payload::Bytes(bytes) => bytes.to_vec(),
            Payload::Gather(..) => unreachable!("it was decoded"),
        }
    }

    fn answers() -> Vec<SampleResponse> {
        let header = Batch { keys: vec![1; 320].into(), waited_us: 1 << 40, ..Batch::default() };
        let payload = |len: usize| Payload::Bytes((0..len).map(|byte| byte as u8).collect());
        vec![
            SampleResponse { request_id: 7, kind: Some(Kind::Batch(header.clone())), payload: payload(300) },
            SampleResponse { request_id: 300, kind: Some(Kind::Notice("waits".into())), payload: Payload::default() },
            SampleResponse { request_id: 7, kind: None, payload: payload(200) },
            SampleResponse { request_id: 8, kind: Some(Kind::Batch(header)), payload: Payload::default() },
        ]
    }

    /// The answers that a parser finds in bytes that arrive in pieces, with the pieces of payloads joined.
    fn parsed(bytes: &[u8], piece: usize) -> Vec<(u64, String, Vec<u8>)> {
        let mut parser = Parser::default();
        let mut found: Vec<(u64, String, Vec<u8>)> = Vec::new();
        let mut left = 0;
        for piece in bytes.chunks(piece) {
            parser.push(Bytes::copy_from_slice(piece));
            while let Some(answer) = parser.next().unwrap() {
                let payload = payload_of(&answer);
                if left > 0 {
                    let last = found.last_mut().unwrap();
                    assert_eq!((answer.request_id, answer.kind.is_none()), (last.0, true));
                    last.2.extend(payload);
                } else {
                    found.push((answer.request_id, format!("{:?}", answer.kind), payload));
                }
                left = parser.payload.1;
            }
        }
        found
    }

    #[test]
    fn answers_are_the_same_however_their_bytes_are_cut() {
        let answers = answers();
        let bytes: Vec<u8> = answers.iter().flat_map(framed).collect();
        let expected: Vec<_> = answers
            .iter()
            .map(|answer| (answer.request_id, format!("{:?}", answer.kind), payload_of(answer)))
            .collect();
        for piece in (1..100).chain([bytes.len()]) {
            assert_eq!(parsed(&bytes, piece), expected, "pieces of {piece} bytes");
        }
    }

    #[test]
    fn a_payload_is_not_copied() {
        let bytes = Bytes::from(framed(&answers()[0]));
        let mut parser = Parser::default();
        parser.push(bytes.clone());
        let Payload::Bytes(payload) = parser.next().unwrap().unwrap().payload else { unreachable!("it was decoded") };
        assert_eq!(payload.as_ptr(), bytes[bytes.len() - 300..].as_ptr());
    }

    #[test]
    fn a_payload_that_is_not_the_last_field_is_an_error() {
        let mut parser = Parser::default();
        parser.push(Bytes::from(vec![0, 0, 0, 0, 5, 0x2a, 1, 9, 0x08, 7]));
        assert!(parser.next().unwrap_err().message().ends_with("its payload is not its last field"));
    }

    #[test]
    fn bytes_that_are_not_an_answer_are_an_error() {
        let mut compressed = framed(&answers()[0]);
        compressed[0] = 1;
        let mut too_short = framed(&answers()[0]);
        too_short[4] -= 1;
        for bytes in [compressed, too_short, vec![0, 0, 0, 0, 2, 0x0f, 0x01]] {
            let mut parser = Parser::default();
            parser.push(Bytes::from(bytes));
            parser.next().unwrap_err();
        }
    }
    proptest! {
        #[test]
        fn damaged_answers_in_any_pieces_are_read_or_refused(
            damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..6),
            pieces in proptest::collection::vec(1..400_usize, 1..8),
        ) {
            let mut bytes: Vec<u8> = answers().iter().flat_map(framed).collect();
            for (place, value) in damage {
                let place = place.index(bytes.len());
                bytes[place] = value;
            }
            let mut parser = Parser::default();
            let (mut rest, mut payloads) = (&*bytes, 0);
            for piece in pieces.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (piece, later) = rest.split_at(rest.len().min(*piece));
                rest = later;
                parser.push(Bytes::copy_from_slice(piece));
                loop {
                    match parser.next() {
                        Ok(Some(answer)) => payloads += payload_of(&answer).len(),
                        Ok(None) => break,
                        Err(_) => return Ok(()),
                    }
                }
            }
            prop_assert!(payloads <= bytes.len());
        }
    }
}
