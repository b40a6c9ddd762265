//! Reads and writes Protobuf's wire format without allocating messages.
//!
//! An empty message takes two bytes on the wire and hundreds in memory. Therefore input from files and peers is read
//! field by field instead of being decoded as a whole.

use reverb_core::{Error, Result};

/// The value of a field.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// Integers, bools and enums.
    Varint(u64),
    /// Doubles and fixed 64-bit integers.
    Fixed64(u64),
    /// Strings, bytes, messages and packed numbers.
    Bytes(&'a [u8]),
    /// Floats and fixed 32-bit integers.
    Fixed32(u32),
}

impl<'a> Value<'a> {
    /// Returns the number of a varint field.
    ///
    /// # Errors
    /// [`Error::DataLoss`] if the field has another wire type.
    #[inline]
    pub fn varint(self) -> Result<u64> {
        if let Self::Varint(number) = self { Ok(number) } else { Err(malformed("expected a varint field")) }
    }

    /// Returns the bytes of a length-delimited field.
    ///
    /// # Errors
    /// [`Error::DataLoss`] if the field has another wire type.
    #[inline]
    pub fn bytes(self) -> Result<&'a [u8]> {
        if let Self::Bytes(bytes) = self { Ok(bytes) } else { Err(malformed("expected a length-delimited field")) }
    }

    /// Returns the number of a double field.
    ///
    /// # Errors
    /// [`Error::DataLoss`] if the field has another wire type.
    pub fn double(self) -> Result<f64> {
        if let Self::Fixed64(bits) = self {
            Ok(f64::from_bits(bits))
        } else {
            Err(malformed("expected a double field"))
        }
    }

    /// Returns the number of an `int32` field, which is sent sign-extended to 64 bits.
    ///
    /// # Errors
    /// [`Error::DataLoss`] if the field has another wire type.
    pub fn int32(self) -> Result<i32> {
        Ok(self.varint()? as i32)
    }
}

/// Iterates over the fields of a message in their order in the bytes. Ends after the first error.
#[derive(Debug, Clone)]
pub struct Fields<'a>(&'a [u8]);

/// Returns an iterator over the numbers and values of the fields of `message`.
pub fn fields(message: &[u8]) -> Fields<'_> {
    Fields(message)
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Value<'a>)>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.read();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

impl<'a> Fields<'a> {
    #[inline]
    fn read(&mut self) -> Result<(u32, Value<'a>)> {
        let key = varint(&mut self.0)?;
        let number = u32::try_from(key >> 3)
            .ok()
            .filter(|&number| number > 0)
            .ok_or_else(|| malformed("a tag has an invalid field number"))?;
        let value = match key & 7 {
            0 => Value::Varint(varint(&mut self.0)?),
            1 => Value::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = varint(&mut self.0)?;
                let length = usize::try_from(length).map_err(|_| malformed("a length is too large"))?;
                Value::Bytes(self.take(length)?)
            }
            5 => Value::Fixed32(u32::from_le_bytes(self.array()?)),
            kind => return Err(malformed(&format!("wire type {kind} is not supported"))),
        };
        Ok((number, value))
    }

    #[inline]
    fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or_else(|| malformed("it ends within a field"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.take(N).map(|bytes| bytes.try_into().expect("`take` returns N bytes"))
    }
}

/// Removes a varint from the front of `bytes` and returns it.
///
/// # Errors
/// [`Error::DataLoss`] if the bytes end within the number or it needs more than 64 bits.
#[inline]
pub fn varint(bytes: &mut &[u8]) -> Result<u64> {
    // Tags, lengths and most numbers are one byte.
    match bytes.split_first() {
        Some((&byte, rest)) if byte < 0x80 => {
            *bytes = rest;
            Ok(u64::from(byte))
        }
        _ => long_varint(bytes),
    }
}

fn long_varint(bytes: &mut &[u8]) -> Result<u64> {
    let mut number = 0_u64;
    for shift in 0..10 {
        let (&byte, rest) = bytes.split_first().ok_or_else(|| malformed("it ends within a number"))?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << (shift * 7);
        if byte < 0x80 {
            return if shift == 9 && byte > 1 { Err(malformed("a number has more than 64 bits")) } else { Ok(number) };
        }
    }
    Err(malformed("a number has more than 64 bits"))
}

fn malformed(what: &str) -> Error {
    Error::DataLoss(format!("invalid message: {what}"))
}

/// Appends a varint.
pub fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends a varint field. The default, 0, is not written.
pub fn put_number(out: &mut Vec<u8>, field: u32, number: u64) {
    if number != 0 {
        put_varint(out, u64::from(field) << 3);
        put_varint(out, number);
    }
}

/// Appends an `int32` field. The default, 0, is not written.
pub fn put_int32(out: &mut Vec<u8>, field: u32, number: i32) {
    put_number(out, field, i64::from(number) as u64);
}

/// Appends a double field. The default, 0, is not written, but -0 is.
pub fn put_double(out: &mut Vec<u8>, field: u32, number: f64) {
    if number.to_bits() != 0 {
        put_varint(out, u64::from(field) << 3 | 1);
        out.extend_from_slice(&number.to_bits().to_le_bytes());
    }
}

/// Appends a field of bytes, even if it is empty.
pub fn put_bytes(out: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    put_length(out, field, bytes.len());
    out.extend_from_slice(bytes);
}

/// Appends the tag and the length of a field of `length` bytes, which the caller appends next.
pub fn put_length(out: &mut Vec<u8>, field: u32, length: usize) {
    put_varint(out, u64::from(field) << 3 | 2);
    put_varint(out, length as u64);
}

/// Returns the size of a varint in bytes.
pub fn varint_bytes(number: u64) -> usize {
    (70 - (number | 1).leading_zeros() as usize) / 7
}

/// Returns the size in bytes of a field of `length` bytes, with its tag, if the number of the field is below 16.
pub fn field_bytes(length: usize) -> usize {
    1 + varint_bytes(length as u64) + length
}
