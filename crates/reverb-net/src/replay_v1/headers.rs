//! The headers by which a balancer keeps the streams of a client together, and a server recognises its own.

use tonic::codegen::http::{HeaderName, HeaderValue};

/// A random number of the client, the same on all its connections. Balancers can stick to it.
pub const SESSION: HeaderName = HeaderName::from_static("reverb-session");
/// The id of the server that answered `Hello`, in hexadecimal.
pub const SERVER: HeaderName = HeaderName::from_static("reverb-server");

/// Digits of an id that error texts show.
const SHOWN_DIGITS: usize = 8;

/// Converts bytes to the value of a header: hexadecimal digits.
pub fn hex(bytes: &[u8]) -> HeaderValue {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    HeaderValue::from_str(&digits).unwrap_or(HeaderValue::from_static(""))
}

/// Returns the number of the client that a header has, if it has one.
pub fn client_number(value: Option<&[u8]>) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(value?).ok()?, 16).ok()
}

/// Returns the part of an id that error texts show.
pub fn shown(id: &str) -> String {
    id.chars().take(SHOWN_DIGITS).collect()
}
