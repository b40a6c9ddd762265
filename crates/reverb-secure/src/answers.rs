//! What clients without TLS are told at a port with TLS, in the protocol that they speak.

/// Debug data of a `GOAWAY`, which clients of gRPC show.
const TO_GRPC: &str = "this port speaks TLS: use grpcs://";
const TO_HTTP: &str = "This port speaks TLS. Use https://.\n";
/// Code of HTTP/2 that clients of gRPC show as `PERMISSION_DENIED`.
const INADEQUATE_SECURITY: u32 = 0xc;

/// Returns the first frames of a server of HTTP/2, empty settings and then `GOAWAY`.
pub fn to_grpc() -> Vec<u8> {
    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    const GOAWAY: u8 = 7;
    let length = 8 + TO_GRPC.len() as u32;
    let mut frames = SETTINGS.to_vec();
    frames.extend(&length.to_be_bytes()[1..]);
    frames.extend([GOAWAY, 0, 0, 0, 0, 0]);
    frames.extend([0; 4]);
    frames.extend(INADEQUATE_SECURITY.to_be_bytes());
    frames.extend(TO_GRPC.as_bytes());
    frames
}

/// Returns an answer of HTTP/1.1.
pub fn to_http() -> Vec<u8> {
    let length = TO_HTTP.len();
    format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\nConnection: \
         close\r\n\r\n{TO_HTTP}"
    )
    .into_bytes()
}
