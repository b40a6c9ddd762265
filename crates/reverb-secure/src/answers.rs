//! What clients without TLS are told at a port with TLS, in the protocol that they speak.

use std::io::{Error, ErrorKind, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, sink};
use tokio::net::TcpStream;

const TO_GRPC: &str = "this port speaks TLS: use grpcs://";
const TO_HTTP: &str = "This port speaks TLS. Use https://.\n";
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Maximum size of what is read before the first call.
const MAX_READ: u64 = 64 << 10;
// Types of frames, and flags of headers.
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const IS_ALL: u8 = 0b101;

/// Answers the first call of a client of gRPC with `PERMISSION_DENIED`. Only the end of a call is final to such clients:
/// after that of a connection they call again at once.
pub async fn to_grpc(stream: &mut TcpStream) -> Result<()> {
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
    let mut stream = stream.take(MAX_READ);
    let mut preface = [0; PREFACE.len()];
    stream.read_exact(&mut preface).await?;
    if preface != *PREFACE {
        return Err(Error::new(ErrorKind::InvalidData, "the client does not speak HTTP/2"));
    }
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await?;
        let [a, b, c, kind, _, id @ ..] = head;
        copy(&mut (&mut stream).take(u32::from_be_bytes([0, a, b, c]).into()), &mut sink()).await?;
        if kind == HEADERS {
            let last = frame(GOAWAY, 0, 0, &[id, [0; 4]].concat());
            let answer = [frame(HEADERS, IS_ALL, u32::from_be_bytes(id), &refusal()), last].concat();
            return stream.get_mut().write_all(&answer).await;
        }
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The headers of an answer without a body, in HPACK: names and values as they are, but for what its table has.
fn refusal() -> Vec<u8> {
    const STATUS_200: u8 = 0x88;
    let mut headers = vec![STATUS_200];
    for (name, value) in [("content-type", "application/grpc"), ("grpc-status", "7"), ("grpc-message", TO_GRPC)] {
        headers.push(0);
        for text in [name, value] {
            headers.push(text.len() as u8);
            headers.extend(text.as_bytes());
        }
    }
    headers
}

/// Answers a request of HTTP/1.1.
pub async fn to_http(stream: &mut TcpStream) -> Result<()> {
    let length = TO_HTTP.len();
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\nConnection: \
         close\r\n\r\n{TO_HTTP}"
    );
    stream.write_all(answer.as_bytes()).await
}
