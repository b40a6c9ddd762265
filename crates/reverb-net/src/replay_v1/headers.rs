//! The headers by which a balancer keeps the streams of a client together, and a server recognises its own.

use tonic::codegen::http::{HeaderName, HeaderValue};

/// A random number of the client, the same on all its connections. Balancers can stick to it.
pub const SESSION: HeaderName = HeaderName::from_static("reverb-session");
/// The id of the server that answered `Hello`, in hexadecimal.
pub const SERVER: HeaderName = HeaderName::from_static("reverb-server");
/// The random number of a sample stream, in hexadecimal. The client answers for the receipts of such a stream: it sends
/// those that are due when the server asks for them.
pub const SAMPLE_STREAM: HeaderName = HeaderName::from_static("reverb-sample-stream");
/// How many receipts the client has sent before a call on each sample stream: `number:count`, separated by commas. The
/// call takes effect after them.
pub const RECEIPTS: HeaderName = HeaderName::from_static("reverb-receipts");

/// How many bytes of shared memory a sample stream may use, in hexadecimal: the data of its batches then lies in segments.
pub const SHARED_BYTES: HeaderName = HeaderName::from_static("reverb-shared-bytes");

/// Digits of an id that error texts show.
const SHOWN_DIGITS: usize = 8;

/// Converts bytes to the value of a header: hexadecimal digits.
pub fn hex(bytes: &[u8]) -> HeaderValue {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    HeaderValue::from_str(&digits).unwrap_or(HeaderValue::from_static(""))
}

/// Returns the number of a client or a stream that a header has, if it has one.
pub fn number_of(value: Option<&[u8]>) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(value?).ok()?, 16).ok()
}

/// Converts counts of receipts by the number of their stream to the value of a header.
pub fn receipts_value(counts: impl Iterator<Item = (u64, u64)>) -> HeaderValue {
    let counts: Vec<_> = counts.map(|(number, count)| format!("{number:x}:{count}")).collect();
    HeaderValue::from_str(&counts.join(",")).unwrap_or(HeaderValue::from_static(""))
}

/// Returns the counts of receipts by the number of their stream that a header has, without those that make no sense.
pub fn receipts_of(value: &HeaderValue) -> Vec<(u64, u64)> {
    let counts = value.to_str().unwrap_or_default().split(',').filter_map(|part| part.split_once(':'));
    counts.filter_map(|(number, count)| Some((number_of(Some(number.as_bytes()))?, count.parse().ok()?))).collect()
}

/// Returns the part of an id that error texts show.
pub fn shown(id: &str) -> String {
    id.chars().take(SHOWN_DIGITS).collect()
}
