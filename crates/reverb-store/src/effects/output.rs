//! Writes the fields of records.

use reverb_core::WriterId;
pub use reverb_formats::wire::put_varint;

/// Appends eight bytes: a key, an id, a time, or the bits of a float.
#[inline]
pub fn put_u64(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

/// Appends a float, bit by bit.
#[inline]
pub fn put_f64(out: &mut Vec<u8>, number: f64) {
    put_u64(out, number.to_bits());
}

/// Appends a number that may be negative.
#[inline]
pub fn put_signed(out: &mut Vec<u8>, number: i64) {
    put_varint(out, (number << 1 ^ number >> 63) as u64);
}

/// Appends a text.
pub fn put_text(out: &mut Vec<u8>, text: &str) {
    put_varint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// Appends a writer.
pub fn put_writer(out: &mut Vec<u8>, WriterId { owner, id }: &WriterId) {
    match owner {
        None => out.push(0),
        Some(owner) => {
            put_varint(out, owner.len() as u64 + 1);
            out.extend_from_slice(owner.as_bytes());
        }
    }
    put_u64(out, *id);
}
