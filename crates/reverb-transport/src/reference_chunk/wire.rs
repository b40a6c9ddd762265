//! Protobuf's wire format, read without an allocation.
//!
//! An empty message is two bytes on the wire and hundreds in memory, so what files and peers send is walked as it lies
//! instead of being decoded whole.

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
    /// The number of a varint field.
    #[inline]
    pub fn varint(self) -> Result<u64> {
        if let Self::Varint(number) = self { Ok(number) } else { Err(malformed("a number was expected")) }
    }

    /// The bytes of a length-delimited field.
    #[inline]
    pub fn bytes(self) -> Result<&'a [u8]> {
        if let Self::Bytes(bytes) = self { Ok(bytes) } else { Err(malformed("bytes were expected")) }
    }

    /// The number of a double field.
    pub fn double(self) -> Result<f64> {
        if let Self::Fixed64(bits) = self { Ok(f64::from_bits(bits)) } else { Err(malformed("a double was expected")) }
    }

    /// The number of an `int32` field, which travels as its 64-bit extension.
    pub fn int32(self) -> Result<i32> {
        Ok(self.varint()? as i32)
    }
}

/// The fields of a message, in the order in which they lie. Ends after the first error.
#[derive(Debug, Clone)]
pub struct Fields<'a>(&'a [u8]);

/// The fields of `message`.
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
        let number =
            u32::try_from(key >> 3).ok().filter(|&number| number > 0).ok_or_else(|| malformed("a tag is too large"))?;
        let value = match key & 7 {
            0 => Value::Varint(varint(&mut self.0)?),
            1 => Value::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = varint(&mut self.0)?;
                let length = usize::try_from(length).map_err(|_| malformed("a length is too large"))?;
                Value::Bytes(self.take(length)?)
            }
            5 => Value::Fixed32(u32::from_le_bytes(self.array()?)),
            kind => return Err(malformed(&format!("wire type {kind}"))),
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
        self.take(N).map(|bytes| bytes.try_into().expect("as many as were taken"))
    }
}

/// Takes a varint off the front.
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
            return if shift == 9 && byte > 1 { Err(malformed("a number passes 64 bits")) } else { Ok(number) };
        }
    }
    Err(malformed("a number passes 64 bits"))
}

fn malformed(what: &str) -> Error {
    Error::DataLoss(format!("a message cannot be read: {what}"))
}

/// Appends a varint.
pub fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends a varint field; 0, the default, is not written.
pub fn put_number(out: &mut Vec<u8>, field: u32, number: u64) {
    if number != 0 {
        put_varint(out, u64::from(field) << 3);
        put_varint(out, number);
    }
}

/// Appends an `int32` field; 0 is not written.
pub fn put_int32(out: &mut Vec<u8>, field: u32, number: i32) {
    put_number(out, field, i64::from(number) as u64);
}

/// Appends a double field; 0 is not written, -0 is.
pub fn put_double(out: &mut Vec<u8>, field: u32, number: f64) {
    if number.to_bits() != 0 {
        put_varint(out, u64::from(field) << 3 | 1);
        out.extend_from_slice(&number.to_bits().to_le_bytes());
    }
}

/// Appends a field of bytes, also if there are none.
pub fn put_bytes(out: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    put_length(out, field, bytes.len());
    out.extend_from_slice(bytes);
}

/// Appends what stands before `length` bytes of a field.
pub fn put_length(out: &mut Vec<u8>, field: u32, length: usize) {
    put_varint(out, u64::from(field) << 3 | 2);
    put_varint(out, length as u64);
}
